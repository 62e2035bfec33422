"""An instance changed request by request agrees with the evaluation of the whole placement."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from iegopt.batch.instance_load import InstanceLoad
from iegopt.batch.model import BatchModel
from iegopt.batch.placement import MIGRATE, Placement
from iegopt.batch.schedule import evaluate

from .small import build, decodes, instance, prefills, queued


def random_model(rng: np.random.Generator) -> BatchModel:
    """Four instances with prefixes, load and running stages; twelve requests of which some share prefixes."""

    def blocks(most: int) -> list[int]:
        """A chain: block ids that say all before them."""
        chain, at = [], 0
        for _ in range(int(rng.integers(0, most + 1))):
            at = 3 * at + int(rng.integers(1, 3))
            chain.append(at)
        return chain

    instances = [
        instance(
            j, prefix=blocks(4), utilization=float(rng.random() * 0.5), max_batch=int(rng.integers(3, 9)),
            tiers=[{"tier": "host", "blocks": blocks(4)}], used=int(rng.integers(65, 79)) * 10**9,
        )
        for j in (0, 1, 4, 5)
    ]  # fmt: skip
    running: list[dict[str, Any]] = [decodes(f"d{n}", f"i{rng.choice([0, 1])}", 500, 200) for n in range(3)]
    running.append(prefills("p", "i0", decode="i4", arrival=9.9, sla={"ttft": 3.0, "e2e": 12.0}))
    rows = []
    for n in range(12):
        prompt, sla = int(rng.integers(600, 4000)), {}
        if rng.random() < 0.7:
            sla["ttft"] = float(rng.uniform(0.3, 3.0))
        if rng.random() < 0.5:
            sla["e2e"] = float(rng.uniform(3.0, 20.0))
        if rng.random() < 0.5:
            sla["itl"] = float(rng.choice([0.02, 0.05, 0.1]))
        output = int(rng.integers(0, 2)) * int(rng.integers(1, 150)) + 1
        chain = blocks(-(-prompt // 512))
        rows.append(queued(f"q{n}", prompt, output, sla=sla, prefix=chain, arrival=9.0 + rng.random()))
    config = {"overlap_compute": bool(rng.integers(2)), "chunk_size": 10**8} if rng.random() < 0.5 else None
    policy = {"paces": [0.02, 0.05, 0.1], "kv_transfer_config": config}
    return build(instances, rows, running, policy=policy)


def add(loads: list[InstanceLoad], plan: Placement, i: int, p: int, q: int, fetch: int) -> bool:
    """Place request i on loads and plan; whether the loads say that it fits."""
    rung = loads[q].pace if loads[q].pace >= 0 else 2
    job = loads[p].job(i, q, float(loads[q].model.paces[rung]), fetch)
    if p == q:
        fine = loads[p].fits(job, i, rung)
        loads[p].add(job, i, rung)
    else:
        fine = loads[p].fits(job) and loads[q].fits(None, i, rung)
        loads[p].add(job)
        loads[q].add(None, i, rung)
    plan.prefill[i], plan.decode[i], plan.fetch[i], plan.pace[q] = p, q, fetch, rung
    return fine


def undo(loads: list[InstanceLoad], plan: Placement, i: int) -> None:
    for j in {int(plan.prefill[i]), int(plan.decode[i])}:
        loads[j].remove(i)
        if not loads[j].sequences:
            plan.pace[j] = loads[j].pace = -1
    plan.prefill[i] = plan.decode[i] = plan.fetch[i] = -1


def agree(model: BatchModel, loads: list[InstanceLoad], plan: Placement) -> None:
    outcome = evaluate(model, plan)
    for j, load in enumerate(loads):
        assert load.memory == outcome.memory[j]
        assert load.sequences == outcome.sequences[j]
        assert load.speed == pytest.approx(outcome.speed[j], rel=1e-9)
        for request, end in load.ends():
            wanted = outcome.first_token[request] if request >= 0 else outcome.running.first_token[request]
            assert end == pytest.approx(wanted, rel=1e-9)
        assert [job.request for job in load.jobs if job.request >= 0] == sorted(
            np.flatnonzero(plan.prefill == j).tolist(), key=lambda i: (outcome.deadline[i], model.queue.order[i])
        )  # fmt: skip
        assert load.decoding == set(np.flatnonzero(plan.decode == j).tolist())
        whole = InstanceLoad.of(model, plan, j)
        assert (whole.memory, whole.sequences, whole.pace) == (load.memory, load.sequences, load.pace)
        assert dict(whole.ends()) == pytest.approx(dict(load.ends()), rel=1e-9)


@pytest.mark.parametrize("seed", range(60))
def test_trials_say_what_the_evaluation_says(seed: int) -> None:
    rng = np.random.default_rng(seed)
    model = random_model(rng)
    loads, plan = [InstanceLoad(model, j) for j in range(model.J)], Placement.empty(model)
    agree(model, loads, plan)
    for i in range(model.N):
        p = int(rng.integers(model.J))
        q = p if rng.random() < 0.6 else int(rng.integers(model.J))
        fetch = int(rng.integers(model.J)) if rng.random() < 0.4 else -1
        fine = add(loads, plan, i, p, q, fetch)
        agree(model, loads, plan)
        assert evaluate(model, plan).feasible is fine, evaluate(model, plan).violations
        if not fine:
            undo(loads, plan, i)
            agree(model, loads, plan)
            assert evaluate(model, plan).feasible
    assert (plan.prefill >= 0).any()


@pytest.mark.parametrize("seed", range(20))
def test_another_pace_is_tried_as_it_is_evaluated(seed: int) -> None:
    """Of instances alone: prefill and decode of a request together."""
    rng = np.random.default_rng(seed)
    model = random_model(rng)
    loads, plan = [InstanceLoad(model, j) for j in range(model.J)], Placement.empty(model)
    for i in range(model.N):
        j = int(rng.integers(1, model.J))
        if not add(loads, plan, i, j, j, -1):
            undo(loads, plan, i)
    for j in (1, 3):  # nothing prefilled elsewhere decodes there
        for rung in range(3):
            if loads[j].pace < 0:
                continue
            other, twin = plan.copy(), loads[j].copy()
            other.pace[j] = rung
            assert loads[j].fits(pace=rung) is evaluate(model, other).feasible
            twin.add(pace=rung)
            agree(model, [*loads[:j], twin, *loads[j + 1 :]], other)
    agree(model, loads, plan)


def test_blocks_of_the_host_and_of_the_plan_are_told_apart() -> None:
    """What an earlier prefill leaves spares the reading only where it is as long as what would be read."""
    tiers = [{"tier": "host", "blocks": [1, 2, 3]}]
    rows = [queued("a", 600, prefix=[1, 9], arrival=9.0), queued("b", 2000, prefix=[1, 2, 3, 4]), queued("c", 1600)]
    rows[2]["prefix"] = [1, 2, 3, 5]
    model = build([instance(0, tiers=tiers)], rows, policy={"paces": [0.02, 0.05, 0.1]})
    loads, plan = [InstanceLoad(model, 0)], Placement.empty(model)
    for i in range(3):
        fine = add(loads, plan, i, 0, 0, -1)
        assert fine is evaluate(model, plan).feasible
        agree(model, loads, plan)
    outcome = evaluate(model, plan)
    assert outcome.reused.tolist() == [512, 1536, 1536]
    assert [bool(r) for r in outcome.ready] == [True, True, False]


@pytest.mark.parametrize("seed", range(20))
def test_stages_that_leave_or_come_are_counted(seed: int) -> None:
    rng = np.random.default_rng(seed)
    model = random_model(rng)
    loads, plan = [InstanceLoad(model, j) for j in range(model.J)], Placement.empty(model)
    for r in range(model.R):
        action = int(rng.integers(3)) if not model.running.is_prefill[r] else int(rng.integers(2))
        plan.action[r] = action
        if action:
            for j in {int(model.running.instance[r]), int(model.running.decode[r])}:
                loads[j].drop(r)
        if action == MIGRATE:
            plan.to[r] = 3
            loads[3].adopt(r)
    for j, load in enumerate(loads):
        plan.pace[j] = 2 if load.sequences else -1
        load.add(pace=int(plan.pace[j]))
    kept = int(model.running.decode[3])
    if plan.action[3] == 0 and kept != model.running.instance[3]:
        loads[int(model.running.instance[3])].retime(3 - model.R, float(model.paces[plan.pace[kept]]))
    agree(model, loads, plan)
