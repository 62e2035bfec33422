"""The cost of a stage on a kind of site: the one entry that the compiler uses.

A cost depends on the stage, the device model, the parallelism and the precision, never on which of a thousand like
devices it is: evaluate it once for each, and multiply by the site's load factor and price.
"""

from __future__ import annotations

import math
from collections.abc import Hashable
from dataclasses import dataclass, field, replace
from typing import Any

from iegopt.cost.demand import Demand, demand, join_batch
from iegopt.cost.gang import gang_capacity, gang_demand, replica_demand
from iegopt.cost.profile import Measured, Profiles, Roofline
from iegopt.cost.roofline import Bottleneck, Capacity, stage_time
from iegopt.spec.llm import LlmCard
from iegopt.spec.stage import Parallelism, ParallelStrategy, Precision, StageKind, StageSpec, TokenWork

__all__ = ["CostModel", "RunningBatch", "StageCost"]

MOST_KEPT = 20_000
"""Costs that a model keeps; some 500 bytes each."""
SINGLE = Parallelism(strategy=ParallelStrategy.NONE)


@dataclass(frozen=True)
class RunningBatch:
    """Sequences that a device decodes already, and the tokens of KV cache they hold together."""

    sequences: int
    kv_tokens: int


@dataclass(frozen=True)
class StageCost:
    """What the compiler needs of one (stage, kind of site, variant).

    Attributes
    ----------
    t0, t
        Seconds without and with the load; infinite where the site cannot run the stage.
    bottleneck, terms, capacity_ratio
        As in ``StageTime``: the roofline's, also where a profile gives the seconds.
    source
        ``"roofline"``, or the name of the profile.
    memory_bytes, kv_bytes, weight_bytes
        Totals over the gang; M is the sum of the first two.
    step_seconds
        Mean seconds of a decode step without load, ``None`` for other stages.
    """

    t0: float
    t: float
    bottleneck: Bottleneck
    terms: dict[Bottleneck, float]
    capacity_ratio: float
    source: str
    memory_bytes: float
    kv_bytes: float
    weight_bytes: float
    step_seconds: float | None


class _Work(tuple[Any, ...]):
    """A tuple that works its hash out once: that of a spec takes as long as a cost."""

    _hash: int | None = None

    def __hash__(self) -> int:
        if self._hash is None:
            self._hash = super().__hash__()
        return self._hash


