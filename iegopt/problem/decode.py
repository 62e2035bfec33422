"""Decode: a choice of options becomes a ``Plan`` in the user's words (seconds, bytes, dollars)."""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

from iegopt.cost.weights import dollars
from iegopt.plans import CostSplit, Plan, StagePlan, TransferPlan, WeightsUsed
from iegopt.problem.arrays import NO_LIMIT, TICKS_PER_SECOND
from iegopt.problem.compile import Compiled
from iegopt.problem.topology import WAN
from iegopt.problem.transfer import ChosenTransfers, chosen_transfers
from iegopt.spec.cluster import LEVELS

__all__ = ["SAME_SITE", "decode", "in_seconds"]

Ints = npt.NDArray[np.int64]

SAME_SITE = "site"
"""Path of a transfer that does not leave its site."""


def in_seconds(ticks: int | None) -> float | None:
    """Ticks as seconds, ``None`` for none."""
    return None if ticks is None or ticks == NO_LIMIT else ticks / TICKS_PER_SECOND


def decode(
    compiled: Compiled, choice: Ints, *, status: str, objective: int, bound: int | None, gap: float | None,
    proof: str | None, solver: str, seconds: float, note: str, start: Ints | None = None,
) -> Plan:  # fmt: skip
    """The plan of a choice (V,) of option indices, with what the solver says of it.

    ``start`` (V,) are ticks where stages must not overlap; else every stage starts as soon as it can.
    """
    moved = chosen_transfers(compiled.problem, choice)
    transfers = tuple(_transfer(compiled, e, choice, moved) for e in range(compiled.problem.E))
    begin, finish = _schedule(compiled, choice, moved, start)
    stages = tuple(
        _stage(compiled, v, int(choice[v]), begin[v], finish[v]) for v in range(compiled.problem.V)
    )  # fmt: skip
    total = CostSplit(
        L=sum(stage.cost.L for stage in stages),
        T=sum(stage.cost.T for stage in stages),
        M=sum(stage.cost.M for stage in stages),
        D=sum(transfer.exposed for transfer in transfers),
        dollars=sum(stage.cost.dollars for stage in stages),
    )
    w = compiled.weights
    weighted = w.alpha * total.L + w.beta * total.T + w.gamma * total.M + w.lambda_ * total.D
    weighted += w.makespan * max(finish, default=0.0)
    value = objective / TICKS_PER_SECOND
    penalties = value - weighted
    return Plan(
        request=compiled.request.id,
        cluster=compiled.cluster.spec.name,
        status=status,
        objective=value,
        bound=in_seconds(bound),
        gap=gap,
        proof=proof,
        solver=solver,
        seconds=seconds,
        note=note,
        makespan=max(finish, default=0.0),
        deadline=compiled.limits.deadline,
        termination=compiled.request.dag_constraints.termination_policy.model_dump(mode="json"),
        tier=compiled.tier,
        stages=stages,
        transfers=transfers,
        cost=total,
        # What rounding to ticks leaves is no penalty.
        penalties=penalties if penalties > 1e-9 * (2 + len(stages) + len(transfers)) else 0.0,
        weights=WeightsUsed(w.alpha, w.beta, w.gamma, w.lambda_, w.makespan),
        reference_price=compiled.cluster.reference_price,
    )


def _stage(compiled: Compiled, v: int, option: int, start: float, finish: float) -> StagePlan:
    problem = compiled.problem
    site = int(problem.options.site[option])
    devices = tuple(problem.topology.devices[d] for d in problem.topology.devices_of(site))
    first = compiled.cluster.devices[int(problem.topology.devices_of(site)[0])]
    place = {"site": problem.topology.sites[site], "variant": problem.variants[int(problem.options.variant[option])]}
    if v >= len(compiled.graph.stages):
        return StagePlan(
            id=problem.stages[v], kind="kv_location", **place, devices=devices, device_model=first.kind.model,
            artifact=None, t0=0.0, time=0.0, load_time=0.0, bottleneck="none", time_source="fixed", start=start,
            finish=finish, memory=0, capacity_ratio=0.0, sla=None, cost=CostSplit(0.0, 0.0, 0.0, 0.0, 0.0),
        )  # fmt: skip
    spec, options = compiled.graph.stages[v], compiled.stages[v]
    i = int(compiled.kept[v][option - int(problem.options.ptr[v])])
    block = options.blocks[int(options.block[i])]
    t0, time, money = float(options.t0[i]), float(options.time[i]), float(options.money[i])
    memory = int(options.memory[i]) + math.ceil(block.weight_bytes)
    free = int(compiled.cluster.state.free[problem.topology.devices_of(site)].min()) * len(devices)
    artifact = block.candidate.variant.artifact_path if block.candidate.variant else None
    spent = dollars(compiled.cluster.reference_price, money)
    return StagePlan(
        id=problem.stages[v], kind=str(spec.type), **place, devices=devices, device_model=first.kind.model,
        artifact=artifact, t0=t0, time=time, load_time=block.load_time, bottleneck=block.cost.bottleneck,
        time_source=block.cost.source, start=start, finish=finish, memory=memory,
        capacity_ratio=memory / free if free else 0.0, sla=spec.latency_sla,
        cost=CostSplit(L=t0, T=time, M=money, D=0.0, dollars=spent),
    )  # fmt: skip


def _transfer(compiled: Compiled, e: int, choice: Ints, moved: ChosenTransfers) -> TransferPlan:
    problem = compiled.problem
    u, v = int(problem.edges.source[e]), int(problem.edges.target[e])
    level = problem.topology.level(int(problem.options.site[choice[u]]), int(problem.options.site[choice[v]]))
    return TransferPlan(
        source=problem.stages[u],
        target=problem.stages[v],
        kind=problem.edges.kind[e],
        path=SAME_SITE if level < 0 else LEVELS[min(level, WAN)],
        bytes=float(problem.edges.bytes[e]),
        raw=float(moved.raw[e]),
        exposed=int(moved.time[e]) / TICKS_PER_SECOND,
        cost=int(moved.cost[e]) / TICKS_PER_SECOND,
    )


def _schedule(
    compiled: Compiled, choice: Ints, moved: ChosenTransfers, given: Ints | None
) -> tuple[list[float], list[float]]:
    """Start and finish of every stage in seconds: the given ones, else the earliest along the DAG."""
    problem = compiled.problem
    time = problem.options.time[choice]
    if given is not None:
        ends = given + time
        return [t / TICKS_PER_SECOND for t in given.tolist()], [t / TICKS_PER_SECOND for t in ends.tolist()]
    start = [0] * problem.V
    finish = [0] * problem.V
    transfer, target = moved.time.tolist(), problem.edges.target.tolist()
    outgoing: list[list[int]] = [[] for _ in start]
    for e, u in enumerate(problem.edges.source.tolist()):
        outgoing[u].append(e)
    for v in problem.order.tolist():
        finish[v] = start[v] + int(time[v])
        for e in outgoing[v]:
            start[target[e]] = max(start[target[e]], finish[v] + transfer[e])
    return [t / TICKS_PER_SECOND for t in start], [t / TICKS_PER_SECOND for t in finish]
