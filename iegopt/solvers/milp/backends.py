"""PuLP and the two engines behind it: everything that differs between PuLP 3.3 and 4 is here.

==========================  ================================  ====================================
..                          PuLP 3.3                          PuLP 4 (Python ≥ 3.12)
==========================  ================================  ====================================
expressions                 ``LpAffineExpression(dict)``      ``LpAffineExpression.from_dict``
what a solve returns        ``prob.sol_status`` afterwards    ``LpSolveStats``
CBC                         bundled, ``PULP_CBC_CMD``         ``COIN_CMD`` of ``pip install pulp[cbc]``
==========================  ================================  ====================================

PuLP 3.3 has no warm start for HiGHS, so that neither version gets one here. Neither reports a dual bound: HiGHS
is asked for it through ``solverModel``, CBC's is read in its log.
"""

from __future__ import annotations

import re
import shutil
import tempfile
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Literal

from iegopt.errors import BackendError
from iegopt.solvers.milp.objective import Objective
from iegopt.solvers.milp.variables import Variables

__all__ = ["Answer", "Engine", "Watch", "missing", "solve"]

Engine = Literal["HiGHS", "CBC"]
Watch = Callable[[list[float] | None, float | None], None]
"""Receives (values per column or ``None``, dual bound or ``None``) while an engine runs."""


@dataclass(frozen=True)
class Answer:
    """What an engine claims: values per column or ``None``, a dual bound or ``None``, whether infeasible.

    ``ended`` tells whether it was through, and no limit ended it.
    """

    values: list[float] | None
    bound: float | None
    infeasible: bool
    ended: bool


def missing(engine: Engine) -> str | None:
    """What has to be installed for an engine, found without importing it; ``None`` where all is there."""
    found = find_spec("pulp")
    if found is None:
        return "PuLP is not installed: pip install pulp"
    if engine == "HiGHS":
        return None if find_spec("highspy") else "HiGHS is not installed: pip install highspy"
    # Asking for the version reads the records of all that is installed: 2 ms, which a short limit does not have.
    bundled = any((Path(folder) / "solverdir" / "cbc").is_dir() for folder in found.submodule_search_locations or ())
    if bundled or find_spec("cbcbox") or shutil.which("cbc"):
        return None
    return "CBC is not installed: pip install 'pulp[cbc]'"


def solve(
    engine: Engine,
    variables: Variables,
    objective: Objective,
    time_limit: float | None,
    threads: int,
    seed: int,
    watch: Watch,
) -> Answer:
    """Hand the programme to PuLP and solve it; with HiGHS, ``watch`` sees solutions and dual bounds on the way.

    Raises
    ------
    BackendError
        PuLP or the engine is not installed, or failed.
    """
    reason = missing(engine)
    if reason is not None:
        raise BackendError(reason)
    import pulp

    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=".*(PULP_CBC_CMD|PuLP 4)", category=DeprecationWarning)
        model, columns = _build(pulp, variables, objective)
        try:
            if engine == "HiGHS":
                return _highs(pulp, model, columns, time_limit, threads, seed, watch)
            return _cbc(pulp, model, columns, objective, time_limit, threads, seed)
        except pulp.PulpSolverError as error:
            raise BackendError(f"{engine} through PuLP: {error}") from error


def _build(pulp: Any, variables: Variables, objective: Objective) -> tuple[Any, list[Any]]:
    """The programme as an ``LpProblem``, and its columns."""
    model = pulp.LpProblem("iegopt", pulp.LpMinimize)
    columns = [
        model.add_variable(f"c{i}", 0, upper, pulp.LpInteger if integer else pulp.LpContinuous)
        for i, (upper, integer) in enumerate(zip(variables.upper, variables.integer, strict=True))
    ]
    expression = getattr(pulp.LpAffineExpression, "from_dict", pulp.LpAffineExpression)
    model += expression({columns[i]: c for i, c in objective.coefficient.items()})
    for row in variables.rows:
        left = expression({columns[i]: c for i, c in row.terms.items()})
        if row.sense == "<=":
            model += left <= row.rhs
        elif row.sense == ">=":
            model += left >= row.rhs
        else:
            model += left == row.rhs
    return model, columns


def _highs(
    pulp: Any,
    model: Any,
    columns: list[Any],
    time_limit: float | None,
    threads: int,
    seed: int,
    watch: Watch,
) -> Answer:
    from highspy import cb

    exported = model.exported_variables() if hasattr(model, "exported_variables") else model.variables()
    place = {variable.name: i for i, variable in enumerate(exported)}
    order = [place.get(f"c{i}") for i in range(len(columns))]

    def callback(kind: Any, message: str, out: Any, given: Any, data: Any) -> None:
        if kind == cb.HighsCallbackType.kCallbackMipImprovingSolution:
            found = out.mip_solution
            watch([0.0 if i is None else float(found[i]) for i in order], None)
        watch(None, float(out.mip_dual_bound))

    solver = pulp.HiGHS(
        msg=False,
        timeLimit=time_limit,
        threads=threads,
        gapRel=1e-9,
        random_seed=seed,
        output_flag=False,
        callbackTuple=(callback, None),
        callbacksToActivate=[
            cb.HighsCallbackType.kCallbackMipImprovingSolution,
            cb.HighsCallbackType.kCallbackMipLogging,
        ],
    )
    model.solve(solver)
    highs = model.solverModel
    info, status = highs.getInfo(), highs.getModelStatus().name
    found = info.primal_solution_status == 2  # kSolutionStatusFeasible
    values = [_value(column) for column in columns] if found else None
    bound = info.objective_function_value if status == "kOptimal" else info.mip_dual_bound
    return Answer(
        values, min(bound, info.mip_dual_bound), status == "kInfeasible", status in ("kOptimal", "kInfeasible")
    )


def _cbc(
    pulp: Any,
    model: Any,
    columns: list[Any],
    objective: Objective,
    time_limit: float | None,
    threads: int,
    seed: int,
) -> Answer:
    command = getattr(pulp, "PULP_CBC_CMD", None) or pulp.COIN_CMD
    with tempfile.TemporaryDirectory() as folder:
        log = Path(folder) / "cbc.log"
        # Preprocessing of CBC 2.10 cuts off best plans of problems whose rows are whole numbers up to 10.
        solver = command(
            msg=False,
            timeLimit=time_limit,
            threads=threads if threads > 1 else None,
            gapRel=0,
            logPath=str(log),
            options=[f"randomCbcSeed {seed}", "preprocess off"],
        )
        solver.tmpDir = folder
        stats = model.solve(solver)
        text = log.read_text(encoding="utf-8", errors="replace")
    if hasattr(stats, "has_solution"):
        found, word = bool(stats.has_solution), stats.status.name
        optimal, infeasible = word in ("Optimal", "GapLimit"), word == "Infeasible"
    else:
        optimal, infeasible = model.sol_status == pulp.LpSolutionOptimal, model.status == pulp.LpStatusInfeasible
        found = optimal or model.sol_status == pulp.LpSolutionIntegerFeasible
    reported = re.findall(r"^(?:Lower bound|Continuous objective value is):?\s+([-+\d.e]+)", text, re.MULTILINE)
    values = [_value(column) for column in columns]
    worth = sum(c * values[i] for i, c in objective.coefficient.items())
    bound = worth if optimal else float(reported[-1]) if reported else None
    return Answer(values if found else None, bound, infeasible, optimal or infeasible)


def _value(column: Any) -> float:
    """0 for a column that stands in no row and so was never handed over."""
    value = column.varValue
    return 0.0 if value is None else float(value)
