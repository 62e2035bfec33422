"""Write the figures of ``benchmarks/results`` into ``benchmarks/README.md``: ``python benchmarks/summary.py``.

Of every file the command that made it, and its figures; of the results of a suite the claims and the comparison.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from iegopt.bench.claims import claims
from iegopt.bench.journal import FORMAT
from iegopt.bench.metrics import contradictions, main_limit
from iegopt.bench.report import summary
from iegopt.cli.bench_markdown import bench_markdown
from iegopt.cli.bench_rows import claim_table, comparisons, facts

HERE = Path(__file__).resolve().parent
BEGIN, END = "<!-- figures: begin -->\n", "<!-- figures: end -->\n"
SURROUNDINGS = ("command", "date", "python", "versions", "processor", "system")
Document = dict[str, Any]


def main() -> None:
    page = HERE / "README.md"
    before, _, rest = page.read_text(encoding="utf-8").partition(BEGIN)
    after = rest.partition(END)[2]
    page.write_text(f"{before}{BEGIN}\n{figures()}\n\n{END}{after}", encoding="utf-8")


def figures() -> str:
    """All figures as Markdown: a table of the scripts, then a section a suite."""
    files = sorted((HERE / "results").glob("*.json"))
    documents = {file.stem: json.loads(file.read_text(encoding="utf-8")) for file in files}
    suites = {name: document for name, document in documents.items() if document.get("format") == FORMAT}
    scripts = {name: document for name, document in documents.items() if name not in suites}
    lines = ["| command | figures | where and when |", "|---|---|---|"]
    lines += [_row(name, document) for name, document in scripts.items()]
    return "\n\n".join(["\n".join(lines), *(_section(name, document) for name, document in suites.items())])


def _row(name: str, document: Document) -> str:
    told = SENTENCES.get(name, _plain)(document)
    return f"| `{document['command']}` | {told} | {document['processor']}, {document['date']} |"


def _section(name: str, document: Document) -> str:
    parts = [claim_table(claims(document)), *comparisons(summary(document), main_limit(document["rows"]))]
    told = bench_markdown(parts, facts(document, contradictions(document["rows"])))
    return f"### Suite {name}\n\n{told.replace('### ', '#### ').strip()}"


def _tree(document: Document) -> str:
    told = []
    for core, way in (("numpy", "tree"), ("compiled", "tree_compiled")):
        sizes = ", ".join(f"{ms:.2f} ms on {int(sites):,}" for sites, ms in document[f"{way}_ms_by_sites"].items())
        told.append(
            f"{core}: 20 stages on 1,024 sites in {document[f'{way}_ms']:.2f} ms, {document[f'dense_over_{way}']:.0f} "
            f"times as fast as the dense programme with its table of predecessors, "
            f"{document['value_ms'] / document[f'{way}_ms']:.0f} times as its fastest form; 50 stages: {sizes} sites"
        )
    return "; ".join(told)


def _batch(document: Document) -> str:
    def told(way: str) -> str:
        seen = document["ms_a_request_by_requests"][way]
        first, last = min(seen, key=int), max(seen, key=int)
        return f"{seen[first]:.2f} ms at {first}, {seen[last]:.2f} ms at {last} requests"

    return f"a request in one call, compiled {told('together_compiled')}; by numpy {told('together')}"


def _planner(document: Document) -> str:
    plan = document["median_ms"]["plan"]
    told = f"a plan end to end takes {plan:.1f} ms, {document['plan_over_tree']:.1f} times `tree` alone"
    if "numba" not in document:
        return told
    fast = document["numba"]
    return f"{told}; compiled {fast['median_ms']['plan']:.1f} ms, {fast['plan_over_tree']:.1f} times"


def _deadlines(document: Document) -> str:
    core = f", {document['core']}" if "core" in document else ""
    shares = ", ".join(f"{title} {100 * row['plans']:.4g} %" for title, row in document["by_deadline"].items())
    by_work = f", {document['late_by_work']} by their work on one alone" if "late_by_work" in document else ""
    return (
        f"{document['late']} of {document['answers']} answers late on {document['instances']} instances{core}, "
        f"{document['late_beyond_waiting']} of them not because the thread waited for a processor{by_work}; "
        f"with a plan: {shares}"
    )


def _everyday(document: Document) -> str:
    times, milliseconds = document["times_tree_median_and_most"], document["milliseconds_median_and_most"]
    way = "compiled" if "--compiled" in document["command"] else "by numpy"
    return (
        f"{way}, {document['proven']} of {document['instances']} proven, {document['within_20_times_tree']} within 20 "
        f"times `tree` (median {times[0]:g}, most {times[1]:g} times; {milliseconds[0]:g} and {milliseconds[1]:g} ms); "
        f"gap above 1 % after 100 ms: {document['gap_above_1_percent_after_100_ms']}"
    )


def _oracle(document: Document) -> str:
    wrong = sum(solver["disagreements"] for solver in document["solvers"].values())
    return f"{len(document['solvers'])} solvers on {document['seeds']} random problems: {wrong} disagreements"


def _makespan(document: Document) -> str:
    def told(row: Document) -> str:
        off = f"worse on {row['worse']}, equal on {row['equal']}, better on {row['better']}"
        return f"{row['mean_ratio']:g} of theirs in the mean ({off})"

    row, long = document["summary"]["all"], document["limit"]
    times = {
        "alone": "in the time of the best of them",
        "together": "in the time of all of them",
        "long": f"in {long:g} s",
    }
    parts = [f"{when} {told(row[limit])}" for limit, when in times.items()]
    parts += [f"{told(row[one])} against {one.upper()} in its own time" for one in ("heft", "cpop")]
    return (
        f"makespans on {row['instances']} instances against the best of {document['heuristics']} heuristics: "
        + "; ".join(parts)
    )


def _kv_transfer(document: Document) -> str:
    told = []
    for transport, ways in document["exposed_ms"].items():
        saved = document["saved"][transport]
        shown = ", ".join(
            f"{way} {ms:.0f} ms" + (f" ({100 * saved[way]:.0f} % saved)" if way != "blocking" else "")
            for way, ms in ways.items()
        )
        told.append(f"{transport}: {shown}")
    prefill = ", ".join(f"{seconds:.2f} s {way}" for way, seconds in document["prefill_s"].items())
    return f"exposed time of {document['megabytes']:.0f} MB, {'; '.join(told)}; prefill {prefill}"


def _kv_loss(document: Document) -> str:
    shares, errors = document["share_differing"], document["relative_error"]
    told = ", ".join(
        f"{way} {100 * share:.2f} % of {document['positions']} tokens (error of KV {100 * errors[way]:.2f} %)"
        for way, share in shares.items()
    )
    return f"likeliest token is another: {told}"


def _recovery(document: Document) -> str:
    told = []
    for fault, row in document["faults"].items():
        shown = ", ".join(
            f"{name} {row[name]['median_s']:.3f} ({row[name]['most_s']:.3f})"
            for name in ("noticed", "running", "token")
            if name in row
        )
        told.append(f"{row['level']} {fault}: {shown}, the source {row['allowed_s']:g}")
    wrong = len(document["wrong"])
    return (
        f"seconds after a fault, median (most) of {document['rounds']} rounds: {'; '.join(told)}; {wrong} things wrong"
    )


def _replan(document: Document) -> str:
    told = [
        f"{size}: worst gap of a priority {100 * document[f'{size}_worst_gap']:.2g} %, median of the sums "
        f"{100 * document[f'{size}_median_total_gap']:.2g} %, at most {document[f'{size}_most_seconds']:.1f} s"
        for size in ("small", "medium", "large")
    ]
    rules = ", ".join(
        f"{name} {document[f'{name}_at_least_the_best_rule']} ({document[f'{name}_utility_over_the_best_rule']})"
        for name in ("mooncake", "azure")
        if f"{name}_at_least_the_best_rule" in document
    )
    return (
        f"{'; '.join(told)}; peak memory {document['peak_megabytes']} MB; no worse than CP-SAT after 60 s on "
        f"{document['no_worse_than_cpsat']}; at least the best routing rule on {rules}, sum of utilities over its; "
        f"at most {100 * document['most_churn']:.1f} % change place"
    )


def _replan_short(document: Document) -> str:
    told = [
        f"{row['queue']} at {row['deadline']:g} s: {100 * row['share']:.0f} % "
        f"({100 * row['share_of_the_first']:.0f} %), {row['seconds']:.2f} s"
        for row in document["rows"]
    ]
    return f"utility of that without a deadline (of the first priority), and seconds: {'; '.join(told)}"


def _runtime_overhead(document: Document) -> str:
    def told(takes: str) -> str:
        ways = document[takes]
        figures = (
            f"p50 {ways[way]['p50_ms']:g} ms, p99 {ways[way]['p99_ms']:g} ms, "
            f"{1e3 * ways[way]['cpu_ms']:.0f} µs of the controller's processor"
            for way in ("runtime", "bare")
        )
        return f"stages that end {takes}: " + "; the bare queue ".join(figures)

    return f"{document['in_flight']} requests in flight, " + "; ".join(
        told(takes) for takes in ("50 to 150 ms", "at once")
    ).replace("that end 50 to 150 ms", "of 50 to 150 ms")


def _import_time(document: Document) -> str:
    return ", ".join(f"`{what}` {1e3 * seconds:.0f} ms" for what, seconds in document["median_s"].items())


def _plain(document: Document) -> str:
    """Names and numbers as they stand."""
    entries = {key: value for key, value in document.items() if key not in SURROUNDINGS}
    return ", ".join(
        f"{key.replace('_', ' ')} {value:g}" if isinstance(value, float) else f"{key.replace('_', ' ')} {value}"
        for key, value in entries.items()
        if not isinstance(value, dict | list)
    )


SENTENCES: dict[str, Callable[[Document], str]] = {
    "tree": _tree,
    "batch": _batch,
    "planner": _planner,
    "deadlines": _deadlines,
    "deadlines_load": _deadlines,
    "everyday": _everyday,
    "everyday_compiled": _everyday,
    "everyday_held_out": _everyday,
    "oracle": _oracle,
    "makespan": _makespan,
    "recovery": _recovery,
    "replan": _replan,
    "replan_short": _replan_short,
    "import_time": _import_time,
    "runtime_overhead": _runtime_overhead,
    "kv_transfer": _kv_transfer,
    "kv_loss_tiny": _kv_loss,
    "kv_loss_smollm2": _kv_loss,
}


if __name__ == "__main__":
    main()
