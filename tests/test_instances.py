"""What instances/ ships: clusters expand, requests are planned where they belong, problems have their optimum."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from iegopt.devices import expand
from iegopt.library import data_dir
from iegopt.planner import Planner
from iegopt.plans import Plan
from iegopt.problem.instance import read_instance, to_problem
from iegopt.problem.instance_check import EXTENSIONS
from iegopt.problem.sites import build_sites, gang_sizes
from iegopt.solvers.api import solve
from iegopt.solvers.result import Params, Status
from iegopt.spec.load import dump, load_cluster, load_document, load_policy, load_request, load_snapshot

CLUSTERS = sorted((data_dir("instances") / "clusters").glob("*.yaml"))
REQUESTS = sorted((data_dir("instances") / "requests").glob("*.yaml"))
SNAPSHOTS = sorted((data_dir("instances") / "snapshots").glob("*.yaml"))
POLICIES = sorted((data_dir("instances") / "policies").glob("*.yaml"))
DOCUMENTS = [*CLUSTERS, *REQUESTS, *SNAPSHOTS, *POLICIES]

SIZES = {
    "cpu-only": 6,
    "dgx-h100": 9,
    "edge-l4-t4": 11,
    "gb200-nvl72": 108,
    "local-pair": 3,
    "measured-pairs": 14,
    "mixed-racks": 48,
    "multi-vendor": 26,
    "splitwise-pools": 66,
    "spot-mixed-1024": 1044,
    "ten-thousand": 10_000,
    "two-datacenters": 28,
    "workstation": 3,
}
"""Cluster -> devices after counts are unrolled."""

PLANNED_ON = {
    "agent": "mixed-racks",
    "capital": "local-pair",
    "chat": "dgx-h100",
    "cpu-assistant": "cpu-only",
    "debate": "mixed-racks",
    "deepseek-tp8": "gb200-nvl72",
    "edge-assistant": "edge-l4-t4",
    "four-bit-70b": "workstation",
    "kv-streaming": "splitwise-pools",
    "long-context": "splitwise-pools",
    "offline-labels": "spot-mixed-1024",
    "rag": "two-datacenters",
    "research-agent": "spot-mixed-1024",
    "summaries": "multi-vendor",
    "vendor-fallback": "multi-vendor",
}
"""Request -> a cluster that it belongs on."""

REPLANNED_ON = {"afternoon": ("mixed-racks", "afternoon")}
"""Snapshot -> the cluster it is of, and a policy for it."""

WORTH = {"afternoon": (4.0, 4.0, 9.19)}
"""Snapshot -> utility of every priority, at least; the last only where an instance is cleared for one of the labels."""

LARGEST_GAP = 0.02
"""What a plan may leave open after ten seconds; on an idle machine all of them are proven optimal."""

OPTIMA = {
    "agent-9x16-tight": 2_433_245_439,
    "chain-10x16-tight": 7_897_178_881,
    "diamond-deadline": 5_900_004_000,
    "fanout-10x14-part_full": 12_282_475_746,
    "gang-or-not": 1_202_168_667,
    "layered-8x16-slack": 3_032_191_395,
    "measured-triangle": 2_010_010_000,
    "partition": 5_000_000_000,
    "three-replicas-two-hosts": None,
}
"""Problem -> optimum in nanoseconds, ``None`` where it is infeasible; the README beside them has it in seconds."""


def planned(request: str) -> Plan:
    cluster = load_cluster(data_dir("instances") / "clusters" / f"{PLANNED_ON[request]}.yaml")
    plan = Planner(cluster).plan(
        load_request(data_dir("instances") / "requests" / f"{request}.yaml"), deadline_ms=10_000, explained=False
    )
    assert isinstance(plan, Plan), plan.note
    return plan


def name(path: Path) -> str:
    return path.stem


def test_every_cluster_is_listed_here() -> None:
    assert {path.stem for path in CLUSTERS} == set(SIZES)


@pytest.mark.parametrize("path", CLUSTERS, ids=name)
def test_cluster_expands_into_devices_and_sites(path: Path) -> None:
    cluster = load_cluster(path)
    devices = expand(cluster)
    assert cluster.name == path.stem
    assert len(devices) == SIZES[path.stem]
    sites = build_sites(cluster, devices, gang_sizes(cluster, devices))
    assert len(devices) <= sites.topology.S


@pytest.mark.parametrize("path", REQUESTS, ids=name)
def test_request_is_called_as_its_file(path: Path) -> None:
    assert load_request(path).id == path.stem


@pytest.mark.parametrize("path", DOCUMENTS, ids=name)
def test_what_is_written_back_loads_equal(path: Path, tmp_path: Path) -> None:
    key, spec = load_document(path)
    copy = tmp_path / path.name
    copy.write_text(dump(key, spec), encoding="utf-8")
    assert load_document(copy) == (key, spec)


@pytest.mark.parametrize("path", DOCUMENTS, ids=name)
def test_file_says_first_who_has_such_a_thing(path: Path) -> None:
    assert path.read_text(encoding="utf-8").startswith("# ")


def test_a_spread_fills_hosts_racks_and_regions() -> None:
    devices = expand(load_cluster(data_dir("instances") / "clusters" / "ten-thousand.yaml"))
    h100 = [device for device in devices if device.kind.model == "H100"]
    assert len(h100) == 4096
    assert [len({device.path[level] for device in h100}) for level in (1, 2, 3)] == [512, 128, 3]


def test_every_snapshot_and_policy_is_listed_here() -> None:
    assert {path.stem for path in SNAPSHOTS} == set(REPLANNED_ON)
    assert {path.stem for path in POLICIES} == {policy for _, policy in REPLANNED_ON.values()}


@pytest.mark.parametrize("path", SNAPSHOTS, ids=name)
def test_snapshot_shows_what_replanning_is_for(path: Path) -> None:
    """Most of its queue starts, something waits for a place or its turn, something is refused with the reason."""
    cluster, policy = (
        data_dir("instances") / folder / f"{file}.yaml"
        for folder, file in zip(("clusters", "policies"), REPLANNED_ON[path.stem], strict=True)
    )
    snapshot = load_snapshot(path)
    assert snapshot.name == path.stem
    plan = Planner(load_cluster(cluster)).replan(snapshot, load_policy(policy))
    found = [decision.status for decision in plan.queue]
    assert found.count("placed") > len(found) / 2
    assert any(d.status == "held" or (d.start is not None and d.start > 1) for d in plan.queue)
    assert all(d.reason is not None for d in plan.queue if d.status == "refused")
    assert "refused" in found
    assert plan.warnings == ()
    assert all(level.objective >= least for level, least in zip(plan.levels, WORTH[path.stem], strict=True)), (
        plan.levels
    )


def test_every_request_is_listed_here() -> None:
    assert {path.stem for path in REQUESTS} == set(PLANNED_ON)


@pytest.mark.slow
@pytest.mark.parametrize("request_id", PLANNED_ON)
def test_request_is_planned_where_it_belongs(request_id: str) -> None:
    plan = planned(request_id)
    assert plan.gap is not None
    assert plan.gap <= LARGEST_GAP


@pytest.mark.slow
def test_the_agent_decodes_on_another_gang_than_it_prefills() -> None:
    site = {stage.id: stage.site for stage in planned("agent").stages}
    assert site["prefill"].startswith("h100-")
    assert site["decode"].startswith("a100-a-")
    assert site["re_prefill-1"] == site["decode"] == site["decode-1"]


@pytest.mark.slow
def test_the_cache_goes_from_prompt_to_token_machines_where_money_counts() -> None:
    site = {stage.id: stage.site for stage in planned("kv-streaming").stages}
    assert site["prefill"].startswith("prompt-")
    assert site["decode"].startswith("token-")


@pytest.mark.slow
def test_a_full_vendor_falls_back_to_another_in_the_same_precision() -> None:
    plan = planned("vendor-fallback")
    assert plan.tier == "cross_vendor_same_precision"
    assert {stage.variant for stage in plan.stages if stage.id in ("prefill", "decode")} == {"Llama-2-70B/int8/CANN"}


@pytest.mark.slow
@pytest.mark.parametrize("problem", OPTIMA)
def test_problem_has_its_optimum(problem: str) -> None:
    path = data_dir("instances") / "problems" / f"{problem}.json"
    result = solve(to_problem(read_instance(path)), params=Params(time_limit=30))
    assert result.status is (Status.INFEASIBLE if OPTIMA[problem] is None else Status.OPTIMAL)
    assert result.objective == OPTIMA[problem]


def test_the_readme_of_the_problems_lists_them_all() -> None:
    folder = data_dir("instances") / "problems"
    rows = re.findall(r"^\| `([^`]+)` \|.*\| ([^|]+) \|$", (folder / "README.md").read_text(encoding="utf-8"), re.M)
    listed = {name: None if optimum == "none" else round(float(optimum) * 1e9) for name, optimum in rows}
    assert listed == OPTIMA
    assert {path.stem for path in folder.glob("*.json")} == set(OPTIMA)


def test_the_readme_of_the_problems_explains_every_extension() -> None:
    text = (data_dir("instances") / "problems" / "README.md").read_text(encoding="utf-8")
    assert tuple(re.findall(r"^\| \*\*(\w+)\*\* \|", text, re.M)) == EXTENSIONS
