"""The check by arrays says that a plan holds exactly where the verifier does, and where it cannot tell."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest

from iegopt.cost.weights import weights_for
from iegopt.planner import Planner
from iegopt.planner.first_check import FirstChecks
from iegopt.planner.first_facts import facts_of
from iegopt.planner.first_figures import Figured, _of_place
from iegopt.planner.first_told import told
from iegopt.planner.promising import Promising
from iegopt.plans import Plan, made
from iegopt.solvers.clock import Clock
from iegopt.spec.cluster import ClusterSpec
from iegopt.spec.request import RequestSpec
from iegopt.verify.by_arrays import can_tell

KINDS = ("prefill", "decode", "tool", "retrieval", "output", "embedding")


def planner(seed: int) -> Planner:
    rng = random.Random(seed)
    devices: list[dict[str, Any]] = [
        {"id": model, "model": model, "count": 6, "spread": {"per_host": 3, "hosts_per_rack": 1},
         "efficiency": rng.choice([1.0, 0.7]), "location": {"rack": f"rack-{n % 2}", "datacenter": f"dc-{n % 2}"}}
        for n, model in enumerate(("H100", "A100-80GB", "L40S", "cpu-epyc-9654-2s"))
    ]  # fmt: skip
    pairs = [{"devices": ["H100-0", "L40S-1"], "bandwidth": "1GB/s"}] if rng.random() < 0.5 else []
    made_of = {"devices": devices, "pairs": pairs}
    found = Planner(ClusterSpec.model_validate(made_of, context={"document": True}))
    for device in rng.sample(sorted(found._cluster.by_id), 12):
        vram = found._cluster.by_id[device].kind.vram
        found.update(device, utilisation=rng.random(), used=int(vram * rng.random()))
    return found


def request(rng: random.Random, **more: Any) -> RequestSpec:
    stages: list[dict[str, Any]] = []
    for i in range(rng.randrange(1, 9)):
        stage: dict[str, Any] = {
            "id": f"s{i}",
            "type": rng.choice(KINDS),
            "memory": {"vram": f"{rng.randrange(1, 30)}GB"},
        }
        if rng.random() < 0.7:
            stage["compute"] = {"flops": f"{rng.randrange(1, 90)}T"}
        if rng.random() < 0.3:
            stage |= {"io": {"bytes": "1GB"}, "fixed_time": "30ms"}
        if rng.random() < 0.3 and stage["type"] in ("prefill", "decode"):
            stage["parallelism"] = {"degree": 2, "strategy": "tensor_parallel"}
        if rng.random() < 0.3:
            stage["latency_sla"] = f"{rng.randrange(1, 60)}s"
        stages.append(stage)
    edges = [
        {"from": f"s{rng.randrange(i)}", "to": f"s{i}", "bytes": f"{rng.randrange(900)}MB"}
        for i in range(1, len(stages)) if rng.random() < 0.8
    ]  # fmt: skip
    document = {"graph": {"stages": stages, "edges": edges}, **more}
    return RequestSpec.model_validate(document, context={"document": True})


def anywhere(on: Planner, asked: RequestSpec, rng: random.Random) -> tuple[Promising, Figured] | None:
    """A placement at random, wherever the rates say that a stage runs at all."""
    graph = on.graph(asked)
    sites = on._in_time._first._over(on._cluster, set(on._cluster.gang_sizes))
    assert sites is not None
    facts = facts_of(sites, graph, asked, None, Clock(10.0))
    assert facts is not None
    load = on._cluster.state.site_load(sites.table.topology)
    runs = [np.flatnonzero(np.isfinite(row[sites.kind] * load)) for row in facts.seconds]
    if not all(map(len, runs)):
        return None
    place = np.array([rng.choice(each.tolist()) for each in runs])
    return sites, _of_place(sites, load, graph, facts, place, None, in_turn=False)


def plan_of(on: Planner, asked: RequestSpec, sites: Promising, figures: Figured, **said: float) -> Plan:
    weights = weights_for(asked.sla_class, asked.weights, asked.objective)
    plan = told(sites, on.graph(asked), asked, figures, weights, Clock(10.0))
    return made(Plan, {**vars(plan), **said})


@pytest.mark.parametrize("seed", range(30))
def test_it_says_what_the_verifier_says(seed: int) -> None:
    rng, on, seen = random.Random(seed), planner(seed), set[bool]()
    for _ in range(40):
        limits = {"dag_constraints": {"max_compute_time": rng.choice(["60s", "2s"])}} if rng.random() < 0.5 else {}
        asked = request(rng, **limits, **({"sla": {"e2e": f"{rng.randrange(1, 20)}s"}} if rng.random() < 0.5 else {}))
        found = anywhere(on, asked, rng)
        if found is None:
            continue
        graph, wrong = on.graph(asked), rng.choice(["none", "none", "time", "start", "objective", "makespan"])
        sites, figures = found
        if wrong in ("time", "start"):
            getattr(figures, wrong)[rng.randrange(len(graph.stages))] += 0.01
        plan = plan_of(on, asked, sites, figures)
        if wrong in ("objective", "makespan"):
            plan = plan_of(on, asked, sites, figures, **{wrong: getattr(plan, wrong) * 1.01 + 0.01})
        holds = on._checks.hold(plan, asked, graph)
        report = on.verify(plan, asked, graph)
        assert holds == report.ok, (wrong, report.violations)
        seen.add(holds)
    assert seen == {True, False}


@pytest.mark.parametrize(
    "more",
    [
        {"objective": "critical_path"},
        {"objective": "critical_path", "no_overlap": True},
        {"kv_transfer_config": {"chunk_size": "64MB", "overlap_compute": True}},
    ],
)
def test_it_says_where_it_cannot_tell(more: dict[str, Any]) -> None:
    on, rng = planner(1), random.Random(3)
    plain, asked = request(rng), request(rng, **more)
    assert can_tell(on.graph(plain), plain, on._cluster.spec)
    assert not can_tell(on.graph(asked), asked, on._cluster.spec)
    tied = on.graph(plain).model_copy(update={"affinity": ("a rule",)})
    assert not can_tell(tied, plain, on._cluster.spec)


def test_stages_stand_where_a_worker_serves_them() -> None:
    devices = [{"id": "a", "model": "H100", "worker": {"roles": ["cpu"]}}, {"id": "b", "model": "H100"}]
    on = Planner(ClusterSpec.model_validate({"devices": devices}, context={"document": True}))
    asked = RequestSpec.model_validate(
        {"graph": {"stages": [{"id": "s", "type": "decode", "compute": {"flops": "1T"}}]}}, context={"document": True}
    )
    for place in range(2):
        found = anywhere(on, asked, random.Random(0))
        assert found is not None
        sites, figures = found
        name = sites.table.topology.sites[place]
        plan = plan_of(on, asked, sites, figures._replace(place=np.array([place])))
        assert on._checks.hold(plan, asked, on.graph(asked)) == (name == "b") == on.verify(plan, asked).ok


def test_what_was_looked_up_of_other_sites_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    on, rng = planner(4), random.Random(4)
    asked = request(rng)
    found = anywhere(on, asked, rng)
    assert found is not None
    plan = plan_of(on, asked, *found)
    holds = on._checks.hold(plan, asked, on.graph(asked))
    checks = FirstChecks(on._checks._links, on._checks._precisions)
    checks._of = dict(on._checks._of)
    sites = found[0]
    again = checks._for(sites)
    kept = checks._of[sites]
    assert again._rates.keys() == kept._rates.keys()
    np.testing.assert_array_equal(again._link, kept._link)
    assert checks.hold(plan, asked, on.graph(asked)) == holds
