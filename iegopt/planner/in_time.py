"""Compile and solve one request before its clock ends: over promising sites first where the time is short.

What decoding and verifying took of late is kept back for them, and the prices of limits that a solve has found are
where the next one starts.
"""

from __future__ import annotations

import copy
import dataclasses
import time

from iegopt.explain.nearby import nearby
from iegopt.planner.first import FirstPlans
from iegopt.planner.pace import Pace
from iegopt.planner.promising import Promising
from iegopt.plans import Plan
from iegopt.problem.cluster import CompiledCluster
from iegopt.problem.compile import Compiled, can_focus, compile_graph
from iegopt.problem.layout import layout_of
from iegopt.solvers.api import solve
from iegopt.solvers.clock import Clock, lag, pressure
from iegopt.solvers.exact.compiled import kernels
from iegopt.solvers.exact.tree_index import tree_index
from iegopt.solvers.multipliers import Multipliers
from iegopt.solvers.part import beside, of_part, whole_seconds
from iegopt.solvers.result import Params, Result, Status
from iegopt.spec.graph import GraphSpec
from iegopt.spec.request import RequestSpec
from iegopt.verify.by_arrays import can_tell

__all__ = ["InTime"]

_PART_FIRST = 2.0
"""Multiple of what the whole cluster needs, below which the promising sites come first."""
_FIRST = 20.0
"""The same, below which a first plan is made before anything: compiling may take fifteen times as long on a busy
machine, the plan takes a few per cent of the time."""
_PART_LEAST, _PART_STAGE = 4e-4, 5e-5
"""Seconds from which a solve over the promising sites may come to something: at least, and more per stage."""
_GRACE, _LAST_GRACE = 3.5e-4, 4e-4
"""Seconds by which a first plan may be late, where there would be none: to begin one, and to go on with it."""
_LOADING = 10.0
"""Seconds at most that looking at a request ahead may take."""
_TELLING = 0.2
"""Part of making a first plan that comes after the last look at the clock."""
_SOLVE_NEEDS = 5e-4
"""Seconds from which a solve over all sites may come to something."""
_WORTH_A_TRY = 0.3
"""Part of either from which it is tried all the same, where there is no plan yet."""


