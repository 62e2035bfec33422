"""The page of figures: every file of results has its place, whatever is in it."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from tests.bench.test_metrics import ROWS

SCRIPT = Path(__file__).parents[2] / "benchmarks" / "summary.py"
SESSION = {"date": "2026-01-02", "processor": "Chip", "cores": 2, "python": "3.11", "versions": {}, "command": "c"}


@pytest.fixture
def page(tmp_path: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location("summary_of_benchmarks", SCRIPT)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    module.HERE = tmp_path  # type: ignore[attr-defined]
    (tmp_path / "results").mkdir()
    return module


def put(folder: Path, name: str, document: dict[str, Any]) -> None:
    (folder / "results" / f"{name}.json").write_text(json.dumps(document))


def test_figures_take_the_place_of_those_before(page: ModuleType, tmp_path: Path) -> None:
    (tmp_path / "README.md").write_text(f"above\n{page.BEGIN}outdated\n{page.END}below\n")
    put(tmp_path, "new", {"command": "python benchmarks/new.py", "processor": "Chip", "date": "today",
                          "median_ms": 1.25, "of": {"no": "table"}})  # fmt: skip
    suite = {"name": "hand", "threads": 1}
    auto = {**ROWS[0], "solver": "auto", "engine": "auto"}
    put(tmp_path, "hand", {"format": page.FORMAT, "suite": suite, "sessions": [SESSION], "rows": [auto, *ROWS[1:]]})
    for _ in range(2):
        page.main()
    text = (tmp_path / "README.md").read_text()
    assert text.startswith(f"above\n{page.BEGIN}")
    assert text.endswith(f"{page.END}below\n")
    assert "outdated" not in text
    assert text.count("| `python benchmarks/new.py` | median ms 1.25 | Chip, today |") == 1
    assert text.count("### Suite hand") == 1
    assert "| auto keeps its limit | yes | late 0 of 1 |" in text


def test_the_committed_results_have_a_row_or_a_section_each(page: ModuleType) -> None:
    page.HERE = SCRIPT.parent  # type: ignore[attr-defined]
    told = page.figures()
    for file in (SCRIPT.parent / "results").glob("*.json"):
        document = json.loads(file.read_text(encoding="utf-8"))
        assert (document.get("command") or f"### Suite {file.stem}") in told
