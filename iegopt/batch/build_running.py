"""Running stages as arrays, and what they leave of an instance.

Limits that are lost already are lifted, so that keeping all and placing nothing is always feasible.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from iegopt.batch.build_instances import MOST_OTHER, BuiltInstances
from iegopt.batch.links import transfer_seconds
from iegopt.batch.model import Instances, Kinds, Running
from iegopt.batch.prefill import PrefillCost
from iegopt.batch.read_queue import Allowance
from iegopt.batch.steps import mean_kv_tokens, step_parts
from iegopt.spec.batch_policy import BatchPolicy
from iegopt.spec.snapshot import SnapshotSpec, UtilityClass

__all__ = ["SHARE_TOLERANCE", "BuiltRunning", "build_running", "settle"]

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]

SHARE_TOLERANCE = 1e-9
"""By so much rounding may overdraw an instance's time or a deadline, relative to it."""


@dataclass(frozen=True, eq=False)
class BuiltRunning:
    """Running stages, with the instances and the ladder of paces as they leave them, and the part of its time that
    every instance has left for prefills, (J,)."""

    running: Running
    instances: Instances
    paces: Floats
    speed: Floats


def build_running(
    built: BuiltInstances, snapshot: SnapshotSpec, allowed: Allowance, tenants: dict[str, int],
    warnings: list[str],
) -> Running:  # fmt: skip
    """Running stages of instances that are up; ``tenants`` grows by those it does not know yet."""
    specs = [r for r in snapshot.running if r.instance in built.index]
    kinds, R = built.kinds.kinds, len(specs)
    instance = np.array([built.index[r.instance] for r in specs], dtype=np.int64)
    decode = instance.copy()
    for n, r in enumerate(specs):
        if r.decode is not None and r.decode in built.index:
            decode[n] = built.index[r.decode]
        elif r.decode is not None:
            warnings.append(f"{r.id} was to decode on the lost instance {r.decode}: it decodes where it is")
    kind = built.instances.kind[instance]
    family = built.kinds.family
    for n in np.flatnonzero(family[kind] != family[built.instances.kind[decode]]).tolist():
        warnings.append(f"{specs[n].id} cannot decode on {specs[n].decode}, of another model: it decodes where it is")
        decode[n] = instance[n]
    is_prefill = np.array([r.stage == "prefill" for r in specs], dtype=bool)
    context = np.array([r.context for r in specs], dtype=np.int64)
    left = np.array([r.remaining for r in specs], dtype=np.int64)
    output = np.array([r.output for r in specs], dtype=np.int64)
    count = np.array([r.sequences for r in specs], dtype=np.int64)
    remaining = np.where(is_prefill, output, left)
    decodes = remaining > 0
    prompt = np.where(is_prefill, context + left, np.maximum(1, context))
    runs = family[None, :] == family[kind][:, None]
    cost = PrefillCost.of(kinds, prompt, count, runs)
    every = np.arange(R)
    found = {k: allowed(kinds[k].card.name, kinds[k].precision) for k in set(kind.tolist())}
    per_token = np.array([found[k].bytes_per_token for k in kind.tolist()]) * count
    working = np.array([found[k].working for k in kind.tolist()]) * count
    ratio = np.array([found[k].ratio for k in kind.tolist()], dtype=float)
    a, b = step_parts(kinds, count, mean_kv_tokens(prompt, remaining))
    waited = np.array([0.0 if r.arrival is None else snapshot.time - r.arrival for r in specs])
    itl = np.where(decodes, [_limit(r.sla.itl) for r in specs], np.inf)
    finish_by = np.array([_limit(r.sla.e2e) for r in specs]) - waited
    pace_cap = np.where(~is_prefill, finish_by / np.maximum(1, remaining), np.inf)
    held = per_token * context
    there = np.ceil(per_token * (prompt + remaining) + working).astype(np.int64)
    done = PrefillCost.of(kinds, np.maximum(1, context), count, runs).seconds(every, kind)
    return Running(
        ids=tuple(r.id for r in specs),
        tenant=np.array([tenants.setdefault(r.tenant, len(tenants)) for r in specs], dtype=np.int64),
        priority=np.array([r.priority for r in specs], dtype=np.int64),
        weight=np.array([r.utility.weight for r in specs], dtype=float),
        throughput=np.array([r.utility_class is UtilityClass.THROUGHPUT for r in specs], dtype=bool),
        instance=instance,
        decode=decode,
        is_prefill=is_prefill,
        sequences=np.where(decodes, count, 0),
        remaining=remaining,
        prefill=np.where(is_prefill, cost.seconds(every, kind, np.where(is_prefill, context, 0)), 0.0),
        prefill_by=np.where(is_prefill, np.array([_limit(r.sla.ttft) for r in specs]) - waited, np.inf),
        finish_by=finish_by,
        itl=np.minimum(itl, pace_cap),
        step_compute=np.where(runs, decodes[:, None] * a, np.inf),
        step_read=np.where(runs, decodes[:, None] * b, np.inf),
        kv_here=np.where(is_prefill, np.ceil(per_token * prompt), 0.0).astype(np.int64),
        kv_there=there,
        kv_now=np.ceil(held).astype(np.int64),
        wire_now=np.ceil(held * ratio).astype(np.int64),
        wire_end=np.where(is_prefill, np.ceil(per_token * ratio * prompt), 0.0).astype(np.int64),
        recompute=np.where(context > 0, done, 0.0),
        preempted=np.array([r.preempted for r in specs], dtype=np.int64),
        missed=np.zeros(R, dtype=bool),
    )


