"""The price of a device is the plan without it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from iegopt.cli.answers import _criticality
from iegopt.planner import Planner
from iegopt.plans import NoPlan, Plan
from tests.explain.lab import chain, cluster_of, cpu, gpu, planned, random_cluster, random_request, stage


@pytest.mark.parametrize("seed", range(6))
def test_it_equals_a_plan_without_the_device(seed: int) -> None:
    cluster, request = random_cluster(seed), random_request(seed)
    planner = Planner(cluster)
    before = planned(cluster, request)
    found = planner.criticality(request)
    assert {one.device for one in found} == {device for stage in before.stages for device in stage.devices}
    for one in found:
        after = planner.what_if(request, remove=[one.device]).after
        assert isinstance(after, Plan)
        assert (one.status, one.proven) == ("optimal", True)
        assert one.cost == after.objective - before.objective
        assert one.dollars == after.cost.dollars - before.cost.dollars
        assert one.stages == tuple(s.id for s in before.stages if one.device in s.devices)
    costs = [one.cost for one in found]
    assert costs == sorted(costs, reverse=True)


def test_a_device_without_which_there_is_no_plan_comes_first() -> None:
    planner = Planner(cluster_of(gpu("fast"), gpu("slow", "200T"), cpu("cpu")))
    first, *rest = planner.criticality(chain(stage("prefill", "prefill"), stage("search", "tool")))
    assert (first.device, first.status, first.cost, first.proven) == ("cpu", "infeasible", None, True)
    assert [one.device for one in rest] == ["fast"]
    assert rest[0].cost is not None
    assert rest[0].cost > 0


def test_the_only_device() -> None:
    (one,) = Planner(cluster_of(gpu("g"))).criticality(chain(stage("prefill", "prefill")))
    assert (one.device, one.status, one.stages) == ("g", "infeasible", ("prefill",))


def test_without_time_nothing_is_claimed() -> None:
    cluster, request = random_cluster(0), random_request(0)
    found = Planner(cluster).criticality(request, before=planned(cluster, request), time_limit=0.0)
    assert found
    assert {(one.status, one.cost, one.proven) for one in found} == {(None, None, False)}


def test_no_plan_no_critical_device() -> None:
    assert Planner(cluster_of(gpu("small", vram="10GB"))).criticality(chain(stage("prefill", "prefill"))) == ()


@pytest.mark.parametrize(
    "affinity", [{"device": "slow", "required": False, "penalty": "9s"}, {"kv_cache_location": "slow"}]
)
def test_a_device_that_the_request_names(affinity: dict[str, object]) -> None:
    asked = stage("prefill", "prefill", affinity=affinity)
    asked["memory"]["kv_cache_size"] = "10GB"
    cluster = cluster_of(gpu("fast"), gpu("slow", "200T"))
    found = {one.device: one for one in Planner(cluster).criticality(chain(asked, size="1B"))}
    assert (found["slow"].status, found["slow"].cost) == ("named", None)


def test_what_is_not_proven_is_at_most_so_much_and_comes_after_what_is(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster, request = random_cluster(0), random_request(0)
    planner, before, asked = Planner(cluster), planned(cluster, request), []
    ask = Planner._from

    def first_unproven(self: Planner, *arguments: Any) -> Plan | NoPlan:
        asked.append(ask(self, *arguments))
        return replace(asked[0], status="feasible", bound=None) if len(asked) == 1 else asked[-1]

    monkeypatch.setattr(Planner, "_from", first_unproven)
    found = planner.criticality(request, before=before)
    assert len(found) > 1
    assert [one.status for one in found] == ["optimal"] * (len(found) - 1) + ["feasible"]
    (shown,) = _criticality(found)
    costs = list(shown.columns[1].cells)
    assert [str(cost).startswith("at most +") for cost in costs] == [not one.proven for one in found]
