"""Tokenizers without their models: what stages that only read and write text need. Loads no torch."""

from __future__ import annotations

from typing import Any

from transformers import AutoTokenizer

from iegopt_runtime.errors import ModelError
from iegopt_runtime.models.registry import Artifact

__all__ = ["TokenizerShelf"]


class TokenizerShelf:
    """Every tokenizer is read once."""

    def __init__(self) -> None:
        self._read: dict[str, Any] = {}

    def get(self, artifact: Artifact) -> Any:
        """The tokenizer of a model.

        Raises
        ------
        ModelError
            Its folder has none that transformers can read.
        """
        if artifact.identity not in self._read:
            folder = artifact.folder()
            try:
                self._read[artifact.identity] = AutoTokenizer.from_pretrained(folder, local_files_only=True)
            except (OSError, ValueError, KeyError) as error:
                raise ModelError(f"{artifact.model}: {folder}: no tokenizer can be read there ({error})") from None
        return self._read[artifact.identity]
