"""What the results say about claims: our solver against the peers, at the limit that most of them ran with.

The subject is ``auto``, else the first solver of ours that starts without a hint. Peers are all engines but our own
methods: CP-SAT and MILP on our formulations are among them. A case is an instance, seed and repetition.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from iegopt.bench.metrics import NEAR, answered, best_known, gap_to, late, main_limit, value_at, value_in_time
from iegopt.bench.report import EARLY, proven_gap

__all__ = ["OWN_METHODS", "Claim", "claims"]

Row = dict[str, Any]
Case = tuple[str, int, int]

OWN_METHODS = ("auto", "prices", "tree", "local", "greedy", "brute")
_SOONER = 0.8
"""Share of the cases proven by a peer in which the subject should be sooner."""
_PROVEN = 0.02
"""Proven gap that counts as small."""
_MEMORY = 10**9
"""Bytes that a run may take."""
_FIRST = -2
"""Power of ten of the first moment, in seconds, at which plans are compared."""
_NAMED = 6
"""Exceptions that are named."""


@dataclass(frozen=True)
class Claim:
    """A claim in words, whether it holds (``None`` where the results cannot tell), and the figures."""

    words: str
    holds: bool | None
    figures: str


@dataclass(frozen=True)
class _Cases:
    """The rows of the main limit by case: the subject's, and those of peers without and with a hint."""

    subject: str
    limit: float
    own: dict[Case, Row]
    alone: dict[Case, list[Row]]
    hinted: dict[Case, list[Row]]
    best: dict[str, float]


def claims(document: dict[str, Any]) -> list[Claim]:
    """All claims on which the results have a say; none without a subject."""
    cases = _cases(document["rows"])
    if cases is None:
        return []
    found = [
        _proofs(cases, cases.alone, "a peer"),
        _proofs(cases, cases.hinted, f"a peer given the plan of {cases.subject}"),
        _plans(cases),
        _after_hint(cases),
        _early(cases),
        _proven(cases),
        _published(cases),
        _in_time(cases),
        _memory(cases),
    ]
    return [claim for claim in found if claim is not None]


def _cases(rows: list[Row]) -> _Cases | None:
    limit = main_limit(rows)
    ran = [row for row in rows if row["limit"] == limit and answered(row)]
    mine = list(dict.fromkeys(row["solver"] for row in ran if row["engine"] in OWN_METHODS and row["hint"] is None))
    if not mine:
        return None
    subject = "auto" if "auto" in mine else mine[0]
    peers = [row for row in ran if row["engine"] not in OWN_METHODS]
    return _Cases(
        subject,
        limit,
        {_case(row): row for row in ran if row["solver"] == subject},
        _by_case(row for row in peers if row["hint"] is None),
        _by_case(row for row in peers if row["hint"] is not None),
        best_known(rows),
    )


def _case(row: Row) -> Case:
    return (row["instance"], row["seed"], row["repetition"])


def _by_case(rows: Iterable[Row]) -> dict[Case, list[Row]]:
    found: dict[Case, list[Row]] = {}
    for row in rows:
        found.setdefault(_case(row), []).append(row)
    return found


def _proof_seconds(row: Row) -> float | None:
    return float(row["seconds"]) if row["status"] in ("optimal", "infeasible") and not late(row) else None


def _proofs(cases: _Cases, peers: dict[Case, list[Row]], who: str) -> Claim | None:
    """Who proves, and who sooner, where any of these peers does."""
    if not any(case in cases.own for case in peers):
        return None
    total = sooner = 0
    missed = []
    for case, own in cases.own.items():
        times = [time for row in peers.get(case, ()) if (time := _proof_seconds(row)) is not None]
        if times:
            mine = _proof_seconds(own)
            total += 1
            sooner += mine is not None and mine < min(times)
            if mine is None:
                missed.append(case[0])
    words = f"Where {who} proves, {cases.subject} does too, sooner in four of five cases"
    if total == 0:
        return Claim(words, None, f"none proves any of {len(cases.own)}")
    figures = f"proven by a peer {total}, of these by {cases.subject} {total - len(missed)}, sooner {sooner}"
    return Claim(words, not missed and sooner >= _SOONER * total, figures + _named("not proven", missed))


def _plans(cases: _Cases) -> Claim | None:
    """Plans at equal time, against the best of the peers that start from nothing."""
    better = equal = 0
    behind: list[str] = []
    ratios: list[float] = []
    for case, own in cases.own.items():
        peers = cases.alone.get(case, [])
        for moment in _moments(cases.limit) if peers else ():
            mine, theirs = value_at(own, moment), _least(value_at(row, moment) for row in peers)
            if mine is not None and (theirs is None or mine < theirs):
                better += 1
            elif theirs is not None and mine == theirs:
                equal += 1
            elif theirs is not None:
                behind.append(f"{_far(case, gap_to(theirs, mine))} after {moment:g} s")
        mine, theirs = value_in_time(own), _least(value_in_time(row) for row in peers)
        if mine is not None and theirs is not None and theirs > 0:
            ratios.append(mine / theirs)
    if not (better or equal or behind):
        return None
    moments = ", ".join(f"{moment:g}" for moment in _moments(cases.limit))
    mean = f"; mean ratio to the best peer at the end {statistics.fmean(ratios):.4g}" if ratios else ""
    figures = f"after {moments} s: better {better}, equal {equal}, worse {len(behind)}{_named('worse', behind)}{mean}"
    return Claim(f"At equal time no peer has a better plan than {cases.subject}", not behind, figures)


