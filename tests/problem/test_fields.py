"""Nothing is silently ignored: every field of the documents that planning reads changes the answer.

One request on one small cluster is the base; each case changes one field, and the answer (the plan, the
conflict, or the error) must differ from the base's.
"""

from __future__ import annotations

import copy
from typing import Any

import pytest

from iegopt.errors import InputError
from iegopt.planner import Planner
from iegopt.spec.cluster import ClusterSpec
from iegopt.spec.explain_error import validate
from iegopt.spec.request import RequestSpec

GPU = "gpu-node-03"


def _cluster() -> dict[str, Any]:
    """The source's A100 as it stands in its document, its like, and hosts."""
    return {
        "name": "fields",
        "devices": [
            {
                "id": GPU,
                "type": "GPU",
                "vendor": "NVIDIA",
                "model": "A100-80GB",
                "compute": {"fp16_flops": "312T", "int8_flops": "624T", "precision_support": ["fp16", "bf16", "int8"]},
                "memory": {"vram": "80GB", "bandwidth": "2TB/s"},
                "interconnect": {"type": "NVLink", "bandwidth": "600GB/s"},
                "utilization": {"compute": "45%", "memory": "20%"},
                "location": {"host": "h0"},
            },
            {"id": "gpu-peer", "model": "A100-80GB", "location": {"host": "h0"}, "count": 7,
             "utilization": {"compute": "90%", "memory": "20%"}},
            {"id": "l40s", "model": "L40S", "location": {"host": "h1", "rack": "r1"}, "count": 2,
             "utilization": {"compute": "95%"}},
            {"id": "ascend", "model": "Ascend910B", "location": {"host": "h2", "rack": "r1"}, "count": 8,
             "utilization": {"compute": "95%"}},
            {"id": "cpu", "model": "cpu-generic-32c", "count": 2},
        ],
    }  # fmt: skip


def _request() -> dict[str, Any]:
    """The source's prefill node, bound to its KV cache, and a decode after it."""
    return {
        "id": "fields",
        "sla_class": "realtime",
        "graph": {
            "stages": [
                {
                    "id": "prefill-001",
                    "type": "prefill",
                    "compute": {"flops": "120T", "precision": "fp16"},
                    "memory": {"vram": "40GB", "kv_cache_size": "8GB"},
                    "latency_sla": "900ms",
                    "parallelism": {"strategy": "tensor_parallel", "degree": 1},
                    "affinity": {"kv_cache_location": "gpu-peer-0"},
                },
                {"id": "decode-001", "type": "decode", "compute": {"flops": "1T", "precision": "fp16"},
                 "memory": {"vram": "10GB", "traffic": "4TB"}},
            ],
            "edges": [{"from": "prefill-001", "to": "decode-001", "bytes": "8GB", "kv": True}],
        },
    }  # fmt: skip


def _idle_cluster() -> dict[str, Any]:
    """The same with A100s that have room for Llama-2-70B."""
    return _set(_set(_cluster(), "devices/1/utilization", {"compute": "10%"}), "devices/0/utilization", {})


def _llm_request() -> dict[str, Any]:
    return {"id": "llm", "model": "Llama-2-70B", "prompt_tokens": 3000, "output_tokens": 200, "precision": "fp16"}


def _agent_request() -> dict[str, Any]:
    tools = [{"name": "search", "latency": "100ms", "flops": "1G", "memory": "1GB", "io": "1MB", "result_tokens": 64}]
    retrieval = {"embedding_model": "bge-m3", "io": "50MB", "memory": "2GB", "result_tokens": 64}
    agent = {"tools": tools, "retrieval": retrieval, "max_rounds": 2, "lookahead": 1}
    return {**_llm_request(), "sla_class": "agent", "agent": agent}


