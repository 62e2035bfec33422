"""``iegopt bench``: run a suite of instances, solvers and peers, and report what came of it."""

from __future__ import annotations

import argparse
import shlex
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import compress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from iegopt.cli.arguments import Commands
from iegopt.cli.output import check_ending, check_outputs, print_json, show, writing
from iegopt.files import write_whole

if TYPE_CHECKING:
    from iegopt.bench.run import Observer
    from iegopt.cli.rows import Rows

__all__ = ["add_commands"]


def add_commands(commands: Commands) -> None:
    parser = commands.add_parser(
        "bench", help="benchmark solvers and peers", description="Benchmark solvers and peers."
    )
    actions = parser.add_subparsers(dest="action", metavar="ACTION", required=True)
    run = actions.add_parser(
        "run",
        help="run a suite",
        description="Run every solver of a suite on every instance, side by side. Each run is on disk when it ends.",
    )
    run.add_argument("suite", metavar="SUITE.yaml", help="a file with suite: at its top")
    run.add_argument(
        "-o", "--output", required=True, metavar="RESULTS.json", help="where the results go, .json or .json.gz"
    )
    there = run.add_mutually_exclusive_group()
    there.add_argument(
        "--resume", action="store_true",
        help="go on with an interrupted run, or add to results what is not done yet; runs that a signal ended, such as "
        "a kill, are done again",
    )  # fmt: skip
    there.add_argument(
        "--force", action="store_true", help="start anew; what RESULTS.json held is replaced when the run is finished"
    )
    _add_filter(run)
    run.set_defaults(run=_run)

    report = actions.add_parser(
        "report",
        help="tables and charts of results",
        description="Per family: proofs, gaps, times. The journal of an unfinished run will do.",
    )
    report.add_argument("results", metavar="RESULTS.json", help="what bench run wrote")
    _add_filter(report)
    report.add_argument("--html", metavar="FILE", help="write a page with tables and charts")
    report.add_argument("--png", metavar="FILE", help="write the charts as a picture (needs matplotlib)")
    report.add_argument("--markdown", metavar="FILE", help="write the claims and tables as Markdown")
    report.add_argument("--json", action="store_true", help="the table as one JSON object on stdout")
    report.set_defaults(run=_report)

    small = actions.add_parser(
        "compact",
        help="results small enough to commit",
        description="Leave out what no report reads: plans, and points of trajectories without a better plan.",
    )
    small.add_argument("results", metavar="RESULTS.json", help="what bench run wrote")
    small.add_argument("-o", "--output", required=True, metavar="SMALL.json", help="where they go, .json or .json.gz")
    small.set_defaults(run=_compact)


def _add_filter(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--filter", action="append", default=[], metavar="PATTERN",
        help="only runs whose instance:solver:limit (such as 0.1s) holds this, * and ? allowed; may be given again",
    )  # fmt: skip


def _run(arguments: argparse.Namespace) -> int:
    from iegopt.bench.journal import journal_of
    from iegopt.bench.run import run_suite
    from iegopt.spec.load import load_document

    path = Path(arguments.suite)
    suite = load_document(path, "suite")[1]
    results = Path(arguments.output)
    check_outputs([arguments.output, str(journal_of(results))], [path])
    check_ending(arguments.output, (".json", ".json.gz"))
    words = ["iegopt", "bench", "run", arguments.suite, "-o", arguments.output]
    words += [word for pattern in arguments.filter for word in ("--filter", pattern)]
    with _progress() as observe, writing(arguments.output):
        run_suite(
            suite,
            path.parent,
            results,
            resume=arguments.resume,
            force=arguments.force,
            patterns=arguments.filter,
            command=shlex.join(words),
            observe=observe,
        )
    return 0


@contextmanager
def _progress() -> Iterator[Observer]:
    """A line on stderr for each run, and on a terminal below them what is running now."""
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    from iegopt.cli.bench_rows import outcome
    from iegopt.cli.format import plain

    console = Console(stderr=True, markup=False, highlight=False, emoji=False, soft_wrap=True)
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as bar:
        line = bar.add_task("", total=None)

        def observe(number: int, total: int, task: Any, row: dict[str, Any] | None) -> None:
            bar.update(line, total=total, completed=number - (row is None), description=plain(str(task)))
            if row is not None:
                console.print(f"[{number}/{total}] {plain(str(task))}  {outcome(row)}", crop=False, overflow="ignore")

        yield observe


def _report(arguments: argparse.Namespace) -> int:
    from iegopt.bench.charts import charts
    from iegopt.bench.claims import claims
    from iegopt.bench.journal import journal_of, read_results
    from iegopt.bench.metrics import contradictions, main_limit
    from iegopt.bench.patterns import fitting, run_name
    from iegopt.bench.report import summary
    from iegopt.cli import bench_rows

    results = Path(arguments.results)
    check_outputs([arguments.html, arguments.png, arguments.markdown], [results, journal_of(results)])
    document = read_results(results)
    names = [run_name(row["instance"], row["solver"], row["limit"]) for row in document["rows"]]
    document["rows"] = [*compress(document["rows"], fitting(names, arguments.filter))]
    lines = summary(document)
    found = contradictions(document["rows"])
    facts = bench_rows.facts(document, found)
    told = claims(document)
    parts = [bench_rows.claim_table(told), *bench_rows.comparisons(lines, main_limit(document["rows"]))]
    parts += [*bench_rows.family_tables(lines), bench_rows.remarks(lines)]
    parts = [part for part in parts if part.cells]
    if arguments.html:
        from iegopt.cli.html.bench import bench_page

        with writing(arguments.html):
            write_whole(arguments.html, bench_page(document, parts, charts(document), facts))
    if arguments.png:
        from iegopt.cli.png import write_png

        with writing(arguments.png):
            write_png(charts(document), Path(arguments.png))
    if arguments.markdown:
        from iegopt.cli.bench_markdown import bench_markdown

        with writing(arguments.markdown):
            write_whole(arguments.markdown, bench_markdown(parts, facts))
    if arguments.json:
        said = [vars(claim) for claim in told]
        print_json(
            {"claims": said, "lines": [vars(line) for line in lines], "contradictions": found, **_head(document)}
        )
    else:
        show(*facts, *map(_table, parts))
    return 0


def _compact(arguments: argparse.Namespace) -> int:
    from iegopt.bench.compact import compact
    from iegopt.bench.journal import journal_of, read_results, write_results
    from iegopt.cli.bench_rows import PACKAGES

    results = Path(arguments.results)
    check_outputs([arguments.output], [results, journal_of(results)])
    check_ending(arguments.output, (".json", ".json.gz"))
    document = read_results(results)
    with writing(arguments.output):
        write_results(Path(arguments.output), compact(document, PACKAGES))
    return 0


def _head(document: dict[str, Any]) -> dict[str, Any]:
    return {key: document[key] for key in ("suite", "sessions")}


def _table(part: Rows) -> Any:
    from iegopt.cli.render import table

    made = table(part.title, *((head.rstrip("|"), "right" if head.endswith("|") else "left") for head in part.heads))
    for cells in part.cells:
        made.add_row(*cells)
    return made
