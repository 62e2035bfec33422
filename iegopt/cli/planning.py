"""``iegopt plan``: a request on a cluster, planned, verified and shown."""

from __future__ import annotations

import argparse
import dataclasses
import gc
import sys

from iegopt.cli.arguments import Commands, add_limits, params, positive
from iegopt.cli.output import busy, check_outputs, document_path, note, print_json, show, terminal, writing
from iegopt.files import write_whole

__all__ = ["EXIT", "add_commands"]

EXIT = {"optimal": 0, "feasible": 0, "infeasible": 2, "unknown": 3}
"""Status -> exit code, the same for every command that solves."""


def add_commands(commands: Commands) -> None:
    parser = commands.add_parser(
        "plan",
        help="plan a request on a cluster",
        description="Build the graph of a request, place it on a cluster, verify the plan and show it.",
    )
    parser.add_argument("request", metavar="REQUEST", help="request file, or the name of a shipped one")
    parser.add_argument(
        "--cluster", required=True, metavar="CLUSTER", help="cluster file, or the name of a shipped one"
    )
    add_limits(parser)
    parser.add_argument(
        "--deadline-ms",
        type=positive,
        metavar="MS",
        help="milliseconds by which to have a plan, once all files are read",
    )
    parser.add_argument("--json", action="store_true", help="one JSON object on stdout")
    parser.add_argument("--html", metavar="FILE", help="also write the plan as one self-contained page")
    amount = parser.add_mutually_exclusive_group()
    amount.add_argument("--explain", action="store_true", help="say more: the summary, and why options were refused")
    amount.add_argument("--quiet", action="store_true", help="say less: the status and the objective only")
    parser.set_defaults(run=_plan)


def _plan(arguments: argparse.Namespace) -> int:
    check_outputs([arguments.html])
    request_file = document_path(arguments.request, "requests")
    cluster_file = document_path(arguments.cluster, "clusters")
    check_outputs([arguments.html], [request_file, cluster_file])
    from iegopt.spec.load import load_cluster, load_request

    request, cluster = load_request(request_file), load_cluster(cluster_file)
    from iegopt.devices import expand
    from iegopt.planner import Planner
    from iegopt.plans import Plan
    from iegopt.solvers.api import load_engine

    with busy(f"planning {request.id} on {cluster.name}"):
        planner = Planner(cluster)
        planner.load(request)  # reading files is not planning: a deadline begins when all are read
        load_engine(arguments.solver)  # nor is starting an engine
        gc.freeze()  # what is loaded stays to the end of the process: no collection need look at it
        answer = planner.plan(
            request,
            deadline_ms=arguments.deadline_ms,
            solver=arguments.solver,
            params=params(arguments),
            explained=arguments.json or arguments.html is not None or not arguments.quiet,
        )
    if arguments.html is not None:
        if isinstance(answer, Plan):
            from iegopt.cli.html import page

            with writing(arguments.html):
                write_whole(arguments.html, page(answer, expand(cluster)))
        else:
            note(f"{arguments.html} was not written: there is no plan to draw")
    if arguments.json:
        print_json(answer.document())
    else:
        from iegopt.cli.render import header, render_no_plan, render_plan

        if arguments.quiet:
            show(header(dataclasses.replace(answer, note="")))
        elif isinstance(answer, Plan):
            show(*render_plan(answer, expand(cluster), terminal().width, explain=arguments.explain))
        else:
            show(*render_no_plan(answer))
    sys.stdout.flush()
    return EXIT[answer.status]
