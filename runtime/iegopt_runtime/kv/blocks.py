"""Blocks of KV and what they are called: a chain hash over the model and every token before and in them.

As in vLLM's automatic prefix caching (Kwon et al. 2023, section 4), equal prefixes have equal keys, whichever request
they belong to. The ends of the forward passes inside a block are hashed too, so that a key stands for KV equal to the
bit (``history``); without them (``exact=False``) equal tokens are enough.
"""

from __future__ import annotations

import hashlib
from array import array
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from iegopt_runtime.kv.history import BLOCK_TOKENS
from iegopt_runtime.kv.layout import KvLayout

__all__ = ["Block", "Chain", "KvManifest"]

KEY_BYTES = 16


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
        self, identity: str, layout: KvLayout, block_tokens: int = BLOCK_TOKENS, *, exact: bool = True
    ) -> None:  # fmt: skip
        self.block_tokens = block_tokens
        self.exact = exact
        self.full: list[Block] = []
        self._root = _digest(repr((identity, layout, block_tokens, exact)).encode())
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
        self.full.append(block)
        self._tokens, self._ends = array("I"), array("I")
        return block

    def follow(self, tokens: Sequence[int], ends: Iterable[int]) -> None:
        """All passes that end at ``ends`` (absolute positions), over the tokens of the whole sequence."""
        for end in ends:
            self.extend(tokens[self.length : end])

    def blocks(self) -> tuple[Block, ...]:
        """All blocks, with the last, shorter one where there is one."""
        return (*self.full, self._block()) if self._tokens else tuple(self.full)

    def _block(self) -> Block:
        before = bytes.fromhex(self.full[-1].key) if self.full else self._root
        shape = self._ends.tobytes() if self.exact else b""
        begin = len(self.full) * self.block_tokens
        key = _digest(before + len(shape).to_bytes(4, "little") + shape + self._tokens.tobytes())
        return Block(key.hex(), begin, begin + len(self._tokens))


@dataclass(frozen=True)
class KvManifest:
    """What a sequence's KV consists of: enough to find, check and load it anywhere. ``tokens`` is their number."""

    kv_id: str
    identity: str
    layout: KvLayout
    blocks: tuple[Block, ...]

    @property
    def tokens(self) -> int:
        return self.blocks[-1].end if self.blocks else 0

    @property
    def bytes(self) -> int:
        return self.tokens * self.layout.bytes_per_token

    def document(self) -> dict[str, Any]:
        return {
            "kv_id": self.kv_id,
            "identity": self.identity,
            "layout": self.layout.document(),
            "blocks": [[block.key, block.begin, block.end] for block in self.blocks],
        }

    @classmethod
    def read(cls, document: Mapping[str, Any]) -> KvManifest:
        """The inverse of ``document``.

        Raises
        ------
        ValueError
            It is none; a key is no key; blocks do not follow one another.
        """
        try:
            layout = KvLayout.read(document["layout"])
            blocks = tuple(Block(str(key), int(begin), int(end)) for key, begin, end in document["blocks"])
            kv_id, identity = str(document["kv_id"]), str(document["identity"])
        except (KeyError, TypeError) as error:
            raise ValueError(f"no manifest of KV: {error!r}") from None
        at = 0
        for block in blocks:
            if len(bytes.fromhex(block.key)) != KEY_BYTES or block.begin != at or block.end <= at:
                raise ValueError(f"{block}: expected a key of {KEY_BYTES} bytes and a block that begins at {at}")
            at = block.end
        return cls(kv_id, identity, layout, blocks)


def _digest(data: bytes) -> bytes:
    return hashlib.blake2b(data, digest_size=KEY_BYTES).digest()
