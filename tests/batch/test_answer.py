"""The answer in the user's words, and the reason of everything that is not placed."""

from __future__ import annotations

import json
from typing import Any

import pytest

from iegopt.batch.answer import LevelBound, to_plan
from iegopt.batch.model import BatchModel
from iegopt.batch.placement import MIGRATE, PREEMPT, Placement
from iegopt.batch.schedule import evaluate
from iegopt.batch_plans import BatchPlan, Reason
from iegopt.errors import InternalError

from .small import KV, build, decodes, instance, prefill_seconds, queued
from .test_schedule import PACES, place


def answer(model: BatchModel, plan: Placement, **more: Any) -> BatchPlan:
    outcome = evaluate(model, plan)
    return to_plan(model, plan, outcome, **{"solver": "hand", "seconds": 0.5, **more})


def reason(plan: BatchPlan, name: str) -> tuple[str, Reason]:
    decision = next(d for d in plan.queue if d.id == name)
    assert decision.reason is not None
    return decision.status, decision.reason


def test_a_placed_request_says_all_that_happens_to_it() -> None:
    rows = [instance(0, prefix=[1]), instance(1, prefix=[1, 2]), instance(4)]
    model = build(rows, [queued("a", 1500, prefix=[1, 2, 3], tenant="t")], policy=PACES)
    plan = answer(model, place(model, (0, 2), fetch={0: 1}))
    (decision,) = plan.queue
    assert (decision.id, decision.tenant, decision.priority, decision.status) == ("a", "t", 0, "placed")
    assert (decision.prefill, decision.decode, decision.pace) == ("i0", "i4", 0.1)
    assert (decision.reused, decision.reused_from, decision.fetched) == (1024, "i1", 512 * KV)
    assert (decision.path, decision.transferred) == ("rack", 1500 * KV)
    assert decision.work == pytest.approx(prefill_seconds(476))
    assert decision.start == pytest.approx(1e-5 + 512 * KV / 20e9)
    assert decision.finish == pytest.approx(decision.first_token + decision.transfer + 10.0)
    assert (decision.memory, decision.utility) == (1600 * KV + 40960, 1.0)
    assert [use.memory for use in plan.instances] == [1500 * KV, 0, 1600 * KV + 40960]
    assert [use.pace for use in plan.instances] == [None, None, 0.1]
    assert json.loads(json.dumps(plan.document()))["queue"][0]["reused_from"] == "i1"


def test_reuse_within_the_plan_is_called_so() -> None:
    rows = [queued("a", prefix=[1, 2], arrival=9.0), queued("b", prefix=[1, 3])]
    model = build([instance(0)], rows, policy=PACES)
    plan = answer(model, place(model, (0, 0), (0, 0)))
    assert [(d.reused, d.reused_from, d.path) for d in plan.queue] == [(0, None, "same"), (512, "plan", "same")]


def test_running_stages_are_kept_put_aside_moved_or_wait_again() -> None:
    running = [
        decodes("keep"), decodes("aside", priority=2), decodes("move"), decodes("again", "i5", tenant="t", priority=3),
    ]  # fmt: skip
    rows = [instance(0), instance(1), instance(5, state="lost")]
    model = build(rows, [queued("a")], running, policy=PACES)
    plan = answer(model, place(model, (0, 0), action={1: PREEMPT, 2: MIGRATE}, to={2: 1}, pace={1: 2}))
    assert [(r.id, r.action, r.to, r.by, r.how) for r in plan.running] == [
        ("keep", "keep", None, None, None),
        ("aside", "preempt", None, "a", "swap"),
        ("move", "migrate", "i1", None, None),
        ("again", "requeue", None, None, None),
    ]
    assert plan.running[1].seconds == pytest.approx(0.05 + 2 * 500 * KV / 20e9)
    assert plan.running[2].bytes == 500 * KV
    again = plan.queue[1]
    assert (again.id, again.tenant, again.priority, again.status) == ("again", "t", 3, "held")
    assert "again ran on the lost instance i5: it waits again" in plan.warnings


def test_what_can_never_be_is_refused_with_its_numbers() -> None:
    rows = [
        queued("model", model="Llama-2-77B"), queued("long", 5000), queued("ttft", sla={"ttft": 0.6}),
        queued("e2e", sla={"e2e": 2.6}), queued("itl", sla={"itl": 0.01}), queued("kv", 4000, 100, batch=40),
    ]  # fmt: skip
    model = build([instance(0)], rows, policy=PACES)
    plan = answer(model, place(model))
    assert {d.id: (d.status, d.reason.rule if d.reason else None) for d in plan.queue} == {
        "model": ("refused", "no instance"), "long": ("refused", "context"), "ttft": ("refused", "ttft"),
        "e2e": ("refused", "e2e"), "itl": ("refused", "itl"), "kv": ("refused", "memory"),
    }  # fmt: skip
    ttft = reason(plan, "ttft")[1]
    assert (ttft.need, ttft.have) == pytest.approx((prefill_seconds(1000), 0.1))
    assert ttft.sentence == "its first token takes at least 0.135 s, and 0.1 s are left at the next replan"
    assert reason(plan, "kv")[1].need == 40 * (4100 * KV + 40960)


