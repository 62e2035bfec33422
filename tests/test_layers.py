"""Who may import whom: the table of CONTRIBUTING.md, read off the source with ``ast``.

Every import counts, those inside functions and under TYPE_CHECKING too: laziness is about speed, not about design.
"""

from __future__ import annotations

import ast
import json
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import networkx as nx
import pytest

PACKAGE = Path(__file__).parent.parent / "iegopt"

FLOORS = (
    {"units", "errors", "files"},
    {"spec", "plans", "batch_plans"},
    {"library", "devices"},
    {"cost", "graph"},
    {"control"},
    {"problem"},
    {"solvers"},
    {"explain"},
    {"batch"},
    {"bench"},
    {"planner"},
    {"cli"},
)
"""Lowest first. A part imports its own floor and those below; circles are caught apart."""

VERIFY = {"units", "errors", "spec", "plans", "batch_plans", "library", "devices", "cost", "verify"}
ASSIGNMENT = {"iegopt.problem.arrays", "iegopt.problem.topology"}
"""What ``verify.assignment`` may import beside ``VERIFY``: the dataclasses it checks."""

CONTROL_MAY_IMPORT = {
    "__future__", "bisect", "collections", "collections.abc", "dataclasses", "enum", "functools", "heapq", "itertools",
    "math", "pydantic", "types", "typing",
}  # fmt: skip
"""What ``control`` may import beside its floor and those below: the time comes with the events."""

THIRD_PARTY = {"networkx", "numpy", "pydantic", "pydantic_core", "rich", "yaml"}
HEAVY = {
    "ortools": {"solvers", "batch", "bench"},
    "highspy": {"solvers", "batch", "bench"},
    "pulp": {"solvers"},
    "tokenizers": {"graph"},
    "pytoulbar2": {"bench"},
    "saga": {"bench"},
    "matplotlib": {"cli"},
    "numba": {"solvers", "verify"},
}
"""Slow to import -> the parts that use it; loaded by no module that ``import iegopt`` loads."""


@dataclass(frozen=True)
class Import:
    module: str
    target: str
    line: int
    top_level: bool

    @property
    def part(self) -> str:
        return part(self.target)

    def __str__(self) -> str:
        return f"{self.module}:{self.line} imports {self.target}"


def part(module: str) -> str:
    """``iegopt.solvers.api`` -> ``solvers``; the package itself and ``__main__`` are ``iegopt``."""
    names = module.split(".")
    return names[1] if len(names) > 1 and names[1] != "__main__" else "iegopt"


def modules() -> dict[str, Path]:
    found = {}
    for file in sorted(PACKAGE.rglob("*.py")):
        names = file.relative_to(PACKAGE.parent).with_suffix("").parts
        found[".".join(names[:-1] if names[-1] == "__init__" else names)] = file
    return found


MODULES = modules()


def read_imports(module: str, tree: ast.Module) -> Iterator[Import]:
    """All imports of a module, ``from package import submodule`` resolved to the submodule."""
    deferred = {
        id(inner)
        for node in ast.walk(tree)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) or (isinstance(node, ast.If) and _typing(node))
        for inner in ast.walk(node)
    }
    for node in ast.walk(tree):
        targets: list[str] = []
        if isinstance(node, ast.Import):
            targets = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{module}:{node.lineno}: expected an absolute import"
            base = str(node.module)
            targets = [name if (name := f"{base}.{alias.name}") in MODULES else base for alias in node.names]
        for target in dict.fromkeys(targets):
            yield Import(module, target, node.lineno, id(node) not in deferred)


def _typing(node: ast.If) -> bool:
    return isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING"


IMPORTS = [
    found
    for module, file in MODULES.items()
    for found in read_imports(module, ast.parse(file.read_text(encoding="utf-8"), str(file)))
]


def allowed(found: Import) -> bool:
    importer, imported = part(found.module), found.part
    if importer == "iegopt":  # the public names
        return True
    if importer == "verify":
        return imported in VERIFY or (found.module == "iegopt.verify.assignment" and found.target in ASSIGNMENT)
    floor = next(i for i, floor in enumerate(FLOORS) if importer in floor)
    below = set().union(*FLOORS[: floor + 1])
    if imported == "verify":
        return floor >= next(i for i, names in enumerate(FLOORS) if "solvers" in names)
    if imported == "iegopt":  # for the version, and for where the package lies
        return importer in {"cli", "solvers", "bench"}
    return imported in below


