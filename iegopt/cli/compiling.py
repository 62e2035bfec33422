"""``iegopt compile``, ``iegopt generate`` and ``iegopt schema``: instance files and schemas."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from iegopt.cli.arguments import Commands, whole
from iegopt.cli.output import busy, check_ending, check_outputs, document_path, note, print_json, writing

if TYPE_CHECKING:
    from iegopt.problem.arrays import Problem

__all__ = ["add_commands"]

FAMILIES = ("chain", "agent", "fanout", "layered", "joins")
MEMORIES = ("slack", "tight", "part_full")


def add_commands(commands: Commands) -> None:
    parser = commands.add_parser(
        "compile",
        help="write the instance file of a request on a cluster",
        description="Write the iegopt-instance/1 that plan solves, so that any other solver can be tried on it.",
    )
    parser.add_argument("request", metavar="REQUEST", help="request file, or the name of a shipped one")
    parser.add_argument(
        "--cluster", required=True, metavar="CLUSTER", help="cluster file, or the name of a shipped one"
    )
    parser.add_argument("-o", "--output", required=True, metavar="FILE", help="file to write, .json or .json.gz")
    parser.set_defaults(run=_compile)

    parser = commands.add_parser(
        "generate",
        help="write a generated instance file",
        description="Write a seeded instance of a family, for tests and benchmarks of solvers.",
    )
    parser.add_argument("--family", required=True, choices=FAMILIES, help="shape of the graph")
    parser.add_argument("--stages", required=True, type=whole(1), metavar="N", help="number of stages")
    parser.add_argument("--sites", required=True, type=whole(1), metavar="N", help="number of sites")
    parser.add_argument("--memory", default="slack", choices=MEMORIES, help="how scarce memory is (default slack)")
    parser.add_argument("--seed", type=whole(0), default=0, metavar="N", help="random seed (default 0)")
    parser.add_argument("-o", "--output", required=True, metavar="FILE", help="file to write, .json or .json.gz")
    parser.set_defaults(run=_generate)

    parser = commands.add_parser(
        "schema",
        help="print the JSON Schema of the documents",
        description="Print the JSON Schema (2020-12) of a whole file, or of one document.",
    )
    parser.add_argument(
        "document", nargs="?", metavar="DOCUMENT", help="request, cluster, device, …; none: all of them"
    )
    parser.set_defaults(run=_schema)


def _compile(arguments: argparse.Namespace) -> int:
    check_outputs([arguments.output])
    request_file = document_path(arguments.request, "requests")
    cluster_file = document_path(arguments.cluster, "clusters")
    check_outputs([arguments.output], [request_file, cluster_file])
    check_ending(arguments.output, (".json", ".json.gz"))
    from iegopt.spec.load import load_cluster, load_request

    request, cluster = load_request(request_file), load_cluster(cluster_file)
    from iegopt.planner import Planner

    with busy(f"compiling {request.id} on {cluster.name}"):
        problem = Planner(cluster).compile(request).problem
    return _write(problem, arguments.output)


def _generate(arguments: argparse.Namespace) -> int:
    check_outputs([arguments.output])
    check_ending(arguments.output, (".json", ".json.gz"))
    from iegopt.problem.families import generate

    problem = generate(arguments.family, arguments.stages, arguments.sites, arguments.memory, arguments.seed)
    return _write(problem, arguments.output)


def _write(problem: Problem, path: str) -> int:
    from iegopt.problem.instance import write_instance

    with writing(path):
        instance = write_instance(problem, path)
    note(
        f"wrote {path}: {problem.V} stages, {problem.topology.S:,} sites, {len(problem.options.site):,} options, "
        f"{problem.E} edges"
    )
    extensions = instance.document.get("extensions")
    if extensions:
        note(f"the file goes beyond plain iegopt-instance/1 with {', '.join(extensions)}")
    return 0


def _schema(arguments: argparse.Namespace) -> int:
    from iegopt.errors import InputError
    from iegopt.spec.explain_error import nearest
    from iegopt.spec.schema import schema, schemas
    from iegopt.units import shown

    if arguments.document is None:
        print_json(schema())
        return 0
    known = schemas()
    if arguments.document not in known:
        guess = nearest(arguments.document, known)
        hint = f"Maybe {guess}?" if guess else f"Known: {', '.join(known)}"
        raise InputError(f"no document is called {shown(arguments.document)}. {hint}")
    print_json(known[arguments.document])
    return 0
