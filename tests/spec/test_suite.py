"""Suite documents: ranges, one entry for a list, refusals in one line."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from iegopt.errors import SpecError
from iegopt.spec.explain_error import validate
from iegopt.spec.load import dump, load_document, read_document
from iegopt.spec.schema import schemas
from iegopt.spec.suite import SuiteSpec
from iegopt.spec.yaml_reader import parse_yaml
from tests.spec.test_schema import mismatches

SUITES = sorted((Path(__file__).parents[2] / "benchmarks" / "suites").glob("*.yaml"))
GENERATED: dict[str, Any] = {"generate": {"family": "chain", "stages": 3, "sites": 4}}
GOOD: dict[str, Any] = {"name": "s", "instances": [GENERATED], "solvers": ["auto"], "limits": "1s"}


def read(**changes: Any) -> SuiteSpec:
    return validate(SuiteSpec, {**GOOD, **changes}, "f", "suite")


def generate(**changes: Any) -> dict[str, Any]:
    return {"generate": {**GENERATED["generate"], **changes}}


def test_one_entry_stands_for_a_list_and_a_range_for_its_numbers() -> None:
    suite = read(instances=[generate(seeds="2..5", sites=[16, 32])], limits="500ms", seeds=7)
    made = suite.instances[0].generate
    assert made is not None
    assert (made.family, made.stages, made.sites, made.seeds) == (("chain",), (3,), (16, 32), (2, 3, 4, 5))
    assert (suite.limits, suite.seeds) == ((0.5,), (7,))


def test_a_solver_is_called_by_its_label_or_its_hint() -> None:
    suite = read(solvers=["auto", {"solver": "cpsat", "hint": "auto"}, {"solver": "cpsat", "label": "bare"}])
    assert [entry.name for entry in suite.solvers] == ["auto", "cpsat+auto", "bare"]


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"solvers": ["auto", "auto"]}, "suite: solver auto stands twice"),
        ({"solvers": [{"solver": "cpsat", "hint": "auto"}, "auto"]}, "hint auto of cpsat: expected a solver that"),
        ({"solvers": []}, "suite.solvers: a list: expected at least 1 entry"),
        ({"limits": 10}, "suite.limits: 10: no unit"),
        ({"limits": "0s"}, "suite.limits: 0s: expected more than 0"),
        ({"threads": 0}, "suite.threads: 0: expected at least 1"),
        ({"seeds": "5..1"}, "suite.seeds: expected a range upwards"),
        ({"seeds": "0..99999"}, "suite.seeds: expected a range upwards of at most 10,000"),
        ({"instances": [generate(family="chian")]}, "generate.family: chian: no such choice. Maybe chain?"),
        ({"instances": [generate(stages="many")]}, "generate.stages: expected whole numbers"),
        ({"instances": [generate(stages=True)]}, "generate.stages"),
        ({"instances": [{"files": "a", "public": {"set": "ctap"}}]}, "instances.0: files and public: expected one of"),
        ({"instances": [{"family": "x"}]}, "instances.0: no source: expected one of generate, saga, files, public"),
        ({"instances": [{"public": {"set": "qaplib"}}]}, "public.set: qaplib: no such choice"),
        ({"repeat": 3}, "suite.repeat: unknown key"),
    ],
)  # fmt: skip
def test_a_wrong_suite_is_refused_in_one_line(changes: dict[str, Any], said: str) -> None:
    with pytest.raises(SpecError) as caught:
        read(**changes)
    assert said in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("path", SUITES, ids=lambda path: path.stem)
def test_a_shipped_suite_loads_fits_the_schema_and_round_trips(path: Path) -> None:
    suite: SuiteSpec = load_document(path, "suite")[1]
    assert suite.name == path.stem
    own = schemas()["suite"]
    assert mismatches(read_document(path)["suite"], own, own) == []
    assert validate(SuiteSpec, parse_yaml(dump("suite", suite), "f")["suite"], "f") == suite
