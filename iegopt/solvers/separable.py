"""Problems whose stages share memory and no costs: generalised assignment, with prices, chains, columns and HiGHS.

1. Prices of capacity bound the problem and say which options are promising (``exact/capacity_prices.py``).
2. Ejection chains over those, or tabu search where kernels are not compiled, from what is cheapest under prices,
   overload costing what the prices say.
3. Columns, what each device takes as a whole, and dives through mixtures of them: a bound that counts what fits
   together, and plans near it (``exact/columns.py``); chains from the best of them.
4. HiGHS over the promising options alone: a better plan, soon.
5. HiGHS over all options that a better plan can use: the rest of the proof.

Sources of the core of promising options: Balas, Zemel, An algorithm for large zero-one knapsack problems, Operations
Research 28 (1980).
"""

from __future__ import annotations

import dataclasses

import numpy as np
import numpy.typing as npt

from iegopt.errors import BackendError
from iegopt.problem.arrays import Problem
from iegopt.problem.restrict import restrict
from iegopt.solvers.clock import Clock
from iegopt.solvers.exact.capacity_prices import CapacityPrices, capacity_prices
from iegopt.solvers.grain import grain_of, next_value
from iegopt.solvers.incumbent import Incumbent, of_restricted, plans_only
from iegopt.solvers.killable import run_killable
from iegopt.solvers.milp import Milp
from iegopt.solvers.result import Params, Result, Status
from iegopt.solvers.search.chains import ChainSearch, chains_reason
from iegopt.solvers.search.tables import untabled
from iegopt.solvers.search.tabu import TabuSearch, tabu_reason

__all__ = ["inseparable", "solve_separable"]

Ints = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]

_HIGHS = "iegopt.solvers.milp.solver:run_highs"
_PRICES_PROOF = "capacity prices"
_NEEDS = 0.8
"""Seconds that must be left for HiGHS to be worth the start."""
_COLUMNS = "iegopt.solvers.exact.columns:run_columns"
_PRICES_SHARE, _SEARCH_SHARE, _COLUMNS_SHARE, _POLISH_SHARE, _CORE_SHARE = 0.05, 0.15, 0.8, 0.5, 0.25
"""Parts of the time left for each step but the last."""
_SEARCH_MOST, _POLISH_MOST = 2.0, 3.0
"""Seconds of chains or tabu search at most, before columns and behind them."""
_FEW, _MORE, _OPEN, _MANY = 10, 20, 0.9, 1000
"""Stages per device up to which columns pay; and up to which they do where prices and plan leave this part of the
options open, and more than so many: with more stages they converge late, and HiGHS alone does better where it has few
options to branch on."""
_CORE, _CHAINED = 3.0, 2.5
"""Promising options per stage, in the mean: for engines and tabu search, and for chains, which more slow down."""
_LATE = 0.05
"""Part of the time left that HiGHS may be late before it is killed."""


def inseparable(problem: Problem) -> str | None:
    """Why a problem is not one of these, or ``None``."""
    reason = untabled(problem)
    if reason is not None:
        return reason
    if (problem.edges.weight > 0).any():
        return "costs of edges"
    if (problem.topology.width > 1).any():
        return "gangs"
    return Milp("milp").supports(problem)


def solve_separable(problem: Problem, params: Params, hint: Ints | None, clock: Clock) -> Result:
    """Solve a problem that ``inseparable`` does not refuse, every stage of which has an allowed option."""
    best = Incumbent(problem, "auto", hint, params.report)
    prices = capacity_prices(problem, best.objective, clock.slice(_PRICES_SHARE * clock.left))
    best.raise_bound(next_value(problem, prices.bound), _PRICES_PROOF)
    share = _SEARCH_SHARE if clock.left > _NEEDS else 1.0
    steps = [_search(problem, prices, best, params, clock.slice(min(share * clock.left, _SEARCH_MOST)))]
    if not _closed(best):
        known = best.objective
        steps.append(_columns(problem, prices, best, params, clock))
        if best.objective != known and not _closed(best):
            polish = clock.slice(min(_POLISH_SHARE * clock.left, _POLISH_MOST))
            steps.append(_search(problem, prices, best, params, polish))
    core = _promising(problem, prices, best)
    if not _closed(best) and int(core.sum()) < int(_survivors(problem, prices, best).sum()):
        steps.append(_engine(problem, core, best, params, clock, _CORE_SHARE, whole=False))
    if not _closed(best):
        steps.append(_engine(problem, _survivors(problem, prices, best), best, params, clock, 1.0, whole=True))
    note = "; ".join(steps)
    if best.choice is None and steps[-1] == _NONE:
        return best.infeasible("HiGHS", note, clock.seconds)
    return best.result(clock.seconds, note=note)


