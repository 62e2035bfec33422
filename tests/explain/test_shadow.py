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
