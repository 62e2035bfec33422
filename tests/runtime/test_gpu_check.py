"""The check for GPUs, every part of it, in a tiny shape on the CPU."""

from __future__ import annotations

import datetime
import json
from pathlib import Path
from typing import Any

import pytest
import torch

from benchmarks import gpu_check
from iegopt import library
from iegopt.spec.llm import LlmCard
from iegopt.spec.load import load_document
from iegopt.spec.stage import Precision

pytestmark = pytest.mark.slow


def tiny_card() -> LlmCard:
    return library.llm("Llama-3.2-1B").model_copy(
        update={
            "parameters": 180_000, "layers": 2, "hidden_size": 64, "attention_heads": 4, "kv_heads": 2, "head_dim": 16,
            "vocabulary": 1000, "max_context": 2048,
        }
    )  # fmt: skip


def tiny_setup() -> gpu_check.Setup:
    card = tiny_card()
    return gpu_check.Setup(
        device="cpu", shape=gpu_check.shape_of(card), precision=Precision.BF16, llm=card, card=library.device("H200"),
        prompts=(8, 16, 24, 32), contexts=(8, 16, 24, 32), steps=3, block_tokens=16, kv_bytes=10**6, repeats=1,
    )  # fmt: skip


def test_every_part_runs_on_the_cpu(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    kept: dict[str, Any] = {}
    (tmp_path / "models/profiles").mkdir(parents=True)
    monkeypatch.setattr("sys.argv", ["gpu_check.py", "--write"])
    monkeypatch.setattr(gpu_check, "ROOT", tmp_path)
    monkeypatch.setattr(gpu_check, "cuda_device", lambda: ("NVIDIA H200", 10**11))
    monkeypatch.setattr(gpu_check, "full_setup", lambda card: tiny_setup())
    monkeypatch.setattr(gpu_check, "record", lambda name, figures: kept.update(figures, name=name))
    assert gpu_check.main() == 0
    assert (kept["name"], kept["device"], kept["failed"]) == ("gpu_check", "NVIDIA H200", [])
    assert kept["identical"] == kept["compared"] == 4
    assert set(kept["times"]["prefill"]) == set(kept["times"]["decode"]) == {8, 16, 24, 32}
    assert (kept["worker_device"], kept["worker_decode"] > 0) == ("cpu", True)
    rates = {"to_host", "to_device", "to_files", "from_files", "int8_encode", "int8_decode", "unix_int8", "tcp_none"}
    assert all(kept[f"{way}_gb_per_s"] > 0 for way in rates)
    assert 0 < kept["int8_relative_error"] < 0.05
    assert set(kept["errors"]) == {"roofline", "fit"}
    json.dumps(kept)
    assert "identity, " in capsys.readouterr().out
    (file,) = (tmp_path / "models/profiles").iterdir()
    _, profile = load_document(file, "profile")
    assert (profile.name, profile.device) == ("llama-3.2-1b-h200-torch", "H200")
    assert [str(m.kind) for m in profile.measurements] == ["prefill", "decode"]
    assert str(datetime.date.today()) in profile.sources["measurements"]
    assert "passes of 16 tokens" in profile.notes


@pytest.mark.parametrize(
    ("found", "words"),
    [
        (("NVIDIA Abacus", 10**11), "Abacus"),
        (("NVIDIA H200", 10**9), "NVIDIA H200: 1.0 GB are free: expected at least 24 GB"),
    ],
)
def test_a_device_that_cannot_be_checked_is_told(
    found: tuple[str, int], words: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.argv", ["gpu_check.py"])
    monkeypatch.setattr(gpu_check, "cuda_device", lambda: found)
    assert gpu_check.main() == 1
    assert words in capsys.readouterr().err


def test_a_part_that_fails_does_not_keep_the_others(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def broken(*_: object) -> None:
        raise RuntimeError("no such kernel")

    for name in ("measure_times", "transfers"):
        monkeypatch.setattr(gpu_check, name, broken)
    figures, profile = gpu_check.check(tiny_setup())
    assert figures["failed"] == ["times", "transfers"]
    assert figures["identical"] == 4
    assert profile is None
    assert "RuntimeError: no such kernel" in capsys.readouterr().err


def test_the_shape_has_the_parameters_of_its_card() -> None:
    card = library.llm("Llama-3.2-1B")
    shape = gpu_check.shape_of(card)
    assert shape.intermediate_size == 8192
    attention = 2 * card.hidden_size * 64 * (32 + 8)
    per_layer = attention + 3 * shape.hidden_size * shape.intermediate_size
    held = card.vocabulary * card.hidden_size + card.layers * per_layer
    assert held == pytest.approx(card.parameters, rel=0.001)


def test_without_a_gpu_it_says_so(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setattr("sys.argv", ["gpu_check.py"])
    assert gpu_check.main() == 0
    assert capsys.readouterr().out == "skipped: no CUDA device here\n"
