"""A moment of a replayed trace as a snapshot; what traces do not say is drawn, and the name says so.

A trace has no tenants, priorities or limits. They are drawn by seed and place in the trace, so that a request is the
same one in every snapshot.
"""

from __future__ import annotations

import math
import random
from dataclasses import dataclass

from iegopt.batch.traces.read import Arrival
from iegopt.batch.traces.replay import Replay, Served
from iegopt.spec.request import RequestSpec, SlaClass, SlaSpec
from iegopt.spec.snapshot import InstanceSpec, QueuedSpec, RunningSpec, SnapshotSpec, UtilityClass, UtilitySpec
from iegopt.spec.stage import Precision

__all__ = ["Drawn", "Mix", "snapshot_at"]

_CLASSES = (SlaClass.REALTIME, SlaClass.AGENT, SlaClass.BATCH)


@dataclass(frozen=True)
class Mix:
    """What is drawn for every request.

    Attributes
    ----------
    tenants
        Tenant n of them sends in proportion to 1/n.
    shares
        Of the requests, by priority: P0 realtime, P1 agent, P2 batch.
    ttft, ttft_per_token
        Limits on the first token of P0 and P1, seconds, and what every token of the prompt adds.
    itl
        Limits between tokens of P0 and P1, seconds; P2 has no limits, its utility is that of the throughput class.
    """

    seed: int = 0
    tenants: int = 3
    shares: tuple[float, float, float] = (0.3, 0.5, 0.2)
    ttft: tuple[float, float] = (1.0, 3.0)
    ttft_per_token: tuple[float, float] = (0.2e-3, 0.5e-3)
    itl: tuple[float, float] = (0.1, 0.2)

    def draw(self, number: int, arrival: Arrival) -> Drawn:
        """Of request ``number`` of a trace."""
        stream = random.Random(f"{self.seed}/{number}")
        weights = [1 / n for n in range(1, self.tenants + 1)]
        tenant = stream.choices(range(1, self.tenants + 1), weights)[0]
        priority = stream.choices(range(len(self.shares)), self.shares)[0]
        if priority >= len(self.ttft):
            return Drawn(f"tenant-{tenant}", priority, SlaSpec())
        ttft = round(self.ttft[priority] + self.ttft_per_token[priority] * arrival.prompt, 3)
        return Drawn(f"tenant-{tenant}", priority, SlaSpec(ttft=ttft, itl=self.itl[priority]))


@dataclass(frozen=True)
class Drawn:
    """A request's tenant, priority and limits."""

    tenant: str
    priority: int
    sla: SlaSpec


def snapshot_at(
    replayed: Replay, instances: tuple[InstanceSpec, ...], at: float, *, model: str, precision: Precision | None = None,
    mix: Mix | None = None, name: str = "trace",
) -> SnapshotSpec:  # fmt: skip
    """The snapshot of a moment, in seconds: who waits, what runs, and the blocks held that anyone waiting has.

    Parameters
    ----------
    instances
        Those that were replayed, in their order.
    model, precision
        Of every request.
    """
    mix = mix or Mix()
    queue: list[QueuedSpec] = []
    running: list[RunningSpec] = []
    for number, (arrival, served) in enumerate(zip(replayed.arrivals, replayed.served, strict=True)):
        if arrival.at > at:
            break
        drawn = mix.draw(number, arrival)
        if served is not None and served.start <= at:
            if at < served.end:
                running.append(_running(f"r{number}", instances, arrival, served, drawn, at))
        elif served is not None or at - arrival.at <= replayed.patience:
            queue.append(_queued(f"r{number}", arrival, drawn, model, precision))
    wanted = {block for queued in queue for block in queued.prefix}
    return SnapshotSpec(
        name=name,
        time=at,
        block_tokens=replayed.block_tokens,
        instances=tuple(
            _holding(instance, wanted & mine.keys())
            for instance, mine in zip(instances, replayed.held(at), strict=True)
        ),
        running=tuple(running),
        queue=tuple(queue),
    )  # fmt: skip


def _holding(instance: InstanceSpec, blocks: set[int]) -> InstanceSpec:
    return instance.model_copy(update={"prefix": tuple(sorted(blocks))}) if blocks else instance


def _queued(name: str, arrival: Arrival, drawn: Drawn, model: str, precision: Precision | None) -> QueuedSpec:
    request = {"model": model, "prompt_tokens": arrival.prompt, "output_tokens": arrival.output}
    fixed = {} if precision is None else {"precision": precision}
    limits = {"sla": drawn.sla} if drawn.sla.model_fields_set else {}
    spec = RequestSpec.model_validate({**request, **fixed, "sla_class": _CLASSES[drawn.priority], **limits})
    more = {"prefix": arrival.blocks} if arrival.blocks else {}
    return QueuedSpec(
        id=name, tenant=drawn.tenant, priority=drawn.priority, arrival=_moment(arrival), request=spec, **more
    )  # fmt: skip


def _moment(arrival: Arrival) -> float:
    """When it arrived, in whole microseconds and never later than it did."""
    return math.floor(arrival.at * 1e6) / 1e6


def _running(
    name: str, instances: tuple[InstanceSpec, ...], arrival: Arrival, served: Served, drawn: Drawn, at: float
) -> RunningSpec:
    """The stage that a request is in; what is done of it grows evenly from its start to its end."""
    prefills = at < served.first_token
    if prefills:
        part = (at - served.start) / (served.first_token - served.start)
        context = served.reused + int(part * (arrival.prompt - served.reused))
        stage = {"context": context, "remaining": arrival.prompt - context, "output": arrival.output}
        limits = drawn.sla
    else:
        decoded = min(arrival.output - 1, int((at - served.first_token) / served.pace))
        stage = {"context": arrival.prompt + decoded, "remaining": arrival.output - decoded}
        limits = SlaSpec(itl=drawn.sla.itl) if drawn.sla.itl is not None else SlaSpec()
    more: dict[str, object] = {"sla": limits} if limits.model_fields_set else {}
    if drawn.priority >= len(_CLASSES) - 1:
        more["utility"] = UtilitySpec.model_validate({"class": UtilityClass.THROUGHPUT})
    about = {"id": name, "instance": instances[served.instance].id, "stage": "prefill" if prefills else "decode"}
    whose = {"tenant": drawn.tenant, "priority": drawn.priority, "arrival": _moment(arrival)}
    return RunningSpec.model_validate({**about, **stage, **whose, **more})
