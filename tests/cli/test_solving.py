import gzip
import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

Run = Callable[..., Any]

CONTRACT = ["status", "objective", "bound", "gap", "solver", "seconds", "placement", "makespan"]


@pytest.fixture
def instance() -> dict[str, Any]:
    """Two devices of one host: prefill is fastest on both together, decode fits one only."""
    link = {"latency": 1e-5, "bandwidth": 1e10}
    option = {"site": [0, 1, 2], "variant": ["fp16"] * 3}
    return {
        "format": "iegopt-instance/1",
        "name": "two",
        "devices": {"id": ["g0", "g1"], "memory": [80e9, 80e9]},
        "sites": {"id": ["g0", "g1", "g0+g1"], "devices": [[0], [1], [0, 1]], "domain": [0, 0, 0], "host": [0, 0, 0],
                  "rack": [0, 0, 0], "datacenter": [0, 0, 0]},
        "links": dict.fromkeys(("domain", "host", "rack", "datacenter", "wan"), link),
        "stages": [
            {"id": "prefill", "sla": 0.25, "options": {
                **option, "cost": [0.3, 0.3, 0.2], "time": [0.3, 0.3, 0.2], "memory": [5e9] * 3}},
            {"id": "decode", "options": {
                **option, "cost": [1.0, 1.1, 1.5], "time": [1.0, 1.1, 1.5], "memory": [50e9] * 3}},
        ],
        "edges": [{"from": 0, "to": 1, "kind": "data", "bytes": 1e9, "weight": 1.0}],
    }  # fmt: skip


@pytest.fixture
def file(tmp_path: Path, instance: dict[str, Any]) -> Path:
    path = tmp_path / "two.json"
    path.write_text(json.dumps(instance))
    return path


def changed(tmp_path: Path, document: dict[str, Any], **keys: Any) -> Path:
    path = tmp_path / "changed.json"
    path.write_text(json.dumps({**document, **keys}))
    return path


def test_the_contract(
    iegopt: Run, file: Path, golden: Callable[[str, str], None], normalised: Callable[[str], str]
) -> None:
    ran = iegopt("solve", file, "--solver", "brute", "--time-limit", 10, "--json")
    assert ran.code == 0
    answer = json.loads(ran.out)
    assert list(answer) == CONTRACT
    assert answer["placement"] == {
        "prefill": {"site": "g0+g1", "variant": "fp16"}, "decode": {"site": "g0", "variant": "fp16"}
    }  # fmt: skip
    assert answer["objective"] == pytest.approx(0.2 + 1.0 + 1e-5 + 0.1, abs=1e-8)
    assert answer["makespan"] == pytest.approx(0.2 + 1.0 + 1e-5 + 0.1, abs=1e-8)
    assert answer["status"] == "optimal"
    assert answer["bound"] == answer["objective"]
    golden("solve.json", normalised(ran.out))


def test_progress_tells_plans_and_bounds_with_their_times(iegopt: Run) -> None:
    ran = iegopt("solve", "chain-10x16-tight", "--solver", "prices", "--progress", "--json")
    assert ran.code == 0
    lines = [line for line in ran.err.splitlines() if not line.startswith("iegopt:")]
    form = r" *\d+\.\d{3} s  objective (\S+) \S+, bound (\S+)( \S+ \(.+\))?, gap .+"
    assert all(re.fullmatch(form, line) for line in lines)
    assert lines[-1].endswith("(capacity prices), gap 0 %")
    assert len(lines) > 1


def test_compressed_files_are_read(iegopt: Run, tmp_path: Path, instance: dict[str, Any]) -> None:
    path = tmp_path / "two.json.gz"
    path.write_bytes(gzip.compress(json.dumps(instance).encode()))
    assert json.loads(iegopt("solve", path, "--json").out)["status"] == "optimal"


def test_infeasible_is_2_with_nulls(iegopt: Run, tmp_path: Path, instance: dict[str, Any]) -> None:
    ran = iegopt("solve", changed(tmp_path, instance, deadline=0.5), "--solver", "brute", "--json")
    assert ran.code == 2
    answer = json.loads(ran.out)
    assert answer["status"] == "infeasible"
    assert [answer[key] for key in ("objective", "gap", "placement", "makespan")] == [None] * 4


def test_infeasible_names_what_conflicts(iegopt: Run, tmp_path: Path, instance: dict[str, Any]) -> None:
    ran = iegopt("solve", changed(tmp_path, instance, deadline=1.2))
    assert ran.code == 2
    assert "1. deadline: the deadline is 1.2 s; the longest path, to decode, takes 1.2 s at least" in ran.out
    apart = {"stages": [0, 1], "level": "host", "apart": True}
    ran = iegopt("solve", changed(tmp_path, instance, affinity=[apart]), "--time-limit", 5)
    assert "1. affinity: prefill and decode have to be on different hosts" in ran.out


