"""Check of a plan against the request and the cluster it was made for, in plain loops.

Nothing here comes from the compiler or a solver: eligibility, times, memory, links, limits and the
objective are worked out again, stage by stage (``plan_stage``), from the user's own documents. The cost model of a
stage with a model on one device is shared (it is data about hardware, tested on its own).
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from functools import cached_property

from iegopt import library
from iegopt.cost.model import CostModel
from iegopt.cost.transfer import buffer_bytes, compression_ratio, exposed_seconds
from iegopt.cost.weights import weights_for
from iegopt.devices import Device
from iegopt.plans import Plan
from iegopt.spec.cluster import ClusterSpec
from iegopt.spec.graph import AffinityRule, EdgeKind, EdgeSpec, GraphSpec
from iegopt.spec.kinds import KINDS
from iegopt.spec.request import MemoryAccounting, RequestSpec
from iegopt.spec.stage import NodeType, Precision, StageKind
from iegopt.verify.links import Links
from iegopt.verify.plain import WidestPrecision
from iegopt.verify.plan_stage import ROUNDING, Placed, StageCheck, State, close
from iegopt.verify.plan_time import Held, check_held, check_starts, last_end
from iegopt.verify.report import Report, Violation

__all__ = ["State", "check_plan"]

_COMPUTE = frozenset(kind for kind, usual in KINDS.items() if usual.node_type is NodeType.COMPUTE)
_LEVELS = {"site": -1, "domain": 0, "host": 1, "rack": 2, "datacenter": 3}


class _Check:
    def __init__(
        self, plan: Plan, graph: GraphSpec, request: RequestSpec, cluster: ClusterSpec,
        devices: Mapping[str, Device], state: State, model: CostModel, reference_price: float, links: Links,
        precisions: WidestPrecision,
    ) -> None:  # fmt: skip
        self.links = links
        self.plan, self.graph, self.request, self.cluster = plan, graph, request, cluster
        self.devices, self.state, self.reference_price = devices, state, reference_price
        self.stage_check = StageCheck(plan, request, cluster, devices, state, model, links, precisions, self._bad)
        self.kv = request.kv_transfer_config or cluster.kv_transfer_config
        self.at = {stage.id: stage for stage in plan.stages}
        self.placed: dict[str, Placed] = {}
        self.finish: dict[str, float] = {}
        self.violations: list[Violation] = []

    def run(self) -> Report:
        self.violations += self._completeness()
        if self.violations:
            return Report(tuple(self.violations), None, None)
        for spec in self.graph.stages:
            found = self.stage_check.placed(spec, self.at[spec.id])
            if found is not None:
                self.placed[spec.id] = found
        if len(self.placed) < len(self.graph.stages):
            return Report(tuple(self.violations), None, None)
        transfers = {(e.source, e.target): self._transfer(e) for e in self.graph.edges}
        transfers |= {(f"kv:{name}", name): t for name, t in self._locations()}
        makespan = self._finish_times(transfers)
        if self.request.memory_accounting is MemoryAccounting.PEAK:
            self.violations += self._peak_memory(transfers)
        else:
            self._memory()
        objective = self._objective(transfers, makespan)
        if not close(objective, self.plan.objective, len(self.at) + len(transfers)):
            self._bad("claim", "objective", self.plan.objective, objective)
        if not close(makespan, self.plan.makespan, len(self.at) + len(transfers)):
            self._bad("claim", "makespan", self.plan.makespan, makespan)
        if self.plan.bound is not None and self.plan.bound > self.plan.objective + ROUNDING:
            self._bad("claim", "bound", self.plan.bound, self.plan.objective)
        return Report(tuple(self.violations), objective, makespan)

    def _bad(self, rule: str, where: str, used: float | str, allowed: float | str) -> None:
        self.violations.append(Violation(rule, where, used, allowed))

    def _completeness(self) -> Iterator[Violation]:
        wanted = {stage.id for stage in self.graph.stages}
        wanted |= {f"kv:{s.id}" for s in self.graph.stages if s.affinity.kv_cache_location is not None}
        for name in sorted(wanted - self.at.keys()):
            yield Violation("stage", name, "not placed", "one site")
        for name in sorted(self.at.keys() - wanted):
            yield Violation("stage", name, "placed", "no such stage")
        if len(self.plan.stages) != len(self.at):
            yield Violation("stage", "plan", "a stage twice", "once")
        for stage in self.plan.stages:
            for device in stage.devices:
                if device not in self.devices:
                    yield Violation("option", stage.id, device, "a device of the cluster")

    def _wire(self, size: float, kv: bool, model: str | None) -> float:
        if self.kv is None:
            return size
        return size * compression_ratio(self.kv, kv, library.llm(model).kv_precision if model else Precision.FP16)

    def _transfer(self, edge: EdgeSpec) -> float:
        source = self.placed[edge.source]
        size = edge.bytes if self.kv is None else self._wire(edge.bytes, edge.kv, source.spec.model)
        return self._exposed(edge.source, edge.target, size, source.work, edge.kv)

    def _locations(self) -> Iterator[tuple[str, float]]:
        for spec in self.graph.stages:
            place = spec.affinity.kv_cache_location
            if place is None:
                continue
            if self.at[f"kv:{spec.id}"].devices != (place,):
                self._bad("affinity", spec.id, self.at[f"kv:{spec.id}"].site, place)
            size: float = spec.memory.kv_cache_size or 0
            if spec.memory.kv_cache_size is None and spec.model and spec.tokens:
                each = library.llm(spec.model).kv_bytes_per_token()
                size = math.ceil(each * spec.tokens.context * spec.tokens.batch)
            yield spec.id, self._exposed(f"kv:{spec.id}", spec.id, self._wire(size, True, spec.model), 0.0, False)

    def _exposed(self, source: str, target: str, size: float, producer: float, kv: bool) -> float:
        link = self.links.between(self.at[source].devices, self.at[target].devices)
        if link is None:
            return 0.0
        _, latency, bandwidth, shards = link
        return exposed_seconds(size, latency, bandwidth, producer, self.kv if kv else None, shards)

    def _finish_times(self, transfers: dict[tuple[str, str], float]) -> float:
        """Longest path; checks TTFT, the end-to-end limit and the compute budget on the way."""
        finish = {f"kv:{name}": 0.0 for name in self.placed if f"kv:{name}" in self.at}
        starts = finish.copy()
        order = [self.graph.stages[v] for v in self.graph.topological_order()]
        into: dict[str, list[tuple[str, float]]] = {}
        for (u, v), t in transfers.items():
            into.setdefault(v, []).append((u, t))
        no_overlap = self.request.no_overlap
        for spec in order:
            name, start = spec.id, 0.0
            for u, t in into.get(name, ()):
                arrival = finish[u] + t
                if arrival > start:
                    start = arrival
            if no_overlap:
                start = self.at[name].start
            starts[name], finish[name] = start, start + self.placed[name].time
        slack = ROUNDING * (len(order) + len(transfers))
        if no_overlap:
            self.violations += check_starts(self.plan, {n: p.time for n, p in self.placed.items()}, transfers)
        self.finish = finish
        terms = len(order) + len(transfers)
        for name, end in finish.items():
            at, begin = self.at[name], starts[name]
            if begin != at.start and not close(begin, at.start, terms):
                self._bad("claim", f"start of {name}", at.start, begin)
            if end != at.finish and not close(end, at.finish, terms):
                self._bad("claim", f"finish of {name}", at.finish, end)
        ttft, limits, prefill = self.request.sla.ttft, self.request.dag_constraints, StageKind.PREFILL
        first = next((spec.id for spec in order if spec.type is prefill), None)
        if ttft is not None and first is not None and finish[first] > ttft + slack:
            self._bad("finish_by", first, finish[first], ttft)
        end = last_end(self.request)
        makespan = max(finish.values())
        if makespan > end + slack:
            self._bad("deadline", "end to end", makespan, end)
        compute = sum([p.time for p in self.placed.values() if p.spec.type in _COMPUTE])
        if compute > limits.max_compute_time + slack:
            self._bad("budget", "max_compute_time", compute, limits.max_compute_time)
        return makespan

    def _memory(self) -> None:
        held: dict[str, float] = {}
        weights: dict[tuple[str, tuple[str, ...]], float] = {}
        for name, placed in self.placed.items():
            devices = self.at[name].devices
            each = (placed.held + self._buffers[name]) / len(devices)
            for device in devices:
                held[device] = held.get(device, 0.0) + each
            weights[placed.key] = math.ceil(placed.weights)
        for (_, devices), size in weights.items():
            for device in devices:
                held[device] += size / len(devices)
        for device, used in held.items():
            if used > self.state[device][1] + 1e-3:
                self._bad("memory", device, used, self.state[device][1])

    def _peak_memory(self, transfers: dict[tuple[str, str], float]) -> list[Violation]:
        takes: dict[str, EdgeSpec] = {}
        for edge in self.graph.edges:
            if edge.kv and (edge.target not in takes or edge.bytes > takes[edge.target].bytes):
                takes[edge.target] = edge
        held = [
            Held(
                name,
                self.at[name].devices,
                self.finish[name] - placed.time,
                self.finish[name],
                placed.held + self._buffers[name],
                placed.kv,
                math.ceil(placed.weights),
                {edge.target for edge in self.graph.edges if edge.source == name and edge.kind is EdgeKind.DATA},
                {edge.target for edge in takes.values() if edge.source == name},
            )
            for name, placed in self.placed.items()
        ]
        weights = {placed.key: math.ceil(placed.weights) for placed in self.placed.values()}
        fixed: dict[str, float] = {}
        for (_, devices), size in weights.items():
            for device in devices:
                fixed[device] = fixed.get(device, 0.0) + size / len(devices)
        free = {name: self.state[name][1] for stage in self.plan.stages for name in stage.devices}
        return check_held(held, fixed, free, ROUNDING * (len(held) + len(transfers)))

    @cached_property
    def _buffers(self) -> dict[str, int]:
        """Bytes of transfer buffers by stage: at both ends of every KV edge."""
        total = dict.fromkeys(self.placed, 0)
        for edge in self.graph.edges:
            if self.kv is not None and edge.kv:
                size = self._wire(edge.bytes, True, self.placed[edge.source].spec.model)
                for name in (edge.source, edge.target):
                    total[name] += math.ceil(buffer_bytes(self.kv, size))
        return total

    def _objective(self, transfers: dict[tuple[str, str], float], makespan: float) -> float:
        w = weights_for(self.request.sla_class, self.request.weights, self.request.objective)
        total = w.lambda_ * sum(transfers.values()) + w.makespan * makespan
        for name, placed in self.placed.items():
            price, devices, t0 = 0.0, self.at[name].devices, placed.t0
            for device in devices:
                price += self.devices[device].price
            total += w.alpha * t0 + w.beta * placed.time + w.gamma * price * t0 / self.reference_price
            own = placed.spec.affinity
            if own.device is not None and own.device not in devices:
                total += own.penalty
        for rule in self.graph.affinity:
            if not self._holds(rule):
                if rule.required:
                    sites = ", ".join(self.at[name].site for name in rule.stages)
                    self._bad("affinity", ", ".join(rule.stages), sites, "apart" if rule.apart else "together")
                else:
                    total += rule.penalty
        return total

    def _holds(self, rule: AffinityRule) -> bool:
        level = _LEVELS[rule.level]
        places = [self.at[name].devices for name in rule.stages]
        if rule.apart:
            return not any(self._together(level, a, b) for i, a in enumerate(places) for b in places[:i])
        return all(self._together(level, places[0], b) for b in places[1:])

    def _together(self, level: int, a: tuple[str, ...], b: tuple[str, ...]) -> bool:
        if a == b:
            return True
        return level >= 0 and len({self.devices[name].path[level] for name in (*a, *b)}) == 1


def check_plan(
    plan: Plan, graph: GraphSpec, request: RequestSpec, cluster: ClusterSpec,
    devices: Mapping[str, Device], state: State, model: CostModel, reference_price: float, links: Links | None = None,
    precisions: WidestPrecision | None = None,
) -> Report:  # fmt: skip
    """Every way in which a plan breaks its request or misstates itself.

    Parameters
    ----------
    devices, state
        The cluster's devices by id, and what is known of each: (T/T0, free bytes).
    reference_price
        $/h that money is measured in.
    links, precisions
        Those of the cluster, kept from another check; ``None``: looked up anew.
    """
    links, precisions = links or Links(cluster, devices), precisions or WidestPrecision()
    return _Check(plan, graph, request, cluster, devices, state, model, reference_price, links, precisions).run()
