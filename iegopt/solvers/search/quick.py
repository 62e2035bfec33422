"""A first plan in under a millisecond, whatever the size: best fit over a small sample of promising sites.

Promising is what is cheap for a few stages that stand for all and near the best of their sites. Over the sample,
latency and seconds per byte of every pair of sites are tables, so that placing a stage takes a handful of operations
on arrays of some hundred elements. A stage that fits nowhere in the sample looks at all of its options. Nothing is
proven; the value of the plan is exact.
"""

from __future__ import annotations

import time
from functools import cached_property
from types import SimpleNamespace

import numpy as np
import numpy.typing as npt

from iegopt.problem.arrays import NO_LIMIT, TICKS_PER_SECOND, Problem
from iegopt.problem.topology import Topology
from iegopt.problem.transfer import kept_links, links_among, site_links
from iegopt.solvers.cells import cell_of
from iegopt.solvers.clock import Clock, Slowness, pressure, slowness
from iegopt.solvers.evaluate import feasible, objective
from iegopt.solvers.exact.compiled import kernels

__all__ = ["quick_plan"]

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]

_SITES = 64
"""Sites of the sample: some hundred microseconds' worth of pairs. Where the links of all pairs are kept, all sites."""
_PROBES = 1
"""Stages whose costs choose the sample, besides that of the largest share."""
_POLLED = 8
"""Stages placed between two looks at the clock."""
_NEEDS, _OPTION_NEEDS, _STAGE_NEEDS, _COMPILED_STAGE_NEEDS = 2.5e-4, 2.5e-9, 8e-6, 2e-6
"""Seconds of it at least, and more per option and per stage, by numpy or by a kernel, as measured on one core of a
server."""
_GRACE = 3e-4
"""Seconds by which a plan may be late, where there would be none."""

_own_slowness = Slowness()


def quick_plan(problem: Problem, clock: Clock) -> tuple[int, Ints] | None:
    """Objective in ticks and (V,) options of a feasible plan.

    Two orders are tried: predecessors before successors, then the largest memory first. ``None`` where in both a stage
    fits nowhere or a limit that couples stages is broken, or the clock ends first.
    """
    if problem.V == 0 or int(np.diff(problem.options.ptr).min()) == 0:
        return None
    stage_needs = _STAGE_NEEDS if kernels() is None else _COMPILED_STAGE_NEEDS
    needs = _NEEDS + _OPTION_NEEDS * len(problem.options.site) + stage_needs * problem.V
    if clock.left + _GRACE < pressure() * _own_slowness.ratio * needs:
        _own_slowness.forget()
        slowness.forget()
        return None
    begun = time.thread_time()
    plan = _quick_plan(problem, clock)
    _own_slowness.learn(time.thread_time() - begun, needs)
    return plan


def _quick_plan(problem: Problem, clock: Clock) -> tuple[int, Ints] | None:
    search = _BestFit(problem)
    for largest_first in (False, True):
        plan = search.place(search.largest_first() if largest_first else problem.order.tolist(), clock)
        if plan is not None and (not _coupled(problem) or feasible(problem, plan)):
            return objective(problem, plan), plan
        if clock.left <= 0:
            break
    return None


def _coupled(problem: Problem) -> bool:
    """Whether there is more to keep than SLAs and memory, which best fit sees to."""
    return bool(problem.affinities) or problem.has_path_limits or problem.budget < NO_LIMIT


