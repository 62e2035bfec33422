"""The engine: one thread that runs sequences of one device, interleaved token by token.

At most ``max_batch`` are active. Each step gives every active one a forward pass, of a chunk or of a token; they are
passed one by one, unpadded, so that what a sequence computes does not depend on who runs beside it.
"""

from __future__ import annotations

import queue
import threading
import time
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import torch

from iegopt_runtime.errors import RuntimeFault
from iegopt_runtime.kv.blocks import Chain, KvManifest
from iegopt_runtime.kv.history import BLOCK_TOKENS
from iegopt_runtime.kv.store import KvStore, KvUse
from iegopt_runtime.kv.tiers import Tier
from iegopt_runtime.lm.admission import Active, Admission, Pending
from iegopt_runtime.lm.failure import failure
from iegopt_runtime.lm.jobs import Done, Event, Failed, Generate, Job, OnEvent, Preempted
from iegopt_runtime.lm.model_host import ModelHost, Resident
from iegopt_runtime.lm.plan import wanted_blocks
from iegopt_runtime.lm.sequence import Sequence

__all__ = ["EngineLoad", "LmEngine"]

IDLE_SECONDS = 0.5
"""How often an idle engine looks for cold KV."""

How = Literal["cancel", "preempt"]


@dataclass(frozen=True)
class EngineLoad:
    """What an engine has to do and what it holds; ``memory`` is what the device counts, where it does; ``room`` what
    weights to come can have, ``None`` without a limit."""

    active: int
    waiting: int
    kv: KvUse
    resident: tuple[Resident, ...]
    weights: int
    memory: int | None
    room: int | None


