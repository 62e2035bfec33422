"""Clusters and requests small enough to check by hand or to plan many times, complete in themselves."""

from __future__ import annotations

import random
from itertools import pairwise
from typing import Any

from iegopt.planner import Planner
from iegopt.plans import Plan
from iegopt.spec.cluster import ClusterSpec
from iegopt.spec.explain_error import validate
from iegopt.spec.request import RequestSpec

LINKS = {
    "domain": {"latency": "2us", "bandwidth": "300GB/s"},
    "host": {"latency": "10us", "bandwidth": "32GB/s"},
    "rack": {"latency": "20us", "bandwidth": "100Gbps"},
    "datacenter": {"latency": "100us", "bandwidth": "50Gbps"},
    "wan": {"latency": "5ms", "bandwidth": "10Gbps"},
}


def gpu(name: str, flops: str = "400T", vram: str = "40GB", price: float = 3.6, **fields: Any) -> dict[str, Any]:
    return {
        "id": name, "model": f"lab-{flops}", "type": "GPU", "vendor": "lab",
        "compute": {"fp16_flops": flops, "precision_support": ["fp16"]},
        "memory": {"vram": vram, "bandwidth": "2TB/s"}, "io": {"bandwidth": "5GB/s"},
        "interconnect": {"type": "NVLink", "bandwidth": "300GB/s"}, "price": price, **fields,
    }  # fmt: skip


def cpu(name: str, **fields: Any) -> dict[str, Any]:
    return {
        "id": name, "model": "lab-cpu", "type": "CPU", "vendor": "lab",
        "compute": {"fp32_flops": "2T", "fp16_flops": "2T", "precision_support": ["fp32", "fp16"]},
        "memory": {"vram": "256GB", "bandwidth": "200GB/s"}, "io": {"bandwidth": "5GB/s"}, "price": 0.36, **fields,
    }  # fmt: skip


def at(rack: str, host: str) -> dict[str, Any]:
    return {"location": {"rack": rack, "host": host}}


def cluster_of(*devices: dict[str, Any], **fields: Any) -> ClusterSpec:
    spec: ClusterSpec = validate(
        ClusterSpec, {"name": "lab", "devices": list(devices), "links": LINKS, **fields}, "cluster.yaml"
    )
    return spec


def stage(name: str, kind: str, vram: str = "25GB", flops: str = "100T", **fields: Any) -> dict[str, Any]:
    if kind == "tool":
        return {"id": name, "type": kind, "compute": {"flops": "1G", "precision": "fp32"},
                "memory": {"vram": "1GB", "traffic": "1GB"}, "fixed_time": "200ms", **fields}  # fmt: skip
    return {
        "id": name, "type": kind, "compute": {"flops": flops, "precision": "fp16"},
        "memory": {"vram": vram, "traffic": "20GB"}, "parallelism": {"degree": 1}, **fields,
    }  # fmt: skip


def chain(*stages: dict[str, Any], size: str = "1GB", **fields: Any) -> RequestSpec:
    edges = [{"from": a["id"], "to": b["id"], "bytes": size, "kv": True} for a, b in pairwise(stages)]
    graph = {"stages": list(stages), "edges": edges}
    spec: RequestSpec = validate(RequestSpec, {"id": "chain", "graph": graph, **fields}, "request.yaml")
    return spec


def planned(cluster: ClusterSpec, request: RequestSpec) -> Plan:
    answer = Planner(cluster).plan(request, explained=False)
    assert isinstance(answer, Plan), answer
    assert answer.status == "optimal"
    return answer


def random_cluster(seed: int) -> ClusterSpec:
    """Two racks of GPUs of three speeds and prices, loaded at random, with a CPU host each."""
    rng = random.Random(seed)
    devices = []
    for rack in ("a", "b"):
        for host in range(2):
            kind = rng.choice([("400T", 3.6), ("200T", 1.2), ("100T", 0.5)])
            busy = {"utilization": {"compute": rng.choice([0.0, 0.3, 0.6])}}
            devices.append(gpu(f"{rack}{host}", kind[0], price=kind[1], count=2, **at(rack, f"{rack}{host}"), **busy))
        devices.append(cpu(f"cpu-{rack}", location={"rack": rack}, utilization={"compute": rng.choice([0.0, 0.5])}))
    return cluster_of(*devices)


def random_request(seed: int) -> RequestSpec:
    rng = random.Random(seed)
    work = [f"{rng.randint(20, 300)}T" for _ in range(3)]
    return chain(
        stage("prefill", "prefill", flops=work[0]), stage("decode", "decode", flops=work[1]), stage("search", "tool"),
        stage("answer", "decode", flops=work[2]), size=f"{rng.choice([10, 200, 2000])}MB",
        sla_class=rng.choice(["realtime", "batch", "agent", "offline"]),
    )  # fmt: skip
