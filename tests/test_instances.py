"""What instances/ ships: every cluster expands, every request loads, and each is planned where it belongs."""

from __future__ import annotations

from pathlib import Path

import pytest

from iegopt.devices import expand
from iegopt.library import data_dir
from iegopt.problem.sites import build_sites, gang_sizes
from iegopt.spec.load import dump, load_cluster, load_document, load_request

CLUSTERS = sorted((data_dir("instances") / "clusters").glob("*.yaml"))
REQUESTS = sorted((data_dir("instances") / "requests").glob("*.yaml"))

SIZES = {
    "cpu-only": 6,
    "dgx-h100": 9,
    "edge-l4-t4": 11,
    "gb200-nvl72": 108,
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


@pytest.mark.parametrize("path", [*CLUSTERS, *REQUESTS], ids=name)
def test_what_is_written_back_loads_equal(path: Path, tmp_path: Path) -> None:
    key, spec = load_document(path)
    copy = tmp_path / path.name
    copy.write_text(dump(key, spec), encoding="utf-8")
    assert load_document(copy) == (key, spec)


@pytest.mark.parametrize("path", [*CLUSTERS, *REQUESTS], ids=name)
def test_file_says_first_who_has_such_a_thing(path: Path) -> None:
    assert path.read_text(encoding="utf-8").startswith("# ")


def test_a_spread_fills_hosts_racks_and_regions() -> None:
    devices = expand(load_cluster(data_dir("instances") / "clusters" / "ten-thousand.yaml"))
    h100 = [device for device in devices if device.kind.model == "H100"]
    assert len(h100) == 4096
    assert [len({device.path[level] for device in h100}) for level in (1, 2, 3)] == [512, 128, 3]
