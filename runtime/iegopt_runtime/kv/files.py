"""Blocks in files (tier L2): one safetensors file for each, under its key, written whole or not at all."""

from __future__ import annotations

import math
import os
import re
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import load, save_file

from iegopt_runtime.errors import KvLost

__all__ = ["BlockFiles"]

_NAME = re.compile(r"[0-9a-f]{32}")


class BlockFiles:
    """A folder of blocks. Other processes may read it; the one that writes is the one that deletes."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def path(self, key: str) -> Path:
        if not _NAME.fullmatch(key):
            raise ValueError(f"{key!r} is no key of a block")
        return self.folder / f"{key}.safetensors"

    def write(self, key: str, tensor: torch.Tensor) -> None:
        """``tensor`` lies in host memory, contiguous."""
        self.folder.mkdir(parents=True, exist_ok=True)
        path = self.path(key)
        draft = path.with_suffix(f".{os.getpid()}.draft")
        save_file({"kv": tensor}, draft)
        draft.rename(path)

    def read(self, key: str) -> torch.Tensor:
        """The block in host memory.

        Raises
        ------
        KvLost
            There is no such file, or it is damaged.
        """
        try:
            return load(self.path(key).read_bytes())["kv"]
        except (OSError, SafetensorError, KeyError) as error:
            raise KvLost(f"block {key}: {self.path(key).name} cannot be read ({error})") from None

    def find(self, key: str) -> torch.Tensor | None:
        """The block, or ``None`` where it cannot be had."""
        try:
            return self.read(key)
        except KvLost:
            return None

    def delete(self, key: str) -> None:
        self.path(key).unlink(missing_ok=True)

    def sizes(self) -> dict[str, int]:
        """Keys of the blocks there -> bytes of their tensors; drafts of processes that were killed are removed."""
        found: dict[str, int] = {}
        for path in sorted(self.folder.glob("*")) if self.folder.is_dir() else ():
            if path.suffix == ".draft":
                path.unlink(missing_ok=True)
            elif path.suffix == ".safetensors" and _NAME.fullmatch(path.stem):
                try:
                    with safe_open(path, "pt") as file:
                        found[path.stem] = _size(file.get_slice("kv"))
                except (OSError, SafetensorError, KeyError):
                    path.unlink(missing_ok=True)
        return found


def _size(tensor: Any) -> int:
    """Bytes of a tensor of which only the header was read."""
    bits = int("".join(filter(str.isdigit, tensor.get_dtype())))
    return int(math.prod(tensor.get_shape()) * bits // 8)
