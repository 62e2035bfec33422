"""``iegopt solve`` and ``iegopt verify``: instance files, and answers to them."""

from __future__ import annotations

import argparse
import sys
from typing import TYPE_CHECKING, Any

from iegopt.cli.arguments import Commands, add_limits, params
from iegopt.cli.output import busy, document_path, note, print_json, show
from iegopt.cli.planning import EXIT

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    from iegopt.problem.arrays import Problem
    from iegopt.solvers.incumbent import Improvement
    from iegopt.solvers.result import Result
    from iegopt.verify.report import Report

__all__ = ["add_commands"]

_BROKEN = 2
_NOTHING_TO_CHECK = 3


def add_commands(commands: Commands) -> None:
    parser = commands.add_parser("solve", help="solve an instance file", description="Solve an iegopt-instance/1 file.")
    parser.add_argument("file", metavar="FILE", help="instance, .json or .json.gz, or the name of a shipped one")
    add_limits(parser)
    parser.add_argument("--hint", metavar="PLAN.json", help="a plan to start from; one that is feasible is never lost")
    parser.add_argument("--json", action="store_true", help="one JSON object on stdout")
    parser.add_argument("--log", action="store_true", help="what the engine logs on stderr")
    parser.add_argument("--progress", action="store_true", help="every better plan and bound on stderr, with its time")
    parser.set_defaults(run=_solve)

    parser = commands.add_parser(
        "verify",
        help="check a plan against an instance file",
        description="Recompute a plan from the instance alone and name every constraint it breaks.",
        epilog="Exit: 0 every claim holds, 2 a constraint or claim is broken, 3 the plan holds no placement to check, "
        "1 a file cannot be read.",
    )
    parser.add_argument("file", metavar="FILE", help="instance, .json or .json.gz, or the name of a shipped one")
    parser.add_argument("plan", metavar="PLAN.json", help="a plan as solve --json or plan --json prints it")
    parser.add_argument("--json", action="store_true", help="one JSON object on stdout")
    parser.set_defaults(run=_verify)


def _solve(arguments: argparse.Namespace) -> int:
    from iegopt.problem.instance import read_instance, to_problem
    from iegopt.solvers.api import load_engine, solve

    problem = to_problem(read_instance(document_path(arguments.file, "problems")))
    hint = None if arguments.hint is None else _choice(problem, _plan(arguments.hint), arguments.hint)
    told = _tell_improvement if arguments.progress else None
    with busy(f"solving {arguments.file}"):
        if arguments.time_limit is not None:
            load_engine(arguments.solver)
        result = solve(problem, arguments.solver, params(arguments), hint, on_improvement=told)
    document = _document(problem, result)
    if arguments.json:
        print_json(document)
        if result.note:
            note(result.note)
    else:
        _show(problem, result, document)
        if result.status == "infeasible":
            _show_conflicts(problem, arguments)
    sys.stdout.flush()
    return EXIT[result.status]


def _tell_improvement(improvement: Improvement) -> None:
    """One line on stderr."""
    from iegopt.cli.format import percent, seconds

    objective, bound = (None if ticks is None else ticks / 1e9 for ticks in (improvement.objective, improvement.bound))
    proof = f" ({improvement.proof})" if improvement.proof else ""
    words = f"objective {seconds(objective)}, bound {seconds(bound)}{proof}, gap {percent(improvement.gap)}"
    print(f"{improvement.seconds:9.3f} s  {words}", file=sys.stderr, flush=True)


def _verify(arguments: argparse.Namespace) -> int:
    from iegopt.problem.instance import read_instance
    from iegopt.verify.claim import check_claim

    instance = read_instance(document_path(arguments.file, "problems"))
    plan = _plan(arguments.plan)
    report = check_claim(instance.document, plan)
    checked = report.objective is not None or not report.ok
    if arguments.json:
        print_json(
            {
                "ok": report.ok and checked,
                "objective": report.objective,
                "makespan": report.makespan,
                "violations": [vars(violation) for violation in report.violations],
            }
        )
    else:
        _show_report(report, plan, checked)
    return _BROKEN if not report.ok else 0 if checked else _NOTHING_TO_CHECK


def _plan(path: str) -> dict[str, Any]:
    """The plan of a file: any JSON object that holds a ``placement``, or says that there is none."""
    from pathlib import Path

    from iegopt.errors import SpecError
    from iegopt.problem.json_reader import load_json
    from iegopt.units import shown

    plan = load_json(Path(path))
    if not isinstance(plan, dict) or not ("placement" in plan or "status" in plan):
        raise SpecError(
            path, "", f"{shown(plan)}: expected an object with status and placement, as solve --json prints"
        )
    return plan


