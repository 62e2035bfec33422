"""The check for GPUs, every part of it, in a tiny shape on the CPU."""

from __future__ import annotations

import pytest
import torch

from benchmarks import gpu_check
from iegopt import library
from iegopt.spec.llm import LlmCard
from iegopt.spec.load import dump
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


def test_every_part_runs_on_the_cpu() -> None:
    figures, profile = gpu_check.check(tiny_setup())
    assert figures["failed"] == []
    assert figures["identical"] == figures["compared"] == 4
    assert set(figures["times"]["prefill"]) == {8, 16, 24, 32}
    rates = {"to_host", "to_device", "to_files", "from_files", "int8_encode", "int8_decode", "unix_int8", "tcp_none"}
    assert all(figures[f"{way}_gb_per_s"] > 0 for way in rates)
    assert 0 < figures["int8_relative_error"] < 0.05
    assert set(figures["errors"]) == {"roofline", "fit"}
    assert profile is not None
    text = dump("profile", profile)
    assert "benchmarks/gpu_check.py" in text
    assert [str(m.kind) for m in profile.measurements] == ["prefill", "decode"]


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
