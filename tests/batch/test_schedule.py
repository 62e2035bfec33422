"""The consequences of placements, each worked out by hand."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from iegopt.batch.model import BatchModel
from iegopt.batch.outcome import FROM_PLAN, Outcome
from iegopt.batch.placement import MIGRATE, PREEMPT, Placement
from iegopt.batch.schedule import evaluate

from .small import KV, PARAMETERS, STEP_BASE, build, decodes, instance, prefill_seconds, prefills, queued

PACES = {"paces": [0.02, 0.05, 0.1]}


def place(
    model: BatchModel, *where: tuple[int, int] | None, pace: dict[int, int] | None = None, **more: Any
) -> Placement:
    """Requests 0, 1, … on (prefill, decode), ``None``: not placed; ``pace`` of instances, else the slowest."""
    plan = Placement.empty(model)
    for i, pair in enumerate(where):
        if pair is not None:
            plan.prefill[i], plan.decode[i] = pair
            plan.pace[pair[1]] = len(model.paces) - 1
    for j, rung in (pace or {}).items():
        plan.pace[j] = rung
    for name, values in more.items():
        for at, value in values.items():
            getattr(plan, name)[at] = value
    return plan


def rules(outcome: Outcome) -> set[tuple[str, str]]:
    return {(v.rule, v.where) for v in outcome.violations}


def part(prompt: int, output: int) -> float:
    """b of a request: its mean KV cache over 1 TB/s."""
    return KV * (prompt + (output - 1) / 2) / 1e12


def test_nothing_placed_is_feasible_and_worth_nothing() -> None:
    model = build([instance(0)], [queued("q")], [decodes("d", sla={"itl": 0.001}), prefills("p")])
    outcome = evaluate(model, Placement.empty(model))
    assert outcome.feasible
    assert outcome.objective.tolist() == [0.0, 0.0]
    assert np.isnan(outcome.finish[0])


def test_two_requests_share_the_weights_and_run_one_after_the_other() -> None:
    model = build([instance(0)], [queued("a", 1000, 100), queued("b", 500, 50, sla={"ttft": 1.0})], policy=PACES)
    outcome = evaluate(model, place(model, (0, 0), (0, 0)))
    step = STEP_BASE + part(1000, 100) + part(500, 50)
    speed = 1 - step / 0.1
    assert outcome.step[0] == pytest.approx(step)
    assert outcome.decode_share[0] == pytest.approx(step / 0.1)
    first_b = prefill_seconds(500) / speed
    first_a = first_b + prefill_seconds(1000) / speed
    assert outcome.first_token.tolist() == pytest.approx([first_a, first_b])
    assert outcome.start.tolist() == pytest.approx([first_b, 0.0])
    assert outcome.finish.tolist() == pytest.approx([first_a + 10.0, first_b + 5.0])
    assert outcome.memory.tolist() == [1650 * KV + 2 * 40960]
    assert outcome.sequences.tolist() == [2]
    assert outcome.prefill_seconds[0] == pytest.approx(prefill_seconds(1500))
    assert outcome.utility.tolist() == [1.0, 1.0]
    assert outcome.delay == pytest.approx(first_a + first_b + 15.0)
    assert outcome.money == pytest.approx(
        prefill_seconds(1500) + 100 * max(part(1000, 100), 2 * PARAMETERS / 100e12)
        + 50 * max(part(500, 50), 2 * PARAMETERS / 100e12)
    )  # fmt: skip
    assert outcome.feasible


def test_a_compute_bound_batch_takes_the_other_row() -> None:
    model = build([instance(0)], [queued("a", 10, 1, batch=200)], policy=PACES)
    outcome = evaluate(model, place(model, (0, 0)))
    assert outcome.step[0] == pytest.approx(200 * 2 * PARAMETERS / 100e12)


def test_a_missed_limit_is_worth_nothing_and_named() -> None:
    sla = {"ttft": 0.1, "e2e": 2.0, "itl": 0.05}
    model = build([instance(0)], [queued("a", 1000, 100, sla=sla)], policy=PACES)
    outcome = evaluate(model, place(model, (0, 0)))
    assert rules(outcome) == {("ttft", "a"), ("e2e", "a"), ("itl", "a")}
    assert outcome.utility.tolist() == [0.0]
    assert not outcome.kept[0]
    itl = next(v for v in outcome.violations if v.rule == "itl")
    assert (itl.need, itl.have) == (0.1, 0.05)


def test_throughput_is_worth_its_pace() -> None:
    model = build([instance(0)], [queued("a", sla_class="batch", utility={"weight": 3.0})], policy=PACES)
    assert evaluate(model, place(model, (0, 0))).utility.tolist() == pytest.approx([1.5])
    assert evaluate(model, place(model, (0, 0), pace={0: 0})).utility.tolist() == [3.0]


def test_decode_elsewhere_moves_the_kv_cache() -> None:
    model = build([instance(0), instance(4)], [queued("a", 1000, 100)], policy=PACES)
    outcome = evaluate(model, place(model, (0, 1)))
    assert outcome.transfer[0] == pytest.approx(1e-4 + 1000 * KV / 10e9)
    assert outcome.wire.tolist() == [1000 * KV]
    assert outcome.first_token[0] == pytest.approx(prefill_seconds(1000))
    assert outcome.finish[0] == pytest.approx(prefill_seconds(1000) + outcome.transfer[0] + 10.0)
    assert outcome.memory.tolist() == [1000 * KV, 1100 * KV + 40960]
    assert outcome.speed[0] == 1.0


def test_overlap_hides_all_but_the_last_chunk() -> None:
    config = {"chunk_size": 2 * 10**8, "overlap_compute": True, "compression": "int8"}
    model = build([instance(0), instance(4)], [queued("a", 1000, 100)], policy=PACES | {"kv_transfer_config": config})
    size = 1000 * KV / 2
    raw, chunks = 1e-4 + size / 10e9, 2
    hidden = prefill_seconds(1000) * (chunks - 1) / chunks
    outcome = evaluate(model, place(model, (0, 1)))
    assert outcome.transfer[0] == pytest.approx(max(raw - hidden, 1e-4 + 2e8 / 10e9))
    assert outcome.wire.tolist() == [size]


def test_deadlines_order_the_prefills_and_arrival_breaks_ties() -> None:
    rows = [queued("a", arrival=9.0), queued("b", arrival=8.0), queued("c", sla={"e2e": 12.0}, arrival=9.5)]
    model = build([instance(0)], rows, policy=PACES)
    outcome = evaluate(model, place(model, (0, 0), (0, 0), (0, 0)))
    assert outcome.deadline.tolist() == pytest.approx([10.0, 10.0, 12.0 - 0.5 - 10.0])
    assert np.argsort(outcome.start).tolist() == [2, 1, 0]


def test_running_prefills_go_first_among_equals_and_keep_their_limits() -> None:
    running = [prefills("p", arrival=9.0, sla={"ttft": 1.2})]
    model = build([instance(0)], [queued("a", 1000, sla={"ttft": 0.15}), queued("b", 1000)], running, policy=PACES)
    outcome = evaluate(model, place(model, None, (0, 0)))
    assert outcome.feasible
    assert outcome.start[1] == pytest.approx(outcome.running.first_token[0])
    outcome = evaluate(model, place(model, (0, 0)))
    assert ("ttft", "p") in rules(outcome)


def test_other_work_takes_its_share_of_the_time() -> None:
    model = build([instance(0, utilization=0.5)], [queued("a", 1000, 100)], policy=PACES)
    outcome = evaluate(model, place(model, (0, 0)))
    speed = 0.5 - (STEP_BASE + part(1000, 100)) / 0.1
    assert outcome.first_token[0] == pytest.approx(prefill_seconds(1000) / speed)
    assert rules(evaluate(model, place(model, (0, 0), pace={0: 0}))) >= {("time", "i0")}


def test_held_blocks_shorten_a_prefill() -> None:
    model = build([instance(0, prefix=[1])], [queued("a", 1000, 100, prefix=[1, 2])], policy=PACES)
    outcome = evaluate(model, place(model, (0, 0)))
    assert (outcome.reused[0], outcome.reused_from[0], outcome.fetched[0]) == (512, 0, 0)
    assert outcome.work[0] == pytest.approx(prefill_seconds(488))


def test_an_earlier_prefill_of_the_plan_leaves_its_blocks() -> None:
    rows = [queued("a", 1100, prefix=[1, 2, 3]), queued("b", 1200, prefix=[1, 2, 4], arrival=9.9)]
    model = build([instance(0)], rows, policy=PACES)
    outcome = evaluate(model, place(model, (0, 0), (0, 0)))
    assert outcome.reused.tolist() == [1024, 0]
    assert outcome.reused_from.tolist() == [FROM_PLAN, -1]
    assert outcome.work.tolist() == pytest.approx([prefill_seconds(76, 1024), prefill_seconds(1200)])
    apart = build([instance(0), instance(1)], rows, policy=PACES)
    assert evaluate(apart, place(apart, (0, 0), (1, 1))).reused.tolist() == [0, 0]


def test_a_fetch_delays_the_start_and_brings_what_is_missing() -> None:
    rows = [instance(0, prefix=[1]), instance(1, prefix=[1, 2]), instance(4, prefix=[9])]
    model = build(rows, [queued("a", 1500, prefix=[1, 2, 3])], policy=PACES)
    outcome = evaluate(model, place(model, (0, 0), fetch={0: 1}))
    assert (outcome.reused[0], outcome.reused_from[0], outcome.fetched[0]) == (1024, 1, 512 * KV)
    ready = 1e-5 + 512 * KV / 20e9
    assert outcome.ready[0] == pytest.approx(ready)
    speed = 1 - (STEP_BASE + part(1500, 100)) / 0.1
    assert outcome.first_token[0] == pytest.approx(ready + prefill_seconds(476) / speed)
    # A holder of no more is not asked.
    again = evaluate(model, place(model, (1, 1), fetch={0: 0}))
    assert (again.reused_from[0], again.fetched[0], again.ready[0]) == (1, 0, 0.0)


def test_blocks_of_the_host_are_read_first() -> None:
    model = build(
        [instance(0, tiers=[{"tier": "host", "blocks": [1]}])], [queued("a", 1000, prefix=[1, 2])], policy=PACES
    )
    outcome = evaluate(model, place(model, (0, 0)))
    assert outcome.reused[0] == 512
    assert outcome.ready[0] == pytest.approx(512 * KV / 20e9)
    assert outcome.start[0] == outcome.ready[0]


def test_places_that_may_not_be_are_named() -> None:
    rows = [instance(0, role="decode"), instance(1, role="prefill"), instance(2, state="draining"), instance(3)]
    model = build(rows, [queued("a")], policy=PACES)
    for where in ((0, 0), (1, 1), (2, 3), (3, 2)):
        assert rules(evaluate(model, place(model, where))) == {("place", "a")}
    assert evaluate(model, place(model, (1, 0))).feasible
    half = place(model)
    half.prefill[0] = 3
    with pytest.raises(ValueError, match="a has a prefill or a decode alone"):
        evaluate(model, half)


def test_memory_and_batch_are_kept_to_the_unit() -> None:
    free = build([instance(0)]).instances.free[0]
    need = 1100 * KV + 40960
    tight = [instance(0, used=int(80 * 10**9 - 5 * 4096 * 8192 * 2 - need), max_batch=1)]
    model = build(tight, [queued("a"), queued("b", 10, 1)], policy=PACES)
    assert free > need == model.instances.free[0]
    assert evaluate(model, place(model, (0, 0))).feasible
    assert rules(evaluate(model, place(model, (0, 0), (0, 0)))) == {("memory", "i0"), ("batch", "i0")}


def test_preemption_frees_the_instance_at_its_price() -> None:
    victim = decodes(
        "d", context=500, remaining=400, priority=2, utility={"weight": 4.0}, arrival=9.0, sla={"e2e": 100.0}
    )
    model = build([instance(0)], [queued("a")], [victim], policy=PACES | {"second_value": 0.1})
    outcome = evaluate(model, place(model, (0, 0), action={0: PREEMPT}))
    swap = 2 * 500 * KV / 20e9
    assert outcome.running.swaps[0]
    assert outcome.running.seconds[0] == pytest.approx(0.05 + swap)
    assert outcome.running.loss[0] == pytest.approx(4.0 * 0.1 * (0.05 + swap))
    assert (outcome.running.by[0], outcome.running.bytes[0]) == (0, 500 * KV)
    assert not outcome.running.misses[0]
    assert outcome.sequences.tolist() == [1]
    assert outcome.levels.tolist() == [0, 2]
    assert outcome.objective.tolist() == pytest.approx([1.0, -outcome.running.loss[0]])
    assert outcome.feasible


def test_a_victim_that_then_misses_its_deadline_is_lost_whole() -> None:
    """400 tokens at 20 ms take 8 s, half a second until the next replan, 0.05 s and a swap come on top."""
    late = 0.5 + 0.05 + 2 * 500 * KV / 20e9 + 8.0
    for e2e, misses in ((late + 0.01, False), (late - 0.01, True)):
        victim = decodes("d", context=500, remaining=400, priority=2, arrival=10.0, sla={"e2e": e2e})
        model = build([instance(0)], [queued("a")], [victim], policy={"paces": [0.02], "second_value": 0.0})
        outcome = evaluate(model, place(model, (0, 0), action={0: PREEMPT}))
        assert (bool(outcome.running.misses[0]), outcome.running.loss[0]) == (misses, float(misses))
    queue = {"resume_policy": "queued"}
    victim = decodes("d", context=500, remaining=400, priority=2, arrival=10.0, sla={"e2e": late + 0.01})
    model = build([instance(0)], [queued("a")], [victim], policy={"paces": [0.02], "preemption_config": queue})
    assert evaluate(model, place(model, (0, 0), action={0: PREEMPT})).running.misses[0]


@pytest.mark.parametrize(
    ("config", "victim", "where"),
    [
        ({"enabled": False}, {"priority": 2}, (0, 0)),
        ({"min_priority_gap": 3}, {"priority": 2}, (0, 0)),
        ({}, {"priority": 0}, (0, 0)),
        ({"max_preempt_per_request": 2}, {"priority": 2, "preempted": 2}, (0, 0)),
        ({}, {"priority": 2}, (1, 1)),
        ({}, {"priority": 2}, None),
    ],
)  # fmt: skip
def test_preemption_keeps_to_its_configuration(config: dict[str, Any], victim: dict[str, Any], where: Any) -> None:
    model = build(
        [instance(0), instance(1)], [queued("a")], [decodes("d", **victim)], policy={"preemption_config": config}
    )
    assert rules(evaluate(model, place(model, where, action={0: PREEMPT}))) == {("preemption", "d")}


def test_a_moved_decode_costs_the_seconds_of_its_kv_cache() -> None:
    rows = [instance(0), instance(4)]
    model = build(rows, [], [decodes("d", remaining=100, arrival=10.0, sla={"e2e": 30.0})], policy=PACES)
    plan = place(model, action={0: MIGRATE}, to={0: 1}, pace={0: -1, 1: 2})
    outcome = evaluate(model, plan)
    way = 1e-4 + 500 * KV / 10e9
    assert outcome.running.seconds[0] == pytest.approx(way)
    assert outcome.running.loss[0] == pytest.approx(0.01 * way)
    assert outcome.running.finish[0] == pytest.approx(way + 10.0)
    assert outcome.memory.tolist() == [0, 600 * KV + 40960]
    assert outcome.feasible
    back = place(model, action={0: MIGRATE}, to={0: 0})
    assert rules(evaluate(model, back)) == {("migration", "d")}
    fixed = build(rows, [], [decodes("d")], policy={"migration": False})
    assert rules(evaluate(fixed, place(fixed, action={0: MIGRATE}, to={0: 1}, pace={0: -1, 1: 2}))) == {
        ("migration", "d")
    }


def test_quotas_bind_what_is_placed() -> None:
    tenants = {"t": {"quota": {"requests": 2}}, "m": {"quota": {"memory": "1%"}}, "s": {"quota": {"time": "10%"}}}
    rows = [queued(name, tenant=name) for name in "tms"]
    running = [decodes("d", tenant="t"), decodes("e", tenant="t")]
    model = build([instance(0)], rows, running, policy=PACES | {"tenants": tenants})
    assert evaluate(model, place(model)).feasible
    broken = rules(evaluate(model, place(model, (0, 0))))
    assert broken == {("quota", "t")}
    share = (1100 * KV + 40960) / model.instances.free[0]
    assert share > 0.0085
    outcome = evaluate(model, place(model, None, None, (0, 0)))
    time = prefill_seconds(1000) / 10.0 + part(1000, 100) / 0.1
    assert outcome.tenants.time[0, 2] == pytest.approx(time)
    assert outcome.tenants.dominant[0, 2] == pytest.approx(max(share, time))


def test_shares_of_a_priority_differ_by_at_most_the_threshold() -> None:
    rows = [queued("a1", tenant="a"), queued("a2", tenant="a"), queued("b1", tenant="b")]
    share = max(2 * (1100 * KV + 40960) / build([instance(0)]).instances.free[0], 0.0)
    model = build([instance(0)], rows, policy=PACES | {"fairness": share * 0.7})
    assert rules(evaluate(model, place(model, (0, 0), (0, 0)))) == {("fairness", "a")}
    assert evaluate(model, place(model, (0, 0), None, (0, 0))).feasible
    assert evaluate(model, place(model, (0, 0), (0, 0), (0, 0))).feasible
    # A tenant whose request can never keep its limits holds nobody back.
    rows[2] = queued("b1", tenant="b", sla={"ttft": 0.01})
    model = build([instance(0)], rows, policy=PACES | {"fairness": share * 0.7})
    assert model.alone.refused.tolist() == [False, False, True]
    assert evaluate(model, place(model, (0, 0), (0, 0))).feasible


def test_leaving_a_planned_place_costs_the_hysteresis() -> None:
    rows = [queued("a", planned={"prefill": "i0", "decode": "i0"}, utility={"weight": 2.0})]
    model = build([instance(0), instance(1)], rows, policy=PACES | {"hysteresis": 0.3})
    stay, leave = (evaluate(model, place(model, (j, j))) for j in (0, 1))
    assert (stay.changed.tolist(), leave.changed.tolist()) == ([False], [True])
    assert leave.delay - stay.delay == pytest.approx(0.6)


def test_what_cannot_keep_its_limits_alone_is_refused() -> None:
    """Alone 1,000 tokens prefill in 0.135 s, 100 decode in 2 s at 20 ms; the next replan is in half a second."""
    first, pace = prefill_seconds(1000), 0.02
    cases = {
        "ttft": ({"ttft": first + 0.49}, {"ttft": first + 0.51}),
        "e2e": ({"e2e": first + 2.49}, {"e2e": first + 2.51}),
        "itl": ({"itl": pace - 0.001}, {"itl": pace}),
    }
    rows = [queued(f"{name}-{n}", sla=sla) for name, pair in cases.items() for n, sla in enumerate(pair)]
    model = build([instance(0)], rows, policy=PACES)
    assert model.alone.refused.tolist() == [True, False] * 3
    assert model.alone.prefill.tolist() == pytest.approx([first] * 6)
    assert model.alone.finish.tolist() == pytest.approx([first + 2.0] * 6)