def _choice(problem: Problem, plan: dict[str, Any], file: str) -> npt.NDArray[np.int64]:
    """The option of every stage that a plan's placement names."""
    import numpy as np

    from iegopt.errors import SpecError
    from iegopt.spec.explain_error import nearest
    from iegopt.units import shown

    placement = plan.get("placement")
    if not isinstance(placement, dict):
        raise SpecError(file, "placement", f"{shown(placement)}: expected an object by stage, as a hint must place all")
    unknown = next((name for name in placement if name not in problem.stages), None)
    if unknown is not None:
        guess = nearest(unknown, problem.stages)
        maybe = f". Maybe {guess}?" if guess else ""
        raise SpecError(file, f"placement.{shown(unknown)}", f"the problem has no such stage{maybe}")
    choice = np.empty(problem.V, dtype=np.int64)
    for v, stage in enumerate(problem.stages):
        place = placement.get(stage)
        if not isinstance(place, dict):
            raise SpecError(file, f"placement.{shown(stage)}", f"{shown(place)}: expected a site and a variant")
        of = problem.options.of(v)
        names = {
            (problem.topology.sites[s], problem.variants[m]): of.start + i
            for i, (s, m) in enumerate(
                zip(problem.options.site[of].tolist(), problem.options.variant[of].tolist(), strict=True)
            )
        }
        wanted = (place.get("site"), place.get("variant"))
        if not all(isinstance(word, str) for word in wanted) or wanted not in names:
            guess = nearest(wanted[0], {site for site, _ in names})
            hint = f". Maybe site {guess}?" if guess and guess != wanted[0] else ""
            raise SpecError(
                file, f"placement.{shown(stage)}", f"no option on site {shown(wanted[0])} as {shown(wanted[1])}{hint}"
            )
        choice[v] = names[wanted]
    return choice


def _document(problem: Problem, result: Result) -> dict[str, Any]:
    """The object of the first contract: seconds, ids, and nulls where there is no plan."""
    from iegopt.problem.arrays import TICKS_PER_SECOND
    from iegopt.solvers.evaluate import finish_times

    placement: dict[str, dict[str, Any]] | None = None
    makespan = None
    if result.choice is not None:
        options, topology = problem.options, problem.topology
        placement = {
            stage: {"site": topology.sites[int(options.site[o])], "variant": problem.variants[int(options.variant[o])]}
            for stage, o in zip(problem.stages, result.choice.tolist(), strict=True)
        }
        makespan = int(finish_times(problem, result.choice, result.start).max()) / TICKS_PER_SECOND
        if result.start is not None:
            for stage, start in zip(problem.stages, result.start.tolist(), strict=True):
                placement[stage]["start"] = start / TICKS_PER_SECOND
    return {
        "status": str(result.status),
        "objective": None if result.objective is None else result.objective / TICKS_PER_SECOND,
        "bound": None if result.bound is None else result.bound / TICKS_PER_SECOND,
        "gap": result.gap,
        "solver": result.solver,
        "seconds": result.seconds,
        "placement": placement,
        "makespan": makespan,
    }


def _show(problem: Problem, result: Result, document: dict[str, Any]) -> None:
    from iegopt.cli.format import plain, seconds
    from iegopt.cli.render import headline, table

    size = f"{problem.V} stages, {problem.topology.S:,} sites, {len(problem.options.site):,} options"
    parts: list[Any] = [headline(document, problem.name or "problem", size, result.proof, result.note)]
    if result.choice is not None:
        starts = [] if result.start is None else result.start.tolist()
        begin: list[tuple[str, Any]] = [("start", "right")] if starts else []
        made = table(
            "Placement", ("stage", "left"), ("site", "left"), ("variant", "left"), *begin, ("time", "right"),
            ("cost", "right"),
        )  # fmt: skip
        for v, (stage, o) in enumerate(zip(problem.stages, result.choice.tolist(), strict=True)):
            place = document["placement"][stage]
            at = [seconds(starts[v] / 1e9)] if starts else []
            time, cost = (seconds(int(ticks[o]) / 1e9) for ticks in (problem.options.time, problem.options.cost))
            made.add_row(plain(stage), plain(place["site"]), plain(place["variant"]), *at, time, cost)
        parts += [made, f"makespan {seconds(document['makespan'])}"]
    show(*parts)


def _show_conflicts(problem: Problem, arguments: argparse.Namespace) -> None:
    """Why there is no plan, found in no more time than the solver was given."""
    import dataclasses

    from iegopt.cli.render import render_conflicts
    from iegopt.explain.conflict import TIME_LIMIT, find_conflict

    with busy("looking for the constraints that conflict"):
        found = find_conflict(problem, min(TIME_LIMIT, arguments.time_limit or TIME_LIMIT))
    if found:  # nothing is said where the time did not tell
        show(*render_conflicts([dataclasses.asdict(conflict) for conflict in found]))


def _show_report(report: Report, plan: dict[str, Any], checked: bool) -> None:
    from iegopt.cli.format import plain, seconds

    if not checked:
        show(f"nothing to check: the file claims {plain(str(plan.get('status')))} and places nothing")
    elif report.ok:
        show(f"verified: objective {seconds(report.objective)}, makespan {seconds(report.makespan)}, nothing broken")
    else:
        broken = len(report.violations)
        show(f"{broken} broken", *(f"  {plain(str(violation))}" for violation in report.violations))