class InTime:
    """What a planner has learnt from its requests for the next: prices of limits, and the pace of its answers."""

    def __init__(self) -> None:
        # Prices of the last solve that had any: what memory is worth hardly changes from one request to the next.
        self._multipliers: Multipliers | None = None
        self._answers = Pace(least=1e-4, each=2.5e-5, fresh=0.1)
        # By whether they are made in one call of a kernel, and checked by arrays.
        self._firsts = {True: Pace(least=1e-4, each=2e-6), False: Pace(least=2e-4, each=6e-6)}
        self._checks = {True: Pace(least=1e-4, each=1.2e-6), False: Pace(least=8e-5, each=8e-6)}
        self._first = FirstPlans()

    def for_another(self) -> InTime:
        """The same for a planner of a like cluster, which learns on its own."""
        other = InTime()
        other._multipliers = self._multipliers
        other._answers = copy.copy(self._answers)
        other._firsts, other._checks = copy.deepcopy(self._firsts), copy.deepcopy(self._checks)
        return other

    def prepare(self, cluster: CompiledCluster) -> tuple[Promising, ...]:
        """What the next deadline need not wait for: promising sites, which are returned, and the layout of all."""
        promising = self._first.prepare(cluster)
        topology = cluster.sites(cluster.gang_sizes).topology
        tree_index(topology)
        layout_of(topology)
        return promising

    def load(self, cluster: CompiledCluster, request: RequestSpec, graph: GraphSpec) -> None:
        """Work out what the stages of a request take, which its first plan would do within its deadline."""
        self._first.plan(cluster, graph, request, Clock(_LOADING))

    def learn(self, seconds: float, stages: int) -> None:
        """Take the seconds that decoding and verifying so many stages took for what they will take; forget slow ones.

        No seconds: there was no answer.
        """
        self._answers.learn_slowest(seconds, stages)

    def learn_check(self, seconds: float, stages: int, *, by_arrays: bool) -> None:
        """Let the seconds that verifying a first plan took count for what the next one's will take."""
        self._checks[by_arrays].learn(seconds, stages)

    def first(
        self, cluster: CompiledCluster, request: RequestSpec, graph: GraphSpec, solver: str, clock: Clock
    ) -> Plan | None:
        """A first plan, yet to be verified, where the time may be too short for others."""
        if solver != "auto" or self._ready(graph, clock).left >= _FIRST * _whole_seconds(cluster, graph):
            return None
        stages, by_arrays = len(graph.stages), can_tell(graph, request, cluster.spec)
        firsts, checks = self._firsts[by_arrays and kernels() is not None], self._checks[by_arrays]
        make, check = pressure() * firsts.seconds(stages), pressure() * checks.seconds(stages)
        if clock.left + _GRACE < make + check:
            firsts.forget()
            checks.forget()
            return None
        begun = time.thread_time()
        end = clock.limit + _LAST_GRACE - check - _TELLING * make
        plan = self._first.plan(cluster, graph, request, Clock(end, clock.start))
        seconds = time.thread_time() - begun
        if plan is not None or seconds > make:
            firsts.learn(seconds, stages)
        return plan

    def _ready(self, graph: GraphSpec, clock: Clock) -> Clock:
        """The clock less what is needed to decode and verify a plan."""
        return Clock(clock.limit - pressure() * self._answers.seconds(len(graph.stages)), clock.start)

    def solve(
        self, cluster: CompiledCluster, request: RequestSpec, graph: GraphSpec, solver: str, params: Params,
        clock: Clock, near: Plan | None, *, planned: bool,
    ) -> tuple[Compiled | None, Result | None]:  # fmt: skip
        """The best result before the clock ends, less what is needed to decode and verify it, and what it is of.

        Short deadlines begin with the promising sites. ``None`` where the time did not suffice to compile, or, where
        there is a plan already (``planned``), for anything that may be better.
        """
        ready = self._ready(graph, clock)
        least = lag() * (_PART_LEAST + _PART_STAGE * len(graph.stages))
        if solver == "auto" and ready.left < (least if planned else _WORTH_A_TRY * least):
            return None, None
        needs = _whole_seconds(cluster, graph)
        part: tuple[Compiled, Result] | None = None
        first = needs if near is not None else _PART_FIRST * needs
        if solver == "auto" and ready.left < first and can_focus(graph, request, cluster):
            part = self._over(cluster, request, graph, solver, params, ready, focus=True)
            if part is None or part[0].table.whole is None:
                return part or (None, None)
            if ready.left < (needs if part[1].choice is not None else _WORTH_A_TRY * needs):
                return part[0], of_part(part[1], part[0].table)
        whole = self._over(cluster, request, graph, solver, params, ready, focus=False, near=near)
        if part is None or part[1].objective is None:
            return whole or (None, None)
        if whole is None or whole[1].objective is None:
            return part[0], of_part(part[1], part[0].table)
        return whole if whole[1].objective <= part[1].objective else (part[0], beside(part[1], whole[1]))

    def _over(
        self, cluster: CompiledCluster, request: RequestSpec, graph: GraphSpec, solver: str, params: Params,
        clock: Clock, *, focus: bool, near: Plan | None = None,
    ) -> tuple[Compiled, Result] | None:  # fmt: skip
        """Compile and solve, over one fallback tier after the other; ``None`` where there was no time to compile."""
        until = clock.start + clock.limit
        tier = 0
        while True:
            compiled = compile_graph(cluster, graph, request, tier=tier, focus=focus, until=until)
            if compiled is None or clock.left <= (0.0 if focus else _SOLVE_NEEDS):
                return None
            hint = None if near is None else nearby(compiled.problem, near, clock)
            known = params.multipliers or self._multipliers
            limited = dataclasses.replace(params, time_limit=max(clock.left, 0.0), multipliers=known)
            result = solve(compiled.problem, solver, limited, hint)
            self._multipliers = result.multipliers or self._multipliers
            tier += 1
            if result.status is not Status.INFEASIBLE or tier >= len(compiled.tiers):
                return compiled, result


def _whole_seconds(cluster: CompiledCluster, graph: GraphSpec) -> float:
    return whole_seconds(graph, cluster.sites(cluster.gang_sizes).topology)