def _answer(request: dict[str, Any], cluster: dict[str, Any]) -> Any:
    """What a user sees: the plan without its times of day, or the one line of the error."""
    try:
        planner = Planner(validate(ClusterSpec, cluster, "cluster.yaml"))
        document = planner.plan(validate(RequestSpec, request, "request.yaml")).document()
    except InputError as error:
        return str(error)
    for volatile in ("seconds", "note", "solver", "proof", "bound", "gap"):
        document.pop(volatile, None)
    return document


def _set(document: dict[str, Any], path: str, value: Any) -> dict[str, Any]:
    """A copy with one field changed; ``None`` removes it."""
    changed = copy.deepcopy(document)
    *parents, last = path.split("/")
    at: Any = changed
    for key in parents:
        at = at[int(key)] if isinstance(at, list) else at.setdefault(key, {})
    if value is None:
        at.pop(last)
    else:
        at[last] = value
    return changed


@pytest.fixture(scope="module")
def base() -> Any:
    return _answer(_request(), _cluster())


def test_the_base_has_a_plan(base: Any) -> None:
    assert base["status"] == "optimal"
    assert base["placement"]["prefill-001"]["site"] == GPU


NODE = {
    "id": "prefill-9",
    "type": "tool",
    "compute/flops": "300T",
    "compute/precision": "int8",
    "memory/vram": "70GB",
    "memory/kv_cache_size": "16GB",
    "memory/traffic": "9TB",
    "io": {"bytes": "1TB"},
    "fixed_time": "10ms",
    "latency_sla": "1ms",
    "parallelism/degree": 4,
    "affinity/kv_cache_location": GPU,
    "affinity/device": "gpu-peer-0",
    "device_types": ["CPU"],
    "model": "Llama-2-70B",
}


@pytest.mark.parametrize("field", NODE)
def test_every_field_of_a_node_changes_the_answer(base: Any, field: str) -> None:
    assert _answer(_set(_request(), f"graph/stages/0/{field}", NODE[field]), _cluster()) != base


@pytest.mark.parametrize("strategy", ["pipeline_parallel", "data_parallel"])
def test_the_strategy_of_a_gang_changes_the_answer(strategy: str) -> None:
    four = _set(_request(), "graph/stages/0/parallelism/degree", 4)
    other = _set(four, "graph/stages/0/parallelism/strategy", strategy)
    assert _answer(other, _cluster()) != _answer(four, _cluster())
    half = _set(four, "graph/stages/0/parallelism/efficiency", "50%")
    assert _answer(half, _cluster()) != _answer(four, _cluster())


DEVICE = {
    "id": "gpu-node-04",
    "type": "RETRIEVAL",
    "model": "L40S",
    "compute/fp16_flops": "100T",
    "compute/precision_support": ["bf16"],
    "memory/vram": "40GB",
    "memory/bandwidth": "1TB/s",
    "memory/reserve": "30GB",
    "interconnect/type": "PCIe",
    "interconnect/bandwidth": "10GB/s",
    "utilization/compute": "80%",
    "utilization/memory": "70%",
    "queue": {"depth": 3, "wait": 2.0},
    "price": "99$/h",
    "location/rack": "r7",
    "location/host": "h7",
    "location/datacenter": "dc7",
    "location/domain": "d7",
    "efficiency": "10%",
    "count": 2,
}


@pytest.mark.parametrize("field", DEVICE)
def test_every_field_of_a_device_changes_the_answer(base: Any, field: str) -> None:
    assert _answer(_request(), _set(_cluster(), f"devices/0/{field}", DEVICE[field])) != base


def test_vendor_and_series_decide_the_fallback_step() -> None:
    """An A100 of another vendor, or of another series, is reached by another step from a preferred H100."""
    preferred = {**_llm_request(), "prefer": {"device": "H100"}, "fallback_policy": {"max_latency_increase": "900%"}}
    tiers = [
        _answer(preferred, _set(_set(_idle_cluster(), "devices/0/" + field, value), "devices/1/" + field, value))[
            "tier"
        ]
        for field, value in (("price", "2$/h"), ("vendor", "House"), ("series", "house"))
    ]
    assert tiers == ["same_vendor_same_series", "cross_vendor_same_precision", "same_vendor_different_series"]


