"""Commands need the extra ``runtime``; without it they say so."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from functools import wraps

from iegopt.errors import InputError

__all__ = ["needs_runtime"]

Handler = Callable[[argparse.Namespace], int]

_OF_EXTRA = {"msgpack", "torch", "transformers", "safetensors", "usearch", "gguf", "accelerate"}


def needs_runtime(handler: Handler) -> Handler:
    """A handler that names the extra where a package of it is missing."""

    @wraps(handler)
    def run(arguments: argparse.Namespace) -> int:
        try:
            return handler(arguments)
        except ModuleNotFoundError as error:
            if error.name is None or error.name.partition(".")[0] not in _OF_EXTRA:
                raise
            raise InputError(f"{error.name} is not installed: pip install 'iegopt[runtime]'") from error

    return run
