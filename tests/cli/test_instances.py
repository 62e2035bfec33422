import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from iegopt.cli.output import FOLDERS, document_path, shipped, short_name
from iegopt.errors import InputError

Run = Callable[..., Any]


def test_one_line_for_each_shipped_file(iegopt: Run) -> None:
    text = iegopt("instances").out
    kinds = json.loads(iegopt("instances", "--json").out)
    assert list(kinds) == ["clusters", "requests", "snapshots", "policies", "problems"]
    for names in kinds.values():
        for name, file in names.items():
            assert len([line for line in text.splitlines() if line.startswith(f" {name} ")]) >= 1
            assert Path(file).is_file()
    assert " ten-thousand " in text
    assert "10,000 devices: 4,096 × H100" in text
    assert "10 queued, 5 running on 5 instances" in text
    assert "window 10 s, a replan every 500 ms, quotas of labels" in text


@pytest.mark.parametrize("folder", FOLDERS)
def test_every_shipped_name_leads_to_its_file(folder: Any) -> None:
    for file in shipped(folder):
        assert document_path(short_name(file), folder) == file


def test_a_path_wins_over_a_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert document_path("chat", "requests").is_absolute()
    Path("chat").write_text("request: {}")
    assert document_path("chat", "requests") == Path("chat")
    assert document_path("chat.yaml", "requests") == Path("chat.yaml")
    with pytest.raises(InputError, match="no shipped cluster has this name"):
        document_path("agent", "clusters")
