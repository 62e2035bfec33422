"""Models, KV and engine know only what is below them, and nothing of plans, controllers and workers."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parents[2] / "runtime" / "iegopt_runtime"
BELOW = {
    "models": {"iegopt_runtime.errors", "iegopt_runtime.models"},
    "kv": {"iegopt_runtime.errors", "iegopt_runtime.handshake", "iegopt_runtime.kv"},
    "lm": {"iegopt_runtime.errors", "iegopt_runtime.models", "iegopt_runtime.kv", "iegopt_runtime.lm"},
}
SPECS = {"iegopt.errors", "iegopt.spec"}


def imported(file: Path) -> set[str]:
    tree = ast.parse(file.read_text(encoding="utf-8"), str(file))
    names = {str(node.module) for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
    names |= {alias.name for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names}
    return {".".join(name.split(".")[:2]) for name in names if name.startswith("iegopt")}


@pytest.mark.parametrize("part", BELOW)
def test_imports_point_down(part: str) -> None:
    files = sorted((PACKAGE / part).rglob("*.py"))
    assert files
    wrong = {file.name: imported(file) - BELOW[part] - SPECS for file in files}
    assert {name: found for name, found in wrong.items() if found} == {}
