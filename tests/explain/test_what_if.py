"""A what-if is the plan of the cluster's file edited by hand, and leaves the planner as it was."""

from __future__ import annotations

from typing import Any

import pytest

from iegopt.errors import InputError
from iegopt.explain.edited import edited
from iegopt.planner import Planner
from iegopt.plans import NoPlan, Plan
from iegopt.problem.cluster import CompiledCluster
from iegopt.spec.cluster import ClusterSpec
from iegopt.spec.device import DeviceSpec
from iegopt.spec.explain_error import validate
from iegopt.spec.request import RequestSpec
from tests.explain.lab import at, chain, cluster_of, cpu, gpu, planned, random_cluster, random_request, stage


def same(answer: Plan | NoPlan, cluster: ClusterSpec, request: Any) -> bool:
    """Whether an answer is the plan of a cluster."""
    other = Planner(cluster).plan(request, explained=False)
    if isinstance(answer, NoPlan) or isinstance(other, NoPlan):
        return answer.status == other.status
    if answer.placement == other.placement:
        return (answer.objective, answer.cost) == (other.objective, other.cost)
    # Of equally good plans, the one that starts from the present plan may be another.
    return answer.objective == other.objective and Planner(cluster).verify(answer, request).ok


def without(cluster: ClusterSpec, *pools: str) -> ClusterSpec:
    """The file without some entries, at the price that money was measured in."""
    left = tuple(device for device in cluster.devices if device.id not in pools)
    price = CompiledCluster(cluster).reference_price
    return cluster.model_copy(update={"devices": left, "reference_price": price})


@pytest.mark.parametrize("seed", range(8))
def test_removing_a_pool_equals_the_file_without_it(seed: int) -> None:
    cluster, request = random_cluster(seed), random_request(seed)
    planner = Planner(cluster)
    before = planned(cluster, request)
    for pool in ("a0", "b1", "cpu-a"):
        change = planner.what_if(request, remove=[pool])
        assert isinstance(change.after, Plan)
        assert change.proven
        assert same(change.before, cluster, request)
        assert same(change.after, without(cluster, pool), request)
        assert change.objective_change == change.after.objective - before.objective >= 0
        assert change.dollars_change == change.after.cost.dollars - before.cost.dollars
        assert {stage.stage for stage in change.moved} == {
            name for name, place in before.placement.items() if change.after.placement[name] != place
        }
    assert same(planner.plan(request, explained=False), cluster, request)


def test_removing_one_of_a_pool_leaves_the_others_where_they_are() -> None:
    pool = gpu("g", count=4, spread={"per_host": 2, "hosts_per_rack": 1}, location={"datacenter": "x", "rack": "r"})
    cluster = CompiledCluster(cluster_of(pool, cpu("cpu"), reference_price=2.0))
    left = edited(cluster, remove=["g-1"])
    assert [d.id for d in left.devices] == ["g-0", "g-2", "g-3", "cpu"]
    assert [left.by_id[name] for name in ("g-0", "g-2", "g-3")] == [
        cluster.by_id[name] for name in ("g-0", "g-2", "g-3")
    ]


def test_gangs_pairs_and_links_of_what_is_gone_go_with_it() -> None:
    spec = cluster_of(
        gpu("g", count=4, **at("r1", "h")), gpu("x", **at("r2", "k")), cpu("cpu"),
        gangs=[{"devices": ["g-0", "g-1"]}, {"devices": ["g-2", "g-3"]}],
        pairs=[{"devices": ["g-0", "x"], "bandwidth": "1GB/s"}, {"devices": ["g-2", "g-3"], "bandwidth": "9GB/s"}],
        link_overrides=[
            {"level": "rack", "group": "r2", "latency": "5us", "bandwidth": "400Gbps"},
            {"level": "rack", "group": "r1", "latency": "6us", "bandwidth": "400Gbps"},
        ],
    )  # fmt: skip
    left = edited(CompiledCluster(spec), remove=["x", "g-1"]).spec
    assert [gang.devices for gang in left.gangs] == [("g-2", "g-3")]
    assert [pair.devices for pair in left.pairs] == [("g-2", "g-3")]
    assert [link.group for link in left.link_overrides] == ["r1"]


