"""Jobs that wait until an engine can begin them: for a place in its batch, for their model, for memory."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

from iegopt_runtime.errors import NoRoom
from iegopt_runtime.kv.store import KvStore
from iegopt_runtime.kv.tiers import Tier
from iegopt_runtime.lm.failure import failure
from iegopt_runtime.lm.jobs import Failed, Generate, Job, OnEvent, Waiting
from iegopt_runtime.lm.model_host import ModelHost
from iegopt_runtime.lm.scoring import Scoring
from iegopt_runtime.lm.sequence import Sequence, capacity, check
from iegopt_runtime.models.registry import Artifact

__all__ = ["Active", "Admission", "Pending"]

Active = tuple[Sequence | Scoring, OnEvent]
"""A job that has begun, and who hears of it."""


@dataclass
class Pending:
    job: Job
    emit: OnEvent
    waits_for: str | None = None

    def fail(self, event: Failed) -> None:
        """It will not begin."""
        if isinstance(self.job, Generate) and self.job.sink is not None:
            self.job.sink.abort(event.message)
        self.emit(event)


class Admission:
    """Of one engine, and called from its thread.

    Parameters
    ----------
    wake
        Has the engine look again; from any thread.
    """

    def __init__(
        self, host: ModelHost, store: KvStore, block_tokens: int, clock: Callable[[], float], wake: Callable[[], None]
    ) -> None:
        self._host, self._store, self._block_tokens = host, store, block_tokens
        self._clock, self._wake = clock, wake
        self._waiting: deque[Pending] = deque()

    def __len__(self) -> int:
        return len(self._waiting)

    def jobs(self) -> list[str]:
        return [pending.job.job_id for pending in self._waiting]

    def add(self, pending: Pending) -> None:
        """The last in line."""
        self._waiting.append(pending)

    def cancel(self, job_id: str, how: str) -> None:
        """Let a job go that has not begun; nothing where it does not wait."""
        for pending in [pending for pending in self._waiting if pending.job.job_id == job_id]:
            self._waiting.remove(pending)
            pending.fail(Failed(job_id, "cancelled", f"{how} before it began"))

    def admit(self, active: dict[str, Active], most: int) -> None:
        """Begin jobs in order of arrival. One that waits for its model lets others pass, one that waits for room does
        not.

        Parameters
        ----------
        active
            Those that have begun, to which others are added, up to ``most``.
        """
        for pending in list(self._waiting):
            if len(active) >= most:
                return
            waits_for: str | None = None
            try:
                waits_for = self._try(pending, active)
            except Exception as error:  # noqa: BLE001 - one job's failure must not end the others
                pending.fail(failure(pending.job.job_id, error))
            if waits_for is None:
                self._waiting.remove(pending)
            elif waits_for != pending.waits_for:
                pending.waits_for = waits_for
                pending.emit(Waiting(pending.job.job_id, waits_for))
            if waits_for in ("kv", "weights"):
                return

    def _try(self, pending: Pending, active: dict[str, Active]) -> str | None:
        """Make a job active, or say what it waits for."""
        job = pending.job
        artifact = self._host.registry.find(job.model, job.variant)
        try:
            loaded = self._host.take(artifact, self._clock(), self._wake)
        except NoRoom:
            if active:
                return "weights"
            raise
        if loaded is None:
            return "model"
        try:
            if not isinstance(job, Generate):
                active[job.job_id] = Scoring(job, loaded, self._store.memory.device), pending.emit
                return None
            check(job, loaded.vocabulary, loaded.context)
            if not self._reserved(job, artifact):
                self._host.release(loaded)
                return "kv"
            owner = job.reservation or job.job_id
            sequence = Sequence(
                job, loaded, self._store, self._store.memory, self._block_tokens, pending.emit, self._clock,
                lambda: self._give_back(owner),
            )  # fmt: skip
        except BaseException:
            self._host.release(loaded)
            if isinstance(job, Generate):
                self._store.reserve(job.reservation or job.job_id, 0)
            raise
        active[job.job_id] = sequence, pending.emit
        return None

    def _reserved(self, job: Generate, artifact: Artifact) -> bool:
        """Whether the KV memory of the job is set aside now.

        Raises
        ------
        NoRoom
            It never can be.
        """
        layout, context = self._host.shape(artifact)
        size = capacity(job, self._block_tokens, context) * layout.bytes_per_token
        limit = self._store.budget(Tier.L0)
        if size > limit:
            raise NoRoom("KV memory of the device", size, limit)
        try:
            self._store.reserve(job.reservation or job.job_id, size)
        except NoRoom:
            return False
        return True

    def _give_back(self, owner: str) -> None:
        self._store.reserve(owner, 0)
        self._wake()
