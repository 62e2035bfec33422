"""The habits of CONTRIBUTING.md that a machine can check."""

from __future__ import annotations

import ast
import os
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
FOLDERS = ("iegopt", "models", "instances", "tests", "benchmarks", "runtime", ".ci")
TEXTS = sorted(
    file
    for folder in FOLDERS
    for file in (ROOT / folder).rglob("*")
    if file.suffix in {".py", ".yaml", ".md", ".json"} or file.name == "run"
) + sorted(
    file
    for file in ROOT.iterdir()
    if file.is_file() and file.name != ".git" and (file.suffix in {".md", ".toml"} or not file.suffix)
)
MODULES = sorted(file for folder in ("iegopt", "runtime") for file in (ROOT / folder).rglob("*.py"))

LONGEST_MODULE = 400
SOMEONES_MACHINE = re.compile(r"(?<![\w./<>{}~:-])/(?:work|home|root|Users)/\w")


def relative(file: Path) -> str:
    return file.relative_to(ROOT).as_posix()


def test_no_file_names_a_path_of_someones_machine() -> None:
    found = [
        f"{relative(file)}:{number}"
        for file in TEXTS
        for number, line in enumerate(file.read_text(encoding="utf-8", errors="replace").splitlines(), 1)
        if SOMEONES_MACHINE.search(line)
    ]
    assert found == []


@pytest.mark.parametrize("line", ["cat /" + "home/ann/x.yaml", "(/" + "root/x)", "'/" + "Users/ann'"])
def test_such_a_path_is_seen(line: str) -> None:
    assert SOMEONES_MACHINE.search(line)


@pytest.mark.parametrize("file", MODULES, ids=relative)
def test_module_is_one_concept_with_a_docstring(file: Path) -> None:
    text = file.read_text(encoding="utf-8")
    assert text.count("\n") <= LONGEST_MODULE
    assert not text or ast.get_docstring(ast.parse(text))


def test_the_changelog_has_a_place_for_what_is_new() -> None:
    assert "\n## [Unreleased]\n" in (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")


def test_the_makefile_has_what_the_readers_are_told_of() -> None:
    targets = set(re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE))
    assert {"setup", "demo", "test", "lint", "bench", "clean"} <= targets


def test_ci_runs_the_same_as_people_do() -> None:
    script = ROOT / ".ci" / "run"
    assert os.access(script, os.X_OK)
    assert {"make test", "make demo"} <= set(script.read_text(encoding="utf-8").splitlines())
