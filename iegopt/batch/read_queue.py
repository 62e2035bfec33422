"""The requests that wait, in plain figures: those of a snapshot's queue, and running stages of lost instances.

Nothing is dropped: what no instance can ever run is named with its reason, what is gone is warned of.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
import numpy.typing as npt

from iegopt import library
from iegopt.batch.build_instances import BuiltInstances
from iegopt.batch_plans import Reason
from iegopt.cost.demand import activation_bytes
from iegopt.cost.transfer import compression_ratio
from iegopt.errors import InputError
from iegopt.graph.tokens import estimate_tokens
from iegopt.spec.batch_policy import BatchPolicy
from iegopt.spec.llm import LlmCard
from iegopt.spec.request import AgentConfig
from iegopt.spec.snapshot import QueuedSpec, RunningSpec, SnapshotSpec, UtilityClass
from iegopt.spec.stage import SIXTEEN_BIT, Precision

__all__ = ["Allowance", "Allowed", "Read", "Waiting", "read_queue"]


@dataclass(frozen=True)
class Allowed:
    """What requests of one model in one precision share: where they may run, and the size of their tokens."""

    card: LlmCard
    runs: npt.NDArray[np.bool_]
    ratio: float

    @cached_property
    def bytes_per_token(self) -> float:
        return self.card.kv_bytes_per_token()

    @cached_property
    def working(self) -> float:
        """Bytes that a decode needs beside its KV cache, per sequence."""
        return activation_bytes(self.card, 1)


@dataclass(frozen=True)
class Waiting:
    """A request of the queue in plain figures, as ``Queue`` counts them."""

    id: str
    allowed: Allowed
    tenant: str
    priority: int
    weight: float
    throughput: bool
    prompt: int
    output: int
    sequences: int
    arrival: float
    ttft: float
    e2e: float
    itl: float
    prefix: tuple[int, ...] = ()
    agent: AgentConfig | None = None
    planned: tuple[int, int] = (-1, -1)
    kept: tuple[int, int] | None = None


@dataclass
class Read:
    """Readable requests, what cannot be read, and what to warn of."""

    waiting: list[Waiting] = field(default_factory=list)
    impossible: dict[str, Reason] = field(default_factory=dict)
    requeued: set[str] = field(default_factory=set)
    warnings: list[str] = field(default_factory=list)


class Allowance:
    """Finds an ``Allowed`` by a model and a precision (``None``: the native one); raises ``InputError`` for a model
    without a card."""

    def __init__(self, built: BuiltInstances, policy: BatchPolicy) -> None:
        self._kinds, self._policy = built.kinds.kinds, policy
        self._found: dict[tuple[str, Precision | None], Allowed] = {}

    def __call__(self, model: str, precision: Precision | None) -> Allowed:
        key = (model, precision)
        if key not in self._found:
            card = library.llm(model)
            wanted = _precisions(card, precision)
            runs = np.array([k.card.name == card.name and k.precision in wanted for k in self._kinds], dtype=bool)
            ratio = compression_ratio(self._policy.kv_transfer_config, True, card.kv_precision)
            self._found[key] = Allowed(card, runs, ratio)
        return self._found[key]


def _precisions(card: LlmCard, asked: Precision | None) -> frozenset[Precision]:
    """The one asked for, else the native one, for which the 16-bit ones stand."""
    if asked is not None:
        return frozenset({asked})
    return SIXTEEN_BIT if card.native_precision in SIXTEEN_BIT else frozenset({card.native_precision})


def read_queue(built: BuiltInstances, snapshot: SnapshotSpec, allowed: Allowance) -> Read:
    """All requests that wait: those of the queue, then the running stages of lost instances."""
    read = Read()
    for queued in snapshot.queue:
        _read_queued(read, queued, built, snapshot, allowed)
    for running in snapshot.running:
        if running.instance in built.lost:
            _read_requeued(read, running, built, snapshot, allowed)
    return read


def _read_queued(
    read: Read, queued: QueuedSpec, built: BuiltInstances, snapshot: SnapshotSpec, allowed: Allowance
) -> None:
    request = queued.request
    assert request.model is not None
    assert request.output_tokens is not None
    try:
        found = allowed(request.model, request.precision)
    except InputError as error:
        read.impossible[queued.id] = Reason("no instance", None, None, None, str(error))
        return
    prompt = request.prompt_tokens
    if prompt is None:
        assert request.prompt is not None
        prompt = estimate_tokens(request.prompt)
    waited = snapshot.time - queued.arrival
    sla = request.sla
    _add(
        read,
        Waiting(
            id=queued.id,
            allowed=found,
            tenant=queued.tenant,
            priority=queued.level,
            weight=queued.utility.weight,
            throughput=queued.utility_class is UtilityClass.THROUGHPUT,
            prompt=prompt,
            output=request.output_tokens,
            sequences=request.batch,
            arrival=queued.arrival,
            ttft=_left(sla.ttft, waited),
            e2e=_left(sla.e2e, waited),
            itl=_left(sla.itl, 0.0),
            prefix=queued.prefix,
            agent=request.agent,
            planned=_planned(read, queued, built),
            kept=_kept(read, queued, built),
        ),
        request.precision,
    )


def _read_requeued(
    read: Read, running: RunningSpec, built: BuiltInstances, snapshot: SnapshotSpec, allowed: Allowance
) -> None:
    """A stage whose instance is lost: its context is prefilled again; of a decode the first token is out already."""
    variant = built.lost[running.instance]
    assert variant.card is not None
    decodes = running.stage == "decode"
    waited = 0.0 if running.arrival is None else snapshot.time - running.arrival
    read.requeued.add(running.id)
    read.warnings.append(f"{running.id} ran on the lost instance {running.instance}: it waits again")
    _add(
        read,
        Waiting(
            id=running.id,
            allowed=allowed(variant.card.name, variant.precision),
            tenant=running.tenant,
            priority=running.priority,
            weight=running.utility.weight,
            throughput=running.utility_class is UtilityClass.THROUGHPUT,
            prompt=max(1, running.context + (0 if decodes else running.remaining)),
            output=running.remaining if decodes else running.output,
            sequences=running.sequences,
            arrival=snapshot.time - waited,
            ttft=np.inf if decodes else _left(running.sla.ttft, waited),
            e2e=_left(running.sla.e2e, waited),
            itl=_left(running.sla.itl, 0.0),
        ),
        variant.precision,
    )


def _add(read: Read, waiting: Waiting, asked: Precision | None) -> None:
    """Take a request in, unless no instance can ever run it."""
    card = waiting.allowed.card
    if not waiting.allowed.runs.any():
        wanted = " or ".join(sorted(_precisions(card, asked)))
        sentence = f"no instance runs {card.name} in {wanted}"
        read.impossible[waiting.id] = Reason("no instance", None, None, None, sentence)
    elif waiting.prompt > card.max_context:
        sentence = f"{waiting.prompt} tokens are more than the context of {card.name}, which ends at {card.max_context}"
        read.impossible[waiting.id] = Reason(
            "context", None, float(waiting.prompt), float(card.max_context), sentence
        )  # fmt: skip
    else:
        read.waiting.append(waiting)


def _left(limit: float | None, waited: float) -> float:
    return np.inf if limit is None else limit - waited


def _planned(read: Read, queued: QueuedSpec, built: BuiltInstances) -> tuple[int, int]:
    """Instances of an earlier plan; none where one of them is gone."""
    if queued.planned is None:
        return -1, -1
    for name in (queued.planned.prefill, queued.planned.decode):
        if name not in built.index:
            state = "lost" if name in built.lost else "unknown"
            read.warnings.append(f"{queued.id} was planned on the {state} instance {name}: it may go anywhere")
            return -1, -1
    return built.index[queued.planned.prefill], built.index[queued.planned.decode]


def _kept(read: Read, queued: QueuedSpec, built: BuiltInstances) -> tuple[int, int] | None:
    if queued.held_on is None:
        return None
    if queued.held_on in built.lost:
        read.warnings.append(f"{queued.id}: its KV cache was kept by the lost instance {queued.held_on}")
        return None
    return built.index[queued.held_on], queued.held_kv
