"""``iegopt replan``: a queue planned at once, verified and shown."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from typing import TYPE_CHECKING

from iegopt.cli import batch_rows as rows
from iegopt.cli.arguments import Commands, positive
from iegopt.cli.format import plain, seconds
from iegopt.cli.output import busy, check_outputs, document_path, note, print_json, show, writing
from iegopt.files import write_whole

if TYPE_CHECKING:
    from rich.console import RenderableType
    from rich.text import Text

    from iegopt.batch_plans import BatchPlan

__all__ = ["add_commands"]

_FIRST_WARNINGS = 5


def add_commands(commands: Commands) -> None:
    parser = commands.add_parser(
        "replan",
        help="plan a queue on engines that run",
        description="Say for every request of a queue where it starts, or why not, and what changes of what runs.",
    )
    parser.add_argument("snapshot", metavar="SNAPSHOT", help="snapshot file, or the name of a shipped one")
    parser.add_argument(
        "--cluster", required=True, metavar="CLUSTER", help="cluster file, or the name of a shipped one"
    )
    parser.add_argument("--policy", metavar="POLICY", help="batch policy file, or the name of a shipped one")
    by = "milliseconds by which to have a plan (default 5000)"
    parser.add_argument("--deadline-ms", type=positive, metavar="MS", help=by)
    parser.add_argument("--json", action="store_true", help="one JSON object on stdout")
    parser.add_argument("--html", metavar="FILE", help="also write the plan as one self-contained page")
    amount = parser.add_mutually_exclusive_group()
    amount.add_argument("--all", action="store_true", help="every row of long tables")
    amount.add_argument("--quiet", action="store_true", help="the headline and the priorities only")
    parser.set_defaults(run=_replan)


def _replan(arguments: argparse.Namespace) -> int:
    snapshot_file = document_path(arguments.snapshot, "snapshots")
    cluster_file = document_path(arguments.cluster, "clusters")
    policy_file = None if arguments.policy is None else document_path(arguments.policy, "policies")
    check_outputs([arguments.html], [file for file in (snapshot_file, cluster_file, policy_file) if file is not None])
    from iegopt.errors import InputError
    from iegopt.spec.load import load_cluster, load_policy, load_snapshot
    from iegopt.spec.text import file_name

    snapshot, cluster = load_snapshot(snapshot_file), load_cluster(cluster_file)
    policy = None if policy_file is None else load_policy(policy_file)
    from iegopt.planner import Planner
    from iegopt.spec.batch_policy import BatchPolicy

    window = (policy or BatchPolicy()).window
    with busy(f"planning {len(snapshot.queue):,} requests of {snapshot.name} on {cluster.name}"):
        planner = Planner(cluster)
        try:
            plan = planner.replan(snapshot, policy, deadline_ms=arguments.deadline_ms)
        except InputError as error:
            # What only shows against the cluster is told by the place in the snapshot: say in which file that is.
            raise InputError(f"{file_name(snapshot_file)}: {error}") from None
    for warning in plan.warnings[:_FIRST_WARNINGS]:
        note(plain(warning))
    if len(plan.warnings) > _FIRST_WARNINGS:
        note(f"{len(plan.warnings) - _FIRST_WARNINGS:,} more warnings, all of them in the answer with --json")
    if arguments.html is not None:
        from iegopt.cli.html.replan import replan_page

        with writing(arguments.html):
            write_whole(arguments.html, replan_page(plan, cluster.name, window))
    if arguments.json:
        print_json(plan.document())
    else:
        show(*_render(plan, cluster.name, every=arguments.all, quiet=arguments.quiet))
    return 0


def _render(plan: BatchPlan, cluster: str, *, every: bool, quiet: bool) -> Iterator[RenderableType]:
    from iegopt.cli.render import filled

    yield _headline(plan, cluster)
    yield ""
    parts = [rows.levels(plan)]
    if not quiet:
        waiting = rows.waiting(plan)
        long = len(waiting.cells) > rows.FIRST_ROWS and not every
        parts += [rows.placed(plan), *([rows.by_reason(plan)] if long else []), waiting]
        parts += [rows.changes(plan), rows.instances(plan), rows.tenants(plan)]
    yield from (filled(part if every else rows.cut(part)) for part in parts if part.cells)


def _headline(plan: BatchPlan, cluster: str) -> Text:
    from rich.text import Text

    style = {"optimal": "bold green", "feasible": "bold yellow"}
    about = f"  {plain(plan.snapshot)} on {plain(cluster)} ({len(plan.instances):,} instances)\n"
    text = Text.assemble((plan.status, style[plan.status]), about, rows.counts(plan))
    text.append(f"\nsolver {plain(plan.solver)}, {seconds(plan.seconds)}", style="dim")
    return text.append(f"\n{plain(plan.note)}") if plan.note else text
