"""Generalised assignment by columns: a column is what one device takes, and a linear programme mixes them.

1. Column generation: HiGHS solves the master over the columns so far, a knapsack per device
   (``exact/knapsacks.py``) finds those it lacks. For any prices μ ≥ 0 of the stages

       bound(μ) = Σ_v μ_v − Σ_d max over what fits d of Σ (μ_v − cost)

   holds. Prices are drawn towards the best so far (Wentges, International Transactions in Operational Research 4,
   1997), and are whole ticks, so that bounds are exact.
2. Diving: the column with the largest part in the mixture is taken, the rest is solved again with new columns, until
   every device has one; columns with a stage that is taken already are left out until the end of the dive, which makes
   the programme small. The first dive is greedy, later ones weigh the parts at random.

Rows say that a stage is on some device at least; of a stage on several the cheapest counts, since costs are told from
the cheapest option of each stage and are so never negative.

Source: Savelsbergh, A branch-and-price algorithm for the generalized assignment problem, Operations Research 45 (1997);
Sadykov, Vanderbeck, Pessoa, Tahiri, Uchoa, Primal heuristics for branch and price: the assets of diving methods,
INFORMS Journal on Computing 31 (2019).
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from iegopt.errors import BackendError
from iegopt.problem.arrays import NO_LIMIT, Problem
from iegopt.solvers.clock import Clock
from iegopt.solvers.exact.capacity_prices import capacity_prices
from iegopt.solvers.exact.knapsacks import knapsacks
from iegopt.solvers.grain import grain_of, next_value
from iegopt.solvers.incumbent import Incumbent, Report
from iegopt.solvers.result import Params, Result, unheard

__all__ = ["run_columns"]

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]

_INERTIA, _DIVE_INERTIA = 0.85, 0.5
"""Weight of the best prices so far in the next ones, at first and in a dive; 0 once they bring no new column."""
_WHOLE = 0.999
"""Part from which a column counts as taken by the master itself."""
_PRICES_SHARE = 0.05
_DIVE_ROUNDS = 60
"""Rounds of new columns for every column taken, at most: with few, those at hand seldom fit the last stages."""
_NEAR = 0.25
"""Part of the grain between master and bound at which the columns suffice."""
_IDLE_DIVES = 40
"""Dives without a better plan at which to stop."""
_LEAST_WEIGHT = 0.5
"""What a column's part counts at least after the first dive."""
_ARTIFICIAL = 3
"""Cost of a stage on no device, in dearest options."""
_DUAL, _PRIMAL = 1, 4
"""HiGHS's numbers of the simplex methods."""
_PROOF = "column generation"


def run_columns(problem: Problem, params: Params, hint: Ints | None, report: Report = unheard) -> Result:
    """Bound and plans of a problem that ``separable.inseparable`` does not refuse, in this process.

    Raises
    ------
    BackendError
        Costs so large that sums of them would overflow, or HiGHS failed.
    """
    clock = Clock(float("inf") if params.time_limit is None else params.time_limit)
    best = Incumbent(problem, "columns", hint, report)
    run = _Columns(problem, best, clock, params.seed)
    rounds = run.generate()
    dives = run.dives()
    note = f"{len(run.chosen)} columns in {rounds} rounds, {dives} dives"
    return best.result(clock.seconds, note=note)


