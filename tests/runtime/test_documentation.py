"""The example of docs/data-plane.md runs as it stands there."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

PAGE = Path(__file__).parents[2] / "docs" / "data-plane.md"


def test_the_example_runs(
    model_cache: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("IEGOPT_CACHE", str(model_cache))
    found = re.search(r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    assert found
    exec(compile(found[1], str(PAGE), "exec"), {})
    told = capsys.readouterr().out.splitlines()
    assert told[-1].startswith("Done(job_id='job'")
    assert sum(line.startswith("Streamed") for line in told) == 8
