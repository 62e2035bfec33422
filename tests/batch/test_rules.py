"""Routing rules: their formulas by hand on a small cluster, and that what they admit keeps every rule."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from iegopt.batch.model import BatchModel
from iegopt.batch.rules.admitted import admit, first_come
from iegopt.batch.rules.scores import RULES
from iegopt.batch.rules.traffic import Traffic
from iegopt.batch.rules.unchecked import charged, send_out
from iegopt.batch.schedule import evaluate
from tests.batch.random_snapshots import random_case
from tests.batch.small import build, cluster, decodes, instance, prefills, queued

TWO = [instance(0), instance(1)]


def scores(model: BatchModel, rule: str, *, speeds: bool = False, request: int = 0) -> list[float]:
    traffic = Traffic(model, speeds=speeds)
    return [float(x) for x in RULES[rule](traffic, request, traffic.reach(request))]


def _kv(model: BatchModel) -> Any:
    return model.queue.kv_full[0]


def test_least_loaded_counts_requests_in_flight() -> None:
    model = build(instances=TWO, running=[decodes("r")], queue=[queued("q")])
    assert scores(model, "least-loaded") == [2.0, 1.0]


def test_least_load_adds_seconds_of_tokens_to_memory_in_use() -> None:
    model = build(instances=TWO, running=[prefills("r", remaining=3000)], queue=[queued("q", prompt=1000)])
    used = Traffic(model, speeds=False).memory / model.instances.free
    expected = [4000 / 2000 + 0.15 * used[0] / (1 - used[0]), 1000 / 2000]
    assert scores(model, "least-load") == pytest.approx(expected)


def test_best_fit_takes_the_fullest_that_still_holds_it() -> None:
    model = build(instances=TWO, running=[decodes("r", "i1")], queue=[queued("q")])
    first, second = scores(model, "best-fit")
    assert second == model.instances.free[1] - model.running.kv_there[0] - _kv(model)
    assert second < first


def test_cache_aware_follows_a_long_match_until_out_of_balance() -> None:
    held = [instance(0), instance(1, prefix=[1])]
    few = build(instances=held, queue=[queued("q", prompt=1000, prefix=[1, 2])])
    assert np.argmin(scores(few, "cache-aware")) == 1
    short = build(instances=held, queue=[queued("q", prompt=4000, prefix=[1, 2])])
    assert scores(short, "cache-aware") == scores(short, "least-loaded")
    many = [decodes(f"r{n}", "i1") for n in range(65)]
    full = build(instances=held, running=many, queue=[queued("q", prompt=1000, prefix=[1, 2])])
    assert np.argmin(scores(full, "cache-aware")) == 0


def test_dynamo_adds_blocks_to_prefill_and_blocks_held() -> None:
    held = [instance(0), instance(1, prefix=[1])]
    model = build(instances=held, queue=[queued("q", prompt=1024, output=100, prefix=[1, 2])])
    blocks = (1024 + 100) / 512
    assert scores(model, "dynamo") == pytest.approx([2 + blocks, 1 + blocks], rel=1e-4)


def test_llm_d_weighs_match_queue_and_memory() -> None:
    held = [instance(0), instance(1, prefix=[1])]
    running = [prefills("r", "i1", remaining=100)]
    model = build(instances=held, running=running, queue=[queued("q", prompt=1024, prefix=[1, 2])])
    used = Traffic(model, speeds=False).memory / model.instances.free
    assert scores(model, "llm-d") == pytest.approx([-4.0, -(1.5 + 2 * (1 - used[1]))])


def test_first_token_adds_the_queue_to_what_is_not_held() -> None:
    held = [instance(0), instance(1, prefix=[1])]
    model = build(
        instances=held, running=[prefills("r", "i1", remaining=100)], queue=[queued("q", 1024, prefix=[1, 2])]
    )
    work = model.prefill.one(0, 0)
    expected = [work, float(model.running.prefill[0]) + work / 2]
    assert scores(model, "first-token", speeds=True) == pytest.approx(expected)
    assert scores(model, "first-token") == pytest.approx([1024, 100 + 512])


def test_a_router_remembers_what_it_sent() -> None:
    model = build(instances=TWO, queue=[queued(f"q{n}", prompt=1024, prefix=[1, 2]) for n in range(2)])
    traffic = Traffic(model, speeds=False)
    traffic.send(0, 1, 1)
    there, credit = traffic.matched(1, traffic.reach(1))
    assert there.tolist() == credit.tolist() == [0, 1023]
    assert traffic.requests.tolist() == [0, 1]
    assert traffic.tokens.tolist() == [0, 1024]


def test_a_router_that_knows_speeds_loads_by_speed() -> None:
    slow = {
        "id": "y", "model": "Y", "type": "GPU", "vendor": "v", "count": 1,
        "compute": {"fp16_flops": 25e12, "precision_support": ["fp16"]},
        "memory": {"vram": 80 * 10**9, "bandwidth": 1e12}, "io": {"bandwidth": 10e9}, "price": 1.0,
    }  # fmt: skip
    spec = cluster().spec.model_dump(by_alias=True, mode="json", exclude_none=True)
    path = {
        "model": "Llama-2-7B",
        "variants": [{"precision": "fp16", "backend": "CUDA", "compatible_devices": ["X", "Y"]}],
    }
    mixed = cluster(devices=[spec["devices"][0], slow], execution_path_registry=[path])
    both = [instance(0), {"id": "i1", "devices": ["y"], "variant": "Llama-2-7B/fp16/CUDA"}]
    queue = [queued(f"q{n}", prompt=2000) for n in range(20)]
    model = build(instances=both, queue=queue, on=mixed)
    sent = send_out(model, "least-loaded", speeds=True)
    assert np.bincount(sent.prefill).tolist() == [16, 4]
    assert np.bincount(send_out(model, "least-loaded").prefill).tolist() == [10, 10]


def test_one_prefix_herds_under_cache_aware_and_not_under_dynamo() -> None:
    queue = [queued(f"q{n}", prompt=1024, prefix=[1, 2]) for n in range(12)]
    model = build(instances=[instance(n) for n in range(4)], queue=queue)
    assert len(set(send_out(model, "cache-aware").prefill.tolist())) == 1
    assert len(set(send_out(model, "dynamo").prefill.tolist())) == 4


def test_without_admission_all_may_be_late_and_with_it_some_are_not() -> None:
    large = [queued(f"a{n}", prompt=4000, sla={"ttft": 1.4}) for n in range(20)]
    queue = [*large, *(queued(f"b{n}", prompt=200, sla={"ttft": 1.5}) for n in range(20))]
    model = build(instances=TWO, queue=queue)
    out = evaluate(model, send_out(model, "least-loaded"))
    inside = evaluate(model, admit(model, "least-loaded"))
    assert out.kept.sum() < inside.kept.sum()
    assert inside.feasible


def test_a_running_stage_made_late_is_charged() -> None:
    running = [prefills("r", remaining=1000, sla={"ttft": 1.0}, arrival=10.0, utility={"weight": 3.0})]
    queue = [queued(f"q{n}", 4000, sla={"ttft": 0.9}) for n in range(2)]
    model = build(instances=[instance(0)], running=running, queue=queue)
    plan = send_out(model, "least-loaded")
    outcome = evaluate(model, plan)
    late = any(violation.where == "r" for violation in outcome.violations)
    assert charged(model, outcome).sum() == outcome.objective.sum() - 3.0 * late
    assert late


def test_first_come_is_by_priority_then_arrival() -> None:
    queue = [queued("a", priority=1), queued("b", priority=0, arrival=9.9), queued("c", priority=0, arrival=9.0)]
    assert first_come(build(instances=TWO, queue=queue)) == [2, 1, 0]


@pytest.mark.parametrize("rule", RULES)
def test_what_a_rule_admits_breaks_nothing(rule: str) -> None:
    for seed in range(60):
        model = random_case(seed).model
        for speeds in (False, True):
            assert evaluate(model, admit(model, rule, speeds=speeds)).feasible, (seed, speeds)


@pytest.mark.parametrize("rule", RULES)
def test_what_a_rule_sends_out_fits_memory_and_batch(rule: str) -> None:
    for seed in range(60):
        model = random_case(seed).model
        outcome = evaluate(model, send_out(model, rule))
        assert not {violation.rule for violation in outcome.violations} & {"memory", "batch", "place", "pace"}, seed
