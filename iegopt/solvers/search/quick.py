"""A first plan in under a millisecond, whatever the size: best fit over a small sample of promising sites.

Promising is what is cheap for a few stages that stand for all and near the best of their sites. Over the sample,
latency and seconds per byte of every pair of sites are tables, so that placing a stage takes a handful of operations
on arrays of some hundred elements. A stage that fits nowhere in the sample looks at all of its options. Nothing is
proven; the value of the plan is exact.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from functools import cached_property
from types import SimpleNamespace

import numpy as np
import numpy.typing as npt

from iegopt.problem.arrays import NO_LIMIT, TICKS_PER_SECOND, Problem
from iegopt.problem.topology import Topology
from iegopt.problem.transfer import kept_links, links_among
from iegopt.solvers.cells import cell_of
from iegopt.solvers.clock import Clock, Slowness, pressure, slowness
from iegopt.solvers.evaluate import affinity_holds, feasible, objective
from iegopt.solvers.exact.compiled import kernels
from iegopt.solvers.search.best_fit import tied_first
from iegopt.solvers.search.sample import PROBES, SITES, alike, first_share, need_of, sample

__all__ = ["quick_plan"]

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]

_POLLED = 8
"""Stages placed between two looks at the clock."""
_NEEDS, _COMPILED_NEEDS = (2.5e-4, 2.5e-9, 8e-6), (1.4e-4, 3e-9, 2e-7)
"""Seconds of it at least, and more per option and per stage, by numpy and by a kernel, as measured on one core of a
server."""
_GRACE = 3e-4
"""Seconds by which a plan may be late, where there would be none."""

_NO_LINKS, _NO_PAIRS = np.zeros((0, 2, 0)), (np.zeros((0, 0)), np.zeros((0, 0)))
_NONE = np.zeros(0, dtype=np.int64)
_NO_RULES = np.zeros(1, dtype=np.int64), _NONE, _NONE, _NONE

_own_slowness = Slowness()


def quick_plan(problem: Problem, clock: Clock) -> tuple[int, Ints] | None:
    """Objective in ticks and (V,) options of a feasible plan.

    Orders are tried one after the other: predecessors before successors; where stages have to be apart or together,
    these first; then the largest memory first, and this packed: every stage where least room is left (best fit
    decreasing, Johnson 1973). ``None`` where in each a stage fits nowhere or a limit that couples stages is broken, or
    the clock ends first.
    """
    if problem.V == 0 or int(np.diff(problem.options.ptr).min()) == 0:
        return None
    least, option, stage = _NEEDS if kernels() is None else _COMPILED_NEEDS
    needs = least + option * len(problem.options.site) + stage * problem.V
    if clock.left + _GRACE < pressure() * _own_slowness.ratio * needs:
        _own_slowness.forget()
        slowness.forget()
        return None
    begun = time.thread_time()
    plan = _quick_plan(problem, clock)
    _own_slowness.learn(time.thread_time() - begun, needs)
    return plan


def _quick_plan(problem: Problem, clock: Clock) -> tuple[int, Ints] | None:
    core = kernels()
    place = _BestFit(problem).place if core is None else _Compiled(problem, core).place
    for order, packed in _orders(problem):
        found = place(order, packed, clock)
        if found is not None and _keeps(problem, found[1]):
            return found
        if clock.left <= 0:
            break
    return None


def _orders(problem: Problem) -> Iterator[tuple[Ints, bool]]:
    """Orders of the stages (V,), and whether each is packed."""
    yield problem.order, False
    if any(rule.required for rule in problem.affinities):
        yield np.array(tied_first(problem.affinities, problem.order.tolist()), dtype=np.int64), False
    largest = _largest_first(problem)
    yield largest, False
    yield largest, True


def _largest_first(problem: Problem) -> Ints:
    """The stages by what they take of a device in their first option, most first."""
    return np.argsort(-first_share(problem), kind="stable")


class _Compiled:
    """Sample, options and placement in one call of a kernel: too short to look at the clock."""

    def __init__(self, problem: Problem, core: SimpleNamespace) -> None:
        self._problem, self._core = problem, core
        options, edges, topology = problem.options, problem.edges, problem.topology
        kept, pairs = kept_links(topology), (topology.pair_latency, topology.pair_seconds_per_byte)
        tree = (
            (topology.device_ptr, topology.device_index), np.ascontiguousarray(topology.group), topology.latency,
            topology.seconds_per_byte, _NO_PAIRS if pairs[0] is None else tuple(map(np.ascontiguousarray, pairs)),
            topology.parallel_shards,
        )  # fmt: skip
        self._arguments = (
            (
                options.ptr, options.site, options.cost, options.time, options.share, options.weight_key,
                options.weight_share,
            ),
            problem.capacity, (problem.sla, problem.finish_by), problem.deadline, tree,
            _NO_LINKS if kept is None else kept, (edges.source, edges.target), (edges.weight, edges.bytes),
            _rules(problem),
        )  # fmt: skip
        self._plain = problem.makespan_weight == 0 and all(hidden is None for hidden in edges.hidden)

    def place(self, order: Ints, packed: bool, _: Clock) -> tuple[int, Ints] | None:
        problem, plan = self._problem, np.empty(self._problem.V, dtype=np.int64)
        value = self._core.quick_fit(*self._arguments, order, SITES, -(-problem.V // PROBES), packed, plan)
        if value < 0:
            return None
        if not self._plain:
            return objective(problem, plan), plan
        preferred = (rule for rule in problem.affinities if not rule.required)
        return value + sum(rule.penalty for rule in preferred if not affinity_holds(problem, rule, plan)), plan


def _rules(problem: Problem) -> tuple[Ints, Ints, Ints, Ints]:
    """Required affinities as ``quick_kernel`` has them."""
    required = [rule for rule in problem.affinities if rule.required]
    if not required:
        return _NO_RULES
    return (
        np.cumsum([0, *(len(rule.stages) for rule in required)]),
        np.array([v for rule in required for v in rule.stages], dtype=np.int64),
        np.array([rule.level for rule in required], dtype=np.int64),
        np.array([rule.apart for rule in required], dtype=np.int64),
    )


def _keeps(problem: Problem, plan: Ints) -> bool:
    """Whether a plan keeps what best fit does not see to: all but SLAs and memory."""
    if problem.has_path_limits or problem.budget < NO_LIMIT:
        return feasible(problem, plan)
    return all(affinity_holds(problem, rule, plan) for rule in problem.affinities if rule.required)


class _BestFit:
    """The sample and the options on it, stage by stage.

    Shared weights are counted every time here, which is safe.
    """

    def __init__(self, problem: Problem) -> None:
        options, topology, edges = problem.options, problem.topology, problem.edges
        self.problem = problem
        self.limit = np.minimum(problem.sla, np.minimum(problem.finish_by, problem.deadline))
        tightest = topology.tightest(problem.capacity)
        self.on_all = alike(problem)
        sites = sample(problem, tightest, self.limit, self.on_all)
        self.sites: list[int] = sites.tolist()
        self.links = _links(topology, sites)
        self.device_start, self.devices = _devices(problem, sites)
        self.single = len(self.devices) == len(sites)
        self.place_of = np.full(topology.S, -1)
        self.place_of[sites] = np.arange(len(sites))
        if self.on_all:
            self.option = (options.ptr[:-1, None] + sites).reshape(-1)
            self.first: list[int] = list(range(0, len(self.option) + 1, len(sites)))
            self.place_at = np.tile(np.arange(len(sites)), problem.V)
        else:
            self.option = np.flatnonzero((self.place_of >= 0)[options.site])
            self.first = np.searchsorted(self.option, options.ptr).tolist()
            self.place_at = self.place_of[options.site[self.option]]
        self.need = need_of(problem, self.option)
        limit = np.repeat(self.limit, np.diff(self.first))
        usable = (options.time[self.option] <= limit) & (self.need <= tightest[sites][self.place_at])
        self.cost = np.where(usable, options.cost[self.option] / TICKS_PER_SECOND, np.inf)
        self.rules: list[list[tuple[tuple[int, ...], Ints, bool]]] = [[] for _ in range(problem.V)]
        for rule in problem.affinities:
            if rule.required:
                label = cell_of(problem, rule.level)[sites]
                for v in rule.stages:
                    self.rules[v].append((rule.stages, label, rule.apart))
        self.factor = np.stack([edges.weight, edges.weight * edges.bytes], axis=1)

    @cached_property
    def edges(self) -> list[list[tuple[int, Floats]]]:
        """Of every stage: the other end of an edge, and its factors."""
        edges = self.problem.edges
        found: list[list[tuple[int, Floats]]] = [[] for _ in range(self.problem.V)]
        for u, v, factor in zip(edges.source.tolist(), edges.target.tolist(), self.factor, strict=True):
            found[u].append((v, factor))
            found[v].append((u, factor))
        return found

    def place(self, order: Ints, packed: bool, clock: Clock) -> tuple[int, Ints] | None:
        """Value and (V,) options: every stage where it costs least, with its edges to the stages placed before it, or
        where least room is left.

        A place that breaks a required affinity with one of these has no room.
        """
        topology, first, links, cost, needed = self.problem.topology, self.first, self.links, self.cost, self.need
        devices, start, single, on_all = self.devices, self.device_start, self.single, self.on_all
        free = self.problem.capacity.copy()
        plan = np.zeros(self.problem.V, dtype=np.int64)
        place = [-1] * self.problem.V
        for i, v in enumerate(order.tolist()):
            if i % _POLLED == 0 and clock.left <= -_GRACE:
                return None
            begin, end = first[v], first[v + 1]
            room = free[devices] if single else np.minimum.reduceat(free[devices], start)
            moved: Floats | None = None
            for u, factor in self.edges[v]:
                if place[u] >= 0:
                    row = factor[0] * links[place[u], 0] + factor[1] * links[place[u], 1]  # as the kernel rounds
                    moved = row if moved is None else moved + row
            for others, label, apart in self.rules[v]:
                for u in others:
                    if place[u] >= 0:
                        room = np.where((label == label[place[u]]) == apart, -1, room)
            if not on_all:
                at = self.place_at[begin:end]
                room, moved = room[at], None if moved is None else moved[at]
            score = cost[begin:end] if moved is None else cost[begin:end] + moved
            score = np.where(needed[begin:end] <= room, score, np.inf)
            best = int(score.argmin()) if begin < end and not packed else -1
            if best >= 0 and score[best] < np.inf:
                option, need = int(self.option[begin + best]), needed[begin + best]
                place[v] = int(self.place_at[begin + best])
                site = self.sites[place[v]]
            else:
                anywhere = self._outside(v, free, packed)
                if anywhere is None:
                    return None
                option, need = anywhere, need_of(self.problem, slice(anywhere, anywhere + 1))[0]
                site = int(self.problem.options.site[option])
                place[v] = int(self.place_of[site])
            plan[v] = option
            if single and place[v] >= 0:
                free[devices[place[v]]] -= need
            else:
                free[topology.devices_of(site)] -= need
        return objective(self.problem, plan), plan

    def _outside(self, v: int, free: Ints, packed: bool) -> int | None:
        """Of all options of a stage that fit the cheapest, or where least room is left, whatever edges cost."""
        options = self.problem.options
        span = options.of(v)
        left = self.problem.topology.tightest(free)[options.site[span]] - need_of(self.problem, span)
        fits = (left >= 0) & (options.time[span] <= self.limit[v])
        best = int(np.where(fits, left if packed else options.cost[span], NO_LIMIT).argmin())
        return span.start + best if fits[best] else None


def _links(topology: Topology, sites: Ints) -> Floats:
    """(m, 2, m): a row of seconds is the product with (weight, weight · bytes) of an edge."""
    kept = kept_links(topology)
    if kept is not None and len(sites) == topology.S:
        return kept
    return links_among(topology, sites)


def _devices(problem: Problem, sites: Ints) -> tuple[Ints, Ints]:
    """Start of every site in the list of all their devices, one site's after the other's, and this list."""
    topology = problem.topology
    width = topology.width[sites]
    start = np.cumsum(width) - width
    at = np.arange(int(width.sum())) + np.repeat(topology.device_ptr[sites] - start, width)
    return start, topology.device_index[at]
