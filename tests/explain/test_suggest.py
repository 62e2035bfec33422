"""What a suggestion saves is what planning on the file with it saves; what was skipped could not have saved more."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from iegopt.errors import InputError
from iegopt.explain.places import Stock, find_place
from iegopt.explain.suggest import Suggestion
from iegopt.explain.symmetry import place_classes
from iegopt.planner import Planner
from iegopt.plans import NoPlan, Plan
from iegopt.problem.cluster import CompiledCluster
from iegopt.spec.cluster import ClusterSpec
from iegopt.spec.device import DeviceSpec
from iegopt.spec.explain_error import validate
from iegopt.spec.request import RequestSpec
from tests.explain.lab import at, chain, cluster_of, cpu, gpu, planned, random_cluster, random_request, stage


def with_it(cluster: ClusterSpec, one: Suggestion) -> ClusterSpec:
    """The cluster's file with a suggestion written into it."""
    changes = {
        "devices": (*cluster.devices, *one.devices),
        "gangs": (*cluster.gangs, *one.gangs),
        "reference_price": CompiledCluster(cluster).reference_price,
    }
    return cluster.model_copy(update=changes)


def check(cluster: ClusterSpec, request: RequestSpec, found: tuple[Suggestion, ...]) -> Iterator[str]:
    """Every suggestion against the plan with it; yields how each was treated."""
    before = planned(cluster, request)
    for one in found:
        after = Planner(with_it(cluster, one)).plan(request, explained=False)
        assert isinstance(after, Plan)
        saving = before.objective - after.objective
        if one.skipped:
            assert one.saving is None
            assert one.at_most is not None
            assert saving <= one.at_most + 1e-9, one
            yield one.skipped
        else:
            assert one.proven
            assert one.saving == pytest.approx(saving, abs=1e-12)
            assert one.dollars == pytest.approx(before.cost.dollars - after.cost.dollars, abs=1e-12)
            assert one.at_most is None or saving <= one.at_most + 1e-9
            yield "solved"


@pytest.mark.parametrize("seed", range(8))
def test_savings_are_the_differences(seed: int) -> None:
    cluster, request = random_cluster(seed), random_request(seed)
    found = Planner(cluster).suggest(request)
    treated = set(check(cluster, request, found))
    assert "solved" in treated
    assert not any("time" in word for word in treated)
    savings = [one.saving for one in found if one.saving is not None]
    assert savings == sorted(savings, reverse=True)


def test_reasons_to_skip_all_occur() -> None:
    reasons = {one.skipped for seed in range(8) for one in Planner(random_cluster(seed)).suggest(random_request(seed))}
    assert reasons == {"", "no plan that uses it is cheaper", "cannot save 0.1% more than the best 3 places"}


def test_equal_places_save_the_same() -> None:
    """Four equal hosts in two equal racks, a fifth that is busy: three classes of host, two of new hosts."""
    idle = [gpu(f"{rack}{i}", count=2, **at(rack, f"{rack}{i}")) for rack in ("a", "b") for i in range(2)]
    busy = gpu("c0", count=2, utilization={"compute": 0.5}, **at("c", "c0"))
    cluster = cluster_of(*idle, busy, cpu("cpu", **at("c", "c1")))
    request = chain(stage("prefill", "prefill"), stage("decode", "decode"), stage("search", "tool"))
    planner = Planner(cluster)
    classes = place_classes(planner._cluster, planner.graph(request))
    assert sorted(len(places) for places in classes) == [1, 1, 1, 2, 4]
    stock = Stock(planner._cluster)
    for places in classes:
        for model in ("lab-400T", "lab-cpu"):
            values = [planner.what_if(request, add=stock.idle(model, place)).objective_change for place in places]
            assert values == [values[0]] * len(places)


def test_what_the_request_names_is_like_nothing_else() -> None:
    cluster = CompiledCluster(cluster_of(gpu("x", **at("a", "x")), gpu("y", **at("a", "y"))))
    plain = chain(stage("prefill", "prefill"))
    bound = chain(stage("prefill", "prefill", affinity={"device": "x", "required": False, "penalty": "1s"}))
    for request, hosts in ((plain, [1, 2]), (bound, [1, 1, 1])):
        assert request.graph is not None
        assert sorted(map(len, place_classes(cluster, request.graph))) == hosts


GANG = {"parallelism": {"strategy": "tensor_parallel", "degree": 2}}


@pytest.mark.parametrize("listed", [False, True])
def test_a_gang_is_suggested_where_stages_use_gangs(listed: bool) -> None:
    pools = [gpu("fast", count=2, utilization={"compute": 0.9}, **at("a", "a0")), gpu("slow", "100T", count=2)]
    gangs = [{"devices": [f"{name}-0", f"{name}-1"]} for name in ("fast", "slow")] if listed else []
    cluster = cluster_of(*pools, gangs=gangs)
    request = chain(stage("prefill", "prefill", **GANG), stage("decode", "decode", vram="30GB", **GANG))
    found = Planner(cluster).suggest(request)
    assert "solved" in set(check(cluster, request, found))
    best = found[0]
    assert (best.model, best.count) == ("lab-400T", 2)
    assert len(best.gangs) == (1 if listed else 0)
    assert all(one.skipped for one in found if one.count == 1)


