"""Better plans by solving parts of one exactly: large neighbourhood search with prices (Shaw, CP 1998).

A connected set of stages is set free, all others stay where the best plan has them, and branch and bound on prices
solves what is left: few options survive there, since the fixed stages pin both memory and transfers. The set grows
where its problems are solved and shrinks where they are not.
"""

from __future__ import annotations

import random

import numpy as np
import numpy.typing as npt

from iegopt.problem.arrays import Problem
from iegopt.solvers.clock import Clock
from iegopt.solvers.exact.bounding import PricedSearch
from iegopt.solvers.incumbent import plans_only
from iegopt.solvers.result import Report, unheard

__all__ = ["Neighbourhoods"]

Ints = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]

_START, _LEAST = 8, 3
"""Free stages at first and at least."""
_SECONDS, _NEEDS = 0.3, 0.05
"""For one neighbourhood at most, and what must be left for another."""
_PHASES = 3


class Neighbourhoods:
    """The search around the best plan of a problem; ``size`` is the number of free stages next time.

    ``report`` receives every better plan.
    """

    def __init__(self, problem: Problem, rng: random.Random, report: Report = unheard) -> None:
        self.problem = problem
        self.rng = rng
        self.size = min(_START, problem.V)
        self.solved = 0
        self._report = plans_only(report)
        self._near: list[list[int]] = [[] for _ in range(problem.V)]
        for u, v in zip(problem.edges.source.tolist(), problem.edges.target.tolist(), strict=True):
            self._near[u].append(v)
            self._near[v].append(u)

    def improve(self, best: tuple[int, Ints], survivors: Bools, clock: Clock) -> tuple[int, Ints]:
        """The best (objective, plan) of neighbourhoods around a plan until the clock ends.

        Parameters
        ----------
        survivors (O,)
            Options that a better plan can use.
        """
        problem = self.problem
        while clock.left > _NEEDS and problem.V > 1:
            mask = np.zeros(len(survivors), dtype=np.bool_)
            mask[best[1]] = True
            for v in self._connected(best[1]):
                part = problem.options.of(v)
                mask[part] |= survivors[part]
            own = clock.slice(_SECONDS)
            search = PricedSearch(problem, mask, best, own, report=self._report)
            search.bound_root(_PHASES)
            search.explore(own)
            self.solved += 1
            if search.done:
                self.size = min(problem.V, self.size + 1)
            else:
                self.size = max(_LEAST, self.size - 1)
            if search.value is not None and search.plan is not None and search.value < best[0]:
                best = search.value, search.plan
        return best

    def _connected(self, plan: Ints) -> list[int]:
        """Stages around a random one: joined by edges, or on devices of the same sites."""
        site = self.problem.options.site[plan]
        stages = [self.rng.randrange(self.problem.V)]
        while len(stages) < self.size:
            v = self.rng.choice(stages)
            near = [w for w in self._near[v] if w not in stages]
            near = near or [w for w in range(self.problem.V) if w not in stages and site[w] == site[v]]
            if self.rng.random() < 0.1 or not near:
                near = [w for w in range(self.problem.V) if w not in stages]
            stages.append(self.rng.choice(near))
        return stages
