"""Names that nothing would look up, or that two things bear, are refused with the place and a guess."""

from __future__ import annotations

from typing import Any

import pytest

from iegopt.devices import expand
from iegopt.errors import InputError
from iegopt.planner import Planner
from iegopt.spec.cluster import ClusterSpec
from iegopt.spec.request import RequestSpec


def _registry(model: str = "Llama-3.1-8B", devices: tuple[str, ...] = ("A100",)) -> dict[str, Any]:
    return {
        "model": model,
        "variants": [{"precision": "bf16", "backend": "CUDA", "compatible_devices": list(devices), "version": "2"}],
    }


def _cluster(fields: dict[str, Any] | None = None, **device: Any) -> ClusterSpec:
    gpu = {"id": "g", "model": "A100-80GB", "location": {"host": "h"}, **device}
    return ClusterSpec.model_validate({"devices": [gpu, {"id": "cpu", "model": "cpu-generic-32c"}], **(fields or {})})


def _override(group: str) -> dict[str, Any]:
    return {"level": "rack", "group": group, "latency": 1e-6, "bandwidth": 1e9}


WRONG: list[tuple[dict[str, Any], dict[str, Any], str]] = [
    (
        {"resident": ["Llama-3.1-8BB"]},
        {},
        "cluster.devices.0.resident: unknown model Llama-3.1-8BB. Maybe Llama-3.1-8B?",
    ),
    (
        {"resident": ["Llama-3.1-8B/fp16/TensorTR"]},
        {},
        "cluster.devices.0.resident: Llama-3.1-8B has no variant fp16/TensorTR. Maybe Llama-3.1-8B/fp16/TensorRT?",
    ),
    (
        {"resident": ["Llama-3.1-8B/bf16/CUDA"]},
        {"execution_path_registry": [_registry()]},
        "cluster.devices.0.resident: Llama-3.1-8B has no variant bf16/CUDA. Maybe Llama-3.1-8B/bf16/CUDA/2?",
    ),
    ({}, {"prices": {"A100-81GB": 2.0}}, "cluster.prices: no device model is called A100-81GB. Maybe A100-80GB?"),
    ({}, {"prices": {"H100": 2.0, "H100-SXM": 3.0}}, "cluster.prices: H100-SXM has its price twice"),
    (
        {},
        {"execution_path_registry": [_registry("Llama-31-8B")]},
        "cluster.execution_path_registry.0.model: unknown model Llama-31-8B. Maybe Llama-3.1-8B?",
    ),
    (
        {},
        {"execution_path_registry": [_registry(), _registry("llama-3.1-8b")]},
        "cluster.execution_path_registry.1.model: Llama-3.1-8B stands twice: put its variants into one entry",
    ),
    (
        {},
        {"execution_path_registry": [_registry(devices=("A100", "H1000"))]},
        "cluster.execution_path_registry.0.variants.0.compatible_devices: no device model is called H1000. Maybe H100?",
    ),
    (
        {},
        {"link_overrides": [_override("rack0"), _override("dc0/rack0")]},
        "cluster.link_overrides.1.group: dc0/rack0 is overridden a second time",
    ),
]


@pytest.mark.parametrize(("device", "fields", "message"), WRONG)
def test_a_name_that_means_nothing_is_refused(device: dict[str, Any], fields: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError) as refusal:
        Planner(_cluster(fields, **device))
    assert str(refusal.value) == message


@pytest.mark.parametrize(
    ("device", "fields"),
    [
        ({"resident": ["llama-3.1-8b", "meta-llama/Llama-3.1-70B", "Qwen2.5-7B/bf16/cuda"]}, {}),
        ({"resident": ["Llama-3.1-8B/bf16/CUDA/2"]}, {"execution_path_registry": [_registry()]}),
        ({"model": "MyChip", "type": "GPU", "vendor": "us", "price": 1.0, "memory": {"vram": 1e11, "bandwidth": 1e12},
          "io": {"bandwidth": 1e9}}, {"execution_path_registry": [_registry(devices=("MyChip",))]}),
        ({}, {"prices": {"H100": 2.0}}),
    ],
)  # fmt: skip
def test_names_by_alias_case_and_own_models_are_known(device: dict[str, Any], fields: dict[str, Any]) -> None:
    Planner(_cluster(fields, **device))


@pytest.mark.parametrize("name", ["H100", "h100", "H100-SXM"])
def test_a_price_holds_for_every_spelling_of_its_model(name: str) -> None:
    cluster = _cluster({"prices": {name: 7.5}}, model="H100-80GB")
    assert expand(cluster)[0].price == 7.5


def test_a_device_called_like_a_gang_is_refused() -> None:
    devices = [{"id": name, "model": "A100-80GB", "location": {"host": "h"}} for name in ("a", "b", "a+b")]
    request = RequestSpec(model="Llama-3.1-8B", prompt_tokens=10, output_tokens=1)
    with pytest.raises(InputError, match=r"cluster\.devices: a\+b is the name of two sites"):
        Planner(ClusterSpec.model_validate({"devices": devices})).plan(request)


def test_a_stage_called_like_a_kv_location_is_refused() -> None:
    decode = {"id": "d", "type": "decode", "model": "Llama-3.1-8B", "tokens": {"context": 100, "output": 2}}
    graph = {"stages": [{"id": "kv:d", "type": "output"}, {**decode, "affinity": {"kv_cache_location": "g"}}]}
    with pytest.raises(InputError, match="stage kv:d: the name stands for the KV location of d"):
        Planner(_cluster()).plan(RequestSpec.model_validate({"graph": graph}))