def test_what_makes_a_plan_possible_comes_first() -> None:
    cluster = cluster_of(gpu("small", vram="10GB", **at("a", "h")))
    request = chain(stage("prefill", "prefill"))
    big = DeviceSpec.model_validate(gpu("big", "200T"))
    found = Planner(cluster).suggest(request, candidates=["lab-400T", big])
    best = found[0]
    assert (best.enables, best.saving, best.model) == (True, None, "lab-200T")
    assert isinstance(Planner(with_it(cluster, best)).plan(request), Plan)
    others = [one for one in found if one.model == "lab-400T"]
    assert others
    assert not any(one.enables for one in others)
    assert all(isinstance(Planner(with_it(cluster, one)).plan(request), NoPlan) for one in others)


def test_a_fallback_policy_is_kept() -> None:
    """Bounds are then worked out one by one, and still hold."""
    cluster, request = random_cluster(3), random_request(3)
    request = request.model_copy(
        update={"fallback_policy": chain(stage("p", "prefill"), fallback_policy={}).fallback_policy}
    )
    found = Planner(cluster).suggest(request, candidates=["lab-cpu"])
    assert set(check(cluster, request, found))


def test_a_model_of_the_library_and_an_unknown_one() -> None:
    cluster, request = random_cluster(4), random_request(4)
    found = Planner(cluster).suggest(request, candidates=["B200"])
    assert {one.model for one in found} == {"B200"}
    assert "solved" in set(check(cluster, request, found))
    with pytest.raises(InputError, match="B2000"):
        Planner(cluster).suggest(request, candidates=["B2000"])


def test_its_devices_can_be_written_into_the_file() -> None:
    best = Planner(random_cluster(0)).suggest(random_request(0))[0]
    read = [validate(DeviceSpec, entry, "cluster.yaml") for entry in best.document()["devices"]]
    assert read == list(best.devices)


def test_the_time_limit_is_kept_and_said() -> None:
    cluster, request = random_cluster(0), random_request(0)
    before = planned(cluster, request)
    found = Planner(cluster).suggest(request, before=before, time_limit=0.0)
    assert {one.skipped for one in found} == {"the time limit came first"}


def test_idle_devices_join_their_like_and_no_other() -> None:
    pool = gpu("g", count=2, utilization={"compute": 0.5, "memory": 0.25}, queue={"depth": 3}, **at("a", "h"))
    planner = Planner(cluster_of({**pool, "resident": ["Llama-3.1-8B"]}, cpu("cpu", **at("b", "k"))))
    (here,) = planner.idle_devices("lab-400T", "h")
    changed = Planner(planner._cluster.spec.model_copy(update={"devices": (*planner._cluster.spec.devices, here)}))
    device = changed._cluster.devices[-1]
    assert device.path == planner._cluster.devices[0].path
    assert (device.utilization.compute, device.utilization.memory, device.queue) == (0.0, 0.25, None)
    first, second = planner.idle_devices("lab-400T", "dc0/b/k", 2)
    assert first.location == second.location
    assert (first.location.host, first.location.domain) == ("k", "added-lab-400T-dc0-b-k")
    assert {d.location.host for d in planner.idle_devices("lab-400T", "b", 2)} == {"added-lab-400T-dc0-b"}


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("c", "c: no rack or host is called so"),
        ("rak-1", "Maybe rack-1"),
        ("same", "several racks or hosts are called so"),
    ],
)
def test_places_are_found_by_name(name: str, message: str) -> None:
    devices: list[dict[str, Any]] = [gpu("x", **at("rack-1", "same")), gpu("y", **at("rack-2", "same"))]
    with pytest.raises(InputError, match=message):
        find_place(CompiledCluster(cluster_of(*devices)), name)


def test_what_the_present_plan_may_be_off_is_no_saving() -> None:
    cluster, request = random_cluster(0), random_request(0)
    before, planner = planned(cluster, request), Planner(cluster)
    best = max(one.saving or 0.0 for one in planner.suggest(request, before=before))
    assert best > 0

    def with_slack(slack: float) -> list[Suggestion]:
        assert before.bound is not None
        unproven = replace(before, status="feasible", bound=before.objective - slack)
        return [one for one in planner.suggest(request, before=unproven) if (one.saving or 0.0) > 0]

    assert max(one.saving or 0.0 for one in with_slack(0.9 * best)) == pytest.approx(best)
    assert with_slack(1.1 * best) == []
    nothing_proven = planner.suggest(request, before=replace(before, status="feasible", bound=None))
    assert any("cannot be told" in one.skipped for one in nothing_proven)
