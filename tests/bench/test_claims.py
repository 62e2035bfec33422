"""What claims say about results that were written by hand."""

from __future__ import annotations

import json
from typing import Any

import pytest

from iegopt.bench.charts import charts
from iegopt.bench.claims import claims
from iegopt.bench.compact import compact
from iegopt.bench.metrics import best_known, time_to, value_at
from iegopt.bench.report import summary
from tests.bench.test_metrics import row

Row = dict[str, Any]


def said(*rows: Row) -> dict[str, tuple[bool | None, str]]:
    """Claim -> holds, figures."""
    return {claim.words: (claim.holds, claim.figures) for claim in claims({"rows": list(rows)})}


def found(solver: str, *points: tuple[float, float], bound: float | None = None, **more: Any) -> Row:
    """A run of 10 s with plans at these times; proven where the bound meets the last."""
    last = points[-1][1] if points else None
    status = "unknown" if last is None else "optimal" if bound == last else "feasible"
    trajectory = [[seconds, objective, None] for seconds, objective in points]
    seconds = points[-1][0] if status == "optimal" else 10.0
    entries: Row = {"status": status, "bound": bound, "seconds": seconds, "trajectory": trajectory, **more}
    return row(solver, last, **entries)


PROOFS = "Where a peer proves, auto does too, sooner in four of five cases"
PLANS = "At equal time no peer has a better plan than auto"


def test_without_a_solver_of_ours_nothing_is_claimed() -> None:
    assert said(row("toulbar2", 100)) == {}
    assert said() == {}


def test_a_proof_must_be_there_and_sooner() -> None:
    rows = []
    for i, (mine, theirs) in enumerate([(1.0, 2.0), (1.0, 2.0), (1.0, 2.0), (1.0, 2.0), (3.0, 2.0)]):
        rows += [found("auto", (mine, 100), bound=100, instance=f"i{i}")]
        rows += [found("toulbar2", (theirs, 100), bound=100, instance=f"i{i}")]
    assert said(*rows)[PROOFS] == (True, "proven by a peer 5, of these by auto 5, sooner 4")
    slow = [found("auto", (3.0, 100), bound=100, instance="i5"), found("milp", (2.0, 100), bound=100, instance="i5")]
    assert said(*rows, *slow)[PROOFS] == (False, "proven by a peer 6, of these by auto 6, sooner 4")
    never = [found("auto", (3.0, 100), instance="i6"), found("milp", (9.0, 100), bound=100, instance="i6")]
    holds, figures = said(*rows, *never)[PROOFS]
    assert (holds, figures) == (False, "proven by a peer 6, of these by auto 5, sooner 4 (not proven: i6)")


def test_a_late_proof_is_none() -> None:
    late = found("toulbar2", (11.5, 100), bound=100)
    assert said(found("auto", (2.0, 100)), late)[PROOFS] == (None, "none proves any of 1")


def test_plans_are_compared_at_equal_times_with_the_best_peer_without_a_hint() -> None:
    own = found("auto", (0.05, 130), (2.0, 100))
    peers = [found("cpsat", (0.5, 150), (5.0, 100)), found("milp"), found("heft", (0.5, 120))]
    hinted = found("cpsat", (0.0, 100), hint="auto") | {"solver": "cpsat+auto"}
    holds, figures = said(own, *peers, hinted)[PLANS]
    assert not holds
    assert figures == (
        "after 0.01, 0.1, 1, 10 s: better 1, equal 1, worse 1 (worse: a 8.3 % after 1 s); "
        "mean ratio to the best peer at the end 1"
    )
    assert said(own, peers[1])[PLANS] == (True, "after 0.01, 0.1, 1, 10 s: better 3, equal 0, worse 0")
    nothing = said(found("auto"), peers[0])[PLANS]
    assert nothing[1].endswith("worse 2 (worse: a without a plan after 1 s; a without a plan after 10 s)")


def test_what_peers_make_of_our_plan_is_told() -> None:
    hinted = found("toulbar2", (0.0, 100), (8.0, 95), bound=95, hint="auto") | {"solver": "toulbar2+auto"}
    figures = said(found("auto", (0.05, 100)), hinted)
    assert figures["Given the plan of auto and 10 s more, no peer finds a better one"] == (
        False, "better in 1 of 1 (better: a by 5 %)"
    )  # fmt: skip
    proofs = "Where a peer given the plan of auto proves, auto does too, sooner in four of five cases"
    assert figures[proofs][0] is False
    assert PROOFS not in figures


