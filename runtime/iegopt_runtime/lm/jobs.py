"""What an engine is asked for, and what it answers."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Literal, Protocol

import torch

from iegopt_runtime.kv.blocks import Block, KvManifest
from iegopt_runtime.kv.history import Segment
from iegopt_runtime.kv.tiers import Tier
from iegopt_runtime.lm.sampling import Sampling
from iegopt_runtime.lm.tool_calls import ToolCall

__all__ = [
    "BlockSink", "Done", "Embed", "Event", "Failed", "Generate", "Generated", "Job", "OnEvent", "Preempted", "Rerank",
    "Started", "Stop", "Streamed", "Vectors", "Waiting",
]  # fmt: skip


class BlockSink(Protocol):
    """Takes the blocks of a sequence while it is computed. Called from the engine's thread, so it must not block."""

    def begin(self, planned: KvManifest, block_tokens: int) -> None:
        """Before the first block; ``planned`` has the blocks that the known tokens will fill."""

    def block(self, block: Block, tensor: torch.Tensor) -> None:
        """A block is complete. ``tensor`` is a view into the sequence's buffer, written to no more."""

    def finish(self, manifest: KvManifest, released: Callable[[], None]) -> None:
        """All blocks were given. ``released`` is to be called, from any thread, when no view is needed any more: until
        then the buffer's memory counts as taken."""

    def abort(self, reason: str) -> None:
        """There will be no more."""


@dataclass(frozen=True)
class Stop:
    """When output ends beside its length. ``calls``: at the first complete tool call, or never for that reason."""

    strings: tuple[str, ...] = ()
    eos: bool = True
    calls: Literal["first", "never"] = "first"


@dataclass(frozen=True)
class Generate:
    """Prefill, decode, or both.

    Parameters
    ----------
    tokens
        All that is known: prompt, results of tools, and output so far.
    segments
        How the KV of the first of them was computed elsewhere or before; whatever comes after is prefilled.
    generated
        How many of the last tokens are already output of this stage: a decode begins with the token that its prefill
        chose, one that goes on elsewhere with all it had written.
    max_tokens
        Length of the output, ``generated`` included. 0: compute the KV, choose no token.
    script
        Tokens that the output is forced to begin with, whatever the logits say.
    score
        Record at each position of the output what greedy choice would have been (teacher forcing).
    kv_id
        Under which the KV is held afterwards; ``None``: it is left to be reused or evicted.
    copy
        Tier that gets a copy of every block as soon as it is complete, for recovery.
    reservation
        Owner of memory that was reserved before for this sequence.
    recompute
        How KV of ``segments`` that is lost is computed again: in the passes that made it, or in chunks throughout
        (quicker, and tokens may then differ).
    goes_on
        At its length the output is not over: another job goes on, and shows the text that is not certain yet.
    grade
        Of the KV to go on from and to keep: ``exact``, or the compression it went through (``int8``).
    """

    job_id: str
    model: str
    tokens: tuple[int, ...]
    variant: str | None = None
    segments: tuple[Segment, ...] = ()
    generated: int = 0
    max_tokens: int = 1
    sampling: Sampling = field(default_factory=Sampling)
    stop: Stop = field(default_factory=Stop)
    script: tuple[int, ...] = ()
    score: bool = False
    kv_id: str | None = None
    copy: Tier | None = None
    reservation: str | None = None
    recompute: Literal["exact", "fast"] = "exact"
    grade: str = "exact"
    goes_on: bool = False
    sink: BlockSink | None = None


@dataclass(frozen=True)
class Embed:
    """Mean of the last hidden states of each text."""

    job_id: str
    model: str
    texts: tuple[str, ...]
    variant: str | None = None


@dataclass(frozen=True)
class Rerank:
    """Score of each document: mean log-probability of the query's tokens after it (query likelihood, Ponte and Croft
    1998; with language models Sachan et al. 2022)."""

    job_id: str
    model: str
    query: str
    documents: tuple[str, ...]
    variant: str | None = None


Job = Generate | Embed | Rerank


@dataclass(frozen=True)
class Started:
    """Computing begins; ``reused`` tokens of KV were there."""

    job_id: str
    reused: int


@dataclass(frozen=True)
class Waiting:
    """Not running yet, or not any more, for want of ``resource``: ``kv``, ``weights``, ``model`` (being loaded)."""

    job_id: str
    resource: str


@dataclass(frozen=True)
class Streamed:
    """Output: ``tokens`` from position ``offset`` of this stage's output on, and the text that they complete."""

    job_id: str
    offset: int
    tokens: tuple[int, ...]
    text: str


@dataclass(frozen=True)
class Generated:
    """``tokens`` is the whole output of the stage; ``text`` the part that is no tool call. ``segments`` are the history
    of the KV, ``manifest`` what of it is held. ``computed`` and ``reused`` count tokens of known input. Seconds are
    time inside forward passes. ``predicted`` is the greedy choice at each position, where it was asked for."""

    tokens: tuple[int, ...]
    text: str
    calls: tuple[ToolCall, ...]
    notes: tuple[str, ...]
    stop: Literal["eos", "length", "string", "call", "context", "preempted"]
    segments: tuple[Segment, ...]
    manifest: KvManifest | None
    computed: int
    reused: int
    prefill_seconds: float
    decode_seconds: float
    predicted: tuple[int, ...] = field(default=())


@dataclass(frozen=True)
class Done:
    job_id: str
    result: Generated


@dataclass(frozen=True)
class Preempted:
    """Stopped between two tokens. A ``Generate`` with all tokens, the result's ``segments`` and ``generated`` of its
    output goes on from there, here or elsewhere."""

    job_id: str
    result: Generated


@dataclass(frozen=True)
class Vectors:
    """``rows``: one embedding per text, or one score per document. ``tokens`` were read."""

    job_id: str
    rows: tuple[tuple[float, ...], ...]
    tokens: int


@dataclass(frozen=True)
class Failed:
    """``cause``: ``refused`` (the request is at fault), ``no_room``, ``kv_lost``, ``oom``, ``cancelled``, ``error``."""

    job_id: str
    cause: str
    message: str


Event = Started | Waiting | Streamed | Done | Preempted | Vectors | Failed
OnEvent = Callable[[Event], None]
