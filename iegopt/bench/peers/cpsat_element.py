"""Plain CP-SAT as its manual teaches: an index a stage, ``element`` on the flattened cost table of every edge."""

from __future__ import annotations

import time
from typing import Any

import numpy as np
import numpy.typing as npt

from iegopt.bench.engine import not_additive
from iegopt.bench.peers.tables import Tables, too_many_pairs
from iegopt.problem.arrays import Problem
from iegopt.solvers.incumbent import NO_OPTION, Incumbent, Report, no_option
from iegopt.solvers.result import Params, Result

__all__ = ["CpSatElement"]

MOST_PAIRS = 1_000_000
"""A table of 256² takes up to 1.4 GB with its edges."""


class CpSatElement:
    """Element constraints; placements as booleans for the capacities."""

    packages: tuple[str, ...] = ("ortools.sat.python.cp_model",)
    fresh: bool = False

    def supports(self, problem: Problem) -> str | None:
        reason = not_additive(problem)
        if reason is not None:
            return reason
        return too_many_pairs(problem, MOST_PAIRS)

    def solve(self, problem: Problem, params: Params, hint: npt.NDArray[np.int64] | None, report: Report) -> Result:
        from ortools.sat.python import cp_model

        began = time.perf_counter()
        best = Incumbent(problem, "cpsat-element", hint, report)
        empty = no_option(problem)
        if empty is not None:
            return best.infeasible(NO_OPTION, empty, time.perf_counter() - began)
        tables = Tables.of(problem)
        model = cp_model.CpModel()
        index: list[Any] = []
        costs: list[Any] = []
        placed: dict[tuple[int, int], Any] = {}
        for v, own in enumerate(tables.options):
            index.append(model.new_int_var(0, len(own) - 1, f"index{v}"))
            costs.append(_element(model, index[v], tables.unary[v]))
        for v, i in sorted({(v, i) for load in tables.loads for v, i, _ in load.terms}):
            here = placed[v, i] = model.new_bool_var(f"placed{v},{i}")
            model.add(index[v] == i).only_enforce_if(here)
            model.add(index[v] != i).only_enforce_if(~here)
        for pair in tables.pairs:
            width = pair.cost.shape[1]
            flat = model.new_int_var(0, pair.cost.size - 1, f"pair{pair.u},{pair.v}")
            model.add(flat == index[pair.u] * width + index[pair.v])
            costs.append(_element(model, flat, pair.cost.ravel()))
            if pair.forbidden.any():
                model.add_forbidden_assignments([index[pair.u], index[pair.v]], np.argwhere(pair.forbidden).tolist())
        for load in tables.loads:
            model.add(sum(share * placed[v, i] for v, i, share in load.terms) <= load.capacity)
        model.minimize(sum(costs))
        start = None if hint is None else tables.indices(hint)
        for v, i in enumerate(start or ()):
            model.add_hint(index[v], i)
        solver = cp_model.CpSolver()
        solver.parameters.num_workers = params.threads
        solver.parameters.random_seed = params.seed
        if params.time_limit is not None:
            solver.parameters.max_time_in_seconds = max(0.001, params.time_limit - (time.perf_counter() - began))

        class Watch(cp_model.CpSolverSolutionCallback):
            def on_solution_callback(self) -> None:
                best.offer(tables.choice([int(self.value(variable)) for variable in index]))

        solver.best_bound_callback = lambda value: best.raise_bound(int(value - 1e-6) * tables.unit, "CP-SAT")
        status = solver.solve(model, Watch())
        seconds = time.perf_counter() - began
        if status == cp_model.INFEASIBLE:
            return best.infeasible("CP-SAT", "CP-SAT proved that no placement keeps every constraint", seconds)
        if status in (cp_model.OPTIMAL, cp_model.FEASIBLE):
            best.offer(tables.choice([int(solver.value(variable)) for variable in index]))
        best.raise_bound(int(solver.best_objective_bound) * tables.unit, "CP-SAT")
        return best.result(seconds)


def _element(model: Any, index: Any, values: npt.NDArray[np.int64]) -> Any:
    """A variable equal to ``values[index]``."""
    cost = model.new_int_var(int(values.min()), int(values.max()), "")
    model.add_element(index, values.tolist(), cost)
    return cost