@dataclass(frozen=True)
class CostModel:
    """Demands meet capacities; measured profiles take the roofline's place.

    Pure: equal arguments, equal costs, which are therefore kept.
    """

    profiles: Profiles = field(default_factory=Profiles)
    _kept: dict[Hashable, tuple[LlmCard | None, StageCost]] = field(
        default_factory=dict, init=False, repr=False, compare=False
    )
    _last: dict[str, tuple[StageSpec, _Work]] = field(default_factory=dict, init=False, repr=False, compare=False)

    def stage_cost(
        self,
        stage: StageSpec,
        card: LlmCard | None,
        precision: Precision,
        device: str,
        capacity: Capacity,
        parallelism: Parallelism = SINGLE,
        *,
        efficiency: float = 1.0,
        parallel_efficiency: float = 1.0,
        calibration: float = 1.0,
        load: float = 1.0,
        running: RunningBatch | None = None,
    ) -> StageCost:
        """The cost of a stage on a gang of ``parallelism.degree`` devices of one model.

        Parameters
        ----------
        device, capacity
            Card name and capacity in ``precision`` of one device.
        efficiency
            The device card's, which a profile replaces.
        parallel_efficiency
            The cluster's, for tensor parallelism.
        calibration
            Online telemetry's efficiency: divides roofline and profile alike.
        load
            1 + q·w (``load_factor``).
        running
            The batch that a decode would join.

        Raises
        ------
        InputError
            As ``demand``.
        """
        key = (
            self._work(stage), id(card), precision, device, capacity, parallelism, efficiency, parallel_efficiency,
            calibration, load, running,
        )  # fmt: skip
        kept_card, found = self._kept.get(key, (None, None))
        if found is None or kept_card is not card:
            if len(self._kept) >= MOST_KEPT:
                self._kept.clear()
            found = self._cost(
                stage, card, precision, device, capacity, parallelism, efficiency, parallel_efficiency, calibration,
                load, running,
            )  # fmt: skip
            self._kept[key] = card, found
        return found

    def _work(self, stage: StageSpec) -> _Work:
        """What a cost reads of a stage; a stage is asked about for many devices in a row."""
        last = self._last.get("stage")
        if last is None or last[0] is not stage:
            work = _Work(
                (stage.type, stage.tokens, stage.compute, stage.memory, stage.io, stage.fixed_time, stage.model)
            )
            last = self._last["stage"] = stage, work
        return last[1]

    def _cost(
        self, stage: StageSpec, card: LlmCard | None, precision: Precision, device: str, capacity: Capacity,
        parallelism: Parallelism, efficiency: float, parallel_efficiency: float, calibration: float, load: float,
        running: RunningBatch | None,
    ) -> StageCost:  # fmt: skip
        need = demand(stage, card, precision)
        if running is not None and need.decode is not None and card is not None:
            need = join_batch(need, card, precision, running.sequences, running.kv_tokens)
        work, gang = replica_demand(need, parallelism), gang_capacity(capacity, parallelism, parallel_efficiency)
        held = gang_demand(need, parallelism)
        roofline = stage_time(work, gang, efficiency * calibration)
        t0, source = roofline.seconds, "roofline"
        measured = self._measured(stage, card, precision, device, parallelism)
        if measured is not None and card is not None and stage.tokens is not None:
            at = _roofline(stage, card, precision, gang)
            own = stage_time(replace(work, fixed_time=0.0), gang).seconds
            seconds = measured.seconds(stage.tokens, work, parallelism.degree, at, own)
            t0 = (seconds / calibration if calibration > 0.0 else math.inf) + work.fixed_time
            source = measured.profile.name
        steps = work.decode.steps if work.decode is not None else 0
        return StageCost(
            t0=t0,
            t=t0 * load,
            bottleneck=roofline.bottleneck,
            terms=roofline.terms,
            capacity_ratio=_ratio(held, gang),
            source=source,
            memory_bytes=held.memory_bytes,
            kv_bytes=held.kv_bytes,
            weight_bytes=held.weight_bytes,
            step_seconds=(t0 - work.fixed_time) / steps if steps else None,
        )

    def _measured(
        self, stage: StageSpec, card: LlmCard | None, precision: Precision, device: str, parallelism: Parallelism
    ) -> Measured | None:
        """The profile that speaks of this stage: one that states its own work is not what was measured."""
        own_work = stage.compute.flops is not None or stage.memory.traffic is not None or stage.io is not None
        spread = parallelism.degree > 1 and parallelism.strategy is not ParallelStrategy.TENSOR
        if card is None or stage.tokens is None or own_work or spread:
            return None
        return self.profiles.lookup(stage.type, card.name, precision, device, parallelism.degree)


def _roofline(stage: StageSpec, card: LlmCard, precision: Precision, gang: Capacity) -> Roofline:
    """Roofline seconds of this stage's kind as a function of batch and tokens, for scaling a table."""

    decodes = stage.type is StageKind.DECODE

    def seconds(batch: float, tokens: float) -> float:
        b, n = round(batch), round(tokens)
        work = TokenWork(context=n, output=1, batch=b) if decodes else TokenWork(new=n, batch=b)
        pure = stage.model_copy(update={"tokens": work, "fixed_time": 0.0})
        return stage_time(demand(pure, card, precision), gang).seconds

    return seconds


def _ratio(held: Demand, gang: Capacity) -> float:
    """M/Cap_M of the gang, weights included."""
    total = held.memory_bytes + held.kv_bytes + held.weight_bytes
    return total / gang.memory if gang.memory > 0.0 else (math.inf if total else 0.0)
