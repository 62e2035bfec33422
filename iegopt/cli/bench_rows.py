"""The tables of a benchmark as words, the same on a terminal and on a page."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from iegopt.cli.format import NONE, data, percent, plain, seconds
from iegopt.cli.rows import Rows

if TYPE_CHECKING:
    from iegopt.bench.report import Line

__all__ = ["facts", "family_tables", "outcome", "remarks"]

_HEADS = (
    "solver", "runs|", "plans|", "proved|", "mean gap|", "median gap|", "to 1 %|", "integral|", "seconds|", "memory|",
    "late|",
)  # fmt: skip


def family_tables(lines: Sequence[Line]) -> list[Rows]:
    """A table for each family and limit."""
    groups: dict[tuple[str, float], list[Line]] = {}
    for line in lines:
        groups.setdefault((line.family, line.limit), []).append(line)
    return [
        Rows(f"{family}, {seconds(limit)}", _HEADS, tuple(_cells(line) for line in own if line.runs))
        for (family, limit), own in groups.items()
        if any(line.runs for line in own)
    ]


def _cells(line: Line) -> tuple[str, ...]:
    integral = NONE if line.integral is None else f"{line.integral:.3f}"
    return (
        plain(line.solver), f"{line.runs}", f"{line.plans}", f"{line.proved}", percent(line.mean_gap),
        percent(line.median_gap), seconds(line.near_seconds), integral, seconds(line.seconds), data(line.memory),
        f"{line.late or NONE}",
    )  # fmt: skip


def remarks(lines: Sequence[Line]) -> Rows:
    """Runs without an answer, and why."""
    solvers: dict[tuple[str, float, str], list[str]] = {}
    for line in lines:
        for remark in line.remarks:
            solvers.setdefault((line.family, line.limit, remark), []).append(line.solver)
    cells = [
        (plain(family), seconds(limit), plain(", ".join(own)), plain(remark))
        for (family, limit, remark), own in solvers.items()
    ]
    return Rows("Without a plan or a proof", ("family", "limit|", "solvers", "why"), tuple(cells))


def facts(document: dict[str, Any], contradicting: Sequence[str]) -> list[str]:
    """Where and with what it ran, how much is there, and what contradicts itself."""
    session = document["sessions"][-1]
    suite = document["suite"]
    versions = session["versions"]
    used = ("iegopt", "ortools", "highspy", "numpy", "pytoulbar2", "anrg-saga")
    packages = ", ".join(f"{name} {versions[name]}" for name in used if name in versions)
    threads = f"{suite['threads']} thread{'s' if suite['threads'] > 1 else ''}"
    return [
        f"{len(document['rows'])} runs of suite {plain(suite['name'])}, {threads}, {session['date']}",
        f"{plain(session['processor'])}, {session['cores']} cores, Python {session['python']}, {packages}",
        *([f"command: {plain(session['command'])}"] if session["command"] else []),
        *(f"CONTRADICTION {plain(words)}" for words in contradicting),
    ]


def outcome(row: dict[str, Any]) -> str:
    """What came of a run, on one line."""
    if row["objective"] is None:
        words = f"{row['status']}: {row['reason']}" if row["reason"] else row["status"]
        return plain(words)
    bound = row["bound"]
    gap = None if bound is None or not row["objective"] else (row["objective"] - bound) / abs(row["objective"])
    killed = ", killed" if row["killed"] else ""
    return (
        f"{row['status']} {seconds(row['objective'] / 1e9)}, gap {percent(gap)}, in {seconds(row['seconds'])}{killed}"
    )
