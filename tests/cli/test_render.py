import dataclasses
from collections.abc import Callable

import pytest

from iegopt.cli.output import show
from iegopt.cli.render import render_no_plan, render_plan
from iegopt.devices import expand
from iegopt.plans import NoPlan, Plan
from iegopt.spec.cluster import ClusterSpec

Plans = Callable[..., Plan]
Clusters = Callable[[int, int], ClusterSpec]


@pytest.fixture(autouse=True)
def _no_columns(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("COLUMNS", raising=False)


def rendered(capsys: pytest.CaptureFixture[str], plan: Plan, cluster: ClusterSpec, width: int, explain: bool) -> str:
    show(*render_plan(plan, expand(cluster), width, explain))
    return capsys.readouterr().out


def test_a_plan_as_text(
    capsys: pytest.CaptureFixture[str], plan_of: Plans, cluster_with: Clusters, golden: Callable[[str, str], None]
) -> None:
    text = rendered(capsys, plan_of(), cluster_with(4, 8), 140, explain=True)
    assert "\x1b" not in text
    golden("plan.txt", text)


def test_a_wide_terminal_has_places_and_costs_in_one_table(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, plan_of: Plans, cluster_with: Clusters
) -> None:
    monkeypatch.setenv("COLUMNS", "220")
    text = rendered(capsys, plan_of(), cluster_with(1, 3), 220, explain=False)
    assert "Cost by term" not in text
    assert next(line for line in text.splitlines() if line.startswith(" prefill ")).split()[-1] == "$0.000682"


def test_long_ids_are_folded_never_cut(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, plan_of: Plans, cluster_with: Clusters
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    plan = plan_of()
    name = "".join(f"x{i:03}" for i in range(40))
    stages = (dataclasses.replace(plan.stages[0], id=name), *plan.stages[1:])
    lines = rendered(
        capsys, dataclasses.replace(plan, stages=stages), cluster_with(1, 3), 80, explain=False
    ).splitlines()
    start = lines.index("Cost by term")
    column = "".join(
        line[1:].split(" ")[0] for line in lines[start + 4 :] if line.startswith(" x") or line[1:5].isalnum()
    )
    assert name in column
    assert not [line for line in lines if "…" in line]


def test_no_sla_no_column(capsys: pytest.CaptureFixture[str], plan_of: Plans, cluster_with: Clusters) -> None:
    plan = plan_of()
    stages = tuple(dataclasses.replace(stage, sla=None) for stage in plan.stages)
    assert "SLA" in rendered(capsys, plan, cluster_with(1, 3), 140, explain=False)
    assert "SLA" not in rendered(
        capsys, dataclasses.replace(plan, stages=stages), cluster_with(1, 3), 140, explain=False
    )


def test_conflicts_are_numbered(capsys: pytest.CaptureFixture[str]) -> None:
    conflicts = [
        {"rule": "memory", "sentence": "gpu-0 has 80 GB free; a and b need 150 GB", "minimal": True},
        {"rule": "affinity", "sentence": "a and b have to be on one and the same site", "minimal": True},
    ]
    for number in (1, 2):
        answer = NoPlan(
            "r", "lab", "infeasible", None, "counting memory", "auto", 0.01, "", None, tuple(conflicts[:number])
        )
        show(*render_no_plan(answer))
        lines = capsys.readouterr().out.splitlines()
        assert lines[0] == "infeasible  r on lab"
        assert "  1. memory: gpu-0 has 80 GB free; a and b need 150 GB" in lines
        assert ("  2. affinity: a and b have to be on one and the same site" in lines) == (number == 2)
        assert ("Lifting any one of them is enough." in lines) == (number == 2)


def test_unknown_has_no_conflicts(capsys: pytest.CaptureFixture[str]) -> None:
    show(
        *render_no_plan(
            NoPlan("r", "lab", "unknown", 1.5, "capacity prices", "auto", 2.0, "stopped by the deadline", None, ())
        )
    )
    assert capsys.readouterr().out.splitlines() == [
        "unknown  r on lab", "bound 1.5 s · proved by capacity prices · solver auto, 2 s", "stopped by the deadline",
    ]  # fmt: skip


def test_a_tiny_terminal_loses_no_column(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, plan_of: Plans, cluster_with: Clusters
) -> None:
    monkeypatch.setenv("COLUMNS", "20")
    text = rendered(capsys, plan_of(), cluster_with(1, 3), 20, explain=True)
    assert "…" not in text
    assert max(map(len, text.splitlines())) <= 80
