"""Compile and solve one request before its clock ends: over promising sites first where the time is short.

What decoding and verifying took of late is kept back for them, and the prices of limits that a solve has found are
where the next one starts.
"""

from __future__ import annotations

import copy
import dataclasses

from iegopt.explain.nearby import nearby
from iegopt.planner.first import FirstPlans
from iegopt.plans import Plan
from iegopt.problem.cluster import CompiledCluster
from iegopt.problem.compile import Compiled, can_focus, compile_graph
from iegopt.solvers.api import solve
from iegopt.solvers.clock import Clock, pressure
from iegopt.solvers.multipliers import Multipliers
from iegopt.solvers.part import beside, of_part, whole_seconds
from iegopt.solvers.result import Params, Result, Status
from iegopt.spec.graph import GraphSpec
from iegopt.spec.request import RequestSpec

__all__ = ["InTime"]

_PART_FIRST = 2.0
"""Multiple of what the whole cluster needs, below which the promising sites come first."""
_ANSWER, _FIRST_PACE, _QUICKEST_PACE, _SLOWEST_PACE, _FORGET = 5e-5, 3e-5, 2.5e-5, 1e-4, 0.9
"""Seconds to decode and verify a plan, more per stage before any was measured, at least and at most, and what is left
of a pace after a quicker plan."""
_PART_LEAST, _PART_STAGE = 2e-4, 4e-5
"""Seconds from which a solve over the promising sites may come to something: at least, and more per stage."""
_FIRST, _FIRST_CHECK = 1.2e-4, 5e-5
"""Seconds of a first plan at least; of these, the part of telling and verifying it."""
_CHECK_LEAST, _CHECK_PACE, _SLOWEST_CHECK = 3e-5, 6e-6, 4e-5
"""Seconds to verify it, more per stage at least, and at most."""
_FRESH = 0.2
"""Weight of the last of these in what is expected of the next."""
_WITH_TELLING, _WITH_ALL = 1.7, 2.3
"""Multiples of that to tell it, too, and to cost and place it before."""
_GRACE = 1.5e-4
"""Seconds by which a first plan may be late, where there would be none."""
_SOLVE_NEEDS = 5e-4
"""Seconds from which a solve over all sites may come to something."""
_WORTH_A_TRY = 0.3
"""Part of that from which it is tried all the same, where the promising sites have no plan."""


class InTime:
    """What a planner has learnt from its requests for the next: prices of limits, and the pace of its answers."""

    def __init__(self) -> None:
        # Prices of the last solve that had any: what memory is worth hardly changes from one request to the next.
        self._multipliers: Multipliers | None = None
        self._pace = _FIRST_PACE
        self._check_pace = _CHECK_PACE
        self._first = FirstPlans()

    def for_another(self) -> InTime:
        """The same for a planner of a like cluster, which learns on its own."""
        other = copy.copy(self)
        other._first = FirstPlans()
        return other

    def prepare(self, cluster: CompiledCluster) -> None:
        """What the next deadline need not wait for."""
        self._first.prepare(cluster)

    def learn(self, seconds: float, stages: int) -> None:
        """Take the seconds that decoding and verifying so many stages took for what they will take; forget slow ones.

        No seconds: there was no answer.
        """
        pace = (seconds - _ANSWER) / stages
        self._pace = min(_SLOWEST_PACE, max(pace, _QUICKEST_PACE, _FORGET * self._pace))

    def learn_check(self, seconds: float, stages: int) -> None:
        """Let the seconds that verifying a first plan took count for what the next one's will take."""
        pace = self._check_pace + _FRESH * ((seconds - _CHECK_LEAST) / stages - self._check_pace)
        self._check_pace = min(_SLOWEST_CHECK, max(pace, _CHECK_PACE))

    def first(
        self, cluster: CompiledCluster, request: RequestSpec, graph: GraphSpec, solver: str, clock: Clock
    ) -> Plan | None:
        """A first plan, yet to be verified, where the time is too short to wait for others."""
        if solver != "auto" or self._ready(graph, clock).left >= _PART_FIRST * _whole_seconds(cluster, graph):
            return None
        pace = self._check_pace * len(graph.stages)
        if clock.left + _GRACE < pressure() * (_FIRST + _WITH_ALL * pace):
            # Else a burst of slow ones would be the last that is measured.
            self.learn_check(_CHECK_LEAST, len(graph.stages))
            return None
        check = pressure() * (_FIRST_CHECK + _WITH_TELLING * pace) - _GRACE
        return self._first.plan(cluster, graph, request, Clock(clock.limit - check, clock.start))

    def _ready(self, graph: GraphSpec, clock: Clock) -> Clock:
        """The clock less what is needed to decode and verify a plan."""
        return Clock(clock.limit - pressure() * (_ANSWER + self._pace * len(graph.stages)), clock.start)

    def solve(
        self, cluster: CompiledCluster, request: RequestSpec, graph: GraphSpec, solver: str, params: Params,
        clock: Clock, near: Plan | None, *, planned: bool,
    ) -> tuple[Compiled | None, Result | None]:  # fmt: skip
        """The best result before the clock ends, less what is needed to decode and verify it, and what it is of.

        Short deadlines begin with the promising sites. ``None`` where the time did not suffice to compile, or, where
        there is a plan already (``planned``), for anything that may be better.
        """
        ready = self._ready(graph, clock)
        needs = _whole_seconds(cluster, graph)
        part: tuple[Compiled, Result] | None = None
        first = needs if near is not None else _PART_FIRST * needs
        if solver == "auto" and ready.left < first and can_focus(graph, request, cluster):
            if planned and ready.left < pressure() * (_PART_LEAST + _PART_STAGE * len(graph.stages)):
                return None, None
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
