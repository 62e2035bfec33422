"""Solver ``local``: local search from a feasible plan, by the search that suits the problem.

Problems of few options, where only memory couples the stages, go to tabu search (``tabu.py``); in others parts of the
plan are built anew (``rebuild.py``), and where limits along paths make that blind, it is kicked: descend by shifts,
then swaps and gatherings (variable neighbourhood descent); kick a few connected stages to other good options, even
ones that overload a device; repair; descend from what was touched; keep the result where it is not much worse
(threshold accepting), else go back. Where no first plan is feasible, the repair walk is restarted from new starts until
one is.

Source: Lourenço, Martin, Stützle, Iterated local search, Handbook of Metaheuristics (2003).
"""

from __future__ import annotations

import random
from collections.abc import Iterable

import numpy as np
import numpy.typing as npt

from iegopt.problem.arrays import Problem
from iegopt.solvers.clock import Clock
from iegopt.solvers.exact.relaxation import Relaxation, relaxation
from iegopt.solvers.exact.tree import relaxed_result
from iegopt.solvers.result import Params, Report, Result, Status, unheard
from iegopt.solvers.search.beginning import Best, before_relaxation, quick_start
from iegopt.solvers.search.greedy import construct, first_plans, plan_without_time
from iegopt.solvers.search.moves import Move, best_shift, cheapest_by_site, gathers, swaps
from iegopt.solvers.search.outcome import outcome, relaxation_proof
from iegopt.solvers.search.rebuild import rebuild, unbuildable
from iegopt.solvers.search.repair import repair
from iegopt.solvers.search.state import State
from iegopt.solvers.search.tabu import TabuSearch, tabu_reason, tabu_seconds
from iegopt.solvers.timed.solve import solve_timed

__all__ = ["LocalSolver", "improve", "search_feasible"]

Ints = npt.NDArray[np.int64]

_SLACK = 0.01
"""A plan this much above the current one may still take its place at the start; falls to 0 over the run."""
_REPAIR_STEPS = 40


class LocalSolver:
    """Iterated local search; its bound is the relaxation's. One second where no limit is given."""

    name = "local"
    exact = False

    def supports(self, problem: Problem) -> str | None:
        return None

    def solve(self, problem: Problem, params: Params, hint: npt.NDArray[np.int64] | None) -> Result:
        clock = Clock(params.time_limit if params.time_limit is not None else 1.0)
        if problem.timed:
            hint = plan_without_time(problem, params, hint)
            return solve_timed(problem, params, hint, self.name, clock, search=True, engine=False)
        best = quick_start(problem, clock, hint)
        relaxed = relaxation(problem, clock)
        if relaxed is None:
            return before_relaxation(best, self.name, clock)
        proven = relaxed_result(relaxed, self.name, clock.start)
        if proven.status is not Status.UNKNOWN:
            return proven
        rng = random.Random(params.seed)
        for plan in first_plans(relaxed, clock, rng, params.check):
            best = plan if best is None else min(best, plan, key=lambda each: each[0])
            params.report(best[1], relaxed.bound, relaxation_proof(relaxed))
        note = ""
        if tabu_reason(problem, problem.allowed) is not None:
            pass
        elif clock.left <= tabu_seconds(problem, problem.allowed):
            note = "; no time left to lay the options out for tabu search"
        else:
            tabu = TabuSearch(problem, problem.allowed, best, params.seed, params.check, params.report)
            tabu.run(clock, relaxed.bound)
            return outcome(relaxed, tabu.best, self.name, clock, f"{tabu.steps} steps of tabu search")
        if best is None:
            best = search_feasible(relaxed, clock, rng, params.check)
        rounds = 0
        if best is not None:
            best, rounds = improve(relaxed, best, clock, rng, params.check, params.report)
        return outcome(relaxed, best, self.name, clock, f"{rounds} steps of local search{note}")