class _Columns:
    """The master and its columns; mutable."""

    def __init__(self, problem: Problem, best: Incumbent, clock: Clock, seed: int) -> None:
        import highspy

        options = problem.options
        self.problem, self.best, self.clock = problem, best, clock
        self.random = np.random.default_rng(seed)
        self.grain = grain_of(problem)
        allowed = problem.allowed
        least = np.minimum.reduceat(np.where(allowed, options.cost, NO_LIMIT), options.ptr[:-1])
        self.cost = np.where(allowed, options.cost - least[options.stage], 0)
        """(O,) above the cheapest option of the stage."""
        self.base = int(least.sum())
        dearest = max(1, int(self.cost.max()))
        if (_ARTIFICIAL + 1) * dearest > 2**61 // problem.V:
            raise BackendError(f"costs up to {dearest} ticks are too large for columns")
        self.unit = max(1, dearest // 1000)
        """Ticks in one of the master."""
        self.packs = knapsacks(problem)
        self.exact = all(pack.exact for pack in self.packs)
        prices = capacity_prices(problem, best.objective, clock.slice(_PRICES_SHARE * min(clock.left, 60.0)))
        topology = problem.topology
        self.device = topology.device_index[topology.device_ptr[options.site]]
        rent = np.floor(prices.price[self.device] * options.share / np.maximum(problem.capacity[self.device], 1))
        reduced = np.where(allowed, self.cost + rent.astype(np.int64), _ARTIFICIAL * dearest)
        self.price = np.minimum.reduceat(reduced, options.ptr[:-1])
        """(V,) ticks; the best prices of stages so far."""
        self.chosen: list[tuple[int, Ints]] = []
        self._known: set[tuple[int, bytes]] = set()
        self.highs: Any = highspy.Highs()  # type: ignore[no-untyped-call]
        for name, setting in (("output_flag", False), ("threads", 1)):
            self.highs.setOptionValue(name, setting)
        self._rebounded = False
        """Whether bounds of columns have changed since the master was solved."""
        self.endless = highspy.kHighsInf
        none, nothing = np.zeros(0, dtype=np.int32), np.zeros(0)
        for _ in range(problem.V):
            self.highs.addRow(1.0, self.endless, 0, none, nothing)
        for _ in self.packs:
            self.highs.addRow(-self.endless, 1.0, 0, none, nothing)
        for v in range(problem.V):
            self.highs.addCol(
                _ARTIFICIAL * dearest / self.unit, 0.0, self.endless, 1, np.array([v], dtype=np.int32), np.ones(1)
            )
        if best.choice is not None:
            for d in range(len(self.packs)):
                self._add(d, best.choice[self.device[best.choice] == d])

    def generate(self) -> int:
        """Columns until the master is as good as proven; the rounds it took."""
        self.price, rounds = self._converge(self.price, np.zeros(self.problem.V, dtype=np.bool_), {}, None)
        return rounds

    def dives(self) -> int:
        """Dive until time is over, the bound is met or many dives brought nothing; how many."""
        dives = idle = 0
        while not self._over() and idle < _IDLE_DIVES:
            known = self.best.objective
            self._dive(noisy=dives > 0)
            dives += 1
            idle = idle + 1 if self.best.objective == known else 0
        return dives

    def _over(self) -> bool:
        closed = self.best.bound is not None and self.best.bound >= (self.best.objective or NO_LIMIT)
        return self.clock.left <= 0 or closed

    def _too_dear(self, value: float) -> bool:
        """Whether no plan of at least this value, in ticks above the cheapest options, is better than the best."""
        known = self.best.objective
        return known is not None and value + self.base > known - self.grain

    def _add(self, device: int, options: Ints) -> bool:
        """A column, unless it is known; tells whether it was new."""
        key = (device, options.tobytes())
        if key in self._known:
            return False
        self._known.add(key)
        self.chosen.append((device, options))
        rows = np.append(self.problem.options.stage[options], self.problem.V + device).astype(np.int32)
        cost = int(self.cost[options].sum()) / self.unit
        self.highs.addCol(cost, 0.0, self.endless, len(rows), rows, np.ones(len(rows)))
        return True

    def _master(self) -> tuple[float, Ints, Floats]:
        """Solve it: value in ticks, (V,) prices in ticks, (columns,) parts.

        New columns leave the last mixture possible, new bounds leave the last prices valid: HiGHS goes on from there.
        """
        self.highs.setOptionValue("simplex_strategy", _DUAL if self._rebounded else _PRIMAL)
        self.highs.run()
        self._rebounded = False
        solution = self.highs.getSolution()
        if not solution.dual_valid:
            raise BackendError("HiGHS found no solution of a master of columns")
        V = self.problem.V
        dual = np.maximum(np.array(solution.row_dual)[:V], 0.0)
        parts = np.array(solution.col_value)[V:]
        value = self.highs.getInfo().objective_function_value * self.unit
        return value, np.rint(dual * self.unit).astype(np.int64), parts

    def _converge(
        self, centre: Ints, covered: npt.NDArray[np.bool_], taken: dict[int, int], most: int | None
    ) -> tuple[Ints, int]:
        """New columns for the devices that have none taken, from prices (V,) on: the best prices, and the rounds."""
        centre, top = np.where(covered, 0, centre), -(2**62)
        spent = sum(int(self.cost[self.chosen[k][1]].sum()) for k in taken.values())
        inertia, rounds, price = 1.0, 0, centre
        value, dual, _ = self._master()
        while self.clock.left > 0 and (most is None or rounds < most):
            rounds += 1
            bound, new = int(price.sum()) + spent, 0
            for d, pack in enumerate(self.packs):
                if d not in taken:
                    gain, options = pack.pack(price[pack.stage] - self.cost[pack.option])
                    bound -= gain
                    new += self._add(d, options)
            if bound > top:
                top, centre = bound, price
                if not taken and self.exact:
                    self.best.raise_bound(next_value(self.problem, bound + self.base), _PROOF)
            if self._over() or (taken and self._too_dear(top)):
                break
            if new:
                value, dual, _ = self._master()
            if value - top < _NEAR * self.grain or (not new and inertia == 0):
                break
            inertia = 0.0 if not new else _DIVE_INERTIA if taken else _INERTIA
            price = np.where(covered, 0, np.rint(inertia * centre + (1 - inertia) * dual).astype(np.int64))
        return centre, rounds

    def _dive(self, *, noisy: bool) -> None:
        """Take column after column, and offer the plan that they make."""
        taken: dict[int, int] = {}
        covered = np.zeros(self.problem.V, dtype=np.bool_)
        stage, price = self.problem.options.stage, self.price
        while len(taken) < len(self.packs) and not covered.all():
            if taken:
                price, _ = self._converge(price, covered, taken, _DIVE_ROUNDS)
            value, _, parts = self._master()
            if self._over() or self._too_dear(value - _NEAR * self.grain):
                break
            free = np.array([d not in taken for d, _ in self.chosen])
            weight = np.where(free, parts, 0.0)
            if noisy:
                weight = weight * self.random.uniform(_LEAST_WEIGHT, 1.0, len(weight))
            if weight.max(initial=0.0) <= 1e-6:
                break
            whole = np.flatnonzero(free & (parts > _WHOLE)).tolist() if taken else []
            for column in whole or [int(weight.argmax())]:
                device, options = self.chosen[column]
                taken[device] = column
                covered[stage[options]] = True
            self._close(taken, covered)
        self._reopen()
        if covered.all():
            self.best.offer(self._cheapest(np.concatenate([self.chosen[k][1] for k in taken.values()])))

    def _close(self, taken: dict[int, int], covered: npt.NDArray[np.bool_]) -> None:
        """Columns taken count in full; those of their devices, or with a stage that they cover, no more."""
        stage, own = self.problem.options.stage, set(taken.values())
        closed = [
            column
            for column, (device, options) in enumerate(self.chosen)
            if column not in own and (device in taken or covered[stage[options]].any())
        ]
        self._rebound(np.array(closed, dtype=np.int32), 0.0, 0.0)
        self._rebound(np.array(sorted(own), dtype=np.int32), 1.0, 1.0)

    def _reopen(self) -> None:
        """Every column counts again."""
        self._rebound(np.arange(len(self.chosen), dtype=np.int32), 0.0, self.endless)

    def _rebound(self, columns: npt.NDArray[np.int32], low: float, high: float) -> None:
        count = len(columns)
        if count:
            self.highs.changeColsBounds(count, self.problem.V + columns, np.full(count, low), np.full(count, high))
            self._rebounded = True

    def _cheapest(self, options: Ints) -> Ints:
        """(V,) of options the cheapest of every stage."""
        stage = self.problem.options.stage[options]
        order = np.lexsort([self.cost[options], stage])
        return np.asarray(options[order[np.unique(stage[order], return_index=True)[1]]])
