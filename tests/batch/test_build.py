"""Snapshot -> arrays: every figure by hand, every fault by name."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from iegopt.batch.answer import to_plan
from iegopt.batch.placement import Placement
from iegopt.batch.schedule import evaluate
from iegopt.errors import InputError

from .small import KV, STEP_BASE, VARIANT, WEIGHTS, build, cluster, decodes, instance, prefill_seconds, prefills, queued

ACTIVATIONS = 5 * 4096 * 8192 * 2
"""Working memory of a chunk of 8,192 tokens."""


def test_free_memory_is_what_weights_and_one_chunk_leave() -> None:
    model = build([instance(0), instance(1, used=20 * 10**9), instance(2, role="decode", used=20 * 10**9)])
    assert model.instances.free.tolist() == [
        80 * 10**9 - WEIGHTS - ACTIVATIONS, 60 * 10**9 - ACTIVATIONS, 60 * 10**9
    ]  # fmt: skip


def test_a_gang_has_the_memory_of_its_fullest_device_on_each() -> None:
    on = cluster()
    on.state.update("x-1", used=30 * 10**9)
    model = build([{"id": "g", "devices": ["x-0", "x-1"], "variant": VARIANT}], on=on)
    assert model.instances.free.tolist() == [2 * 50 * 10**9 - WEIGHTS - ACTIVATIONS]


def test_a_step_reads_weights_and_the_mean_kv_cache() -> None:
    model = build([instance(0)], [queued("q", 1000, 101)])
    assert model.kinds.base_read.tolist() == pytest.approx([STEP_BASE])
    assert model.kinds.base_compute.tolist() == [0.0]
    assert model.queue.step_read[0, 0] == pytest.approx(KV * (1000 + 50) / 1e12)
    assert model.queue.step_compute[0, 0] == pytest.approx(WEIGHTS / 100e12)
    assert model.prefill.seconds(0, 0) == pytest.approx(prefill_seconds(1000))
    assert model.prefill.seconds(0, 0, 400) == pytest.approx(prefill_seconds(600))


def test_a_request_s_memory_and_limits() -> None:
    sla = {"ttft": 2.0, "e2e": 30.0, "itl": 0.04}
    model = build([instance(0)], [queued("q", 1000, 100, batch=2, sla=sla, arrival=8.5)])
    queue = model.queue
    assert queue.kv_prompt.tolist() == [1000 * 2 * KV]
    assert queue.kv_full.tolist() == [1100 * 2 * KV + 2 * 5 * 4096 * 2]
    assert (queue.ttft[0], queue.e2e[0], queue.itl[0], queue.prefill_by[0]) == (0.5, 28.5, 0.04, 0.5)


def test_a_prefill_ends_within_the_window_or_twice_the_fastest() -> None:
    model = build([instance(0)], [queued("q"), queued("long", 4000)], policy={"window": 0.3, "period": 0.3})
    assert model.queue.prefill_by.tolist() == pytest.approx([0.3, 2 * prefill_seconds(4000)])


def test_load_counts_half_after_its_half_life_and_nothing_new_comes_when_it_is_lost() -> None:
    rows = [instance(0, utilization=0.8), instance(1, utilization=0.8, observed=8.0), instance(2, observed=1.0)]
    model = build(rows, policy={"half_life": 2.0, "lost_after": 9.0})
    assert model.instances.other.tolist() == pytest.approx([0.8, 0.4, 0.0])
    assert model.instances.open.tolist() == [True, True, False]
    assert model.warnings == ("instance i2: figures are 9 s old, nothing new is placed there",)


def test_links_follow_the_tree_and_gangs_move_shards() -> None:
    pair = [{"id": f"g{n}", "devices": [f"x-{2 * n}", f"x-{2 * n + 1}"], "variant": VARIANT} for n in range(4)]
    model = build(pair)
    assert model.instances.level.tolist() == [[-1, 1, 2, 2], [1, -1, 2, 2], [2, 2, -1, 1], [2, 2, 1, -1]]
    assert model.instances.latency[0].tolist() == [0.0, 1e-5, 1e-4, 1e-4]
    assert model.instances.seconds_per_byte[0].tolist() == pytest.approx([0.0, 1 / 40e9, 1 / 20e9, 1 / 20e9])
    assert model.instances.host_seconds_per_byte.tolist() == pytest.approx([1 / 40e9] * 4)
    single = build([instance(0), {**pair[1]}])
    assert single.instances.seconds_per_byte[0, 1] == pytest.approx(1 / 20e9)


def test_a_measured_pair_wins_over_the_tree() -> None:
    on = cluster(pairs=[{"devices": ["x-0", "x-5"], "bandwidth": 1e9, "latency": 0.5}])
    model = build([instance(0), instance(1), instance(5)], on=on)
    assert model.instances.latency[0].tolist() == [0.0, 1e-5, 0.5]
    assert model.instances.seconds_per_byte[2].tolist() == pytest.approx([1e-9, 1 / 10e9, 0.0])


def test_holdings_are_the_longest_run_of_leading_blocks() -> None:
    rows = [
        instance(0, prefix=[1, 2, 3]),
        instance(1, prefix=[1, 3]),
        instance(2, prefix=[2, 3]),
        instance(3, prefix=[1], tiers=[{"tier": "host", "blocks": [2]}]),
    ]
    names = [queued("q", 1000, prefix=[1, 2]), queued("r", 3000, prefix=[1, 2, 3, 4]), queued("s", prefix=[9])]
    model = build(rows, names)
    at, tokens, read = model.holdings.of(0, 1000)
    assert (at.tolist(), tokens.tolist()) == ([0, 1, 3], [999, 512, 999])
    assert read.tolist() == pytest.approx([0.0, 0.0, 1 / 20e9 / 2])
    at, tokens, _ = model.holdings.of(1, 3000)
    assert (at.tolist(), tokens.tolist()) == ([0, 1, 3], [1536, 512, 1024])
    assert model.holdings.of(2, 1000)[0].size == 0


def test_blocks_that_are_slower_to_read_than_to_compute_are_left_out() -> None:
    """A token costs 135 µs of compute and 52 µs over IO; at 1 GB/s it would be 524 µs."""
    tier = [{"tier": "disk", "blocks": [1]}]
    fast, slow = cluster(), cluster(devices=[{**cluster().spec.devices[0].document(), "io": {"bandwidth": "1GB/s"}}])
    for on, found in ((fast, 1), (slow, 0)):
        assert build([instance(0, tiers=tier)], [queued("q", prefix=[1])], on=on).holdings.of(0, 1000)[0].size == found


def test_what_was_put_aside_is_a_holding_of_its_host() -> None:
    model = build([instance(0), instance(1)], [queued("q", held_kv=600, held_on="i1"), queued("r")])
    at, tokens, read = model.holdings.of(0, 1000)
    assert (at.tolist(), tokens.tolist(), read.tolist()) == ([1], [600], pytest.approx([1 / 20e9]))
    assert model.holdings.of(1, 1000)[0].size == 0


def test_an_agent_s_present_round_is_planned_and_the_rest_taken_off() -> None:
    agent = {"tools": [{"name": "a", "latency": 0.5, "result_tokens": 200}, {"name": "b", "latency": 0.2}]}
    model = build([instance(0)], [queued("q", 1000, 300, agent=agent, sla={"e2e": 20.0})])
    assert model.queue.output.tolist() == [128]
    held, new = 1128, 456
    step = STEP_BASE + KV * (held + new + 299 / 2) / 1e12
    assert model.queue.e2e[0] == pytest.approx(20.0 - 0.5 - prefill_seconds(new) - 300 * step)


def test_running_stages_reserve_what_they_will_need() -> None:
    rows = [
        decodes("d", remaining=101, arrival=5.0, sla={"e2e": 15.0}),
        prefills("p", decode="i1"),
    ]
    model = build([instance(0), instance(1)], running=rows)
    running = model.running
    assert running.kv_there.tolist() == [601 * KV + 40960, 1011 * KV + 40960]
    assert running.kv_here.tolist() == [0, 1000 * KV]
    assert running.kv_now.tolist() == [500 * KV, 300 * KV]
    assert running.step_read[:, 0].tolist() == pytest.approx([KV * 550 / 1e12, KV * 1005 / 1e12])
    assert running.prefill.tolist() == pytest.approx([0.0, prefill_seconds(700)])
    assert running.itl[0] == pytest.approx(10.0 / 101)
    assert running.recompute.tolist() == pytest.approx([prefill_seconds(500), prefill_seconds(300)])
    assert model.instances.base_pace.tolist() == [3, 5]  # 50 ms of at most 99 ms; the slowest of the ladder
    assert not running.missed.any()


def test_a_limit_that_is_lost_already_binds_nobody() -> None:
    rows = [
        decodes("slow", sla={"itl": 0.001}),
        decodes("late", arrival=1.0, sla={"e2e": 5.0}),
        decodes("fine", sla={"itl": 0.06}),
        prefills("ttft", context=0, remaining=1000, arrival=1.0, sla={"ttft": 2.0}),
    ]
    model = build([instance(0)], running=rows)
    assert model.running.missed.tolist() == [True, True, False, True]
    slowest = model.policy.paces[-1]
    assert model.running.itl.tolist() == [slowest, slowest, 0.06, slowest]
    assert model.paces[model.instances.base_pace[0]] == 0.05
    assert model.running.prefill_by[3] == 10.0
    assert model.warnings == (
        "slow misses a limit whatever is placed: a token takes 0.05 s on i0; its limits leave 0.001 s",
        "late misses a limit whatever is placed: a token takes 0.05 s on i0; its limits leave none",
        "ttft misses a limit whatever is placed: its prefill takes 0.135 s at full speed, and i0 has 70.4% left; "
        "its limits leave none",
    )


def test_a_batch_that_no_pace_of_the_policy_suits_gets_one_of_its_own() -> None:
    rows = [decodes("d", context=1, remaining=1)]
    model = build([instance(0, utilization=0.5), instance(1)], running=rows, policy={"paces": [0.01, 0.02]})
    step = STEP_BASE + KV / 1e12
    assert model.paces.tolist() == pytest.approx([0.01, 0.02, 2 * step])
    assert model.instances.base_pace.tolist() == [2, -1]


def test_a_pace_beyond_the_policy_is_for_the_batch_that_needs_it_alone() -> None:
    rows = [decodes("slow", context=1000, remaining=100), decodes("other", on="i1", remaining=100)]
    at = [instance(0, utilization=0.998), instance(1)]
    model = build(at, [queued("q")], running=rows, policy={"paces": [0.01, 0.05]})
    assert len(model.paces) == 3
    assert model.instances.base_pace.tolist() == [2, 1]
    assert model.running.itl.tolist() == [np.inf, 0.05]
    assert model.queue.itl.tolist() == [0.05]


def test_what_runs_makes_its_own_room() -> None:
    rows = [decodes("d", context=100_000, remaining=100, sequences=3)]
    model = build([instance(0, max_batch=2, used=70 * 10**9)], running=rows)
    assert model.instances.free.tolist() == model.running.kv_there.tolist()
    assert model.instances.max_batch.tolist() == [3]


def test_figures_that_contradict_each_other_are_told() -> None:
    rows = [decodes("d", context=100_000, remaining=100, sequences=3)]
    at = [instance(0, max_batch=2, used=10**9), instance(1, used=WEIGHTS)]
    model = build(at, running=rows)
    need, have = model.running.kv_there[0] / 1e9, (79 * 10**9 - ACTIVATIONS) / 1e9
    assert model.warnings == (
        f"instance i0: 1 GB are said to be used, and its weights alone take {WEIGHTS / 1e9:.4g} GB",
        f"instance i0: what runs there comes to {need:.4g} GB of KV cache, and {have:.4g} GB are free",
        "instance i0: 3 sequences decode there, and its max_batch is 2",
        "d: 100000 tokens are more than the context of Llama-2-7B, which ends at 4096",
    )


def test_work_of_a_lost_instance_waits_again() -> None:
    rows = [
        decodes("d", "i1", remaining=100, tenant="t", arrival=6.0, sla={"e2e": 9.0, "itl": 0.1}, priority=2),
        prefills("p", "i1", arrival=9.0, sla={"ttft": 3.0}),
        prefills("q", decode="i1"),
    ]
    model = build(
        [instance(0), instance(1, state="lost")], [queued("a", planned={"prefill": "i1", "decode": "i0"})], rows
    )
    assert model.requeued == {"d", "p"}
    assert model.queue.ids == ("a", "d", "p")
    assert model.queue.prompt.tolist() == [1000, 500, 1000]
    assert model.queue.output.tolist() == [100, 100, 11]
    assert model.queue.ttft.tolist() == [np.inf, np.inf, 2.0]
    assert model.queue.e2e.tolist() == [np.inf, 5.0, np.inf]
    assert model.queue.order.tolist() == [2, 0, 1]
    assert model.queue.planned_prefill.tolist() == [-1, -1, -1]
    assert model.running.ids == ("q",)
    assert model.running.decode.tolist() == [0]
    assert set(model.warnings) == {
        "instance i1 is lost",
        "a was planned on the lost instance i1: it may go anywhere",
        "d ran on the lost instance i1: it waits again",
        "p ran on the lost instance i1: it waits again",
        "q was to decode on the lost instance i1: it decodes where it is",
    }


def test_what_no_instance_runs_is_refused_by_name() -> None:
    names = [queued("a", model="Llama-2-77B"), queued("b", precision="fp8"), queued("c", 5000), queued("d")]
    model = build([instance(0)], names)
    assert model.queue.ids == ("d",)
    assert {name: reason.rule for name, reason in model.impossible.items()} == {
        "a": "no instance", "b": "no instance", "c": "context"
    }  # fmt: skip
    assert model.impossible["a"].sentence.startswith("unknown model Llama-2-77B. Maybe Llama-2-7B")
    assert model.impossible["b"].sentence == "no instance runs Llama-2-7B in fp8"
    assert (model.impossible["c"].need, model.impossible["c"].have) == (5000.0, 4096.0)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"devices": ["x-8"]}, "snapshot.instances.0.devices: no device of cluster cluster is called x-8. Maybe x-"),
        ({"variant": "Llama-2-7B/fp8/CUDA"}, "snapshot.instances.0.variant: Llama-2-7B has no variant fp8/CUDA: expec"),
        ({"variant": "Llama"}, "snapshot.instances.0.variant: unknown model Llama."),
        ({"devices": ["x-0", "x-1", "x-2"]}, "snapshot.instances.0: 3 devices do not divide the 32 attention heads"),
        ({"used": 90 * 10**9}, "snapshot.instances.0.used: 90GB is more than the 80GB of its devices"),
        ({"variant": "nothing", "state": "lost"}, "snapshot.instances.0.variant: unknown model nothing"),
    ],
)  # fmt: skip
def test_a_faulty_instance_is_named(changes: dict[str, object], message: str) -> None:
    with pytest.raises(InputError) as refusal:
        build([instance(0, **changes)])
    assert str(refusal.value).startswith(message)


def test_quotas_are_shares_of_all_instances_and_a_slip_of_the_pen_is_warned_of() -> None:
    tenants = {"acme": {"quota": {"requests": 3, "memory": 0.5, "time": 0.25}}, "globx": {"quota": {"requests": 1}}}
    rows = [queued("a", tenant="acme"), queued("b", tenant="globex")]
    model = build([instance(0), instance(1)], rows, policy={"tenants": tenants})
    assert model.tenants == ("acme", "globex")
    assert model.quota_requests.tolist() == [3, np.inf]
    assert model.quota_memory.tolist() == [model.instances.free.sum() / 2, np.inf]
    assert model.quota_time.tolist() == [0.5, np.inf]
    assert model.warnings == ("batch_policy.tenants: no request is of globx. Maybe globex?",)


def test_compression_shrinks_what_crosses_a_link() -> None:
    model = build([instance(0)], [queued("q")], policy={"kv_transfer_config": {"compression": "int8"}})
    assert model.queue.wire_per_token.tolist() == [KV / 2]
    assert model.queue.kv_per_token.tolist() == [KV]
    on = cluster(kv_transfer_config={"compression": "int4"})
    assert build([instance(0)], [queued("q")], on=on).queue.wire_per_token.tolist() == [KV / 4]
    asked = {"kv_transfer_config": {"compression": "none"}}
    assert build([instance(0)], [queued("q")], on=on, policy=asked).queue.wire_per_token.tolist() == [KV]


@pytest.mark.parametrize("seed", range(150))
def test_doing_nothing_is_always_feasible(seed: int) -> None:
    """Whatever runs, overloaded, late or cut off: keeping all of it breaks no rule and loses nothing."""
    rng = np.random.default_rng(seed)
    rows = [
        instance(
            j, utilization=float(rng.choice([0.0, 0.5, 0.95, 1.0])), max_batch=int(rng.integers(1, 5)),
            used=int(rng.integers(20, 80)) * 10**9, role=str(rng.choice(["any", "prefill", "decode"])),
            state=str(rng.choice(["up", "up", "draining"])), observed=float(rng.choice([10.0, 9.0, 1.0])),
        )
        for j in (0, 1, 4, 5)
    ]  # fmt: skip
    running: list[dict[str, Any]] = []
    for n in range(int(rng.integers(0, 14))):
        on, to = (f"i{j}" for j in rng.choice([0, 1, 4, 5], 2))
        limits: dict[str, Any] = {
            "arrival": float(rng.uniform(0.0, 10.0)),
            "sla": {"e2e": float(rng.uniform(0.5, 40.0))},
        }
        if rng.random() < 0.5:
            limits["sla"]["itl"] = float(rng.choice([0.005, 0.02, 0.05, 0.2]))
        tokens = {"context": int(rng.integers(0, 3000)), "remaining": int(rng.integers(1, 900))}
        more = {"sequences": int(rng.integers(1, 40)), "tenant": f"t{n % 2}", **tokens, **limits}
        if rng.random() < 0.5:
            more["sla"]["ttft"] = float(rng.uniform(0.1, 12.0))
            running.append(prefills(f"r{n}", on, decode=to, **more))
        else:
            running.append(decodes(f"r{n}", on, **more))
    tenants = {"t0": {"quota": {"requests": 0, "memory": "0%"}}}
    policy = {"paces": [0.02, 0.05], "window": 2.0, "tenants": tenants, "fairness": 0.0}
    model = build(rows, [queued("q", tenant="t0"), queued("p", tenant="t1")], running, policy=policy)
    outcome = evaluate(model, Placement.empty(model))
    assert outcome.violations == ()
    assert not outcome.objective.any()


def test_a_snapshot_of_nothing_has_a_model() -> None:
    for rows in ([instance(0)], [instance(0, state="lost")]):
        model = build(rows)
        outcome = evaluate(model, Placement.empty(model))
        plan = to_plan(model, Placement.empty(model), outcome, solver="none", seconds=0.0)
        assert (plan.queue, plan.running, plan.levels, plan.status) == ((), (), (), "optimal")


def test_with_all_instances_lost_everything_is_refused_by_name() -> None:
    model = build([instance(0, state="lost")], [queued("q")], [decodes("d")])
    plan = to_plan(model, Placement.empty(model), evaluate(model, Placement.empty(model)), solver="none", seconds=0.0)
    assert [(d.id, d.status, d.reason.rule if d.reason else None) for d in plan.queue] == [
        ("q", "refused", "no instance"), ("d", "refused", "no instance")
    ]  # fmt: skip
    assert [(r.id, r.action) for r in plan.running] == [("d", "requeue")]


def test_what_names_an_instance_that_is_gone_is_warned_of() -> None:
    rows = [
        queued("a", planned={"prefill": "i0", "decode": "i9"}),
        queued("b", held_kv=100, held_on="i1"),
        queued("c", planned={"prefill": "i0", "decode": "i0"}),
    ]
    model = build([instance(0), instance(1, state="lost")], rows)
    assert model.warnings == (
        "instance i1 is lost",
        "a was planned on the unknown instance i9: it may go anywhere",
        "b: its KV cache was kept by the lost instance i1",
    )
    assert model.queue.planned_decode.tolist() == [-1, -1, 0]
    assert model.holdings.of(1, 1000)[0].size == 0


def test_an_instance_that_other_work_fills_takes_nothing_new() -> None:
    model = build([instance(0, utilization=1.0), instance(1, utilization=0.99)], [queued("a")], [decodes("d")])
    assert model.instances.open.tolist() == [False, True]
