import json
from collections.abc import Callable
from typing import Any

import pytest

from iegopt import library

Run = Callable[..., Any]


@pytest.mark.parametrize("kind", ["llm", "device", "link", "path"])
def test_list_names_every_card(iegopt: Run, kind: str) -> None:
    text = iegopt("models", "list", kind).out
    names = library.names(kind)  # type: ignore[arg-type]
    assert [name for name in names if f" {name} " not in text] == []
    assert json.loads(iegopt("models", "list", kind, "--json").out) == {kind: list(names)}


def test_list_shows_the_figures(iegopt: Run) -> None:
    text = iegopt("models", "list").out
    line = next(line for line in text.splitlines() if line.startswith(" Llama-2-70B "))
    assert line.split()[1:4] == ["decoder", "69", "B"]
    line = next(line for line in text.splitlines() if line.startswith(" H100 "))
    assert line.split()[3:9] == ["80", "GB", "3.35", "TB/s", "989", "TFLOP/s"]


def test_show_a_device_with_its_sources(iegopt: Run) -> None:
    text = iegopt("models", "show", "h100-sxm").out  # an alias, in lower case
    assert "device H100" in text
    assert "vram 80GB, bandwidth 3.35TB/s" in text
    assert "NVIDIA H100 Tensor Core GPU Datasheet" in text


def test_show_a_model_with_its_paths(iegopt: Run, golden: Callable[[str, str], None]) -> None:
    cards = json.loads(iegopt("models", "show", "Llama-2-70B", "--json").out)
    assert list(cards) == ["llm", "path"]
    assert cards["llm"]["kv_heads"] == 8
    golden("models-show.json", iegopt("models", "show", "H100", "--json").out)
    golden("models-show.txt", iegopt("models", "show", "Llama-2-70B").out)
