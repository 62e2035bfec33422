"""What follows from the decisions of a batch plan: worked out again in plain loops, as docs/replanning.md states it."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property

from iegopt.batch_plans import QueuedDecision, RunningDecision
from iegopt.cost.transfer import exposed_seconds
from iegopt.devices import Device
from iegopt.spec.batch_policy import BatchPolicy
from iegopt.spec.cluster import ClusterSpec
from iegopt.spec.policy import KvTransferConfig
from iegopt.verify.engine import Engine
from iegopt.verify.links import Link, Links
from iegopt.verify.stages import Base, Stage
from iegopt.verify.waiting import Blocks, Waiting

__all__ = ["Aside", "Consequences", "Load", "Placed", "Roads"]

_NEAR = 1e-9
"""Deadlines this near to each other are equal: the order that the plan states counts."""


class Roads:
    """Transfers between the instances of a cluster."""

    def __init__(
        self, cluster: ClusterSpec, devices: Mapping[str, Device], engines: Mapping[str, Engine],
        config: KvTransferConfig | None,
    ) -> None:  # fmt: skip
        self._links, self._engines, self._config = Links(cluster, devices), engines, config
        self._known: dict[tuple[str, str], Link | None] = {}

    def link(self, a: str, b: str) -> Link | None:
        if (a, b) not in self._known:
            ends = self._engines[a].members, self._engines[b].members
            self._known[a, b] = self._links.between(*ends) if a != b else None
        return self._known[a, b]

    def seconds(self, a: str, b: str, size: float, producer: float = 0.0) -> float:
        """X: between the end of the producer and the arrival of all it made."""
        link = self.link(a, b)
        if link is None:
            return 0.0
        _, latency, bandwidth, shards = link
        return exposed_seconds(size, latency, bandwidth, producer, self._config, shards)


@dataclass(eq=False)
class Placed:
    """A placed request; times are filled in when its instance's prefills run."""

    request: Waiting
    decision: QueuedDecision
    p: Engine
    q: Engine
    pace: float
    prefill_by: float
    deadline: float = math.inf
    reused: int = 0
    source: str | None = None
    fetched: int = 0
    ready: float = 0.0
    work: float = math.inf
    start: float = math.inf
    end: float = math.inf
    transfer: float = 0.0
    finish: float = math.inf

    @property
    def wire(self) -> int:
        return 0 if self.p is self.q else self.request.wire

    @cached_property
    def step(self) -> tuple[float, float]:
        return self.q.costs.step(self.request.sequences, self.request.prompt, self.request.output)


@dataclass(frozen=True, eq=False)
class Load:
    """An instance under the plan; ``takes_more`` and ``decodes_more`` where anything takes memory, or decodes, that did
    not run there."""

    step: float
    share: float
    speed: float
    memory: int
    sequences: int
    prefill_seconds: float
    takes_more: bool
    decodes_more: bool


@dataclass(frozen=True)
class Aside:
    """What preempting or moving a running stage costs; ``near`` where a hair decides whether it misses."""

    seconds: float
    bytes: int
    how: str | None
    misses: bool
    near: bool
    loss: float


