"""A shadow price is what the request planned with the limit raised saves, over the step."""

from __future__ import annotations

from typing import Any

import pytest

from iegopt.explain.shadow import ShadowPrices
from iegopt.planner import Planner
from iegopt.plans import Plan
from iegopt.spec.cluster import ClusterSpec
from iegopt.spec.request import RequestSpec
from tests.explain.lab import at, chain, cluster_of, gpu, planned, stage


def prices(cluster: ClusterSpec, request: RequestSpec, **how: Any) -> ShadowPrices:
    found = Planner(cluster).shadow_prices(request, **how)
    assert isinstance(found, ShadowPrices)
    return found


def two_hosts(vram: str) -> ClusterSpec:
    return cluster_of(gpu("x", vram=vram, **at("a", "x")), gpu("y", vram=vram, **at("b", "y")))


def test_memory_that_keeps_two_stages_apart() -> None:
    """25 GB each: 40 GB hold one of them, 50 GB both, and then 1 GB of KV need not cross the racks."""
    request = chain(stage("prefill", "prefill"), stage("decode", "decode"))
    found = prices(two_hosts("40GB"), request)
    together, apart = planned(two_hosts("50GB"), request), planned(two_hosts("40GB"), request)
    saving = apart.objective - together.objective
    assert saving == pytest.approx(0.8 * (100e-6 + 1e9 / 6.25e9))
    full, _, one, _ = found.prices
    assert [row.where for row in found.prices] == [("x",), ("y",)] * 2
    assert (full.rule, full.allowed, full.step, full.unit, full.per) == ("memory", 40e9, 10e9, "B", "GB")
    assert full.saving == pytest.approx(saving)
    assert full.price == pytest.approx(saving / 10)
    assert (one.step, one.saving, one.price) == (1e9, 0.0, 0.0)
    assert full.proven
    assert found.complete


def test_one_gigabyte_more() -> None:
    """With 49.5 GB the next gigabyte is the one that counts, and half of it is what the move needs."""
    request = chain(stage("prefill", "prefill"), stage("decode", "decode"))
    one, other = prices(two_hosts("49.5GB"), request).prices
    raised = planned(two_hosts("50.5GB"), request)
    apart = planned(two_hosts("49.5GB"), request)
    assert [(row.step, row.forbids) for row in (one, other)] == [(1e9, "decode"), (1e9, "prefill")]
    assert one.price == pytest.approx(apart.objective - raised.objective)
    assert one.dollar_price == pytest.approx(apart.cost.dollars - raised.cost.dollars)


def test_a_gang_is_full_on_all_its_devices() -> None:
    pool = gpu("g", vram="20GB", count=4, **at("a", "x"))
    two = {"parallelism": {"strategy": "tensor_parallel", "degree": 2}}
    request = chain(stage("prefill", "prefill", **two), stage("decode", "decode", **two))
    full = prices(cluster_of(pool), request).prices[0]
    assert len(full.where) == 2
    assert full.step == 5e9
    bigger = cluster_of({**pool, "memory": {"vram": "25GB", "bandwidth": "2TB/s"}})
    assert full.saving == pytest.approx(
        planned(cluster_of(pool), request).objective - planned(bigger, request).objective
    )


LIMITS: list[tuple[str, str, dict[str, Any], dict[str, Any]]] = [
    ("sla", "prefill", {"stage": {"latency_sla": "300ms"}}, {"stage": {"latency_sla": "500ms"}}),
    ("finish_by", "prefill", {"sla": {"ttft": "300ms"}}, {"sla": {"ttft": "500ms"}}),
    ("deadline", "prefill", {"sla": {"e2e": "300ms"}}, {"sla": {"e2e": "500ms"}}),
    (
        "budget", "max_compute_time", {"dag_constraints": {"max_compute_time": "300ms"}},
        {"dag_constraints": {"max_compute_time": "500ms"}},
    ),
]  # fmt: skip


@pytest.mark.parametrize(("rule", "where", "tight", "loose"), LIMITS, ids=[row[0] for row in LIMITS])
def test_limits_in_time(rule: str, where: str, tight: dict[str, Any], loose: dict[str, Any]) -> None:
    """100 TFLOP take 0.25 s on the dear device and 0.5 s on the cheap one: 200 ms more would let it move."""
    cluster = cluster_of(gpu("fast", price=36.0), gpu("slow", "200T", price=1.0))

    def request(limit: dict[str, Any]) -> RequestSpec:
        fields = {name: value for name, value in limit.items() if name != "stage"}
        return chain(stage("prefill", "prefill", **limit.get("stage", {})), sla_class="offline", **fields)

    found = prices(cluster, request(tight))
    before, after = planned(cluster, request(tight)), planned(cluster, request(loose))
    assert (before.stage("prefill").site, after.stage("prefill").site) == ("fast", "slow")
    needed, unit = found.prices
    assert (needed.rule, needed.where, needed.unit, needed.per) == (rule, (where,), "s", "s")
    assert needed.step == pytest.approx(0.2)
    assert needed.saving == pytest.approx(before.objective - after.objective)
    assert needed.price == pytest.approx((before.objective - after.objective) / 0.2)
    assert needed.dollar_price == pytest.approx((before.cost.dollars - after.cost.dollars) / 0.2)
    assert (unit.step, unit.saving) == (pytest.approx(0.003), 0.0)


