"""From a suite to its instances."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from iegopt.bench.instances import BenchInstance, expand
from iegopt.bench.run import tasks_of
from iegopt.errors import InputError
from iegopt.problem.families import generate
from iegopt.problem.instance import write_instance
from iegopt.spec.load import load_document
from iegopt.spec.suite import SuiteSpec

SUITES = sorted((Path(__file__).parents[2] / "benchmarks" / "suites").glob("*.yaml"))


def instances(*sources: dict[str, Any], base: Path = Path()) -> list[BenchInstance]:
    suite = SuiteSpec.model_validate({"name": "s", "instances": sources, "solvers": ["auto"], "limits": [1]})
    return expand(suite, base)


def test_every_combination_in_the_order_written() -> None:
    found = instances({"generate": {"family": ["agent", "chain"], "stages": 4, "sites": [8, 16], "seeds": "0..1"}})
    assert [each.name for each in found[:3]] == ["agent-4x8-slack-s0", "agent-4x8-slack-s1", "agent-4x16-slack-s0"]
    assert [each.family for each in found[::2]] == [
        "agent-4x8-slack", "agent-4x16-slack", "chain-4x8-slack", "chain-4x16-slack"
    ]  # fmt: skip
    made = found[1].load()
    assert made.name == found[1].name


def test_a_family_can_be_asked_for_its_makespan() -> None:
    source = {"generate": {"family": "chain", "stages": 4, "sites": 8, "objective": "makespan"}}
    (found,) = instances(source)
    assert (found.name, found.family) == ("chain-4x8-makespan-s0", "chain-4x8-makespan")
    problem = found.load()
    assert (problem.makespan_weight, problem.no_overlap) == (1.0, True)
    source["generate"]["gangs"] = True
    with pytest.raises(ValueError, match="objective makespan with gangs"):
        instances(source)


def test_random_task_graphs_of_saga_in_the_order_written() -> None:
    found = instances({"saga": {"graphs": "chains", "weights": ["clipped", "constant"], "nodes": 3, "seeds": "0..1"}})
    assert [each.name for each in found] == [
        f"saga-chains-{weights}-n3-s{seed}" for weights in ("clipped", "constant") for seed in (0, 1)
    ]
    if found[0].missing is None:
        assert found[0].load().name == found[0].name
    else:
        assert "pip install 'iegopt[peers]'" in found[0].missing


def test_files_are_seen_from_the_folder_of_the_suite(tmp_path: Path) -> None:
    for name in ("b.json", "a.json.gz"):
        write_instance(generate("chain", 3, 4, "slack", 0), tmp_path / name)
    found = instances({"files": ["*.json*"], "family": "mine"}, base=tmp_path)
    assert [(each.name, each.family) for each in found] == [("a", "mine"), ("b", "mine")]
    made = found[0].load()
    assert (made.V, made.topology.S) == (3, 4)


def test_a_pattern_that_fits_nothing_and_a_name_given_twice_are_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"no file fits none\*\.json"):
        instances({"files": ["none*.json"]}, base=tmp_path)
    twice = {"generate": {"family": ["chain"], "stages": 3, "sites": 4}}
    with pytest.raises(InputError, match="chain-3x4-slack-s0 stands twice"):
        instances(twice, twice)


def test_an_absent_public_set_is_an_instance_with_the_reason(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("IEGOPT_SHARED", str(tmp_path))
    (absent,) = instances({"public": {"set": "gqap"}})
    assert absent.missing == "its folder is absent: set IEGOPT_SHARED, or folder in the suite"
    (tmp_path / "data" / "stg").mkdir(parents=True)
    (empty,) = instances({"public": {"set": "stg", "names": ["rand*"]}})
    assert empty.missing == "no file of its folder fits rand*"


@pytest.mark.parametrize("path", SUITES, ids=lambda path: path.stem)
def test_a_shipped_suite_has_known_solvers_and_instances(path: Path) -> None:
    tasks = tasks_of(load_document(path, "suite")[1], path.parent)
    assert len(tasks) == len({task.key for task in tasks}) > 0