class _BestFit:
    """The sample and the options on it, stage by stage.

    Shared weights are counted every time here, which is safe.
    """

    def __init__(self, problem: Problem) -> None:
        options, topology, edges = problem.options, problem.topology, problem.edges
        self.problem = problem
        self.limit = np.minimum(problem.sla, np.minimum(problem.finish_by, problem.deadline))
        tightest = topology.tightest(problem.capacity)
        self.on_all = _alike(problem)
        sites = _sample(problem, tightest, self.limit, self.on_all)
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
        self.need = _need(problem, self.option)
        limit = np.repeat(self.limit, np.diff(self.first))
        usable = (options.time[self.option] <= limit) & (self.need <= tightest[sites][self.place_at])
        self.cost = np.where(usable, options.cost[self.option] / TICKS_PER_SECOND, np.inf)
        self.ruled = any(rule.required for rule in problem.affinities)
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

    def largest_first(self) -> list[int]:
        """The stages by what they take of a device in their first option, most first."""
        order: list[int] = np.argsort(-_first_share(self.problem), kind="stable").tolist()
        return order

    def place(self, order: list[int], clock: Clock) -> Ints | None:
        """(V,) options: every stage where it costs least, with its edges to the stages placed before it.

        A place that breaks a required affinity with one of these has no room.
        """
        core = kernels()
        if core is not None and not self.ruled:
            return self._place_compiled(core, order)
        topology, first, links, cost, needed = self.problem.topology, self.first, self.links, self.cost, self.need
        devices, start, single, on_all = self.devices, self.device_start, self.single, self.on_all
        free = self.problem.capacity.copy()
        plan = np.zeros(self.problem.V, dtype=np.int64)
        place = [-1] * self.problem.V
        for i, v in enumerate(order):
            if i % _POLLED == 0 and clock.left <= -_GRACE:
                return None
            begin, end = first[v], first[v + 1]
            room = free[devices] if single else np.minimum.reduceat(free[devices], start)
            moved: Floats | None = None
            for u, factor in self.edges[v]:
                if place[u] >= 0:
                    row = factor @ links[place[u]]
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
            best = int(score.argmin()) if begin < end else -1
            if best >= 0 and score[best] < np.inf:
                option, need = int(self.option[begin + best]), needed[begin + best]
                place[v] = int(self.place_at[begin + best])
                site = self.sites[place[v]]
            else:
                anywhere = self._outside(v, free)
                if anywhere is None:
                    return None
                option, need = anywhere, _need(self.problem, slice(anywhere, anywhere + 1))[0]
                site = int(self.problem.options.site[option])
                place[v] = int(self.place_of[site])
            plan[v] = option
            if single and place[v] >= 0:
                free[devices[place[v]]] -= need
            else:
                free[topology.devices_of(site)] -= need
        return plan

    def _place_compiled(self, core: SimpleNamespace, order: list[int]) -> Ints | None:
        """The same by a kernel, in a quarter of a microsecond a stage: too short to look at the clock."""
        problem, sequence, first = self.problem, np.array(order), np.array(self.first)
        at, start = self.place_at[: 0 if self.on_all else None], np.append(self.device_start, len(self.devices))
        free, place, chosen = problem.capacity.copy(), np.full(problem.V, -1), np.zeros(problem.V, dtype=np.int64)
        outside: dict[int, int] = {}
        begin = 0
        while True:
            begin = core.fit(
                begin, sequence, first, at, self.cost, self.need, start, self.devices, self.links,
                problem.edges.source, problem.edges.target, self.factor, free, place, chosen,
            )  # fmt: skip
            if begin == problem.V:
                break
            v = order[begin]
            option = self._outside(v, free)
            if option is None:
                return None
            site = int(problem.options.site[option])
            free[problem.topology.devices_of(site)] -= _need(problem, slice(option, option + 1))[0]
            outside[v], place[v] = option, self.place_of[site]
            begin += 1
        plan: Ints = self.option[chosen]
        for v, option in outside.items():
            plan[v] = option
        return plan

    def _outside(self, v: int, free: Ints) -> int | None:
        """The cheapest of all options of a stage that fits, whatever its edges cost."""
        options = self.problem.options
        span = options.of(v)
        room = self.problem.topology.tightest(free)[options.site[span]]
        fits = (_need(self.problem, span) <= room) & (options.time[span] <= self.limit[v])
        best = int(np.where(fits, options.cost[span], NO_LIMIT).argmin())
        return span.start + best if fits[best] else None


def _need(problem: Problem, which: Ints | slice) -> Ints:
    """What options take of each of their devices, shared weights included."""
    options = problem.options
    share, shared = options.share[which], options.weight_key[which] >= 0
    return np.asarray(share + np.where(shared, options.weight_share[which], 0) if shared.any() else share)


def _first_share(problem: Problem) -> Ints:
    """(V,) what the first option of every stage takes of each of its devices."""
    return np.asarray(problem.options.share[problem.options.ptr[:-1]])


def _alike(problem: Problem) -> bool:
    """Whether every stage has one option on every site, in their order."""
    S, site = problem.topology.S, problem.options.site
    if len(site) != problem.V * S or (np.diff(problem.options.ptr) != S).any():
        return False
    return bool((site.reshape(-1, S) == np.arange(S)).all())


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


def _sample(problem: Problem, tightest: Ints, limit: Ints, alike: bool) -> Ints:
    """(m,) sites, ascending: the cheapest for the probes, counting the transfer from the cheapest of all."""
    options, edges, S = problem.options, problem.edges, problem.topology.S
    if S <= _SITES or kept_links(problem.topology) is not None:
        return np.arange(S)
    largest = int(_first_share(problem).argmax())
    probes = dict.fromkeys((largest, *range(0, problem.V, -(-problem.V // _PROBES))))
    score = np.zeros(S)
    for v in probes:
        span = options.of(v)
        site = options.site[span]
        cost = options.cost[span] / TICKS_PER_SECOND
        room = tightest if alike else tightest[site]
        usable = (options.time[span] <= limit[v]) & (_need(problem, span) <= room)
        # Where a probe cannot stand is worse than any place where it can, and no reason to leave the place out.
        worst = 2.0 * float(cost.max())
        own = np.where(usable, cost, worst)
        if not alike:
            least = np.full(S, worst)
            np.minimum.at(least, site, own)
            own = least
        score += own
    score /= len(probes)
    if problem.E:
        best = np.array(score.argmin())
        latency, rate = site_links(problem.topology, best, np.arange(S))
        score += edges.weight.mean() * (latency + edges.bytes.mean() * rate)
    return np.sort(np.argpartition(score, _SITES - 1)[:_SITES])
