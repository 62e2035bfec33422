"""``iegopt explain``: a plan, and what is behind it: what would change it, and what a change would be worth."""

from __future__ import annotations

import argparse
import sys
from typing import TYPE_CHECKING, Any

from iegopt.cli.arguments import Commands, UsageError, positive
from iegopt.cli.output import busy, document_path, note, print_json, show
from iegopt.cli.planning import EXIT
from iegopt.errors import InputError

if TYPE_CHECKING:
    from iegopt.planner import Planner
    from iegopt.spec.device import DeviceSpec

__all__ = ["add_commands"]

_LIMIT = 30.0
_FOR_THE_PLAN = 0.3
"""Share of the time limit that the plan itself may take."""


def add_commands(commands: Commands) -> None:
    parser = commands.add_parser(
        "explain",
        help="what would change a plan, and what a change would be worth",
        description="Plan a request, and say what binds, at which weights stages would move, what a little more of a "
        "binding limit would save, and on request what other devices would change.",
        epilog="What does not apply to a request's objective is left out, with a line on stderr. "
        "Exit: as for plan, by the plan on the cluster as it is: 0 plan, 2 infeasible, 3 unknown, 1 bad input.",
    )
    parser.add_argument("request", metavar="REQUEST", help="request file, or the name of a shipped one")
    parser.add_argument(
        "--cluster", required=True, metavar="CLUSTER", help="cluster file, or the name of a shipped one"
    )
    parser.add_argument(
        "--what-if-remove", nargs="+", action="extend", default=[], metavar="DEVICE",
        help="plan again without these devices (a pool's name: all of it)",
    )  # fmt: skip
    parser.add_argument(
        "--what-if-add", nargs="+", action="extend", default=[], metavar="MODEL@RACK",
        help="plan again with an idle device of this model on a new host of the rack, or on a host named instead of "
        "it; given k times, k devices beside each other",
    )  # fmt: skip
    parser.add_argument(
        "--suggest", action="store_true",
        help="where one more idle device would save most, and which device would be missed most",
    )  # fmt: skip
    parser.add_argument(
        "--sensitivity", action="store_true",
        help="also the weights at which the re-solved optimum moves a stage, not only its best single move",
    )  # fmt: skip
    parser.add_argument(
        "--time-limit", type=positive, default=_LIMIT, metavar="S",
        help=f"seconds for everything (default {_LIMIT:g}); what they leave out is said",
    )  # fmt: skip
    parser.add_argument("--json", action="store_true", help="one JSON object on stdout")
    parser.set_defaults(run=_explain)


def _explain(arguments: argparse.Namespace) -> int:
    wanted = [_model_and_place(word) for word in arguments.what_if_add]
    request_file = document_path(arguments.request, "requests")
    cluster_file = document_path(arguments.cluster, "clusters")
    from iegopt.explain.questions import why_no_prices, why_no_sensitivity
    from iegopt.planner import Planner
    from iegopt.solvers.clock import Clock
    from iegopt.spec.load import load_cluster, load_request

    request, cluster = load_request(request_file), load_cluster(cluster_file)
    planner = Planner(cluster)
    added = _added(planner, wanted)
    changed = bool(added or arguments.what_if_remove)
    if changed:
        planner.changed(remove=arguments.what_if_remove, add=added)  # refuses what is wrong before time is spent
    weights, prices = (_applies(*part) for part in (
        ("sensitivity", why_no_sensitivity(request)), ("shadow prices", why_no_prices(request))
    ))  # fmt: skip
    clock = Clock(arguments.time_limit)
    parts: int = weights * (1 + arguments.sensitivity) + prices + changed + 2 * arguments.suggest

    def share() -> float:
        nonlocal parts
        parts -= 1
        return max(clock.left, 0.0) / (parts + 1)

    with busy(f"explaining {request.id} on {cluster.name}"):
        plan = planner.plan(request, deadline_ms=1000 * _FOR_THE_PLAN * clock.limit, explained=True)
        answers: dict[str, Any] = {
            "sensitivity": planner.sensitivity(
                request, before=plan, exact=arguments.sensitivity, time_limit=share()
            ) if weights else None,
            "shadow_prices": planner.shadow_prices(request, before=plan, time_limit=share()) if prices else None,
            "what_if": planner.what_if(
                request, remove=arguments.what_if_remove, add=added, before=plan, time_limit=share()
            ) if changed else None,
            "suggestions": planner.suggest(request, before=plan, time_limit=share()) if arguments.suggest else None,
            "criticality": planner.criticality(request, before=plan, time_limit=share()) if arguments.suggest else None,
        }  # fmt: skip
    if arguments.json:
        print_json({"plan": plan.document(), **{name: _plain(answer) for name, answer in answers.items()}})
    else:
        from iegopt.cli.answers import render_answers

        show(*render_answers(plan, answers))
    sys.stdout.flush()
    return EXIT[plan.status]


def _applies(name: str, reason: str) -> bool:
    """Whether a part applies; a line on stderr where not."""
    if reason:
        note(f"{name} left out: {reason}")
    return not reason


def _model_and_place(word: str) -> tuple[str, str]:
    model, at, place = word.partition("@")
    if not (model and at and place):
        raise UsageError(f"--what-if-add: {word!r}: expected MODEL@RACK, such as L40S@rack0")
    return model, place


def _added(planner: Planner, wanted: list[tuple[str, str]]) -> list[DeviceSpec]:
    """Idle devices for every model and place that was named, as many as it was named times."""
    added = []
    for word in dict.fromkeys(wanted):
        try:
            added += planner.idle_devices(*word, wanted.count(word))
        except InputError as error:
            raise InputError(f"--what-if-add {'@'.join(word)}: {error}") from None
    return added


def _plain(answer: Any) -> Any:
    """An answer as JSON; ``None`` where it was not asked for, or there is no plan to ask about."""
    if answer is None:
        return None
    return [one.document() for one in answer] if isinstance(answer, tuple) else answer.document()