class Consequences:
    """Loads, times and losses of a plan.

    Parameters
    ----------
    engines, stages, bases
        As read from the documents, limits lifted.
    paces
        Instance -> seconds between tokens that the plan states; only where it decodes.
    done
        Running stage -> its decision.
    ladder
        All paces, ascending.
    """

    def __init__(
        self, engines: Mapping[str, Engine], stages: Mapping[str, Stage], bases: Mapping[str, Base], blocks: Blocks,
        roads: Roads, policy: BatchPolicy, placed: list[Placed], paces: Mapping[str, float],
        done: Mapping[str, RunningDecision], ladder: tuple[float, ...],
    ) -> None:  # fmt: skip
        self.engines, self.stages, self.bases, self.blocks, self.roads = engines, stages, bases, blocks, roads
        self.policy, self.placed, self.paces, self.done, self.ladder = policy, placed, paces, done, ladder
        self.decoding = {s.id: self._where(s) for s in stages.values() if done[s.id].action != "preempt"}
        self.loads: dict[str, Load] = {}
        self.stage_end: dict[str, float] = {}
        prefills: dict[str, list[Placed]] = {name: [] for name in engines}
        decodes: dict[str, list[Placed]] = {name: [] for name in engines}
        for one in placed:
            prefills[one.p.id].append(one)
            decodes[one.q.id].append(one)
        at: dict[str, list[Stage]] = {name: [] for name in engines}
        to: dict[str, list[Stage]] = {name: [] for name in engines}
        for stage in stages.values():
            if done[stage.id].action == "keep":
                at[stage.at.id].append(stage)
            if stage.id in self.decoding:
                to[self.decoding[stage.id].id].append(stage)
        for name in engines:
            self._load(name, prefills[name], decodes[name], at[name], to[name])

    def _where(self, stage: Stage) -> Engine:
        decision = self.done[stage.id]
        return self.engines[str(decision.to)] if decision.action == "migrate" else stage.to

    def _load(self, name: str, prefills: list[Placed], decodes: list[Placed], at: list[Stage], to: list[Stage]) -> None:
        engine, base = self.engines[name], self.bases[name]
        rows = [s.step(engine) for s in to] + [one.step for one in decodes]
        sequences = sum(s.sequences for s in to) + sum(d.request.sequences for d in decodes if d.request.output)
        compute, read = engine.costs.base
        step = max(compute + sum(a for a, _ in rows), read + sum(b for _, b in rows)) if sequences else 0.0
        share = step / self.paces[name] if sequences and name in self.paces else 0.0
        speed = 1.0 - share - base.other
        memory = sum(s.kv_there for s in to) + sum(d.request.kv_full for d in decodes)
        memory += sum(s.kv_here for s in at if s.to is not s.at)
        memory += sum(one.request.kv_prompt for one in prefills if one.q is not one.p)
        for one in prefills:
            self._deadline(one)
        self._run(prefills, [s for s in at if s.is_prefill], speed)
        work = sum(one.work for one in prefills) + sum(s.work for s in at)
        comes = any(stage.to is not engine for stage in to)
        decodes_more = comes or any(one.request.output for one in decodes)
        takes_more = comes or bool(prefills or decodes)
        self.loads[name] = Load(step, share, speed, memory, sequences, work, takes_more, decodes_more)

    def _deadline(self, one: Placed) -> None:
        """D, with the P that the instance's own blocks leave."""
        own, _ = self.blocks.held(one.request, one.p.id)
        work = one.p.costs.prefill(one.request.prompt, own, one.request.sequences)
        moved = self.roads.seconds(one.p.id, one.q.id, one.request.wire, work)
        one.deadline = min(one.prefill_by, one.request.e2e - moved - one.request.output * one.pace)

    def after(self, stage: Stage) -> float:
        """Seconds from the end of a running prefill to the end of its decode."""
        if not stage.output:
            return 0.0
        moved = self.roads.seconds(stage.at.id, stage.to.id, stage.wire_end, stage.work)
        return moved + stage.output * self.paces.get(stage.to.id, math.inf)

    def _run(self, prefills: list[Placed], running: list[Stage], speed: float) -> None:
        """One after the other by deadline; of equal ones first what runs, then as the plan starts them."""
        due = [(min(s.prefill_by, s.finish_by - self.after(s)), s) for s in running]
        rows: list[tuple[float, Stage | Placed]] = [*due, *((one.deadline, one) for one in prefills)]
        rows.sort(key=lambda row: row[0])
        now, left = 0.0, set[int]()
        for item in _in_turn(rows):
            if isinstance(item, Stage):
                now = now + item.work / speed if speed > 0.0 else math.inf
                self.stage_end[item.id] = now
                continue
            self._reuse(item, left)
            left.update(item.request.prefix)
            item.work = item.p.costs.prefill(item.request.prompt, item.reused, item.request.sequences)
            item.start = max(now, item.ready)
            item.end = now = item.start + item.work / speed if speed > 0.0 else math.inf
            item.transfer = self.roads.seconds(item.p.id, item.q.id, item.request.wire, item.work)
            item.finish = item.end + item.transfer + item.request.output * item.pace

    def _reuse(self, one: Placed, left: set[int]) -> None:
        """The most of what the instance holds, of what earlier prefills leave, and of what is fetched."""
        request, name, p = one.request, one.decision.reused_from or "", one.p
        own, read = self.blocks.held(request, p.id)
        run = 0
        for block in request.prefix:
            if block not in left:
                break
            run += 1
        shared = min(run * self.blocks.size, request.prompt - 1)
        tokens, source = (shared, "plan") if shared >= own else (own, p.id)
        read_first = own if shared < own else 0
        ready, kv = 0.0, request.kv_per_token
        if name in self.engines and name != p.id and self.engines[name].like(p):
            there, slow = self.blocks.held(request, name)
            link = self.roads.link(name, p.id)
            if there > tokens and link is not None:
                _, latency, bandwidth, shards = link
                missing = there - own
                ready = latency + missing * kv * (request.ratio / (shards * bandwidth) + slow)
                tokens, source, read_first = there, name, own
                one.fetched = math.ceil(missing * kv * request.ratio)
        one.ready = max(ready, read * kv * read_first)
        one.reused, one.source = tokens, source if tokens else None

    def aside(self, stage: Stage) -> Aside:
        """What a decision costs a running stage."""
        decision, weight = self.done[stage.id], stage.spec.utility.weight
        if decision.action == "migrate":
            way = self.roads.seconds(stage.at.id, str(decision.to), stage.wire_now)
            late = way + stage.output * self.paces.get(str(decision.to), math.inf)
            return self._lost(stage, way, stage.wire_now, None, late)
        if decision.action != "preempt":
            return Aside(0.0, 0, None, False, False, 0.0 * weight)
        config = self.policy.preemption_config
        swap, again = 2.0 * stage.kv_now * stage.at.host, stage.recompute()
        swaps = swap < again
        cost = config.preemption_overhead + min(swap, again)
        away = self.policy.period if config.resume_policy == "immediate" else self.policy.window
        compute, read = stage.to.costs.base
        a, b = stage.step(stage.to)
        alone = max(compute + a, read + b)
        pace = next((p for p in self.ladder if p * (1.0 + _NEAR) >= alone), self.ladder[-1])
        late = away + cost + stage.work + stage.output * pace
        return self._lost(stage, cost, stage.kv_now if swaps else 0, "swap" if swaps else "recompute", late)

    def _lost(self, stage: Stage, seconds: float, size: int, how: str | None, late: float) -> Aside:
        near = abs(late - stage.finish_by) <= _NEAR * max(1.0, abs(stage.finish_by))
        misses = self.done[stage.id].misses if near else late > stage.finish_by
        loss = stage.spec.utility.weight * (self.policy.second_value * seconds + misses)
        return Aside(seconds, size, how, misses, near, loss)


def _in_turn(rows: list[tuple[float, Stage | Placed]]) -> Iterable[Stage | Placed]:
    """Rows by deadline; among those that are equal, running stages first, then as the plan starts them."""
    group: list[Stage | Placed] = []
    before = -math.inf
    for due, item in rows:
        if group and not (due == before or due - before <= _NEAR * max(1.0, abs(before))):
            yield from sorted(group, key=_turn)
            group = []
        group.append(item)
        before = due
    yield from sorted(group, key=_turn)


def _turn(item: Stage | Placed) -> float:
    if isinstance(item, Stage):
        return -math.inf
    return item.decision.start if item.decision.start is not None else math.inf