def test_int8_rate_decides_an_int8_stage() -> None:
    request = _set(_request(), "graph/stages/0/compute/precision", "int8")
    slower = _set(_cluster(), "devices/0/compute/int8_flops", "100T")
    assert _answer(request, slower) != _answer(request, _cluster())


CLUSTER = {
    "name": "other",
    "links": {"domain": {"latency": "1ms", "bandwidth": "100GB/s"}},
    "link_overrides": [{"level": "domain", "group": "h0/NVLink", "latency": "1ms", "bandwidth": "100GB/s"}],
    "pairs": [{"devices": ["gpu-peer-0", GPU], "bandwidth": "9GB/s"}],
    "prices": {"A100-80GB": "30$/h"},
    "reference_price": "50$/h",
    "kv_transfer_config": {"compression": "int8"},
}


@pytest.mark.parametrize("field", CLUSTER)
def test_every_field_of_a_cluster_changes_the_answer(base: Any, field: str) -> None:
    assert _answer(_request(), _set(_cluster(), field, CLUSTER[field])) != base


def test_gangs_and_their_efficiency_change_the_answer() -> None:
    request = _set(_request(), "graph/stages/0/parallelism/degree", 2)
    plain = _answer(request, _cluster())
    assert _answer(request, _set(_cluster(), "parallel_efficiency", "50%")) != plain
    listed = _set(_cluster(), "gangs", [{"devices": ["l40s-0", "l40s-1"]}])
    assert _answer(request, listed) != plain
    assert _answer(request, _set(listed, "host_parallel_efficiency", "10%")) != _answer(request, listed)


KV = {
    "chunk_size": "64MB",
    "pipeline_depth": 200,
    "overlap_compute": False,
    "compression": "int8",
}


@pytest.mark.parametrize("field", KV)
def test_every_field_of_kv_transfer_config_changes_the_answer(field: str) -> None:
    config = {"chunk_size": "256MB", "pipeline_depth": 4, "overlap_compute": True, "compression": "none"}
    request = _set(_request(), "kv_transfer_config", config)
    far = _set(request, "graph/affinity", [{"stages": ["prefill-001", "decode-001"], "level": "site", "apart": True}])
    assert _answer(_set(far, f"kv_transfer_config/{field}", KV[field]), _cluster()) != _answer(far, _cluster())


LIMITS = {
    "max_depth": 2,
    "max_nodes": 3,
    "max_tool_calls": 0,
    "max_agent_rounds": 0,
    "max_token_budget": 100,
    "max_kv_cache_size": "1MB",
    "max_compute_time": "1ms",
    "termination_policy/timeout": "1ms",
    "termination_policy/budget_exhaustion": "truncate",
    "termination_policy/graceful_stop": False,
}


@pytest.mark.parametrize("field", LIMITS)
def test_every_dag_constraint_changes_the_answer(field: str) -> None:
    changed = _answer(_set(_agent_request(), f"dag_constraints/{field}", LIMITS[field]), _idle_cluster())
    assert changed != _answer(_agent_request(), _idle_cluster())


REQUEST = {
    "id": "other",
    "model": "Llama-2-7B",
    "precision": "bf16",
    "prompt_tokens": 100,
    "output_tokens": 20,
    "batch": 4,
    "parallelism": {"degree": 8},
    "agent": {"tools": [{"name": "search"}]},
    "sla_class": "offline",
    "sla": {"ttft": "1ms"},
    "sla/itl": "1ms",
    "sla/e2e": "1ms",
    "weights": {"alpha": 9},
    "weights/beta": 9,
    "weights/gamma": 9,
    "weights/lambda": 9,
    "objective": "critical_path",
    "prefer": {"device": "H100"},
    "dag_constraints": {"max_nodes": 1},
}