_NONE = "HiGHS proved that no placement keeps every constraint"


def _closed(best: Incumbent) -> bool:
    return best.objective is not None and best.bound is not None and best.bound >= best.objective


def _survivors(problem: Problem, prices: CapacityPrices, best: Incumbent) -> Bools:
    """(O,) the options that a better plan can use, and those of the best plan."""
    if best.choice is None or best.objective is None:
        return problem.allowed
    mask = problem.allowed & (prices.marginals <= best.objective - grain_of(problem))
    mask[best.choice] = True
    return np.asarray(mask)


def _promising(problem: Problem, prices: CapacityPrices, best: Incumbent, each: float = _CORE) -> Bools:
    """(O,) of the options left those with the least marginals, so many per stage, two of every stage that has them."""
    mask = _survivors(problem, prices, best)
    order = np.lexsort([prices.marginals, problem.options.stage])
    rank = np.empty(len(order), dtype=np.int64)
    rank[order] = np.arange(len(order)) - problem.options.ptr[problem.options.stage]
    count = int(each * problem.V)
    near = mask.copy()
    if count < len(mask):
        near &= prices.marginals <= np.partition(prices.marginals, count)[count]
    near |= mask & (rank < 2)
    if best.choice is not None:
        near[best.choice] = True
    return near


def _search(problem: Problem, prices: CapacityPrices, best: Incumbent, params: Params, clock: Clock) -> str:
    """Better plans, from the best one where there is one."""
    chained = chains_reason(problem, problem.allowed) is None
    mask = _promising(problem, prices, best, _CHAINED if chained else _CORE)
    reason = None if chained else tabu_reason(problem, mask)
    if reason is not None or _closed(best):
        return f"no local search: {reason or 'the plan is optimal'}"
    known = None if best.choice is None or best.objective is None else (best.objective, best.choice)
    given = problem, mask, known, params.seed, params.check, params.report, prices.price, prices.marginals
    search = ChainSearch(*given) if chained else TabuSearch(*given)
    search.run(clock, best.bound)
    if search.best is not None:
        best.offer(search.best[1])
    kind = "ejection chains" if chained else "steps of tabu search"
    return f"{search.steps} {kind} over {int(mask.sum())} options"


def _columns(problem: Problem, prices: CapacityPrices, best: Incumbent, params: Params, clock: Clock) -> str:
    """Bound and plans by columns."""
    if clock.left < _NEEDS:
        return "no time left for columns"
    left = int(_survivors(problem, prices, best).sum())
    most = _MORE if left > max(_MANY, _OPEN * int(problem.allowed.sum())) else _FEW
    if most * problem.topology.D < problem.V:
        return f"no columns: {problem.V / problem.topology.D:.1f} stages per device, {left} options open"
    limit = _COLUMNS_SHARE * clock.left
    grace = _LATE * limit
    try:
        inner = dataclasses.replace(params, time_limit=limit - grace, report=best.take)
        result = run_killable(_COLUMNS, problem, inner, best.choice, solver="columns", grace=grace)
    except BackendError as error:
        return str(error)
    return result.note


def _engine(
    problem: Problem, mask: Bools, best: Incumbent, params: Params, clock: Clock, share: float, *, whole: bool
) -> str:
    """HiGHS over some options; what it proves holds where they are the ``whole`` of what a better plan can use."""
    if clock.left < _NEEDS:
        return "no time left for HiGHS"
    small, kept = restrict(problem, mask)
    told = of_restricted(best.take if whole else plans_only(best.take), kept)
    limit = share * clock.left
    grace = _LATE * limit
    try:
        engine = dataclasses.replace(params, time_limit=limit - grace, report=told)
        result = run_killable(_HIGHS, small, engine, None, solver="milp", grace=grace)
    except BackendError as error:
        return str(error)
    if result.choice is not None:
        best.offer(kept[result.choice])
    if whole and result.status is Status.INFEASIBLE:
        return _NONE
    if whole and result.bound is not None and best.objective is not None:
        best.raise_bound(min(result.bound, best.objective), "HiGHS")
    return f"HiGHS over {len(kept)} options: {result.note}"
