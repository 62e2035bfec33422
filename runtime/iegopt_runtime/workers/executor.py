"""What a role of a worker must be able to do: run the work of a stage, inside an asyncio loop."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, NamedTuple, Protocol

from iegopt_runtime.errors import RuntimeFault

__all__ = ["Attempt", "Executor", "StageFailed", "StagePreempted", "WorkerState"]

Document = dict[str, Any]


class StageFailed(RuntimeFault):
    """A stage could not be done.

    Parameters
    ----------
    cause
        Of ``iegopt.control.messages.CAUSES``.
    message
        For the one who asked: what was asked, what happened.
    transient
        Whether doing the same again may succeed.
    """

    def __init__(self, cause: str, message: str, *, transient: bool = False) -> None:
        super().__init__(message)
        self.cause, self.transient = cause, transient


class StagePreempted(RuntimeFault):
    """A stage was stopped between two tokens; ``kv`` is what is held of it, ``None`` for nothing."""

    def __init__(self, kv: Document | None) -> None:
        super().__init__("preempted")
        self.kv = kv


class WorkerState(NamedTuple):
    """Resident variants; bytes that KV caches and weights to come can have; share of the time that it computes; seconds
    that loading a variant took, the last time."""

    variants: tuple[str, ...] = ()
    kv_free: int = 0
    weights_free: int = 0
    load: float = 0.0
    load_times: Mapping[str, float] = MappingProxyType({})


class Attempt(Protocol):
    """One attempt of a stage, as its executor sees it. ``stop_wanted`` is set where it shall be put aside."""

    stop_wanted: asyncio.Event

    @property
    def request_id(self) -> str: ...

    @property
    def stage(self) -> str: ...

    @property
    def number(self) -> int: ...

    def progress(self, offset: int, tokens: list[int], text: str) -> None:
        """Stream tokens that come after ``offset`` earlier ones of this stage."""

    def waiting(self, resource: str) -> None:
        """Say that the stage is blocked, and on what."""

    def resumed(self) -> None:
        """Say that it goes on."""


class Executor(Protocol):
    """One role. ``run`` is cancelled (``asyncio.CancelledError``) where the stage is."""

    async def run(self, kind: str, work: Document, attempt: Attempt) -> Document:
        """Do the work of a stage; returns its result (``iegopt.control.results``).

        Raises
        ------
        StageFailed
            Saying why, in one sentence.
        StagePreempted
            After ``attempt.stop_wanted``.
        """

    def reserve(self, request_id: str, stage: str, size: int) -> None:
        """Keep KV memory for a decode to come.

        Raises
        ------
        StageFailed
            Where there is none.
        """

    def release(self, kv_id: str) -> None:
        """Nothing needs this KV cache, or what is reserved for it, any more."""

    def forget(self, request_id: str) -> None:
        """A request is answered."""

    def holds(self) -> set[str]:
        """Requests of which something is held that ``forget`` would let go."""

    def kv(self) -> set[str]:
        """Names of the KV caches that ``release`` would let go, and of those for which memory is kept."""

    def state(self) -> WorkerState:
        """What it holds and how busy it is, now."""

    def addresses(self) -> dict[str, str]:
        """Scheme -> address of its data plane; empty without one."""

    async def close(self) -> None:
        """End what runs beside the loop: child processes, threads, files."""
