"""The lm role: stages of a model on this process's engine, their KV fetched before and pushed on while it is computed.

::

    Start ─▶ KV from other workers ─▶ engine: chunks, tokens ─▶ Finished
                                        ╰─ blocks, as they are complete ─▶ worker of the decode
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

from iegopt.control.work import kv_name, request_of
from iegopt_runtime.errors import KvLost, ModelError, NoRoom
from iegopt_runtime.kv.history import read_segments
from iegopt_runtime.kv.tiers import Tier
from iegopt_runtime.lm.jobs import (
    Done,
    Embed,
    Event,
    Failed,
    Generate,
    Generated,
    Job,
    Preempted,
    Rerank,
    Started,
    Stop,
    Streamed,
    Vectors,
    Waiting,
)
from iegopt_runtime.lm.sampling import Sampling
from iegopt_runtime.workers.executor import Attempt, Document, StageFailed, StagePreempted, WorkerState
from iegopt_runtime.workers.lm_kv import KvTraffic
from iegopt_runtime.workers.texts import Texts

__all__ = ["LmExecutor"]

_CAUSES = {"no_room": ("oom", True), "oom": ("oom", True), "kv_lost": ("kv_lost", True), "refused": ("refused", False)}
_RESOURCES = {"kv": "memory", "weights": "memory"}
"""What the engine waits for -> what the controller calls it, who then has a less urgent decode give way."""

_STOPS = {"string": "stop"}


class LmExecutor:
    """Runs prefills, decodes, embeddings, scores, and stages that keep KV.

    Parameters
    ----------
    traffic
        The engine with its data plane.
    texts
        Tokenizers, for what is appended to a sequence.
    """

    def __init__(self, traffic: KvTraffic, texts: Texts) -> None:
        self._traffic, self._texts = traffic, texts
        self._engine, self._store = traffic.engine, traffic.engine.store
        self._reserved: set[str] = set()

    async def run(self, kind: str, work: Document, attempt: Attempt) -> Document:
        """``work`` and result as ``iegopt.control.work`` and ``results`` have them for the kinds of a model."""
        try:
            return await _KINDS[kind](self, work, attempt)
        except ModelError as error:
            raise StageFailed("refused", str(error)) from error

    async def _prefill(self, work: Document, attempt: Attempt) -> Document:
        known = list(work["tokens"])
        appended: list[int] = []
        if work["append"]:
            text = await asyncio.to_thread(self._texts.of, work["model"])
            appended = text.added(known, work["append"])
        job = self._job(work, attempt, (*known, *appended), generated=0, most=1)
        if work["kv"]["from"] is None:  # the prompt and what is added to it are one prefill
            job = replace(job, segments=())
        sender = self._traffic.sender(work.get("push"))
        result, fetched = await self._generated(work, attempt, replace(job, sink=sender, goes_on=True))
        pushed = await self._traffic.pushed(sender)
        kv = self._traffic.document(work, result.manifest, fetched, pushed)
        return {
            "first": result.tokens[0], "text": result.text, "appended": appended, "computed": result.computed,
            "reused": result.reused, "seconds": result.prefill_seconds, "kv": kv,
        }  # fmt: skip

    async def _decode(self, work: Document, attempt: Attempt) -> Document:
        job = self._job(work, attempt, tuple(work["tokens"]), generated=work["generated"], most=work["max_tokens"])
        result, fetched = await self._generated(work, attempt, job)
        return {
            "tokens": list(result.tokens), "text": result.text,
            "calls": [{"name": call.name, "arguments": call.arguments} for call in result.calls],
            "notes": list(result.notes), "stop": _STOPS.get(result.stop, result.stop), "computed": result.computed,
            "reused": result.reused, "seconds": result.decode_seconds,
            "kv": self._traffic.document(work, result.manifest, fetched),
        }  # fmt: skip

    def _job(self, work: Document, attempt: Attempt, tokens: tuple[int, ...], generated: int, most: int) -> Generate:
        """A request of the controller in the engine's words."""
        kv_id, source = work["kv"]["id"], work["kv"]["from"]
        held = self._store.manifest(kv_id) or (self._store.manifest(source) if source is not None else None)
        try:
            chosen, segments = Sampling(**(work.get("sampling") or {})), read_segments(work["segments"])
        except (TypeError, ValueError) as error:
            raise StageFailed("refused", f"the sampling or the history of the sequence is wrong: {error}") from error
        return Generate(
            job_id=_job_id(attempt),
            model=work["model"],
            tokens=tokens,
            variant=_artifact(work["model"], work["variant"]),
            segments=segments,
            generated=generated,
            max_tokens=most,
            sampling=chosen,
            stop=Stop(strings=tuple(work.get("stop", ()))),
            script=tuple(work.get("script") or ()),
            kv_id=kv_id,
            copy=Tier[work["keep_copy"]] if work.get("keep_copy") else None,
            reservation=kv_id if kv_id in self._reserved else None,
            grade=held.grade if held is not None else "exact",
        )

    async def _generated(self, work: Document, attempt: Attempt, job: Generate) -> tuple[Generated, int]:
        """Run a job to its end, with what KV can be had from elsewhere; its result, and the bytes that came in."""
        job, fetched = await self._traffic.fetched(work, attempt, job)
        try:
            last = await self._followed(job, attempt)
        finally:
            self._store.forget(job.job_id)
        self._reserved.discard(work["kv"]["id"])
        if isinstance(last, Preempted):
            raise StagePreempted(self._traffic.document(work, last.result.manifest, fetched))
        assert isinstance(last, Done)
        return last.result, fetched

    async def _followed(self, job: Job, attempt: Attempt) -> Event:
        """The last event of a job; those before are told on. A cancelled stage ends its job."""
        loop, events = asyncio.get_running_loop(), asyncio.Queue[Event]()
        self._engine.submit(job, lambda event: _post(loop, events, event))
        stopping = asyncio.create_task(self._stop_when_wanted(job, attempt))
        blocked = False
        try:
            while True:
                event = await events.get()
                if isinstance(event, Waiting):
                    blocked = True
                    attempt.waiting(_RESOURCES.get(event.resource, event.resource))
                elif isinstance(event, Started | Streamed) and blocked:
                    blocked = False
                    attempt.resumed()
                if isinstance(event, Streamed) and not (isinstance(job, Generate) and job.goes_on):
                    attempt.progress(event.offset, list(event.tokens), event.text)
                elif isinstance(event, Failed) and attempt.stop_wanted.is_set() and event.cause == "cancelled":
                    raise StagePreempted(None)  # it had not begun
                elif isinstance(event, Failed):
                    cause, transient = _CAUSES.get(event.cause, ("error", False))
                    raise StageFailed(cause, event.message, transient=transient)
                elif isinstance(event, Done | Preempted | Vectors):
                    return event
        except asyncio.CancelledError:
            self._engine.stop(job.job_id, "cancel")
            raise
        finally:
            stopping.cancel()

    async def _stop_when_wanted(self, job: Job, attempt: Attempt) -> None:
        await attempt.stop_wanted.wait()
        self._engine.stop(job.job_id, "preempt")

    async def _embedding(self, work: Document, attempt: Attempt) -> Document:
        texts = tuple(map(str, work["texts"]))
        variant = _artifact(work["model"], work["variant"])
        last = await self._followed(Embed(_job_id(attempt), work["model"], texts, variant), attempt)
        assert isinstance(last, Vectors)
        return {"vectors": [list(row) for row in last.rows]}

    async def _rerank(self, work: Document, attempt: Attempt) -> Document:
        """The documents in the order of their scores."""
        documents = [dict(document) for document in work["documents"]]
        texts = tuple(str(document.get("text", "")) for document in documents)
        variant = _artifact(work["model"], work["variant"])
        job = Rerank(_job_id(attempt), work["model"], work["query"], texts, variant)
        last = await self._followed(job, attempt)
        assert isinstance(last, Vectors)
        scored = [document | {"score": row[0]} for document, row in zip(documents, last.rows, strict=True)]
        return {"documents": sorted(scored, key=lambda document: -document["score"])}

    async def _keep(self, work: Document, attempt: Attempt) -> Document:
        """Hold the KV of another stage; what nobody has any more is computed again."""
        try:
            return await self._traffic.kept(work)
        except KvLost:
            job = self._job(work, attempt, tuple(work["tokens"]), generated=0, most=0)
        result, fetched = await self._generated(work, attempt, job)
        if result.manifest is None:
            raise StageFailed("oom", f"there is no room for the KV of {job.kv_id}", transient=True)
        await asyncio.to_thread(self._traffic.put_down, result.manifest, Tier[work["tier"]])
        return {"kv": self._traffic.document(work, result.manifest, fetched)}

    @property
    def device(self) -> str:
        """What it computes on, as torch calls it."""
        return str(self._store.memory.device)

    def reserve(self, request_id: str, stage: str, size: int) -> None:
        owner = kv_name(request_id, stage)
        try:
            self._engine.reserve(owner, size)
        except NoRoom as error:
            raise StageFailed("oom", str(error), transient=True) from error
        self._reserved.add(owner)

    def release(self, kv_id: str) -> None:
        self._store.forget(kv_id)
        if kv_id in self._reserved:
            self._reserved.discard(kv_id)
            self._engine.reserve(kv_id, 0)

    def forget(self, request_id: str) -> None:
        for kv_id in self.kv():
            if request_of(kv_id) == request_id:
                self.release(kv_id)

    def holds(self) -> set[str]:
        return {request_of(kv_id) for kv_id in self.kv()}

    def kv(self) -> set[str]:
        return {*self._store.held(), *self._reserved}

    def state(self) -> WorkerState:
        load = self._engine.load()
        busy = min(1.0, load.active / self._engine.max_batch)
        variants = tuple(f"{r.model}/{r.variant}" for r in load.resident)
        return WorkerState(variants, load.kv.available, load.room or 0, busy, self._engine.host.load_times())

    def addresses(self) -> dict[str, str]:
        files = {} if self._traffic.files is None else {"file": f"file:{self._traffic.files}"}
        return files | {address.partition(":")[0]: address for address in self._traffic.server.addresses}

    async def close(self) -> None:
        # In a thread of its own: those of the loop may all be waiting for peers that hang.
        with ThreadPoolExecutor(1, thread_name_prefix="closing") as own:
            await asyncio.get_running_loop().run_in_executor(own, self._engine.close)
        self._traffic.server.close()


def _post(loop: asyncio.AbstractEventLoop, events: asyncio.Queue[Event], event: Event) -> None:
    """From the engine's thread into the loop, as long as there is one."""
    if not loop.is_closed():
        loop.call_soon_threadsafe(events.put_nowait, event)


def _job_id(attempt: Attempt) -> str:
    return f"{kv_name(attempt.request_id, attempt.stage)}#{attempt.number}"


def _artifact(model: str, variant: str | None) -> str | None:
    """A plan's variant names its model first; the registry looks under the model."""
    if variant is None:
        return None
    head, _, tail = variant.partition("/")
    return tail if head.lower() == model.lower() and tail else variant


_KINDS: dict[str, Callable[[LmExecutor, Document, Attempt], Awaitable[Document]]] = {
    "prefill": LmExecutor._prefill,
    "re_prefill": LmExecutor._prefill,
    "decode": LmExecutor._decode,
    "embedding": LmExecutor._embedding,
    "rerank": LmExecutor._rerank,
    "kv_store": LmExecutor._keep,
    "kv_load": LmExecutor._keep,
    "kv_migrate": LmExecutor._keep,
}