@pytest.mark.parametrize("field", REQUEST)
def test_every_field_of_a_request_changes_the_answer(field: str) -> None:
    changed = _answer(_set(_llm_request(), field, REQUEST[field]), _idle_cluster())
    assert changed != _answer(_llm_request(), _idle_cluster())


AGENT = {
    "tools/0/name": "other",
    "tools/0/latency": "900ms",
    "tools/0/flops": "900T",
    "tools/0/memory": "100GB",
    "tools/0/io": "9GB",
    "tools/0/result_tokens": 300,
    "retrieval/embedding_model": "bge-large-en-v1.5",
    "retrieval/rerank_model": "bge-reranker-v2-m3",
    "retrieval/io": "9GB",
    "retrieval/memory": "100GB",
    "retrieval/result_tokens": 300,
    "max_rounds": 0,
    "lookahead": 0,
}


@pytest.mark.parametrize("field", AGENT)
def test_every_field_of_an_agent_changes_the_answer(field: str) -> None:
    assert _answer(_set(_agent_request(), f"agent/{field}", AGENT[field]), _idle_cluster()) != _answer(
        _agent_request(), _cluster()
    )


def _registry(**changes: Any) -> list[dict[str, Any]]:
    variant = {"precision": "fp16", "backend": "TensorRT", "compatible_devices": ["A100"], "artifact_path": "/m/70b/"}
    return [{"model": "Llama-2-70B", "variants": [{**variant, **changes}]}]


REGISTRY = {
    "precision": "bf16",
    "backend": "CUDA",
    "compatible_devices": ["L40S"],
    "artifact_path": "/elsewhere/",
    "version": "2",
}


@pytest.mark.parametrize("field", REGISTRY)
def test_every_field_of_a_variant_changes_the_answer(field: str) -> None:
    base = _answer(_llm_request(), {**_idle_cluster(), "execution_path_registry": _registry()})
    changed = {**_idle_cluster(), "execution_path_registry": _registry(**{field: REGISTRY[field]})}
    assert base["status"] == "optimal"
    assert _answer(_llm_request(), changed) != base


def test_load_time_counts_where_a_variant_must_be_loaded() -> None:
    cluster = _set(_set(_idle_cluster(), "devices/0/resident", []), "devices/1/resident", [])
    cluster = _set(_set(cluster, "devices/0/loading", True), "devices/1/loading", True)
    quick = {**cluster, "execution_path_registry": _registry(load_time="1s")}
    slow = {**cluster, "execution_path_registry": _registry(load_time="2s")}
    assert _answer(_llm_request(), quick) != _answer(_llm_request(), slow)


@pytest.mark.parametrize("resident", [[], ["Llama-2-70B"], ["Llama-2-70B/fp16/TensorRT"], ["Llama-2-70B/bf16/CUDA"]])
def test_residency_changes_the_answer(resident: list[str]) -> None:
    changed = _set(_set(_idle_cluster(), "devices/1/resident", resident), "devices/0/resident", resident)
    assert _answer(_llm_request(), changed) != _answer(_llm_request(), _idle_cluster())


def test_affinity_rules_change_the_answer(base: Any) -> None:
    pair = ["prefill-001", "decode-001"]
    apart = {"stages": pair, "level": "rack", "apart": True}
    soft = {**apart, "required": False, "penalty": "500s"}
    rules = (apart, soft, {**soft, "penalty": "1ms"}, {**apart, "level": "site"})
    answers = [base, *(_answer(_set(_request(), "graph/affinity", [rule]), _cluster()) for rule in rules)]
    assert answers[0] != answers[1]
    assert answers[1]["placement"] == answers[2]["placement"]
    assert answers[3]["placement"] == base["placement"]
    assert answers[3]["penalties"] == pytest.approx(0.001)
    assert answers[4] != answers[1]