def test_what_the_file_says_of_a_model_that_is_gone_is_no_fault() -> None:
    """Its price and its execution path name a device model that only the cluster knew."""
    path = {
        "model": "Llama-3.1-8B",
        "variants": [{"precision": "fp16", "backend": "CUDA", "compatible_devices": ["lab-200T"]}],
    }
    slow = {key: value for key, value in gpu("slow", "200T").items() if key != "price"}
    cluster = cluster_of(gpu("fast"), slow, cpu("cpu"), prices={"lab-200T": 1.5}, execution_path_registry=[path])
    request: RequestSpec = validate(
        RequestSpec, {"model": "Llama-3.1-8B", "prompt_tokens": 100, "output_tokens": 10}, "request.yaml"
    )
    change = Planner(cluster).what_if(request, remove=["slow"])
    assert (change.before.status, change.after.status) == ("optimal", "infeasible")
    with pytest.raises(InputError, match="no variant"):
        Planner(cluster).what_if(request, add=[DeviceSpec(id="x", model="L40S", resident=("Llama-3.1-8B/fp99/x",))])


def test_the_present_state_is_that_of_the_copy_too() -> None:
    cluster, request = random_cluster(1), random_request(1)
    planner = Planner(cluster)
    for name in ("a0-0", "a0-1", "b0-0"):
        planner.update(name, queue=(4, 1.0), used=10**9)
    state = planner._cluster.state.snapshot(planner._cluster.by_id)
    copied = edited(planner._cluster, remove=["a0-1"], add=[DeviceSpec(id="new", model="L40S")])
    assert {name: copied.state.snapshot([name])[name] for name in state if name != "a0-1"} == {
        name: figures for name, figures in state.items() if name != "a0-1"
    }
    change = planner.what_if(request, update={"a0-0": {"queue": (0, 1.0)}, "b0-0": {"used": 0}})
    assert planner._cluster.state.snapshot(planner._cluster.by_id) == state
    planner.update("a0-0", queue=(0, 1.0))
    planner.update("b0-0", used=0)
    now = planner.plan(request, explained=False)
    assert isinstance(now, Plan)
    assert isinstance(change.after, Plan)
    assert (change.after.objective, change.after.placement) == (now.objective, now.placement)


def test_adding_equals_the_file_with_it() -> None:
    cluster, request = random_cluster(2), random_request(2)
    planner = Planner(cluster)
    new = DeviceSpec.model_validate(gpu("new", "800T", price=4.0, **at("a", "a0")))
    change = planner.what_if(request, add=[new])
    price = CompiledCluster(cluster).reference_price
    edited_file = cluster.model_copy(update={"devices": (*cluster.devices, new), "reference_price": price})
    assert same(change.after, edited_file, request)
    assert change.objective_change is not None
    assert change.objective_change < 0
    assert "new" in {site for stage in change.moved for site in (stage.after[0],)}
    document = change.document()
    assert list(document) == ["objective_change", "dollars_change", "proven", "moved", "before", "after"]
    assert document["moved"][0]["before"].keys() == {"site", "variant"}


def test_from_no_plan_to_one_and_back() -> None:
    request = chain(stage("prefill", "prefill"))
    planner = Planner(cluster_of(gpu("small", vram="10GB")))
    change = planner.what_if(request, add=[DeviceSpec.model_validate(gpu("new"))])
    assert (change.before.status, change.after.status) == ("infeasible", "optimal")
    assert (change.objective_change, change.dollars_change, change.moved) == (None, None, ())
    back = Planner(cluster_of(gpu("small", vram="10GB"), gpu("g"))).what_if(request, remove=["g"])
    assert (back.before.status, back.after.status, back.proven) == ("optimal", "infeasible", True)


@pytest.mark.parametrize(
    ("how", "message"),
    [
        ({"remove": ["a0-7"]}, "remove: no device of cluster lab is called a0-7"),
        ({"remove": ["cpu-x"]}, "Maybe cpu-"),
        ({"remove": ["a0", "a1", "b0", "b1", "cpu-a", "cpu-b"]}, "no device of cluster lab would be left"),
        ({"add": [DeviceSpec.model_validate(cpu("cpu-a"))]}, "a second device is called cpu-a"),
        ({"update": {"nowhere": {"used": 0}}}, "no device is called nowhere"),
        ({"remove": ["a0"], "update": {"a0-0": {"used": 0}}}, "no device is called a0-0"),
    ],
)
def test_wrong_changes_are_refused(how: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        Planner(random_cluster(0)).what_if(random_request(0), **how)
