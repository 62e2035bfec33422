"""The cards are complete, agree with one another, and are found by every name they have."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any, get_args

import pytest

from iegopt import library
from iegopt.errors import InputError
from iegopt.spec.cluster import LEVELS
from iegopt.spec.stage import Precision
from iegopt.spec.variant import Backend

KINDS: tuple[library.Kind, ...] = get_args(library.Kind)
CARDS = [(kind, name) for kind in KINDS for name in library.names(kind)]
LOOKUP: dict[str, Any] = {
    "llm": library.llm, "device": library.device, "link": library.link, "path": library.path,
    "profile": lambda name: next(p for p in library.profiles() if p.name == name),
}  # fmt: skip


@pytest.fixture(params=CARDS, ids=lambda card: "/".join(card))
def card(request: pytest.FixtureRequest) -> Any:
    kind, name = request.param
    return kind, name, LOOKUP[kind](name)


def test_every_file_is_a_card_of_its_own_name(card: Any) -> None:
    kind, name, spec = card
    assert (spec.model if kind == "path" else spec.name) == name


def test_every_figure_has_a_source_that_is_not_an_address(card: Any) -> None:
    _, _, spec = card
    assert all(text.strip() for text in spec.sources.values())
    assert not any(word in text.lower() for text in spec.sources.values() for word in ("http", "www.", "todo"))


@pytest.mark.parametrize("kind", ["llm", "device"])
def test_names_and_aliases_are_unique_and_found_in_any_case(kind: str) -> None:
    seen: dict[str, str] = {}
    for spec in library.all_cards(kind):  # type: ignore[arg-type]
        for word in (spec.name, *spec.aliases):
            assert word.lower() not in seen, f"{word}: {spec.name} and {seen[word.lower()]}"
            seen[word.lower()] = spec.name
            assert LOOKUP[kind](word.upper()) is spec


def test_no_folder_holds_anything_but_cards() -> None:
    folders = {"llm": "llm", "device": "devices", "link": "links", "path": "paths", "profile": "profiles"}
    for kind in KINDS:
        files = sorted((library.data_dir("models") / folders[kind]).iterdir())
        assert [file.suffix for file in files] == [".yaml"] * len(library.names(kind))


def test_every_model_has_paths_and_every_path_a_model() -> None:
    assert library.names("path") == library.names("llm")


@pytest.mark.parametrize("name", library.names("path"))
def test_every_device_of_a_path_is_known_and_has_the_precision(name: str) -> None:
    path = library.path(name)
    assert path is not None
    for variant in path.variants:
        for listed in variant.compatible_devices:
            covered = [d for d in library.all_cards("device") if library.compatible((listed,), d.name)]
            assert covered, f"{listed} is no device"
            for device in covered:
                assert device.compute.rate(variant.precision), f"{device.name} in {variant.precision}"


VENDORS = {
    Backend.CUDA: {"NVIDIA"}, Backend.TENSORRT: {"NVIDIA"}, Backend.ROCM: {"AMD"}, Backend.CANN: {"Huawei"},
    Backend.CPU: {"AMD", "Intel", "generic"}, Backend.ONNX: {"AMD", "Intel", "generic"},
}  # fmt: skip


@pytest.mark.parametrize("name", library.names("path"))
def test_a_backend_runs_on_its_vendors_devices(name: str) -> None:
    path = library.path(name)
    assert path is not None
    for variant in path.variants:
        for device in library.all_cards("device"):
            if library.compatible(variant.compatible_devices, device.name):
                assert device.vendor in VENDORS[variant.backend]
                assert (device.type == "CPU") == (variant.backend in {Backend.CPU, Backend.ONNX})


@pytest.mark.parametrize(
    ("name", "parameters"),
    [
        ("Llama-2-7B", 6_738_415_616),
        ("Llama-2-70B", 68_976_648_192),
        ("Llama-3.1-8B", 8_030_261_248),
        ("Qwen2.5-0.5B", 494_032_768),
        ("Qwen3-30B-A3B", 30_532_122_624),
        ("Mixtral-8x7B", 46_702_792_704),
        ("SmolLM2-135M", 134_515_008),
    ],
)
def test_parameter_counts_are_those_of_the_published_checkpoints(name: str, parameters: int) -> None:
    assert library.llm(name).parameters == parameters


@pytest.mark.parametrize(
    ("name", "active"),
    [("Mixtral-8x7B", 12.9e9), ("Qwen3-235B-A22B", 22e9), ("DeepSeek-V3", 37e9), ("Llama-4-Maverick", 17e9)],
)
def test_active_parameters_are_about_what_is_published(name: str, active: float) -> None:
    assert library.llm(name).active == pytest.approx(active, rel=0.02)


def test_kv_of_4096_tokens_of_llama_2_70b() -> None:
    card = library.llm("Llama-2-70B")
    assert 4096 * card.kv_bytes_per_token(Precision.FP16) == 2 * 80 * 8 * 128 * 2 * 4096 == 1_342_177_280


def test_kv_of_multi_head_latent_attention() -> None:
    assert library.llm("DeepSeek-V3").kv_bytes_per_token(Precision.FP16) == 61 * 576 * 2
    assert library.llm("bge-m3").kv_bytes_per_token() == 0


def test_devices_state_dense_rates() -> None:
    h100, a100 = library.device("H100"), library.device("A100-80GB")
    assert h100.compute.rate(Precision.BF16) == 989e12
    assert h100.compute.rate(Precision.FP8) == 1979e12
    assert a100.compute.fp8_flops is None
    assert a100.compute.rate(Precision.FP8) == a100.compute.rate(Precision.FP16) == 312e12
    assert library.device("T4").compute.rate(Precision.BF16) is None


def test_series_tell_a_training_device_from_an_inference_device() -> None:
    assert library.device("A100-40GB").series == library.device("H100").series != library.device("L40S").series


@pytest.mark.parametrize(
    ("listed", "model", "covered"),
    [
        ("A100", "A100-80GB", True),
        ("a100", "A100-SXM4-40GB", True),
        ("A100", "A100-80GB-custom", True),
        ("A100", "A1000", False),
        ("A100", "A100", True),
        ("A100-80GB", "A100-40GB", False),
        ("A100-80GB", "A100-SXM", True),
        ("H100-SXM", "H100", True),
        ("H100-SXM", "H100-PCIe", False),
        ("H100", "H100-PCIe", True),
        ("B200", "GB200", False),
        ("L4", "L40S", False),
        ("cpu", "cpu-generic", True),
        ("Own-Chip", "own-chip", True),
    ],
)
def test_a_variant_covers_names_aliases_and_families(listed: str, model: str, covered: bool) -> None:
    assert library.compatible((listed,), model) is covered
    assert library.compatible(("T4", listed), model) is covered
    assert not library.compatible((), model)


@pytest.mark.parametrize(
    ("look", "name", "message"),
    [
        (library.llm, "Lama-2-70B", "unknown model Lama-2-70B. Maybe Llama-2-70B?"),
        (library.device, "A100", "unknown device model A100. Maybe A100-40GB or A100-80GB?"),
        (library.device, "MI300", "unknown device model MI300. Maybe MI300X?"),
        (library.link, "nvlink", "unknown link nvlink. Maybe NVLink"),
        (library.link, "?", "unknown link ?. Expected one of the 15 cards of models/links"),
    ],
)
def test_an_unknown_name_is_refused_with_a_guess(look: Any, name: str, message: str) -> None:
    with pytest.raises(InputError) as caught:
        look(name)
    assert str(caught.value).startswith(message)


def test_a_device_of_a_clusters_own_has_no_card() -> None:
    assert library.find_device("a100-sxm") is library.device("A100-80GB")
    assert library.find_device("my-own-chip") is None


def test_paths_are_found_by_alias_and_absent_for_a_foreign_model() -> None:
    path = library.path("meta-llama/Llama-2-70b-hf")
    assert path is not None
    assert path.model == "Llama-2-70B"
    assert [(v.precision, v.backend) for v in path.variants][:3] == [
        ("fp16", "TensorRT"), ("bf16", "CUDA"), ("int8", "CANN"),
    ]  # fmt: skip
    assert library.path("my-own-model") is None


def test_every_level_has_a_default_link_and_wider_levels_are_slower() -> None:
    assert tuple(library.DEFAULT_LINKS) == LEVELS
    links = [library.link(name) for name in library.DEFAULT_LINKS.values()]
    assert [link.level for link in links] == list(LEVELS)
    assert [link.bandwidth for link in links] == sorted((link.bandwidth for link in links), reverse=True)
    assert [link.latency for link in links] == sorted(link.latency for link in links)


def test_data_is_found_inside_an_installed_package_first(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "iegopt" / "_data" / "models").mkdir(parents=True)
    (tmp_path / "instances").mkdir()
    monkeypatch.setattr(library, "__file__", str(tmp_path / "iegopt" / "library.py"))
    assert library.data_dir("models") == tmp_path / "iegopt" / "_data" / "models"
    assert library.data_dir("instances") == tmp_path / "instances"


def test_own_cards_come_from_folders_of_the_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A model of one's own is planned like any other; a folder that is not there is named."""
    (tmp_path / "llm").mkdir()
    card = (library.data_dir("models") / "llm" / "Llama-2-7B.yaml").read_text(encoding="utf-8")
    own = re.sub(r"^  aliases: .*$", "  aliases: [house]", card.replace("Llama-2-7B", "House-7B"), flags=re.MULTILINE)
    (tmp_path / "llm" / "House-7B.yaml").write_text(own, encoding="utf-8")
    script = "from iegopt import library; print(library.llm('house').name, library.llm('Llama-2-7B').name)"

    def run(folder: Path) -> subprocess.CompletedProcess[str]:
        environment = {**os.environ, library.EXTRA_FOLDERS: str(folder)}
        return subprocess.run(
            [sys.executable, "-c", script], capture_output=True, text=True, env=environment, check=False
        )

    assert run(tmp_path).stdout == "House-7B Llama-2-7B\n"
    assert "no such folder" in run(tmp_path / "nowhere").stderr