def test_every_part_has_a_floor() -> None:
    assert {part(module) for module in MODULES} <= set().union(*FLOORS, {"verify", "iegopt"})


def test_imports_point_down() -> None:
    assert [str(found) for found in IMPORTS if found.target.startswith("iegopt") and not allowed(found)] == []


def test_no_circle() -> None:
    arrows = nx.DiGraph(
        (found.module, found.target)
        for found in IMPORTS
        if found.top_level and found.target in MODULES and found.target != found.module
    )
    circles = [sorted(group) for group in nx.strongly_connected_components(arrows) if len(group) > 1]
    assert circles == []


def test_third_party_packages_are_the_declared_ones() -> None:
    def declared(found: Import) -> bool:
        name = found.target.split(".")[0]
        known = name == "iegopt" or name in sys.stdlib_module_names or name in THIRD_PARTY
        return known or part(found.module) in HEAVY.get(name, ())

    assert [str(found) for found in IMPORTS if not declared(found)] == []


def test_the_controller_imports_nothing_that_has_a_clock_a_socket_a_log_or_chance() -> None:
    foreign = {
        found.target for found in IMPORTS if part(found.module) == "control" and not found.target.startswith("iegopt")
    }
    assert foreign <= CONTROL_MAY_IMPORT


@pytest.mark.parametrize(
    ("source", "target", "top_level"),
    [
        ("import iegopt.units", "iegopt.units", True),
        ("from iegopt import errors", "iegopt.errors", True),
        ("from iegopt.errors import InputError", "iegopt.errors", True),
        ("def f():\n    import ortools.sat", "ortools.sat", False),
        ("if TYPE_CHECKING:\n    import pulp", "pulp", False),
    ],
)
def test_every_form_of_import_is_seen(source: str, target: str, top_level: bool) -> None:
    (found,) = read_imports("iegopt.spec.base", ast.parse(source))
    assert (found.target, found.top_level) == (target, top_level)


@pytest.mark.parametrize(
    ("module", "target", "verdict"),
    [
        ("iegopt.spec.base", "iegopt.library", False),
        ("iegopt.cost.model", "iegopt.problem.arrays", False),
        ("iegopt.solvers.api", "iegopt.verify.assignment", True),
        ("iegopt.problem.compile", "iegopt.verify.plan", False),
        ("iegopt.verify.assignment", "iegopt.problem.arrays", True),
        ("iegopt.verify.assignment", "iegopt.problem.transfer", False),
        ("iegopt.verify.plan", "iegopt.problem.arrays", False),
        ("iegopt.cli.main", "iegopt.planner", True),
        ("iegopt.planner", "iegopt.cli.main", False),
        ("iegopt.control.growth", "iegopt.graph.templates", True),
        ("iegopt.control.growth", "iegopt.problem.compile", False),
        ("iegopt.control.growth", "iegopt.planner", False),
    ],
)
def test_the_table_says_so(module: str, target: str, verdict: bool) -> None:
    assert allowed(Import(module, target, 1, True)) is verdict


@pytest.mark.parametrize("statement", ["import iegopt", "import iegopt.cli.main", "import iegopt.planner"])
def test_nothing_heavy_is_loaded_before_it_is_used(statement: str) -> None:
    heavy = [*HEAVY, "torch", "ray", "pandas"]
    code = f"import json, sys; {statement}; print(json.dumps([n for n in {heavy!r} if n in sys.modules]))"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert json.loads(run.stdout) == []


def test_the_public_names_stay_functions_whatever_is_imported() -> None:
    """No module of the package may be called like a public name, or importing it would take the name's place."""
    import iegopt

    modules = {path.stem for path in PACKAGE.iterdir()}
    assert not modules & set(iegopt.__all__)
    assert all(getattr(iegopt, name) is not None for name in iegopt.__all__)