def search_feasible(relaxed: Relaxation, clock: Clock, rng: random.Random, check: bool) -> Best | None:
    """Repair walks from constructions in random order, until one is feasible or the clock ends."""
    problem = relaxed.problem
    walk = 200
    while clock.left > 0:
        order = list(range(problem.V))
        rng.shuffle(order)
        state = construct(relaxed, order, clock, check)
        if state is not None and repair(state, clock, rng, walk * (1 + problem.V // 4)):
            return state.value, state.plan()
        walk += walk // 2
    return None


def improve(
    relaxed: Relaxation, best: Best, clock: Clock, rng: random.Random, check: bool, report: Report = unheard
) -> tuple[Best, int]:
    """Search from a feasible plan until the clock ends or the bound is met; returns the best plan and the steps.

    ``report`` receives every better plan.
    """
    search = rebuild if unbuildable(relaxed.problem) is None else _kicked
    return search(relaxed, best, clock, rng, check, report)


def _kicked(
    relaxed: Relaxation, best: Best, clock: Clock, rng: random.Random, check: bool, report: Report
) -> tuple[Best, int]:
    """Iterated local search."""
    problem, bound = relaxed.problem, relaxed.bound
    state = State(problem, relaxed.messages, check)
    kicks = 0
    for v, option in enumerate(best[1].tolist()):
        if clock.left <= 0:
            return best, kicks
        state.place(v, option)
    neighbourhood = _Neighbourhood(state)
    neighbourhood.descend(range(problem.V), clock)
    begun, length = clock.seconds, max(clock.left, 1e-9)
    if state.value < best[0]:
        best = state.value, state.plan()
        report(best[1], None, None)
    while clock.left > 0 and best[0] != bound and problem.V > 0:
        kicks += 1
        before, before_value = state.plan(), state.value
        touched = _kick(state, rng)
        fine = repair(state, clock, rng, _REPAIR_STEPS)
        if fine:
            neighbourhood.descend(touched, clock)
            if state.value < best[0]:
                best = state.value, state.plan()
                report(best[1], None, None)
        slack = _SLACK * max(0.0, 1.0 - (clock.seconds - begun) / length) * rng.random()
        if not fine or state.value > before_value + slack * abs(before_value):
            state.adopt(before)
        if kicks % 100 == 0:
            state.memory.pressure[:] = 1.0
            state.adopt(best[1])
    return best, kicks


class _Neighbourhood:
    """The neighbourhoods of a feasible plan, and descent through them."""

    def __init__(self, state: State) -> None:
        self.state = state
        self._at_site: dict[int, Ints] = {}

    def at_site(self, stage: int) -> Ints:
        """(S,) the cheapest allowed option of a stage on every site, −1 where there is none."""
        table = self._at_site.get(stage)
        if table is None:
            table = self._at_site[stage] = cheapest_by_site(self.state.problem, stage)
        return table

    def descend(self, stages: Iterable[int], clock: Clock) -> None:
        """First improvements from some stages outwards, until none is left around what was touched."""
        todo = dict.fromkeys(stages)
        while todo and clock.left > 0:
            later: dict[int, None] = {}
            while todo and clock.left > 0:
                v = next(iter(todo))
                del todo[v]
                shift = best_shift(self.state, v)
                if shift is None:
                    later[v] = None
                    continue
                shift.apply(self.state)
                todo.update(dict.fromkeys([*self.state.neighbours(v), v]))
            for v in later:
                if clock.left <= 0:
                    return
                touched = self._compound(v, clock)
                if touched:
                    for w in touched:
                        todo.update(dict.fromkeys([*self.state.neighbours(w), w]))
                    break

    def _compound(self, stage: int, clock: Clock) -> tuple[int, ...]:
        """Make the first improving swap or gathering of a stage; returns the stages moved."""
        state = self.state
        for swap in swaps(state, stage, self.at_site):
            if clock.left <= 0:
                return ()
            if _better(state, swap):
                return swap.stages
        site = state.problem.options.site
        for w in state.neighbours(stage):
            if clock.left <= 0:
                return ()
            here = {int(site[state.choice[v]]) for v in (stage, w)}
            group = [stage, w]
            for v in state.neighbours(stage):
                if v != w and int(site[state.choice[v]]) in here and len(group) < 4:
                    group.append(v)
            for members in dict.fromkeys([(stage, w), tuple(group)]):
                for gather in gathers(state, members):
                    if _better(state, gather):
                        return gather.stages
        return ()


def _better(state: State, move: Move) -> bool:
    """Make a move where it lowers the objective and keeps the constraints."""
    if move.delta(state) >= 0 or not move.supports(state):
        return False
    move.apply(state)
    return True


def _kick(state: State, rng: random.Random) -> list[int]:
    """Move a few connected stages to other good options, whatever they break; returns the stages."""
    stages = [rng.randrange(state.problem.V)]
    for _ in range(rng.randint(0, 3)):
        near = state.neighbours(rng.choice(stages))
        stages.append(rng.choice(near) if near and rng.random() < 0.8 else rng.randrange(state.problem.V))
    stages = list(dict.fromkeys(stages))
    for v in stages:
        offers = state.offers(v)
        open_options = np.flatnonzero(np.isfinite(offers.violation))
        if len(open_options) < 2:
            continue
        cost = offers.cost[open_options].astype(np.float64)
        cost += np.minimum(offers.violation[open_options], 10.0) * (abs(state.value) / state.problem.V)
        rank = min(int(rng.expovariate(0.3)), len(open_options) - 1)
        pick = int(open_options[np.argpartition(cost, rank)[rank]])
        state.place(v, state.ptr[v] + pick)
    return stages