def _moments(limit: float) -> list[float]:
    """Powers of ten below the limit, and the limit."""
    powers = [10.0**power for power in range(_FIRST, math.ceil(math.log10(limit)) + 1)]
    return [*(power for power in powers if power < limit), limit]


def _least(values: Iterable[float | None]) -> float | None:
    return min((value for value in values if value is not None), default=None)


def _after_hint(cases: _Cases) -> Claim | None:
    """What peers make of the subject's plan in as much time again."""
    total, gains = 0, []
    for case, own in cases.own.items():
        mine, theirs = value_in_time(own), _least(value_in_time(row) for row in cases.hinted.get(case, ()))
        if mine is not None and theirs is not None:
            total += 1
            if theirs < mine:
                gains.append(f"{case[0]} by {100 * (mine - theirs) / abs(mine):.2g} %")
    if total == 0:
        return None
    words = f"Given the plan of {cases.subject} and {cases.limit:g} s more, no peer finds a better one"
    return Claim(words, not gains, f"better in {len(gains)} of {total}{_named('better', gains)}")


def _early(cases: _Cases) -> Claim | None:
    own = {case: row for case, row in cases.own.items() if case[0] in cases.best}
    if cases.limit <= EARLY or not own:
        return None
    gaps = {case: gap_to(cases.best[case[0]], value_at(row, EARLY)) for case, row in own.items()}
    far = [_far(case, gap) for case, gap in gaps.items() if gap is None or gap > NEAR]
    words = f"After {EARLY:g} s the plan of {cases.subject} is within {100 * NEAR:g} % of the best of all runs"
    return Claim(words, not far, f"{len(gaps) - len(far)} of {len(gaps)}{_named('not', far)}")


def _proven(cases: _Cases) -> Claim | None:
    """How near the subject's own bounds are to its plans."""
    gaps = {case: proven_gap(row) for case, row in cases.own.items() if row["status"] != "infeasible"}
    if not gaps:
        return None
    optimal = sum(_proof_seconds(row) is not None for row in cases.own.values())
    far = [_far(case, gap, "bound") for case, gap in gaps.items() if gap is None or gap > _PROVEN]
    figures = f"{len(gaps) - len(far)} of {len(gaps)}, optimal {optimal} of {len(cases.own)}{_named('not', far)}"
    words = f"The gap that {cases.subject} proves in {cases.limit:g} s is at most {100 * _PROVEN:g} %"
    return Claim(words, not far, figures)


def _published(cases: _Cases) -> Claim | None:
    known = {case: row for case, row in cases.own.items() if row["published"] is not None}
    if not known:
        return None
    gaps = {case: gap_to(row["published"], value_in_time(row)) for case, row in known.items()}
    missed = [_far(case, gap) for case, gap in gaps.items() if gap is None or gap > 0]
    words = f"The plan of {cases.subject} is as good as the published one"
    return Claim(words, not missed, f"{len(gaps) - len(missed)} of {len(gaps)}{_named('not', missed)}")


def _in_time(cases: _Cases) -> Claim:
    over = [case[0] for case, row in cases.own.items() if late(row)]
    figures = f"late {len(over)} of {len(cases.own)}{_named('late', over)}"
    return Claim(f"{cases.subject} keeps its limit", not over, figures)


def _memory(cases: _Cases) -> Claim | None:
    peaks = {case: int(row["memory"]) for case, row in cases.own.items() if row["memory"] is not None}
    if not peaks:
        return None
    over = [case[0] for case, peak in peaks.items() if peak > _MEMORY]
    words = f"No run of {cases.subject} takes more than {_MEMORY / 1e9:g} GB"
    return Claim(words, not over, f"the most is {max(peaks.values()) / 1e6:.0f} MB{_named('more', over)}")


def _far(case: Case, gap: float | None, missing: str = "plan") -> str:
    return f"{case[0]} {f'without a {missing}' if gap is None else f'{100 * gap:.2g} %'}"


def _named(what: str, items: list[str]) -> str:
    """The first of some exceptions, in brackets."""
    if not items:
        return ""
    more = [f"{len(items) - _NAMED} more"] if len(items) > _NAMED else []
    return f" ({what}: {'; '.join([*items[:_NAMED], *more])})"
