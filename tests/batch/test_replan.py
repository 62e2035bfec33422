"""Replanning a queue: what comes out keeps every rule, again and again the same."""

from __future__ import annotations

from typing import Any

import pytest

import iegopt
from iegopt.batch.api import replan
from iegopt.batch_plans import BatchPlan
from iegopt.errors import InputError
from iegopt.spec.batch_policy import BatchPolicy
from iegopt.spec.snapshot import SnapshotSpec

from .random_snapshots import random_case
from .small import cluster, decodes, instance, prefill_seconds, prefills, queued


def snapshot(
    instances: list[dict[str, Any]], queue: list[dict[str, Any]], running: Any = (), time: float = 10.0
) -> SnapshotSpec:
    return SnapshotSpec.model_validate({"time": time, "instances": instances, "queue": queue, "running": list(running)})


def places(plan: BatchPlan) -> list[tuple[str, str | None, str | None]]:
    return [(decision.status, decision.prefill, decision.decode) for decision in plan.queue]


def test_an_idle_cluster_takes_all_and_proves_it() -> None:
    plan = replan(snapshot([instance(0), instance(1)], [queued("a"), queued("b")]), cluster())
    assert [decision.status for decision in plan.queue] == ["placed", "placed"]
    assert plan.status == "optimal"


def test_with_equal_devices_it_does_not_herd() -> None:
    plan = replan(snapshot([instance(n) for n in range(4)], [queued(f"q{n}") for n in range(8)]), cluster())
    used = [decision.prefill for decision in plan.queue]
    assert {used.count(f"i{n}") for n in range(4)} == {2}


def test_the_higher_priority_goes_first() -> None:
    # Either prefill takes most of a second, and both are due soon.
    tight = {"prompt": 4000, "output": 1, "sla": {"ttft": 1.5 * prefill_seconds(4000)}}
    queue = [queued("low", priority=2, **tight), queued("high", priority=0, **tight)]
    plan = replan(snapshot([instance(0)], queue), cluster(), BatchPolicy(period=0.05))
    assert [decision.status for decision in plan.queue] == ["held", "placed"]


def test_a_request_that_is_too_late_does_not_hold_up_the_others() -> None:
    # Its first token was due half a second ago.
    late = queued("late", sla={"ttft": 0.5}) | {"arrival": 9.0}
    plan = replan(snapshot([instance(0)], [queued("a"), late, queued("b")]), cluster())
    assert [decision.status for decision in plan.queue] == ["placed", "refused", "placed"]


def test_a_prefill_without_a_decode_waits_again_when_its_instance_is_lost() -> None:
    # It ends with its prefill, and has a limit on that: there is no token to spread the time over.
    cut = prefills("cut", on="i0", output=0, sla={"e2e": 5.0}, arrival=9.5)
    plan = replan(snapshot([instance(0, state="lost"), instance(1)], [queued("a")], [cut]), cluster())
    assert {decision.id: (decision.status, decision.prefill) for decision in plan.queue} == {
        "a": ("placed", "i1"),
        "cut": ("placed", "i1"),
    }
    assert [decision.action for decision in plan.running] == ["requeue"]


def test_an_empty_queue_changes_nothing() -> None:
    plan = replan(snapshot([instance(0)], [], [decodes("r")]), cluster())
    assert plan.queue == ()
    assert [decision.action for decision in plan.running] == ["keep"]


def test_no_time_at_all_still_gives_a_plan() -> None:
    plan = replan(snapshot([instance(0)], [queued("a")]), cluster(), deadline_ms=0)
    assert plan.queue[0].status in ("held", "placed")
    assert plan.note.startswith("the 0 s were up before the search was through")


@pytest.mark.parametrize("deadline", [-1.0, float("nan"), float("inf")])
def test_a_deadline_is_a_number_of_milliseconds(deadline: float) -> None:
    with pytest.raises(InputError, match="expected a number of milliseconds"):
        replan(snapshot([instance(0)], []), cluster(), deadline_ms=deadline)


def test_the_clock_may_not_run_backwards_between_two_replans() -> None:
    planner = iegopt.Planner(cluster().spec)
    planner.replan(snapshot([instance(0)], [queued("a")], time=20.0))
    with pytest.raises(InputError, match="the clock ran backwards"):
        planner.replan(snapshot([instance(0)], [queued("a")], time=19.0))


def test_two_replans_of_the_same_snapshot_agree() -> None:
    planner = iegopt.Planner(cluster().spec)
    queue = [queued(f"q{n}", prompt=500 + 300 * n, output=20 * n + 1) for n in range(12)]
    state = snapshot([instance(n) for n in range(3)], queue)
    first, second = planner.replan(state), planner.replan(state)
    assert places(first) == places(second)
    assert places(iegopt.replan(state, cluster().spec)) == places(first)


def test_a_policy_is_kept() -> None:
    policy = BatchPolicy.model_validate({"tenants": {"default": {"quota": {"requests": 1}}}})
    plan = replan(snapshot([instance(0)], [queued("a"), queued("b")]), cluster(), policy)
    assert sorted(decision.status for decision in plan.queue) == ["held", "placed"]


@pytest.mark.parametrize("seed", range(4))
def test_what_is_planned_stays_where_it_was_planned(seed: int) -> None:
    case = random_case(seed, "small")
    first = replan(case.snapshot, case.cluster, case.policy, deadline_ms=60_000)
    second = replan(case.snapshot, case.cluster, case.policy, deadline_ms=60_000, previous=first)
    assert [round(level.objective, 6) for level in second.levels] >= [
        round(level.objective, 6) for level in first.levels
    ]
    moved = [
        a.id for a, b in zip(first.queue, second.queue, strict=True)
        if a.status == b.status == "placed" and (a.prefill, a.decode) != (b.prefill, b.decode)
    ]  # fmt: skip
    assert moved == []


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"snapshot": "afternoon"}, r"snapshot: got a str, expected a SnapshotSpec \(iegopt.load_snapshot reads one\)"),
        ({"snapshot": {}}, "snapshot: got a dict, expected a SnapshotSpec"),
        ({"policy": "afternoon"}, "policy: got a str, expected a BatchPolicy or None"),
        ({"deadline_ms": "20"}, "deadline_ms: got a str, expected a number of milliseconds or None"),
        ({"deadline_ms": True}, "deadline_ms: got a bool, expected a number of milliseconds or None"),
    ],
)
def test_an_argument_of_another_type_is_named(arguments: dict[str, Any], message: str) -> None:
    asked = {"snapshot": snapshot([instance(0)], []), "policy": None, "deadline_ms": None, **arguments}
    with pytest.raises(TypeError, match=message):
        iegopt.Planner(cluster().spec).replan(asked["snapshot"], asked["policy"], deadline_ms=asked["deadline_ms"])