def test_an_affinity_has_no_price() -> None:
    request = chain(stage("prefill", "prefill", vram="1GB"), stage("decode", "decode", vram="1GB"))
    assert request.graph is not None
    rule = {"stages": ["prefill", "decode"], "level": "host", "apart": True}
    graph = type(request.graph).model_validate({**request.graph.document(), "affinity": [rule]})
    found = prices(two_hosts("40GB"), request.model_copy(update={"graph": graph}))
    assert found.prices == ()
    assert "the affinity of prefill, decode has no unit to price" in found.note


def test_what_does_not_bind_has_no_price() -> None:
    found = prices(two_hosts("80GB"), chain(stage("prefill", "prefill"), stage("decode", "decode")))
    assert (found.prices, found.complete, found.note) == ((), True, "")


def test_without_time_it_says_so() -> None:
    request = chain(stage("prefill", "prefill"), stage("decode", "decode"))
    plan = Planner(two_hosts("40GB")).plan(request)
    assert isinstance(plan, Plan)
    found = prices(two_hosts("40GB"), request, before=plan, time_limit=0.0)
    assert (found.prices, found.complete) == ((), False)
    assert found.note.startswith("the time limit came before")
    assert found.document()["complete"] is False


def fast_and_slow() -> ClusterSpec:
    return cluster_of(
        gpu("fast", price=3.6, vram="40GB", **at("a", "a")),
        gpu("slow", "100T", price=3.6, vram="400GB", **at("a", "b")),
    )


def objective_on(cluster: ClusterSpec, device: str) -> float:
    alone = ClusterSpec.model_validate(
        {**cluster.document(), "devices": [d for d in cluster.document()["devices"] if d["id"] == device],
         "reference_price": "3.6$/h"}
    )  # fmt: skip
    return planned(alone, chain(stage("prefill", "prefill"))).objective


def test_memory_at_the_margin() -> None:
    """Two of three stages of 25 GB would share the fast device of 40 GB, were it not full: a GB is 1/25 of a stage."""
    cluster = fast_and_slow()
    request = chain(stage("a", "prefill"), stage("b", "decode"), stage("c", "decode"), size="1kB")
    found = prices(cluster, request)
    saved = objective_on(cluster, "slow") - objective_on(cluster, "fast")
    assert saved > 0
    (margin,) = found.margins
    assert (margin.rule, margin.where, margin.per) == ("memory", ("fast",), "GB")
    assert margin.price == pytest.approx(saved / 25, rel=0.05)
    row = next(row for row in found.prices if row.where == ("fast",))
    assert row.margin == margin.price
    plan = planned(cluster, request)
    hours = max(stage.finish for stage in plan.stages) / 3600
    # Realtime weighs money by 0.1: a second of objective is 3.6 $/h for 10 s.
    assert margin.dollars_per_gb_hour == pytest.approx(margin.price * 3.6 / 3600 / 0.1 / hours)


def test_neighbours_that_fit_together_nowhere_need_no_price() -> None:
    """The relaxation knows that they stand apart, whatever a GB more would cost: its slope is 0."""
    found = prices(two_hosts("40GB"), chain(stage("prefill", "prefill"), stage("decode", "decode")))
    assert found.margins == ()
    assert {row.margin for row in found.prices} == {0.0}


def test_a_deadline_at_the_margin() -> None:
    """A stage takes 0.25 s or, cheaper, 0.5 s: within 0.9 s one of two may be slow, and 0.6 of the other."""
    cluster = cluster_of(gpu("fast", price=36.0), gpu("slow", "200T", price=1.0))

    def request(limit: str) -> RequestSpec:
        stages = [stage("prefill", "prefill", vram="1GB"), stage("decode", "decode", vram="1GB")]
        return chain(*stages, size="1B", sla_class="offline", sla={"e2e": limit})

    found = prices(cluster, request("900ms"))
    saved = planned(cluster, request("600ms")).objective - planned(cluster, request("2s")).objective
    (margin,) = found.margins
    assert (margin.rule, margin.where, margin.per) == ("deadline", ("prefill", "decode"), "s")
    assert margin.price == pytest.approx(saved / 0.5, rel=0.05)
    assert margin.dollars_per_gb_hour is None
    assert {row.margin for row in found.prices} == {margin.price}
    assert found.document()["margins"][0]["where"] == ["prefill", "decode"]


def test_time_in_full_has_no_price_at_the_margin() -> None:
    request = chain(stage("prefill", "prefill"), stage("decode", "decode"), objective="critical_path")
    found = prices(two_hosts("40GB"), request)
    assert found.margins == ()
    assert found.note == "no prices at the margin: it prices memory in sum, and nothing that depends on when stages run"
    assert {row.margin for row in found.prices} <= {None}
