"""What a role of a worker must be able to do: run the work of a stage, inside an asyncio loop."""

from __future__ import annotations

from typing import Any, Protocol

from iegopt_runtime.errors import RuntimeFault

__all__ = ["Attempt", "Executor", "StageFailed"]

Document = dict[str, Any]


class StageFailed(RuntimeFault):
    """A stage could not be done.

    Parameters
    ----------
    cause
        One of the causes that the controller knows: ``error``, ``oom``, ``timeout``, ``kv_lost``, ``refused``.
    message
        For the one who asked: what was asked, what happened.
    transient
        Whether doing the same again may succeed.
    """

    def __init__(self, cause: str, message: str, *, transient: bool = False) -> None:
        super().__init__(message)
        self.cause, self.transient = cause, transient


class Attempt(Protocol):
    """One attempt of a stage, as its executor sees it."""

    request_id: str
    stage: str
    number: int

    def progress(self, offset: int, tokens: list[int], text: str) -> None:
        """Stream tokens that come after ``offset`` earlier ones."""

    def waiting(self, resource: str) -> None:
        """Say that the stage is blocked, and on what."""

    def resumed(self) -> None:
        """Say that it goes on."""


class Executor(Protocol):
    """One role. ``run`` is cancelled (``asyncio.CancelledError``) where the stage is."""

    async def run(self, kind: str, work: Document, attempt: Attempt) -> Document:
        """Do the work of a stage; returns its result.

        Raises
        ------
        StageFailed
            Saying why, in one sentence.
        """

    async def close(self) -> None:
        """End what runs beside the loop: child processes, threads, files."""