def settle(running: Running, instances: Instances, kinds: Kinds, policy: BatchPolicy) -> BuiltRunning:
    """Lift the limits that running stages miss with nothing placed, and make room for what they take."""
    J, R = len(instances.ids), len(running.ids)
    everyone = np.arange(R)
    decodes = running.sequences > 0
    kind = instances.kind[running.decode]
    busy = np.bincount(running.decode, decodes, J) > 0
    runs_here = busy | (np.bincount(running.instance, minlength=J) > 0)
    other = np.where(runs_here, np.minimum(instances.other, MOST_OTHER), np.minimum(instances.other, 1.0))
    compute = np.bincount(running.decode, running.step_compute[everyone, kind], J)
    read = np.bincount(running.decode, running.step_read[everyone, kind], J)
    step = np.maximum(kinds.base_compute[instances.kind] + compute, kinds.base_read[instances.kind] + read)
    least = np.where(busy, step / (1.0 - np.where(busy, other, 0.0)), 0.0)
    paces = np.array(policy.paces)
    if least.max(initial=0.0) > paces[-1] * (1.0 + SHARE_TOLERANCE):
        paces = np.append(paces, least.max() * (1.0 + SHARE_TOLERANCE))
    fastest = np.searchsorted(paces * (1.0 + SHARE_TOLERANCE), least)
    late = decodes & (running.itl < paces[fastest][running.decode])
    # A pace beyond the policy's is for what runs on an instance that keeps none of those, and for nothing else.
    slowest = np.where(fastest < len(policy.paces), policy.paces[-1], np.inf)[running.decode]
    itl = np.where(decodes, np.minimum(slowest, np.where(late, np.inf, running.itl)), running.itl)
    tightest = np.full(J, np.inf)
    np.minimum.at(tightest, running.decode[decodes], itl[decodes])
    pace = np.where(busy, np.searchsorted(paces, tightest, side="right") - 1, -1)
    share = np.where(busy, step / paces[pace], 0.0)
    eased = replace(running, itl=itl, finish_by=np.where(late, np.inf, running.finish_by))
    prefill_by, finish_by, missed = _lift(eased, instances, 1.0 - share - other, paces[pace], policy)
    own = running.instance == running.decode
    memory = np.bincount(running.decode, running.kv_there, J) + np.bincount(running.instance, running.kv_here * ~own, J)
    sequences = np.bincount(running.decode, running.sequences, J)
    return BuiltRunning(
        running=replace(eased, prefill_by=prefill_by, finish_by=finish_by, missed=missed | late),
        instances=replace(
            instances,
            open=instances.open & (instances.other < MOST_OTHER),
            other=other,
            free=np.maximum(instances.free, np.ceil(memory).astype(np.int64)),
            max_batch=np.maximum(instances.max_batch, sequences.astype(np.int64)),
            base_pace=pace,
        ),
        paces=paces,
        speed=1.0 - share - other,
    )


def _lift(
    running: Running, instances: Instances, speed: Floats, pace: Floats, policy: BatchPolicy
) -> tuple[Floats, Floats, npt.NDArray[np.bool_]]:
    """Limits of the running prefills after those that are missed are lifted, and which were.

    What runs ends its prefill within the window, or as late as it would with nothing placed.
    """
    by, finish = running.prefill_by.copy(), running.finish_by.copy()
    missed = np.zeros(len(running.ids), dtype=bool)
    p, q = running.instance, running.decode
    moved = transfer_seconds(instances, policy.kv_transfer_config, p, q, running.wire_end, running.prefill)
    after = np.where(running.sequences > 0, moved + running.remaining * pace[q], 0.0)
    for j in np.unique(p[running.is_prefill]).tolist():
        here = np.flatnonzero(running.is_prefill & (p == j))
        late, _ = _ends(here, running.prefill, np.minimum(by, finish - after), float(speed[j]))
        missed[late], by[late], finish[late] = True, np.inf, np.inf
        # By now all keep their limits: an order by deadlines finds a schedule that does wherever there is one.
        _, end = _ends(here, running.prefill, np.minimum(by, finish - after), float(speed[j]))
        by[here] = np.minimum(by[here], np.maximum(policy.window, end * (1.0 + SHARE_TOLERANCE)))
    return by, finish, missed


def _ends(here: Ints, work: Floats, deadline: Floats, speed: float) -> tuple[Ints, Floats]:
    """Which prefills of an instance end late in the order of their deadlines, and when each of ``here`` ends."""
    turn = here[np.argsort(deadline[here], kind="stable")]
    end = np.full(len(work), np.inf)
    if speed > SHARE_TOLERANCE:
        end[turn] = np.cumsum(work[turn]) / speed
    return turn[end[turn] > deadline[turn] * (1.0 + SHARE_TOLERANCE)], end[here]


def _limit(value: float | None) -> float:
    return np.inf if value is None else value
