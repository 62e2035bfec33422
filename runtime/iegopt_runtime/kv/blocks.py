"""Blocks of KV and what they are called: a chain hash over the model and every token before and in them.

As in vLLM's automatic prefix caching (Kwon et al. 2023, section 4), equal prefixes have equal keys, whichever request
they belong to. The ends of the forward passes inside a block are hashed too, so that a key stands for KV equal to the
bit (``history``). KV that was compressed on its way is of a lower ``grade`` and has keys of its own, so that it never
stands in for what was computed.
"""

from __future__ import annotations

import hashlib
import re
from array import array
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from iegopt_runtime.kv.history import BLOCK_TOKENS
from iegopt_runtime.kv.layout import KvLayout

__all__ = ["EXACT", "Block", "Chain", "KvManifest", "graded"]

EXACT = "exact"
KEY_BYTES = 16
_KEY = re.compile(f"[0-9a-f]{{{2 * KEY_BYTES}}}")


@dataclass(frozen=True)
class Block:
    """Tokens ``begin:end`` of a sequence; only the last block of a sequence may be shorter than the rest."""

    key: str
    begin: int
    end: int

    @property
    def tokens(self) -> int:
        return self.end - self.begin


class Chain:
    """The blocks of a growing sequence.

    Parameters
    ----------
    identity
        Of the weights: model, precision, version (``Artifact.identity``).
    """

    def __init__(
        self, identity: str, layout: KvLayout, block_tokens: int = BLOCK_TOKENS, *, grade: str = EXACT
    ) -> None:  # fmt: skip
        self.block_tokens = block_tokens
        self.grade = grade
        self.full: list[Block] = []
        self._last = _digest(repr((identity, layout, block_tokens)).encode())
        self._tokens = array("I")
        self._ends = array("I")

    @property
    def length(self) -> int:
        return (len(self.full) * self.block_tokens) + len(self._tokens)

    def extend(self, tokens: Sequence[int]) -> Block | None:
        """One forward pass over ``tokens``, which stays inside a block; the block that it completes, if it does."""
        if not 0 < len(tokens) <= self.block_tokens - len(self._tokens):
            raise ValueError(f"a pass of {len(tokens)} tokens at {self.length}: expected it to end within its block")
        self._tokens.extend(tokens)
        self._ends.append(len(self._tokens))
        if len(self._tokens) < self.block_tokens:
            return None
        block = self._block()
        self._last = self._key()
        self.full.append(block)
        self._tokens, self._ends = array("I"), array("I")
        return block

    def follow(self, tokens: Sequence[int], ends: Iterable[int]) -> None:
        """All passes that end at ``ends`` (absolute positions), over the tokens of the whole sequence."""
        for end in ends:
            self.extend(tokens[self.length : end])

    def continue_inside(self, tokens: Sequence[int], ends: Iterable[int]) -> tuple[Block, ...]:
        """The shorter blocks that a sequence had after each of the passes that follow, up to the one that completes the
        present block: what is held of a sequence whose KV ended there."""
        inside: list[Block] = []
        for end in ends:
            if self.extend(tokens[self.length : end]) is not None:
                break
            inside.append(self._block())
        return tuple(inside)

    def blocks(self) -> tuple[Block, ...]:
        """All blocks, with the last, shorter one where there is one."""
        return (*self.full, self._block()) if self._tokens else tuple(self.full)

    def _key(self) -> bytes:
        shape = self._ends.tobytes()
        return _digest(self._last + len(shape).to_bytes(4, "little") + shape + self._tokens.tobytes())

    def _block(self) -> Block:
        begin = len(self.full) * self.block_tokens
        return graded(Block(self._key().hex(), begin, begin + len(self._tokens)), self.grade)


def graded(block: Block, grade: str) -> Block:
    """The same tokens with KV of ``grade``: ``exact``, or the compression that it went through."""
    if grade == EXACT:
        return block
    return Block(_digest(bytes.fromhex(block.key) + grade.encode()).hex(), block.begin, block.end)


@dataclass(frozen=True)
class KvManifest:
    """What a sequence's KV consists of: enough to find, check and load it anywhere."""

    kv_id: str
    identity: str
    layout: KvLayout
    blocks: tuple[Block, ...]
    grade: str = EXACT

    @property
    def tokens(self) -> int:
        """How many it covers."""
        return self.blocks[-1].end if self.blocks else 0

    @property
    def bytes(self) -> int:
        return self.tokens * self.layout.bytes_per_token

    def indices(self, blocks: Iterable[Block]) -> list[int]:
        """Where ``blocks`` stand in it."""
        keys = {block.key for block in blocks}
        return [index for index, block in enumerate(self.blocks) if block.key in keys]

    def as_grade(self, grade: str) -> KvManifest:
        """After a transfer with this compression; what was compressed before keeps its grade."""
        if grade == EXACT or self.grade != EXACT:
            return self
        return replace(self, blocks=tuple(graded(block, grade) for block in self.blocks), grade=grade)

    def document(self) -> dict[str, Any]:
        return {
            "kv_id": self.kv_id,
            "identity": self.identity,
            "layout": self.layout.document(),
            "grade": self.grade,
            "blocks": [[block.key, block.begin, block.end] for block in self.blocks],
        }

    @classmethod
    def read(cls, document: Mapping[str, Any]) -> KvManifest:
        """The inverse of ``document``.

        Raises
        ------
        ValueError
            It is none; a key is no key, or of two blocks; blocks do not follow one another.
        """
        try:
            layout = KvLayout.read(document["layout"])
            blocks = tuple(Block(str(key), int(begin), int(end)) for key, begin, end in document["blocks"])
            kv_id, identity, grade = (str(document[key]) for key in ("kv_id", "identity", "grade"))
        except (KeyError, TypeError) as error:
            raise ValueError(f"no manifest of KV: {error!r}") from None
        at = 0
        for block in blocks:
            if not _KEY.fullmatch(block.key) or block.begin != at or block.end <= at:
                raise ValueError(f"{block}: expected a key of {KEY_BYTES} bytes and a block that begins at {at}")
            at = block.end
        if len({block.key for block in blocks}) < len(blocks):
            raise ValueError(f"KV {kv_id}: a key stands for two blocks, expected one of its own for each")
        return cls(kv_id, identity, layout, blocks, grade)


def _digest(data: bytes) -> bytes:
    return hashlib.blake2b(data, digest_size=KEY_BYTES).digest()
