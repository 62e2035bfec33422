"""The weights at which the optimum itself moves a stage: parametric optimisation by re-solving.

The least cost is a concave, piecewise linear function of one weight, each plan a line; two neighbouring plans cross at
a breakpoint, and a solve there either meets their value, which proves the breakpoint, or gives a cheaper plan, which
splits the interval in two (Eisner and Severance 1976). One search serves all stages: each of them flips at the
first breakpoint behind which it stands elsewhere. Between plans that cost the same, the one with more stages where
they are now is preferred, at a nanosecond a stage.
"""

from __future__ import annotations

import dataclasses

import numpy as np
import numpy.typing as npt

from iegopt.explain.chosen import term_sums
from iegopt.explain.sensitivity import REPLAN, TERM_OF, Flip, Sensitivity, weights_of
from iegopt.problem.arrays import TICKS_PER_SECOND
from iegopt.problem.compile import Compiled, compile_graph
from iegopt.solvers.api import solve
from iegopt.solvers.clock import Clock
from iegopt.solvers.evaluate import objective
from iegopt.solvers.result import Params, Status
from iegopt.spec.request import Weights

__all__ = ["flips_by_replan"]

Ints = npt.NDArray[np.int64]

_REACH = 10.0
"""A weight is searched from 0 to this many times the larger of itself and 1."""
_SHARE = 0.5
"""Share of the time left that one solve may take."""
_RELATIVE = 1e-9
"""Values this close are equal: what rounding every term to nanoseconds leaves."""


def flips_by_replan(
    compiled: Compiled, choice: Ints, clock: Clock, params: Params | None = None, *, optimal: bool = True
) -> Sensitivity:
    """Per stage and weight the nearest value, up and down, at which the re-solved optimum has the stage elsewhere.

    ``optimal`` says what is proven of ``choice``.
    """
    weights = weights_of(compiled)
    searched = {name: (0.0, _REACH * max(now, 1.0)) for name, now in weights.items()}
    todo = [(name, end) for name in TERM_OF for end in searched[name] if end != weights[name]]
    done: dict[tuple[str, float], _Search] = {}
    for _ in range(2):  # what the quick searches leave of the time is for the others
        again = [one for one in todo if one not in done or not done[one].finished]
        for number, (name, end) in enumerate(again):
            share = clock.slice(max(clock.left, 0.0) / (len(again) - number))
            if (name, end) not in done or share.left > 2 * done[name, end].seconds:
                done[name, end] = _Search(compiled, choice, name, weights[name], share, params or Params(), optimal)
                done[name, end].run(end)
    flips = [flip for search in done.values() for flip in search.flips.values()]
    left_out = [
        f"{name} {'up' if end > weights[name] else 'down'}" for name, end in todo if not done[name, end].finished
    ]
    unproven = sum(not search.proven for search in done.values())
    order = {stage: v for v, stage in enumerate(compiled.problem.stages)}
    flips.sort(key=lambda flip: (order[flip.stage], list(TERM_OF).index(flip.weight), flip.change))
    notes = [f"the time limit ended the search of {', '.join(left_out)}"] if left_out else []
    if unproven:
        notes.append(f"{unproven} of {len(todo)} searches hold plans that are not proven optimal")
    return Sensitivity(tuple(flips), not left_out, "; ".join(notes), searched)


@dataclasses.dataclass(frozen=True, eq=False)
class _Line:
    """A plan's cost as a function of the weight: ``rest + slope · weight`` seconds.

    ``proven``: that it is the least at the weight where it was found.
    """

    choice: Ints
    slope: float
    rest: float
    proven: bool

    def at(self, weight: float) -> float:
        return self.rest + self.slope * weight


class _Search:
    """The breakpoints of one weight from its present value to one end, nearest first."""

    def __init__(
        self, compiled: Compiled, choice: Ints, name: str, now: float, clock: Clock, params: Params, optimal: bool
    ) -> None:
        self._compiled, self._name, self._now, self._clock, self._params = compiled, name, now, clock, params
        self._tier = compiled.tiers.index(compiled.tier) if compiled.tier is not None else None
        self._home = compiled.problem.options.site[choice]
        self._first = self._line(choice, optimal)
        self.flips: dict[int, Flip] = {}
        self.proven = True
        self.finished = True
        self.seconds = 0.0

    def run(self, end: float) -> None:
        started = self._clock.seconds
        self._search(end)
        self.seconds = self._clock.seconds - started

    def _search(self, end: float) -> None:
        last = self._solve(end)
        if last is not None:
            self._between(self._now, self._first, end, last)
            self.proven &= last.proven  # else there may be more behind the last breakpoint

    def _between(self, a: float, left: _Line, b: float, right: _Line) -> None:
        """Breakpoints between ``a``, where ``left`` is optimal, and ``b``, where ``right`` is."""
        end = b
        todo = [(a, left, b, right)]
        while todo:
            a, left, b, right = todo.pop()
            slack = _RELATIVE * max(abs(left.at(b)), abs(left.at(a))) + 1e-9 * 4 * len(left.choice)
            if left.slope == right.slope:
                continue
            if left.at(b) <= right.at(b) + slack:  # both are optimal at b, and right alone behind it
                if b != end:
                    self._turn(b, right, left.proven and right.proven)
                continue
            cross = min(max((right.rest - left.rest) / (left.slope - right.slope), min(a, b)), max(a, b))
            between = self._solve(cross)
            if between is None:
                return
            if between.at(cross) >= left.at(cross) - slack:
                self._turn(cross, right, left.proven and between.proven)
                continue
            todo += [(cross, between, b, right), (a, left, cross, between)]

    def _turn(self, weight: float, plan: _Line, proven: bool) -> None:
        self.proven &= proven
        problem = self._compiled.problem
        for v in np.flatnonzero(problem.options.site[plan.choice] != self._home).tolist():
            if v not in self.flips and v < len(self._compiled.graph.stages):
                o = int(plan.choice[v])
                site = problem.topology.sites[int(problem.options.site[o])]
                variant = problem.variants[int(problem.options.variant[o])]
                self.flips[v] = Flip(
                    REPLAN, problem.stages[v], self._name, self._now, weight, site, variant, self.proven
                )  # fmt: skip

    def _solve(self, weight: float) -> _Line | None:
        """The optimum at a weight; ``None``, and the search is not finished, where the time ends first."""
        if self._clock.left <= 0:
            self.finished = False
            return None
        problem = self._at(weight).problem
        options = problem.options
        away = options.site != self._home[options.stage]
        problem = dataclasses.replace(problem, options=dataclasses.replace(options, cost=options.cost + away))
        result = solve(problem, "auto", dataclasses.replace(self._params, time_limit=_SHARE * self._clock.left))
        if result.choice is None:
            self.finished = False
            return None
        return self._line(result.choice, result.status is Status.OPTIMAL)

    def _line(self, choice: Ints, proven: bool) -> _Line:
        slope = term_sums(self._compiled, choice)[TERM_OF[self._name]]
        return _Line(
            choice, slope, objective(self._compiled.problem, choice) / TICKS_PER_SECOND - slope * self._now, proven
        )

    def _at(self, weight: float) -> Compiled:
        """The problem with another value of the weight; options keep their indices."""
        given = {**weights_of(self._compiled), self._name: weight}
        request = self._compiled.request.model_copy(update={"weights": Weights.model_validate(given)})
        return compile_graph(self._compiled.cluster, self._compiled.graph, request, tier=self._tier)