def test_a_deadline_that_no_option_keeps_is_not_called_an_sla(
    iegopt: Run, tmp_path: Path, instance: dict[str, Any]
) -> None:
    ran = iegopt("solve", changed(tmp_path, instance, deadline=0.1), "--solver", "cpsat", "--json")
    assert (ran.code, ran.error_line.split(": ")[1]) == (
        2, "stage prefill has no option that keeps its time limits and fits its devices"
    )  # fmt: skip


def test_as_text(iegopt: Run, file: Path) -> None:
    ran = iegopt("solve", file)
    assert ran.code == 0
    assert "optimal  two 2 stages, 3 sites, 6 options" in ran.out
    assert ran.err == ""
    assert next(line for line in ran.out.splitlines() if line.startswith(" decode ")).split()[1:] == [
        "g0", "fp16", "1", "s", "1", "s",
    ]  # fmt: skip


def test_a_shipped_problem_by_name(iegopt: Run) -> None:
    assert iegopt("solve", "gang-or-not", "--json").code == 0


def test_a_plan_comes_back_as_a_hint(iegopt: Run, file: Path, tmp_path: Path) -> None:
    plan = tmp_path / "plan.json"
    plan.write_text(iegopt("solve", file, "--json").out)
    again = iegopt("solve", file, "--hint", plan, "--json")
    assert json.loads(again.out)["placement"] == json.loads(plan.read_text())["placement"]


@pytest.mark.parametrize(
    ("hint", "says"),
    [
        ("[]", "expected an object with status and placement"),
        ("{}", "expected an object with status and placement"),
        ('{"placement": null}', "placement: nothing: expected an object by stage"),
        ('{"placement": {"prefill": {"site": "g0", "variant": "fp16"}}}', "placement.decode: nothing: expected a site"),
        (
            '{"placement": {"prefill": {"site": "g00", "variant": "fp16"}}}',
            "no option on site g00 as fp16. Maybe site g0?",
        ),
        ('{"placement": {"prefill": {"site": ["g0"], "variant": "fp16"}}}', "no option on site a list as fp16"),
        ('{"placement": ', "not JSON"),
    ],
)
def test_a_bad_hint_is_one_line(iegopt: Run, file: Path, tmp_path: Path, hint: str, says: str) -> None:
    path = tmp_path / "hint.json"
    path.write_text(hint)
    ran = iegopt("solve", file, "--hint", path)
    assert ran.code == 1
    assert says in ran.error_line


@pytest.mark.parametrize(
    "text", ["", "[]", "{", "{}", '{"format": "other"}', "\x00", '{"format": "iegopt-instance/1"}']
)
def test_a_bad_instance_is_one_line(iegopt: Run, tmp_path: Path, text: str) -> None:
    path = tmp_path / "bad.json"
    path.write_text(text)
    for argv in (("solve", path), ("verify", path, path)):
        ran = iegopt(*argv)
        assert ran.code == 1
        assert str(path) in ran.error_line


def test_log_goes_to_stderr(iegopt: Run, file: Path) -> None:
    ran = iegopt("solve", file, "--log", "--json")
    assert json.loads(ran.out)["status"] == "optimal"


def test_verify_accepts_what_solve_says(iegopt: Run, file: Path, tmp_path: Path) -> None:
    plan = tmp_path / "plan.json"
    plan.write_text(iegopt("solve", file, "--json").out)
    ran = iegopt("verify", file, plan)
    assert ran.code == 0
    assert ran.out == "verified: objective 1.3 s, makespan 1.3 s, nothing broken\n"
    answer = json.loads(iegopt("verify", file, plan, "--json").out)
    assert answer["ok"] is True
    assert answer["violations"] == []


def test_verify_names_each_broken_constraint(iegopt: Run, file: Path, tmp_path: Path) -> None:
    answer = json.loads(iegopt("solve", file, "--json").out)
    answer["placement"]["prefill"]["site"] = "g0"  # 0.3 s, over its SLA, and all other claims are off
    plan = changed(tmp_path, answer)
    ran = iegopt("verify", file, plan)
    assert ran.code == 2
    assert "sla of prefill: 0.3, allowed 0.25" in ran.out
    assert "claim of objective" in ran.out
    rules = [violation["rule"] for violation in json.loads(iegopt("verify", file, plan, "--json").out)["violations"]]
    assert rules[0] == "sla"
    assert set(rules[1:]) == {"claim"}


def test_verify_has_nothing_to_check_in_an_infeasible_answer(iegopt: Run, file: Path, tmp_path: Path) -> None:
    plan = tmp_path / "plan.json"
    plan.write_text('{"status": "infeasible", "placement": null}')
    ran = iegopt("verify", file, plan)
    assert (ran.code, ran.out) == (3, "nothing to check: the file claims infeasible and places nothing\n")
    assert json.loads(iegopt("verify", file, plan, "--json").out)["ok"] is False
