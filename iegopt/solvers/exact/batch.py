"""The relaxation of many requests that share graph, options and links, and differ in what options cost.

So does a planner that prices devices: every request of a batch, or every step of the prices, is another row of
costs. What they share is prepared once, and compiled kernels solve all of them in one call.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from iegopt.errors import InternalError
from iegopt.problem.arrays import Problem
from iegopt.solvers.exact.compiled import as_ints, kernels
from iegopt.solvers.exact.messages import UNREACHABLE, Messages
from iegopt.solvers.exact.passes import packed
from iegopt.solvers.exact.relaxation import relaxed_under, spanning_forest

__all__ = ["RelaxedBatch", "relaxations"]

Ints = npt.NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class RelaxedBatch:
    """Optima of B relaxed problems, each as ``relaxation`` finds it.

    Attributes
    ----------
    bound (B,)
        Ticks; ``UNREACHABLE`` where a stage has no option.
    choice (B, V)
        Option indices; −1 likewise.
    """

    bound: Ints
    choice: Ints


def relaxations(problem: Problem, costs: Ints) -> RelaxedBatch:
    """Solve the relaxation of a problem under many costs of its options.

    Parameters
    ----------
    costs (B, O)
        Ticks in place of ``problem.options.cost``; ``UNREACHABLE`` where a request may not use an option. Options that
        the problem itself does not allow stay out.

    Raises
    ------
    InternalError
        If ``costs`` has another shape or type.
    """
    options = len(problem.options.cost)
    if costs.ndim != 2 or costs.shape[1] != options or costs.dtype != np.int64:
        raise InternalError(f"costs {costs.dtype} {costs.shape}: expected int64 (requests, {options})")
    bound, choice = np.full(len(costs), UNREACHABLE), np.full((len(costs), problem.V), -1)
    if len(costs) == 0 or (problem.V and np.diff(problem.options.ptr).min() == 0):
        return RelaxedBatch(bound, choice)
    messages, forest = Messages(problem), spanning_forest(problem)
    core = kernels()
    if core is not None and not messages.dense:
        costs = as_ints(costs)
        core.solve_many(costs, problem.allowed, *packed(messages, forest), bound, choice)
        return RelaxedBatch(bound, choice)
    for b, row in enumerate(costs):
        relaxed = relaxed_under(problem, messages, forest, row)
        if relaxed is not None and relaxed.bound is not None and relaxed.choice is not None:
            bound[b], choice[b] = relaxed.bound, relaxed.choice
    return RelaxedBatch(bound, choice)