def test_a_limit_that_has_passed_is_refused() -> None:
    model = build([instance(0)], [queued("a", arrival=1.0, sla={"ttft": 2.0})], policy=PACES)
    sentence = reason(answer(model, place(model)), "a")[1].sentence
    assert sentence == "its first token takes at least 0.135 s, and none is left at the next replan"


def test_what_waits_names_the_scarce_resource() -> None:
    used = int(80 * 10**9 - 5 * 4096 * 8192 * 2 - 1500 * KV)
    small = build([instance(0, used=used)], [queued("a"), queued("b", tenant="t")], policy=PACES)
    status, why = reason(answer(small, place(small, (0, 0))), "b")
    assert (status, why.rule, why.where) == ("held", "memory", "i0")
    assert (why.need, why.have) == (1100 * KV + 40960, 1500 * KV - 1100 * KV - 40960)

    seats = build([instance(0, max_batch=1)], [queued("a"), queued("b")], policy=PACES)
    why = reason(answer(seats, place(seats, (0, 0))), "b")[1]
    assert (why.rule, why.where, why.need, why.have) == ("batch", "i0", 1.0, 0.0)

    closed = build([instance(0, state="draining")], [queued("a")], policy=PACES)
    assert reason(answer(closed, place(closed)), "a")[1].rule == "no instance"


def test_time_is_scarce_by_capacity_or_by_priority() -> None:
    """Eight prefills of 4,000 tokens, 0.54 s each, fill most of a window of five seconds."""
    rows = [queued(f"a{n}", 4000, 1, sla={"ttft": 4.9}) for n in range(8)]
    for kind, rule in (("realtime", "capacity"), ("agent", "priority")):
        more = queued("late", 4000, 1, sla={"ttft": 4.9}, sla_class=kind)
        model = build([instance(0, utilization=0.15)], [*rows, more], policy={"paces": [1.0], "window": 5.0})
        plan = answer(model, place(model, *[(0, 0)] * 7))
        status, why = reason(plan, "late")
        assert (status, why.rule, why.where) == ("held", rule, "i0")
        assert why.need is not None
        assert why.have is not None
        assert why.need > why.have
    model = build([instance(0, utilization=0.1)], rows, policy={"paces": [1.0], "window": 5.0})
    status, why = reason(answer(model, place(model, *[(0, 0)] * 7)), "a7")
    assert (status, why.rule) == ("held", "capacity")
    assert (
        why.sentence == "instance i0 has 0.117 of its time left, but not before the deadlines of what is placed there"
    )


def test_a_request_that_would_still_fit_is_not_said_to_lack_room() -> None:
    model = build([instance(0)], [queued("a"), queued("b")], policy=PACES)
    assert reason(answer(model, place(model, (0, 0))), "b")[1].rule == "search"


def test_quota_and_fairness_name_the_tenant() -> None:
    tenants = {"t": {"quota": {"requests": 1}}}
    rows = [queued("a", tenant="t"), queued("b", tenant="t")]
    model = build([instance(0)], rows, policy=PACES | {"tenants": tenants})
    status, why = reason(answer(model, place(model, (0, 0))), "b")
    assert (status, why.rule, why.where, why.need, why.have) == ("held", "quota", "t", 2.0, 1.0)
    assert why.sentence == "with it tenant t would hold 2 requests, and its quota is 1"

    rows = [queued("a", tenant="t"), queued("b", tenant="t"), queued("c", tenant="u")]
    model = build([instance(0)], rows, policy=PACES | {"fairness": 0.02})
    status, why = reason(answer(model, place(model, (0, 0))), "b")
    assert (status, why.rule, why.where) == ("held", "fairness", "t")
    assert why.sentence.endswith("more than 0.02 ahead of tenant u, which still waits")


def test_levels_have_their_bounds_and_gaps() -> None:
    model = build([instance(0)], [queued("a"), queued("b", sla_class="agent")], policy=PACES)
    plan = answer(model, place(model, (0, 0)), bounds={0: LevelBound(1.0, "lp"), 1: LevelBound(1.0, "lp")})
    assert [(x.priority, x.objective, x.bound, x.gap, x.proof) for x in plan.levels] == [
        (0, 1.0, 1.0, 0.0, "lp"), (1, 0.0, 1.0, 1.0, "lp"),
    ]  # fmt: skip
    assert plan.status == "feasible"
    both = place(model, (0, 0), (0, 0))
    assert answer(model, both).status == "feasible"
    assert answer(model, both, bounds={0: LevelBound(1.0, "lp"), 1: LevelBound(1.0, "lp")}).status == "optimal"


def test_tenants_are_listed_by_priority() -> None:
    rows = [queued("a", tenant="t"), queued("b", tenant="u"), queued("c", tenant="t", sla_class="agent")]
    model = build([instance(0)], rows, [decodes("d", tenant="u", priority=0)], policy=PACES)
    plan = answer(model, place(model, (0, 0)))
    assert [(t.id, t.priority, t.requests, t.waiting) for t in plan.tenants] == [
        ("t", 0, 1, 0), ("u", 0, 1, 1), ("t", 1, 0, 1),
    ]  # fmt: skip


def test_a_placement_against_the_rules_is_no_answer() -> None:
    model = build([instance(0, max_batch=1)], [queued("a"), queued("b")], policy=PACES)
    with pytest.raises(
        InternalError, match=r"hand places 1 against the rules, first batch of i0: 2 where 1 is allowed"
    ):
        answer(model, place(model, (0, 0), (0, 0)))
