"""Plain HiGHS: a binary a placement, a continuous variable a pair of placements of an edge.

Weak: y_ab ≥ x_a + x_b − 1 (its bound is that of no communication at all). Strong: Σ_b y_ab = x_a and
Σ_a y_ab = x_b, the linearisation of Adams and Johnson, local polytope of the edges.
"""

from __future__ import annotations

import math
import time
from itertools import pairwise
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from iegopt.bench.engine import not_additive
from iegopt.bench.peers.tables import Tables, too_many_pairs
from iegopt.problem.arrays import Problem
from iegopt.solvers.incumbent import NO_OPTION, Incumbent, Report, no_option
from iegopt.solvers.result import Params, Result

__all__ = ["HighsPairs"]

MOST_PAIRS = 2_000_000
_SCALE = 1e-3
"""Of a tick: the objective is in microseconds, where units of a set are not coarser."""


class HighsPairs:
    """Branch and cut on pair variables."""

    packages: tuple[str, ...] = ("highspy",)
    fresh: bool = False

    def __init__(self, form: Literal["weak", "strong"]) -> None:
        self.form = form

    def supports(self, problem: Problem) -> str | None:
        reason = not_additive(problem)
        if reason is not None:
            return reason
        return too_many_pairs(problem, MOST_PAIRS)

    def solve(self, problem: Problem, params: Params, hint: npt.NDArray[np.int64] | None, report: Report) -> Result:
        import highspy

        began = time.perf_counter()
        best = Incumbent(problem, f"highs-{self.form}", hint, report)
        empty = no_option(problem)
        if empty is not None:
            return best.infeasible(NO_OPTION, empty, time.perf_counter() - began)
        tables = Tables.of(problem)
        programme = _Programme(tables, self.form)
        ticks = tables.unit / programme.scale
        highs: Any = highspy.Highs()  # type: ignore[no-untyped-call]
        for name, value in (("output_flag", False), ("threads", params.threads), ("random_seed", params.seed)):
            highs.setOptionValue(name, value)
        highs.setOptionValue("mip_rel_gap", 1e-9)
        highs.passModel(programme.model(highspy))
        start = None if hint is None else tables.indices(hint)
        if start is not None:
            columns = np.array([programme.first[v] + i for v, i in enumerate(start)], dtype=np.int32)
            highs.setSolution(len(columns), columns, np.ones(len(columns)))
        if params.time_limit is not None:
            left = params.time_limit - (time.perf_counter() - began)
            if left <= 0:
                return best.result(time.perf_counter() - began, note="the limit came while the programme was built")
            highs.setOptionValue("time_limit", left)

        def improved(event: Any) -> None:
            best.offer(tables.choice(programme.chosen(np.asarray(event.data_out.mip_solution))))

        def logged(event: Any) -> None:
            _raise_bound(best, event.data_out.mip_dual_bound, ticks)

        highs.cbMipImprovingSolution.subscribe(improved)
        highs.cbMipLogging.subscribe(logged)
        highs.run()
        seconds = time.perf_counter() - began
        info, status = highs.getInfo(), highs.getModelStatus()
        if status == highspy.HighsModelStatus.kInfeasible:
            return best.infeasible("HiGHS", "HiGHS proved that no placement keeps every constraint", seconds)
        if info.primal_solution_status == highspy.SolutionStatus.kSolutionStatusFeasible:
            best.offer(tables.choice(programme.chosen(np.asarray(highs.getSolution().col_value))))
        _raise_bound(best, info.mip_dual_bound, ticks)
        return best.result(seconds, {"columns": programme.columns, "rows": len(programme.lower)})


def _raise_bound(best: Incumbent, bound: float, ticks: float) -> None:
    if math.isfinite(bound):
        best.raise_bound(math.floor(bound * ticks - 1e-9 * abs(bound * ticks)), "HiGHS")


