"""Solver ``prices``: branch and bound on memory, deadlines and budget as prices; what closes tight limits.

The relaxation prunes with a first plan; priced bounds (``pricing.py``) prune again and find better plans by beam search
(``beam.py``); what is left is split by where stages stand (``branching.py``) until the gap is closed or the time is up.
"""

from __future__ import annotations

import math
import random

import numpy as np
import numpy.typing as npt

from iegopt.problem.arrays import Problem
from iegopt.solvers.clock import Clock, lag
from iegopt.solvers.exact.bounding import PRICES_PROOF, PricedSearch
from iegopt.solvers.exact.candidates import table_cells
from iegopt.solvers.exact.couplings import charged_pairs, coupling_count
from iegopt.solvers.exact.messages import UNREACHABLE
from iegopt.solvers.exact.relaxation import relaxation
from iegopt.solvers.exact.tree import relaxed_result
from iegopt.solvers.grain import grain_seconds
from iegopt.solvers.result import OPTIMALITY_GAP, Params, Result, Status, relative_gap
from iegopt.solvers.search.beginning import before_relaxation, quick_start
from iegopt.solvers.search.greedy import first_plans
from iegopt.solvers.search.outcome import outcome, relaxation_proof

__all__ = [
    "COUPLING_NEEDS", "OPTION_NEEDS", "PAIR_NEEDS", "PRICES_PROOF", "PricesSolver", "priced_seconds", "unpriceable",
]  # fmt: skip

COUPLING_NEEDS, OPTION_NEEDS, PAIR_NEEDS = 1e-4, 2.5e-6, 1.3e-8
"""Seconds that prices take at least for a coupling of two stages, more per option of a stage, and more per pair of
options that is tabled, as measured on a server."""
_RULED_NEEDS, _RULED_OPTION_NEEDS, _CHARGE_NEEDS = 1.2e-4, 3e-7, 2e-6
"""The same of a pair of stages that affinities alone couple, and more for each of these, as measured on one core of a
server."""
_LEAST_NEEDS, _STAGE_NEEDS = 1e-3, 4.5e-5
"""Seconds at least, and per stage, where few stages are coupled."""
_OWN_SHARE = 0.5
"""Part of those seconds that must be left for the solver itself, which has nothing else to do with them: a good half of
first bounds take less."""
_MOST_CELLS = 16_000_000
"""Pairs of options of edges that do not follow the topology tree, 128 MB."""


class PricesSolver:
    """Priced bounds with branch and bound; proves whatever it supports, given time."""

    name = "prices"
    exact = True

    def supports(self, problem: Problem) -> str | None:
        return unpriceable(problem)

    def solve(self, problem: Problem, params: Params, hint: npt.NDArray[np.int64] | None) -> Result:
        clock = Clock(math.inf if params.time_limit is None else params.time_limit)
        best = quick_start(problem, clock, hint)
        relaxed = relaxation(problem, clock)
        if relaxed is None:
            return before_relaxation(best, self.name, clock)
        proven = relaxed_result(relaxed, self.name, clock.start)
        if proven.status is not Status.UNKNOWN:
            return proven
        for plan in first_plans(relaxed, clock.slice(1.0), random.Random(params.seed), params.check):
            best = plan if best is None else min(best, plan, key=lambda each: each[0])
            params.report(best[1], relaxed.bound, relaxation_proof(relaxed))
        if clock.left <= priced_seconds(problem, np.zeros_like(problem.allowed)):  # nor for the min-marginals
            return outcome(relaxed, best, self.name, clock, "no time left for prices")
        mask = problem.allowed if best is None else relaxed.prune(best[0])
        if clock.left <= _OWN_SHARE * priced_seconds(problem, mask):
            return outcome(relaxed, best, self.name, clock, "no time left for prices")
        search = PricedSearch(problem, mask, best, clock, params.multipliers, report=params.report)
        search.bound_root()
        search.explore(clock)
        return search_result(search, self.name, clock)


def unpriceable(problem: Problem, mask: npt.NDArray[np.bool_] | None = None) -> str | None:
    """Why priced bounds do not hold or, over the options in a mask (O,), do not fit into memory; or ``None``."""
    if problem.timed:
        return "it prices memory in sum, and nothing that depends on when stages run"
    if any(rule.penalty < 0 for rule in problem.affinities):
        return "a negative penalty rewards a broken affinity"
    if table_cells(problem, problem.allowed if mask is None else mask) > _MOST_CELLS:
        return f"more than {_MOST_CELLS:,} pairs of options whose cost does not follow the topology tree"
    if float(np.abs(problem.options.cost.astype(np.float64)).max(initial=0.0)) * max(1, problem.V) > UNREACHABLE / 64:
        return "costs beyond 2^55 ticks"
    return None


def priced_seconds(problem: Problem, mask: npt.NDArray[np.bool_]) -> float:
    """Roughly what it takes until there is a first priced bound and plan over the options in a mask (O,)."""
    options, ruled = int(mask.sum()) / max(1, problem.V), coupling_count(problem) - problem.E
    priced = (1 + problem.E) * (COUPLING_NEEDS + OPTION_NEEDS * options)
    priced += ruled * (_RULED_NEEDS + _RULED_OPTION_NEEDS * options) + _CHARGE_NEEDS * charged_pairs(problem)
    priced = max(priced, _LEAST_NEEDS + _STAGE_NEEDS * problem.V)
    return lag() * (priced + PAIR_NEEDS * table_cells(problem, mask) + grain_seconds(problem))


def search_result(search: PricedSearch, solver: str, clock: Clock) -> Result:
    """What a search has found and proven so far."""
    value, bound, prices = search.value, search.bound, search.multipliers
    note, stats = f"{search.nodes} nodes under prices", {"nodes": search.nodes}

    def result(status: Status, bound: int | None) -> Result:
        return Result(
            status, search.plan, value, bound, PRICES_PROOF, solver, clock.seconds, note, stats, multipliers=prices
        )

    if value is None:
        return result(Status.INFEASIBLE, None) if search.done else result(Status.UNKNOWN, bound)
    gap = relative_gap(value, bound)
    return result(Status.OPTIMAL if gap is not None and gap <= OPTIMALITY_GAP else Status.FEASIBLE, bound)
