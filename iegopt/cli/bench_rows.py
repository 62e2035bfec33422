"""The tables of a benchmark as words, the same on a terminal and on a page."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from iegopt.cli.format import NONE, data, percent, plain, seconds
from iegopt.cli.rows import Rows

if TYPE_CHECKING:
    from iegopt.bench.claims import Claim
    from iegopt.bench.report import Line

__all__ = ["PACKAGES", "claim_table", "comparisons", "facts", "family_tables", "outcome", "remarks"]

PACKAGES = ("iegopt", "ortools", "highspy", "numpy", "numba", "pytoulbar2", "anrg-saga")
"""Those whose versions a report tells."""
_HEADS = (
    "solver", "runs|", "plans|", "proved|", "gap 1 s|", "median gap|", "worst gap|", "proven gap|", "to 1 %|",
    "integral|", "seconds|", "memory|", "late|",
)  # fmt: skip
_HOLDS = {True: "yes", False: "no", None: NONE}


def claim_table(found: Sequence[Claim]) -> Rows:
    """Claims, whether they hold, and the figures."""
    cells = tuple((plain(claim.words), _HOLDS[claim.holds], plain(claim.figures)) for claim in found)
    return Rows("Claims", ("claim", "holds", "figures"), cells)


def comparisons(lines: Sequence[Line], limit: float) -> list[Rows]:
    """A row a family, a column a solver: what was reached within the main limit, and what was proven.

    Solvers that start from nothing and those that start from the plan of another have tables of their own.
    """
    ran = [line for line in lines if line.limit == limit and line.runs]
    found = []
    for hint in dict.fromkeys(line.hint for line in ran):
        own = [line for line in ran if line.hint == hint]
        given = "" if hint is None else f", given the plan of {plain(hint)}"
        found.append(_compared(own, f"Time to proof, else median gap to the best known{given}", _reached))
        found.append(_compared(own, f"Median gap proven{given}", lambda line: percent(line.proven_gap)))
    return found


def _compared(lines: Sequence[Line], title: str, cell: Callable[[Line], str]) -> Rows:
    """A dash where a solver could not state any problem of a family."""
    solvers = list(dict.fromkeys(line.solver for line in lines))
    families = list(dict.fromkeys(line.family for line in lines))
    words = {(line.family, line.solver): cell(line) for line in lines}
    cells = ((plain(family), *(words.get((family, solver), NONE) for solver in solvers)) for family in families)
    heads = ("family", *(f"{plain(solver)}|" for solver in solvers))
    return Rows(f"{title}, {seconds(lines[0].limit)}", heads, tuple(cells))


def _reached(line: Line) -> str:
    """Seconds where all is proven, else the median gap and how much is."""
    if line.proved == line.runs:
        return seconds(line.seconds)
    if line.plans == 0:
        return "no plan"
    proved = f" ({line.proved}/{line.runs} proved)" if line.proved else ""
    return f"+{percent(line.median_gap)}{proved}"


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
        plain(line.solver), f"{line.runs}", f"{line.plans}", _share(line.proved, line.runs), percent(line.early_gap),
        percent(line.median_gap), percent(line.worst_gap), percent(line.proven_gap), seconds(line.near_seconds),
        integral, seconds(line.seconds), data(line.memory), f"{line.late or NONE}",
    )  # fmt: skip


def _share(part: int, whole: int) -> str:
    return f"{part}" if whole == 1 else f"{part} ({100 * part / whole:.0f} %)"


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
    packages = ", ".join(f"{name} {versions[name]}" for name in PACKAGES if name in versions)
    core = f"; messages in {plain(session['messages'])}" if "messages" in session else ""
    threads = f"{suite['threads']} thread{'s' if suite['threads'] > 1 else ''}"
    return [
        f"{len(document['rows'])} runs of suite {plain(suite['name'])}, {threads}, {session['date']}",
        f"{plain(session['processor'])}, {session['cores']} cores, Python {session['python']}, {packages}{core}",
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