class _Programme:
    """Columns: placements of every stage, then the pairs of every edge. Rows as triples, gathered in order."""

    def __init__(self, tables: Tables, form: Literal["weak", "strong"]) -> None:
        self.scale = 1.0 if tables.unit >= 1000 else _SCALE * tables.unit
        self.first = np.cumsum([0, *(len(own) for own in tables.options)]).tolist()
        self.placements = self.first[-1]
        self.cost = [np.concatenate(tables.unary) * self.scale]
        self.upper = [np.ones(self.placements)]
        self.columns = self.placements
        self.lower: list[float] = []
        self.limit: list[float] = []
        self._entries: list[tuple[npt.NDArray[Any], npt.NDArray[Any], npt.NDArray[Any]]] = []
        for v, own in enumerate(tables.options):
            self._rows(1, 1.0, 1.0, [(np.zeros(len(own)), self.first[v] + np.arange(len(own)), 1.0)])
        for pair in tables.pairs:
            self._strong(pair) if form == "strong" else self._weak(pair)
        for load in tables.loads:
            at = np.array([self.first[v] + i for v, i, _ in load.terms])
            share = np.array([amount for _, _, amount in load.terms]) / max(1, load.capacity)
            self._rows(1, -math.inf, min(1.0, load.capacity), [(np.zeros(len(at)), at, share)])

    def _strong(self, pair: Any) -> None:
        A, B = pair.cost.shape
        y = self._pairs(pair.cost.ravel(), pair.forbidden.ravel())
        a, b = np.divmod(np.arange(A * B), B)
        self._rows(A, 0.0, 0.0, [(a, y, 1.0), (np.arange(A), self.first[pair.u] + np.arange(A), -1.0)])
        self._rows(B, 0.0, 0.0, [(b, y, 1.0), (np.arange(B), self.first[pair.v] + np.arange(B), -1.0)])

    def _weak(self, pair: Any) -> None:
        """Only pairs that cost or are forbidden; the least cost of the table is paid by every pair."""
        a, b = np.nonzero((pair.cost > 0) | pair.forbidden)
        y = self._pairs(pair.cost[a, b], pair.forbidden[a, b])
        n = np.arange(len(a))
        self._rows(
            len(a), -math.inf, 1.0,
            [(n, self.first[pair.u] + a, 1.0), (n, self.first[pair.v] + b, 1.0), (n, y, -1.0)],
        )  # fmt: skip

    def _pairs(self, cost: npt.NDArray[np.int64], forbidden: npt.NDArray[np.bool_]) -> npt.NDArray[Any]:
        self.cost.append(np.where(forbidden, 0, cost) * self.scale)
        self.upper.append(np.where(forbidden, 0.0, 1.0))
        self.columns += len(cost)
        return np.arange(self.columns - len(cost), self.columns)

    def _rows(self, count: int, lower: float, upper: float, parts: list[tuple[Any, Any, Any]]) -> None:
        base = len(self.lower)
        for row, column, value in parts:
            self._entries.append((base + row, column, np.broadcast_to(value, column.shape)))
        self.lower += [lower] * count
        self.limit += [upper] * count

    def model(self, highspy: Any) -> Any:
        row, column, value = (np.concatenate(part) for part in zip(*self._entries, strict=True))
        order = np.argsort(row, kind="stable")
        model = highspy.HighsLp()
        model.num_col_, model.num_row_ = self.columns, len(self.lower)
        model.col_cost_ = np.concatenate(self.cost)
        model.col_lower_, model.col_upper_ = np.zeros(self.columns), np.concatenate(self.upper)
        model.row_lower_, model.row_upper_ = np.array(self.lower), np.array(self.limit)
        model.a_matrix_.format_ = highspy.MatrixFormat.kRowwise
        lengths = np.bincount(row.astype(np.int64), minlength=len(self.lower))
        model.a_matrix_.start_ = np.concatenate([[0], np.cumsum(lengths)])
        model.a_matrix_.index_, model.a_matrix_.value_ = column[order], value[order]
        kinds = highspy.HighsVarType
        model.integrality_ = [kinds.kInteger] * self.placements + [kinds.kContinuous] * (self.columns - self.placements)
        return model

    def chosen(self, values: npt.NDArray[np.float64]) -> list[int]:
        """The placement of every stage: its largest variable."""
        return [int(values[a:b].argmax()) for a, b in pairwise(self.first)]
