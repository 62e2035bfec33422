"""From a request and a cluster to a plan, a page, an instance file, and back."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from iegopt import SOLVERS

Run = Callable[..., Any]

DOCUMENTS = Path(__file__).parent / "documents"
REQUEST, IMPOSSIBLE, CLUSTER = (DOCUMENTS / f"{name}.yaml" for name in ("request", "impossible", "cluster"))


def test_the_contract(iegopt: Run, golden: Callable[[str, str], None], normalised: Callable[[str], str]) -> None:
    ran = iegopt("plan", REQUEST, "--cluster", CLUSTER, "--json", "--solver", "brute")
    assert (ran.code, ran.err) == (0, "")
    answer = json.loads(ran.out)
    assert list(answer)[:8] == ["status", "objective", "bound", "gap", "solver", "seconds", "placement", "makespan"]
    assert {"stages", "transfers", "cost", "weights", "explanation"} <= set(answer)
    assert list(answer["cost"]) == ["L", "T", "M", "D", "dollars"]
    stages = {stage["id"]: stage for stage in answer["stages"]}
    assert stages["prefill"]["time"] == pytest.approx(100 / 400)
    assert stages["decode"]["time"] == pytest.approx(1.0)
    assert stages["search"]["time"] == pytest.approx(0.2 + 1e9 / 200e9)
    golden("plan.json", normalised(ran.out))


def test_as_text(iegopt: Run) -> None:
    ran = iegopt("plan", REQUEST, "--cluster", CLUSTER, "--explain")
    assert (ran.code, ran.err) == (0, "")
    for part in (
        "Stages",
        "Cost by term",
        "Transfers",
        "Totals",
        "Tightest constraints",
        "Best alternative of each stage",
    ):
        assert part in ran.out.splitlines()
    line = next(line for line in ran.out.splitlines() if line.startswith(" prefill "))
    assert "250 ms   500 ms   compute" in line
    assert "question on bench (5 devices)" in ran.out


def test_quiet_is_the_headline(iegopt: Run) -> None:
    ran = iegopt("plan", REQUEST, "--cluster", CLUSTER, "--quiet")
    assert ran.code == 0
    assert ran.out.startswith("optimal  question on bench\nobjective ")
    assert len(ran.out.splitlines()) == 2


@pytest.mark.parametrize("command", [("plan", "--html"), ("compile", "-o")])
@pytest.mark.parametrize("output", ["request.yaml", "cluster.yaml"])
def test_what_is_read_is_not_overwritten(
    iegopt: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: tuple[str, str], output: str
) -> None:
    monkeypatch.chdir(tmp_path)
    for file in (REQUEST, CLUSTER):
        Path(file.name).write_bytes(file.read_bytes())
    ran = iegopt(command[0], "request.yaml", "--cluster", "cluster.yaml", command[1], output)
    assert ran.code == 1
    assert ran.error_line == f"iegopt: {output}: cannot be written: it is read too, expected another file"
    assert Path(output).read_bytes() == (DOCUMENTS / output).read_bytes()


def test_a_page_beside_the_answer(iegopt: Run, tmp_path: Path) -> None:
    target = tmp_path / "plan.html"
    ran = iegopt("plan", REQUEST, "--cluster", CLUSTER, "--html", target, "--quiet")
    assert ran.code == 0
    text = target.read_text(encoding="utf-8")
    assert text.startswith("<!doctype html>")
    assert "question on bench" in text


def test_infeasible_names_the_conflict(
    iegopt: Run, tmp_path: Path, golden: Callable[[str, str], None], normalised: Callable[[str], str]
) -> None:
    target = tmp_path / "plan.html"
    ran = iegopt("plan", IMPOSSIBLE, "--cluster", CLUSTER, "--json", "--html", target, "--solver", "brute")
    assert ran.code == 2
    assert "was not written" in ran.error_line
    assert not target.exists()
    answer = json.loads(ran.out)
    assert [answer[key] for key in ("objective", "gap", "placement", "makespan")] == [None] * 4
    assert len(answer["explanation"]["conflicts"]) == 1
    plan = iegopt("plan", REQUEST, "--cluster", CLUSTER, "--json")
    assert list(answer) == list(json.loads(plan.out)), "a reader finds every key of a plan, here with null"
    golden("infeasible.json", normalised(ran.out))
    text = iegopt("plan", IMPOSSIBLE, "--cluster", CLUSTER)
    assert text.code == 2
    assert "1. sla: the SLA of prefill is 1 ms and its fastest option takes 250 ms" in text.out


def test_other_solvers_find_the_same(iegopt: Run) -> None:
    answers = [
        json.loads(iegopt("plan", REQUEST, "--cluster", CLUSTER, "--json", "--solver", solver).out)
        for solver in ("auto", "brute")
    ]
    assert answers[0]["objective"] == answers[1]["objective"]
    assert answers[1]["solver"] == "brute"


def test_compile_solve_verify(iegopt: Run, tmp_path: Path) -> None:
    file, plan = tmp_path / "question.json", tmp_path / "plan.json"
    ran = iegopt("compile", REQUEST, "--cluster", CLUSTER, "-o", file)
    assert (ran.code, ran.out) == (0, "")
    assert "3 stages" in ran.err
    planned = json.loads(iegopt("plan", REQUEST, "--cluster", CLUSTER, "--json").out)
    solved = iegopt("solve", file, "--json")
    assert json.loads(solved.out)["objective"] == pytest.approx(planned["objective"], abs=1e-8)
    for answer in (solved.out, json.dumps(planned)):
        plan.write_text(answer)
        assert iegopt("verify", file, plan).code == 0


@pytest.mark.parametrize("solver", [name for name in SOLVERS if name != "milp-cbc"])  # CBC is not everywhere
def test_a_stage_that_nothing_runs_is_infeasible_in_its_file_too(iegopt: Run, tmp_path: Path, solver: str) -> None:
    request, file = tmp_path / "wide.yaml", tmp_path / "wide.json"
    request.write_text(IMPOSSIBLE.read_text().replace("degree: 1}}", "degree: 8}}", 1))
    assert iegopt("plan", request, "--cluster", CLUSTER, "--json", "--solver", solver).code == 2
    assert iegopt("compile", request, "--cluster", CLUSTER, "-o", file).code == 0
    ran = iegopt("solve", file, "--json", "--solver", solver)
    assert (ran.code, json.loads(ran.out)["status"]) == (2, "infeasible")


def test_generate_is_seeded(iegopt: Run, tmp_path: Path) -> None:
    files = [tmp_path / f"{i}.json.gz" for i in range(3)]
    for file, seed in zip(files, (0, 0, 1), strict=True):
        argv = ("--family", "chain", "--stages", 6, "--sites", 16, "--memory", "tight", "--seed", seed, "-o", file)
        ran = iegopt("generate", *argv)
        assert (ran.code, ran.out) == (0, "")
        assert "6 stages, 16 sites" in ran.err.splitlines()[0]
    assert files[0].read_bytes() == files[1].read_bytes()
    assert files[0].read_bytes() != files[2].read_bytes()
    assert iegopt("solve", files[0], "--json").code == 0


def test_schema_of_all_and_of_one(iegopt: Run) -> None:
    assert json.loads(iegopt("schema").out)["title"] == "iegopt document"
    assert "devices" in json.loads(iegopt("schema", "cluster").out)["properties"]
