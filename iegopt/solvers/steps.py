"""Steps 3 and 5 of a run of ``auto``: a first plan by construction or repair, and elimination."""

from __future__ import annotations

from collections.abc import Callable

from iegopt.solvers.evaluate import feasible, objective
from iegopt.solvers.exact.elimination import eliminate as eliminated
from iegopt.solvers.run import Run
from iegopt.solvers.search.greedy import first_plans
from iegopt.solvers.search.local import search_feasible
from iegopt.solvers.seconds import relaxation_seconds

__all__ = ["construct", "eliminate", "find_feasible"]


def construct(run: Run, enough: Callable[[], bool]) -> None:
    """First plans, the quickest first, until ``enough`` says that one will do."""
    for plan in first_plans(run.relaxed, run.share, run.rng, run.params.check):
        run.take(plan)
        if run.closed or enough():
            break
    run.steps.append("construction meets the bound" if run.closed else "construction")


def find_feasible(run: Run) -> None:
    """Repair walks, where there is no plan yet."""
    if run.best is None and not run.closed and run.share.left > 0:
        found = search_feasible(run.relaxed, run.share, run.rng, run.params.check)
        if found is not None:
            run.take(found)
        run.steps.append("repair" if found is not None else "repair found no plan")


def eliminate(run: Run) -> None:
    """Options above the plan at hand are in no better one, so the lesser of both is a bound."""
    priced = run.search is not None and run.search.priced
    if run.closed or priced or not run.relaxed.forest.dropped:
        return
    if run.clock.left < relaxation_seconds(run.problem):  # of the min-marginals, without which too many are left
        return
    mask = run.survivors
    found = eliminated(run.problem, mask, run.clock)
    if found is None:
        return
    if feasible(run.problem, found.choice):
        run.take((objective(run.problem, found.choice), found.choice))
    bound = found.value if run.best is None else min(found.value, run.best[0])
    if run.bound is None or bound > run.bound:
        run.bound, run.proof = bound, f"elimination (width {found.width})"
        run.params.report(None, run.bound, run.proof)
    run.steps.append(f"elimination over {int(mask.sum())} of {len(mask)} options")
