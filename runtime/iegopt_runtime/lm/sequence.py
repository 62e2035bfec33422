"""One sequence in an engine: its plan, its KV, its output. ``step`` makes one forward pass."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Collection
from collections.abc import Sequence as Run
from dataclasses import replace

import torch

from iegopt_runtime.errors import ModelError, NoRoom
from iegopt_runtime.kv.blocks import Block, Chain, KvManifest
from iegopt_runtime.kv.history import Segment, appended, length, passes, split
from iegopt_runtime.kv.memory import DeviceMemory
from iegopt_runtime.kv.store import KvStore
from iegopt_runtime.kv.tiers import Tier
from iegopt_runtime.lm.jobs import Generate, Generated, OnEvent, Started, Streamed
from iegopt_runtime.lm.kv_buffer import SequenceKv
from iegopt_runtime.lm.model_host import LoadedModel
from iegopt_runtime.lm.output import Output, Reason
from iegopt_runtime.lm.plan import make_plan
from iegopt_runtime.lm.sampling import choose

__all__ = ["Sequence", "capacity", "check"]


def check(job: Generate, vocabulary: int, context: int) -> None:
    """Refuse what the model cannot do.

    Raises
    ------
    ModelError
        No tokens, tokens outside the vocabulary, more of them than the context holds, more output than wanted.
    """
    if job.generated > job.max_tokens:
        raise ModelError(f"{job.job_id}: {job.generated} generated tokens, expected at most {job.max_tokens}")
    if not job.tokens:
        raise ModelError(f"{job.job_id}: no tokens, expected at least one")
    wrong = next((token for token in (*job.tokens, *job.script) if not 0 <= token < vocabulary), None)
    if wrong is not None:
        raise ModelError(f"{job.job_id}: token {wrong}: {job.model} has tokens 0 to {vocabulary - 1}")
    read = len(job.tokens) - (1 if job.generated else 0)  # the last token of an output may be one that nothing reads
    if read > context:
        raise ModelError(f"{job.job_id}: {len(job.tokens)} tokens: the context of {job.model} holds {context}")


def capacity(job: Generate, block_tokens: int, context: int) -> int:
    """Tokens of KV to reserve, whole blocks: all known ones and all output but the last token, which nothing reads."""
    tokens = min(len(job.tokens) + max(job.max_tokens - job.generated - 1, 0), context)
    return -(-tokens // block_tokens) * block_tokens


class Sequence:
    """A running ``Generate``. It owns a user of its model and a reservation of L0, both given back by ``close``;
    ``released`` is called when the buffer's memory is free."""

    def __init__(
        self,
        job: Generate,
        loaded: LoadedModel,
        store: KvStore,
        memory: DeviceMemory,
        block_tokens: int,
        emit: OnEvent,
        clock: Callable[[], float],
        released: Callable[[], None],
    ) -> None:
        self.job = job
        self.loaded = loaded
        self._sink = job.sink
        self._released = _Last(released, 1 if job.sink is None else 2)
        self._store, self._memory, self._emit, self._clock = store, memory, emit, clock
        self._tokens = list(job.tokens)
        self._output = Output(loaded.tokenizer, job.stop, loaded.eos, job.max_tokens, job.goes_on)
        self._kv = SequenceKv(loaded.layout, capacity(job, block_tokens, loaded.context), memory.device)
        self._chain = self._new_chain(block_tokens)
        self._predicted: list[int] = []
        self._seconds = {"prefill": 0.0, "decode": 0.0}
        self._begin(block_tokens)

    @property
    def reason(self) -> Reason | None:
        """Why the output is over; ``None`` while it is not."""
        return self._output.reason

    def step(self) -> bool:
        """One pass: the next chunk of what is known, or one token. True where there is nothing more to do."""
        if self._ends:
            self._pass(self._ends.pop())
        return not self._ends and self.reason is not None

    def result(self, reason: Reason, tier: Tier = Tier.L0) -> Generated:
        """Hand the KV to the sink, keep it in the store, and say what was made."""
        manifest = self._manifest()
        for block in manifest.blocks[len(self._chain.full) :]:
            self._completed(block)
        if self._sink is not None:
            self._sink.finish(manifest, self._released)
            self._sink = None
        held: KvManifest | None = None
        if manifest.blocks:
            held = self._store.save(manifest, self._view, self._clock(), tier, self.job.copy)
            if self.job.kv_id is None:
                self._store.forget(manifest.kv_id)
        scan = self._output.scan()
        known = len(self.job.tokens)
        return Generated(
            tokens=tuple(self._output.tokens),
            text=scan.text,
            calls=scan.calls,
            notes=scan.notes,
            stop=reason,
            segments=self._history(),
            manifest=held if self.job.kv_id is not None else None,
            computed=min(self._kv.length, known) - self._reused,
            reused=self._reused,
            prefill_seconds=self._seconds["prefill"],
            decode_seconds=self._seconds["decode"],
            predicted=tuple(self._predicted),
        )

    def close(self, failed: str = "") -> None:
        """Give the model back, and memory as soon as the sink has read it, too."""
        self.loaded.users -= 1
        if self._sink is not None:
            self._sink.abort(failed)
            self._released()
        self._released()

    def _new_chain(self, block_tokens: int) -> Chain:
        return Chain(self.loaded.artifact.identity, self.loaded.layout, block_tokens, grade=self.job.grade)

    def _begin(self, block_tokens: int) -> None:
        """Load what KV is held, and let known output pass by, which may already be complete."""
        job = self.job
        plan = make_plan(job, lambda: self._new_chain(block_tokens), self._store.match)
        with self._store.leased(plan.blocks, self._clock()) as held:
            if len(held) < len(plan.blocks):  # evicted or found damaged meanwhile
                keys = {block.key for block in held}
                plan = make_plan(job, lambda: self._new_chain(block_tokens), lambda blocks: _leading(blocks, keys))
            for block in plan.blocks:
                end = min(block.end, plan.reused)
                tensor = self._store.read(block, self._clock())
                self._memory.fill(self._kv.view(block.begin, end), tensor[:, :, :, : end - block.begin])
        self._kv.advance(plan.reused)
        self._reused, self._segments = plan.reused, plan.segments
        self._ends = list(reversed(plan.ends))
        ends = passes(plan.segments, block_tokens)
        self._chain.follow(job.tokens, [end for end in ends if end <= plan.reused])
        self._emit(Started(job.job_id, plan.reused))
        if self._sink is not None:
            planned = self._new_chain(block_tokens)
            planned.follow(job.tokens, ends)
            self._sink.begin(replace(self._manifest(), blocks=planned.blocks()), block_tokens)
        for block in self._chain.full:
            self._completed(block)
        for token in job.tokens[len(job.tokens) - job.generated :]:
            self._show(token)
        if self.reason is None and len(job.tokens) > self.loaded.context:
            self._output.reason = "context"
        if self.reason is not None and job.max_tokens:
            self._ends.clear()

    def _pass(self, end: int) -> None:
        """Forward the tokens up to ``end``; after the last that is known, choose the next."""
        begin, began = self._kv.length, time.perf_counter()
        tokens = self._tokens[begin:end]
        logits = self.loaded.forward(torch.tensor([tokens], device=self._memory.device), self._kv)
        last = end == len(self._tokens)
        token = self._choose(logits) if last and self.reason is None else None
        kind = "decode" if end > len(self.job.tokens) - self.job.generated else "prefill"
        self._seconds[kind] += time.perf_counter() - began
        block = self._chain.extend(tokens)
        if block is not None:
            self._completed(block)
        if token is None:
            return
        self._tokens.append(token)
        self._show(token)
        if self.reason is None and len(self._tokens) > self.loaded.context:
            self._output.reason = "context"
        if self.reason is None:
            self._ends.append(len(self._tokens))

    def _choose(self, logits: torch.Tensor) -> int:
        at = len(self._output.tokens)
        if self.job.score:
            self._predicted.append(int(logits.argmax()))
        if at < len(self.job.script):
            return self.job.script[at]
        return choose(logits, self.job.sampling, len(self._tokens))

    def _show(self, token: int) -> None:
        offset = len(self._output.tokens)
        text = self._output.accept(token)
        self._emit(Streamed(self.job.job_id, offset, (token,), text))

    def _completed(self, block: Block) -> None:
        """Hand a block on as soon as it is there."""
        if self._sink is not None:
            self._sink.block(block, self._view(block))
        if self.job.copy is not None:
            try:
                self._store.put(block, self._view(block), self._clock(), self.job.copy)
            except NoRoom:
                return  # a copy is for the worst case only; the sequence goes on without

    def _view(self, block: Block) -> torch.Tensor:
        return self._kv.view(block.begin, block.end)

    def _history(self) -> tuple[Segment, ...]:
        """How the KV there is was computed."""
        known = split(self._segments, self._kv.length)[0]
        return appended(known, "decode", self._kv.length - length(known))

    def _manifest(self) -> KvManifest:
        kv_id = self.job.kv_id if self.job.kv_id is not None else f"{self.job.job_id}#unheld"
        artifact, layout = self.loaded.artifact, self.loaded.layout
        return KvManifest(kv_id, artifact.identity, layout, self._chain.blocks(), self.job.grade)


class _Last:
    """Of so many who call it, from any thread, the last one does it."""

    def __init__(self, act: Callable[[], None], calls: int) -> None:
        self._act, self._left = act, calls
        self._lock = threading.Lock()

    def __call__(self) -> None:
        with self._lock:
            self._left -= 1
            last = self._left == 0
        if last:
            self._act()


def _leading(blocks: Run[Block], keys: Collection[str]) -> int:
    """How many of the first blocks are among ``keys``."""
    return next((i for i, block in enumerate(blocks) if block.key not in keys), len(blocks))