def test_the_plan_after_a_second_is_compared_with_the_best_of_all_runs() -> None:
    rows = [found("auto", (0.5, 101)), found("auto", (0.5, 104), instance="b"), found("auto", instance="c")]
    peers = [found("cpsat", instance=name) for name in ("a", "b", "c")]
    reference = [found("milp", (50.0, 100), instance=name, limit=60.0) for name in ("a", "b", "c")]
    claim = "After 1 s the plan of auto is within 1 % of the best of all runs"
    assert said(*rows, *peers, *reference)[claim] == (False, "1 of 3 (not: b 4 %; c without a plan)")
    assert claim not in said(found("auto", (0.1, 101), limit=1.0))


def test_gaps_limits_and_published_values() -> None:
    rows = [
        found("auto", (0.5, 100), bound=99, published=100),
        found("auto", (0.5, 100), bound=90, instance="b", published=99),
        found("auto", (0.5, 100), bound=100, instance="c"),
        row("auto", instance="d", status="infeasible", seconds=0.1),
        found("auto", (0.5, 100), instance="e", seconds=11.9),
    ]
    figures = said(*rows)
    assert figures["The gap that auto proves in 10 s is at most 2 %"] == (
        False, "2 of 4, optimal 2 of 5 (not: b 10 %; e without a bound)"
    )  # fmt: skip
    assert figures["auto keeps its limit"] == (False, "late 1 of 5 (late: e)")
    assert figures["The plan of auto is as good as the published one"] == (False, "1 of 2 (not: b 1 %)")


def test_memory_is_the_most_of_all_runs() -> None:
    rows = [found("auto", memory=5 * 10**8), found("auto", memory=2 * 10**6, instance="b"), found("auto", instance="c")]
    claim = "No run of auto takes more than 1 GB"
    assert said(*rows)[claim] == (True, "the most is 500 MB")
    assert said(*rows, found("auto", memory=10**9 + 1, instance="d"))[claim] == (False, "the most is 1000 MB (more: d)")
    assert claim not in said(found("auto"))


def test_many_exceptions_are_counted() -> None:
    rows = [found("auto", (0.5, 100), instance=f"i{i}", seconds=12.0) for i in range(9)]
    assert said(*rows)["auto keeps its limit"][1].endswith("i5; 3 more)")


ODD = [
    row("auto", status="crashed", reason="signal 9", seconds=None),
    row("auto", instance="b", status="error", reason="out of memory", seconds=2.0),
    row("toulbar2", status="missing", reason="not installed", seconds=None),
    row("toulbar2", instance="b", status="skipped", reason="", seconds=None),
    row("milp", status="unsupported", reason="no", seconds=None),
]


@pytest.mark.parametrize("rows", [ODD, ODD[:1], ODD[2:], [row("auto", limit=0.001)], []])
def test_results_without_any_plan_have_a_report(rows: list[Row]) -> None:
    document = {"rows": rows, "sessions": []}
    assert all(line.plans == 0 for line in summary(document))
    assert all(chart.end > chart.start for chart in charts(document))
    assert all(claim.holds is not True or "limit" in claim.words for claim in claims(document))


def test_compact_results_make_the_same_report() -> None:
    points = [(0.003 * 1.01**i, 200 - i // 20) for i in range(800)]  # the other points tell of bounds
    rows = [found("auto", *points, choice=[1], start=None), found("cpsat", (0.2, 300), (7.0, 125), choice=[2])]
    document = {"rows": rows, "sessions": [{"versions": {"numpy": "2", "rich": "1"}}]}
    small = compact(document, ("numpy",))
    assert small["sessions"] == [{"versions": {"numpy": "2"}}]
    before, after = rows[0], small["rows"][0]
    assert len(json.dumps(after)) < len(json.dumps(before)) / 8
    assert after["choice"] is None
    best = best_known(rows)
    assert best_known(small["rows"]) == best
    assert time_to(after, best["a"]) == time_to(before, best["a"])
    for moment in (0.01, 0.1, 1.0, 10.0):
        assert value_at(after, moment) == value_at(before, moment)
    assert claims(small) == claims(document)
    assert summary(small) == summary(document)
    assert charts(small) == charts(document)