class LmEngine:
    """Start it with ``start`` or as a context manager.

    Parameters
    ----------
    host, store
        Models and KV, both on one device.
    max_batch
        Sequences active at once.
    threads
        Of torch inside one pass. Results depend on it: every engine of a deployment wants the same.
    on_crash
        Is called, from the engine's thread, where an error ends it that no job has caused.
    """

    def __init__(
        self,
        host: ModelHost,
        store: KvStore,
        *,
        max_batch: int = 8,
        block_tokens: int = BLOCK_TOKENS,
        threads: int = 1,
        clock: Callable[[], float] = time.monotonic,
        on_crash: Callable[[], None] = lambda: None,
    ) -> None:
        if max_batch < 1:
            raise ValueError(f"max_batch {max_batch}: expected at least 1")
        self.host = host
        self.store = store
        self.max_batch = max_batch
        self.block_tokens = block_tokens
        self._threads = threads
        self._clock, self._on_crash = clock, on_crash
        self._inbox: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        self._waiting = Admission(host, store, block_tokens, clock, self._wake)
        self._active: dict[str, Active] = {}
        self._thread = threading.Thread(target=self._run, name="lm-engine", daemon=True)
        self._closing = False

    def __enter__(self) -> LmEngine:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.close()

    def start(self) -> LmEngine:
        self._thread.start()
        return self

    def close(self) -> None:
        """Cancel everything and end the thread."""
        self._inbox.put(None)
        self._thread.join()
        self.host.close()

    def submit(self, job: Job, on_event: OnEvent) -> None:
        """Queue a job. ``on_event`` is called from the engine's thread and must be quick; its last event is one of
        ``Done``, ``Preempted``, ``Vectors`` and ``Failed``. From any thread.

        Raises
        ------
        RuntimeFault
            The engine has ended.
        """
        if self._closing:
            raise RuntimeFault("the engine has ended")
        self._inbox.put(lambda: self._enqueue(Pending(job, on_event)))

    def stop(self, job_id: str, how: How = "cancel") -> None:
        """End a job between two passes: ``cancel`` it (``Failed``, cause ``cancelled``), or ``preempt`` it, its KV
        going to host memory (``Preempted``). A job that has not begun is cancelled either way; one that has ended is
        left alone. From any thread."""
        self._inbox.put(lambda: self._stop(job_id, how))

    def reserve(self, owner: str, size: int) -> None:
        """Set KV memory aside for a sequence to come; 0 gives it back. From any thread.

        Raises
        ------
        NoRoom
            It is taken.
        """
        self.store.reserve(owner, size)
        if not size:
            self._wake()

    def kv_bytes(self, model: str, variant: str | None, tokens: int) -> int:
        """Bytes of L0 that a sequence of so many tokens takes: whole blocks."""
        layout, _ = self.host.shape(self.host.registry.find(model, variant))
        return -(-tokens // self.block_tokens) * self.block_tokens * layout.bytes_per_token

    def wanted(self, job: Generate, held: int | None = None) -> KvManifest:
        """The blocks that would spare the job work, held here or not: what to ask other workers for before it is
        submitted; of those who have ``held`` of its first tokens, what they can have. Under the job's id, so that it is
        what a fetch of it holds. From any thread."""
        artifact = self.host.registry.find(job.model, job.variant)
        layout, _ = self.host.shape(artifact)
        blocks = wanted_blocks(job, lambda: Chain(artifact.identity, layout, self.block_tokens, grade=job.grade), held)
        return KvManifest(job.job_id, artifact.identity, layout, blocks, job.grade)

    def load(self) -> EngineLoad:
        """Now, from any thread."""
        return EngineLoad(
            len(self._active), len(self._waiting), self.store.use(), self.host.resident(), self.host.used(),
            self.store.memory.used(), self.host.available(),
        )  # fmt: skip

    def _run(self) -> None:
        torch.set_num_threads(self._threads)
        try:
            with torch.no_grad():
                self._loop()
        except Exception:  # noqa: BLE001 - whatever it was, the one who waits for this engine's jobs must hear of it
            traceback.print_exc()
            self._on_crash()
        finally:
            self._closing = True
            self._read_inbox(block=False)
            for job_id in [*self._active, *self._waiting.jobs()]:
                self._stop(job_id, "cancel")

    def _loop(self) -> None:
        swept = self._clock()
        while not self._closing:
            self._read_inbox(block=not self._active)
            self._waiting.admit(self._active, self.max_batch)
            for job_id in list(self._active):
                self._step(job_id)
            if self._clock() - swept >= IDLE_SECONDS:
                swept = self._clock()
                self.store.sweep(swept)

    def _read_inbox(self, block: bool) -> None:
        try:
            act = self._inbox.get(timeout=IDLE_SECONDS) if block else self._inbox.get_nowait()
            while act is not None:
                act()
                act = self._inbox.get_nowait()
            self._closing = True
        except queue.Empty:
            return

    def _wake(self) -> None:
        """Look again at what waits; from any thread."""
        self._inbox.put(lambda: None)

    def _enqueue(self, pending: Pending) -> None:
        job_id = pending.job.job_id
        if job_id in self._active or job_id in self._waiting.jobs():
            pending.fail(Failed(job_id, "refused", f"job {job_id} is already here"))
        else:
            self._waiting.add(pending)

    def _step(self, job_id: str) -> None:
        task, emit = self._active[job_id]
        try:
            if not task.step():
                return
            if isinstance(task, Sequence):
                event: Event = Done(job_id, task.result(task.reason or "length"))
            else:
                event = task.vectors()
        except Exception as error:  # noqa: BLE001 - one job's failure must not end the others
            event = failure(job_id, error)
        self._end(job_id, event, emit)

    def _stop(self, job_id: str, how: How) -> None:
        self._waiting.cancel(job_id, how)
        if job_id not in self._active:
            return
        task, emit = self._active[job_id]
        if how == "preempt" and isinstance(task, Sequence):
            try:
                self._end(job_id, Preempted(job_id, task.result("preempted", Tier.L1)), emit)
            except Exception as error:  # noqa: BLE001 - as in a step
                self._end(job_id, failure(job_id, error), emit)
        else:
            self._end(job_id, Failed(job_id, "cancelled", how), emit)

    def _end(self, job_id: str, event: Event, emit: OnEvent) -> None:
        task, _ = self._active.pop(job_id)
        if isinstance(task, Sequence):
            task.close(event.message if isinstance(event, Failed) else "")
        else:
            task.close()
        emit(event)
