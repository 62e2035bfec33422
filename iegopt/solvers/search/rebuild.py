"""Ruin and recreate: better plans by placing a part of one anew, again and again, colder and colder.

A step takes some stages off, connected ones or those in one group of the topology, and puts them back one by one, each
where it fits and costs least with what is placed by then; now and then the best place is overlooked. The new plan takes
the place of the old one where it is no worse than by an amount drawn at random, in the mean ``heat``, which falls over
a round (simulated annealing). A step is given up as soon as it can no longer stay below that.

Sources: Schrimpf et al., Record breaking optimization results using the ruin and recreate principle, Journal of
Computational Physics 159 (2000); Christiaens, Vanden Berghe, Slack induction by string removals, Transportation Science
54 (2020), for what is taken off and what is overlooked.
"""

from __future__ import annotations

import math
import random

import numpy as np
import numpy.typing as npt

from iegopt.errors import InternalError
from iegopt.problem.arrays import Problem
from iegopt.problem.transfer import chosen_transfers
from iegopt.solvers.clock import Clock, lag
from iegopt.solvers.evaluate import feasible
from iegopt.solvers.exact.messages import UNREACHABLE
from iegopt.solvers.exact.relaxation import Relaxation
from iegopt.solvers.result import Report, unheard
from iegopt.solvers.search.beginning import Best
from iegopt.solvers.search.compiled_rebuild import CompiledRebuild, compilable, layout_seconds
from iegopt.solvers.search.state import State

__all__ = ["rebuild", "unbuildable"]

Ints = npt.NDArray[np.int64]

_COOLING = 0.04
"""The heat at the end of a round, in parts of that at its start."""
_CHUNK_SHARE, _CHUNK_MOST = 0.02, 0.005
"""Share of a round, and seconds at most, between two looks at the clock."""
_OF_LAYOUT, _FORGOTTEN = 0.5, 0.9
"""Part of the time to take the plan over that a step is expected to take at first, and what is left with every chunk of
the time of the slowest."""
_STAGE_NEEDS = 6e-5
"""Seconds a stage to take a plan over, as measured on one core of a server."""
_OVERLOOKED = 0.02
"""Chance that the best place is overlooked."""
_BY_EDGES, _AT_RANDOM, _LARGEST_FIRST = 0.5, 0.4, 0.4
"""Chance that connected stages are taken off; that stages are put back in an order drawn, and the largest first."""


def unbuildable(problem: Problem) -> str | None:
    """Why plans are not rebuilt, or ``None``: a stage placed without its followers does not know when they must end."""
    return "limits along paths" if problem.has_path_limits else None


def rebuild(
    relaxed: Relaxation, best: Best, clock: Clock, rng: random.Random, check: bool, report: Report = unheard,
    least: float = 0.0, turns: int = 1,
) -> tuple[Best, int]:  # fmt: skip
    """Rounds from a feasible plan until the clock ends or the bound is met: the best plan, and how many steps it took.

    ``report`` receives better plans, ``check`` recomputes every plan in full; it ends after so many turns of all kinds
    of rounds none of which gained ``least`` of the objective.
    """
    problem, steps = relaxed.problem, 0
    if problem.V < 2 or clock.left < lag() * _STAGE_NEEDS * problem.V + layout_seconds(problem):
        return best, steps
    engine: CompiledRebuild | _ByState
    begun = clock.seconds
    if compilable(relaxed):
        engine = CompiledRebuild(relaxed, best, rng, check)
    else:
        engine = _ByState(relaxed, best, rng, check, clock)
    scale = _scale(problem, best[1])
    rounds, idle, needs = 0, 0, _OF_LAYOUT * (clock.seconds - begun)
    while clock.left > needs and best[0] != relaxed.bound:
        most, hot = engine.rounds[rounds % len(engine.rounds)]
        rounds += 1
        before = best[0]
        engine.restart()
        own = clock.slice(engine.round_seconds)
        length, chunk = max(own.left, 1e-9), 1
        while (left := own.left) > 0 and clock.left > needs and best[0] != relaxed.bound:
            engine.go(hot * scale * _COOLING ** (1 - left / length), min(most, problem.V), chunk)
            steps += chunk
            if engine.best[0] < best[0]:
                best = engine.best
                report(best[1], None, None)
            each = max(1e-7, (left - own.left) / chunk)
            needs = max(each, _FORGOTTEN * needs)
            chunk = max(1, int(min(_CHUNK_SHARE * length, _CHUNK_MOST, own.left) / each))
        idle = idle + 1 if before - best[0] < least * abs(before) else 0
        if idle == turns * len(engine.rounds):
            break
    return best, steps


def _scale(problem: Problem, plan: Ints) -> float:
    """Ticks: what the options of a stage differ by, and what the edges of a plan cost, in the mean over the stages."""
    cost = problem.options.cost
    spread = 0.0
    for v in range(problem.V):
        own = cost[problem.options.of(v)][problem.allowed[problem.options.of(v)]]
        spread += _median(own) - float(own.min())
    return max(1.0, (spread + float(chosen_transfers(problem, plan).cost.sum())) / max(1, problem.V))


def _median(values: Ints) -> float:
    """As ``numpy.median``, which takes several times as long of a few."""
    middle = [(len(values) - 1) // 2, len(values) // 2]
    return float(np.partition(values, middle)[middle].mean())


class _ByState:
    """Steps by array operations, whatever couples the stages but limits along paths; ``best`` is the best plan."""

    round_seconds = 1.5
    rounds = ((10, 0.15),)

    def __init__(self, relaxed: Relaxation, best: Best, rng: random.Random, check: bool, clock: Clock) -> None:
        problem = relaxed.problem
        self.best, self._rng, self._clock = best, rng, clock
        self._state = State(problem, relaxed.messages, check)
        self._site: Ints = problem.options.site
        self._groups = [row for row in problem.topology.group if (row >= 0).any()]
        self._near = [self._state.neighbours(v) for v in range(problem.V)]
        least = np.where(problem.allowed, problem.options.cost, UNREACHABLE)
        self._least: list[int] = np.minimum.reduceat(least, problem.options.ptr[:-1]).tolist()
        self.restart()

    def restart(self) -> None:
        """Go back to the best plan."""
        self._state.adopt(self.best[1])

    def go(self, heat: float, most: int, steps: int) -> None:
        """As that of ``CompiledRebuild``; ends with the clock."""
        for _ in range(steps):
            if self._clock.left <= 0:
                return
            self._step(heat, most)

    def _step(self, heat: float, most: int) -> None:
        state, rng = self._state, self._rng
        out = self._drawn(rng.randint(2, most))
        before, value = [state.choice[v] for v in out], state.value
        for v in out:
            state.place(v, -1)
        limit = value - int(heat * math.log(1.0 - rng.random()))
        rest = sum(self._least[v] for v in out)
        for v in self._ordered(out, before):
            rest -= self._least[v]
            option = self._place_for(v, limit - state.value - rest)
            if option is None:
                break
            state.place(v, option)
        else:
            if state.value < self.best[0]:
                self.best = state.value, state.plan()
                if state.check and not feasible(state.problem, self.best[1]):
                    raise InternalError("rebuild: a plan that no step knew to be infeasible is")
            return
        for v, option in zip(out, before, strict=True):
            state.place(v, option)

    def _place_for(self, v: int, most: int) -> int | None:
        """The option that costs least and breaks nothing, now and then the next one, if it costs at most so much."""
        offers = self._state.offers(v)
        cost = np.where(offers.violation <= 0, offers.cost, UNREACHABLE)
        best = int(cost.argmin())
        if self._rng.random() < _OVERLOOKED:
            cost[best] = UNREACHABLE
            best = int(cost.argmin())
        return self._state.ptr[v] + best if cost[best] <= min(most, UNREACHABLE - 1) else None

    def _drawn(self, want: int) -> list[int]:
        """Stages that are connected, or that stand in one group."""
        rng = self._rng
        out = [rng.randrange(len(self._near))]
        if not self._groups or rng.random() < _BY_EDGES:
            for _ in range(4 * want):
                near = self._near[rng.choice(out)]
                w = rng.choice(near) if near else out[0]
                if w not in out and len(out) < want:
                    out.append(w)
            return out
        group = rng.choice(self._groups)
        at = group[self._site[self._state.choice]]
        others = [v for v in np.flatnonzero(at == at[out[0]]).tolist() if v != out[0] and at[v] >= 0]
        rng.shuffle(others)
        return out + others[: want - 1]

    def _ordered(self, out: list[int], before: list[int]) -> list[int]:
        """In the order in which they are put back: as drawn, the largest first, or the dearest first."""
        rng, order = self._rng, list(out)
        rng.shuffle(order)
        kind = rng.random()
        if kind < _AT_RANDOM:
            return order
        if kind < _AT_RANDOM + _LARGEST_FIRST:
            share = dict(zip(out, self._state.problem.options.share[before].tolist(), strict=True))
            return sorted(order, key=lambda v: -share[v])
        return sorted(order, key=lambda v: -self._least[v])
