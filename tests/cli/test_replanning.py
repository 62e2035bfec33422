"""From a snapshot to a plan of its queue: text, JSON, page."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from iegopt.batch_plans import BatchPlan
from iegopt.cli.html.replan import replan_page
from iegopt.planner import Planner

from .queue_plans import make_queue_plan
from .test_html import Checked

Run = Callable[..., Any]
SHIPPED = ("replan", "afternoon", "--cluster", "mixed-racks", "--policy", "afternoon")
CORPUS = Path(__file__).parent.parent / "corpus"


@pytest.fixture
def plan(monkeypatch: pytest.MonkeyPatch) -> Callable[[BatchPlan], None]:
    """Lets the planner give this plan, whatever it is asked."""

    def answer(plan: BatchPlan) -> None:
        monkeypatch.setattr(Planner, "replan", lambda *_, **__: plan)

    return answer


def test_as_text(iegopt: Run, golden: Callable[[str, str], None], plan: Callable[[BatchPlan], None]) -> None:
    plan(make_queue_plan())
    ran = iegopt(*SHIPPED)
    assert ran.code == 0
    assert ran.error_line == "iegopt: instance gone is lost"
    golden("replan.txt", ran.out)


def test_a_long_queue_is_summed_up_by_reason(iegopt: Run, plan: Callable[[BatchPlan], None]) -> None:
    plan(make_queue_plan(held=3000))
    short, every = iegopt(*SHIPPED).out, iegopt(*SHIPPED, "--all").out
    assert "3,004 queued: 3 placed, 3,000 held, 1 refused" in short
    assert "Held and refused (first 20 of 3,001)" in short
    row = next(line for line in short.splitlines() if line.startswith(" held      quota"))
    assert row.split(maxsplit=4)[2:] == ["3,000", "labels-2", make_queue_plan().queue[3].reason.sentence]
    assert " labels-3001 " not in short
    assert len(short.splitlines()) < 90
    assert " labels-3001 " in every
    assert "first 20" not in every


def test_quiet_is_the_headline_and_the_priorities(iegopt: Run, plan: Callable[[BatchPlan], None]) -> None:
    plan(make_queue_plan())
    lines = iegopt(*SHIPPED, "--quiet").out.splitlines()
    assert lines[0] == "feasible  noon on mixed-racks (3 instances)"
    assert [line for line in lines if line.istitle()] == ["Priorities"]


def test_json_is_the_whole_answer(iegopt: Run) -> None:
    ran = iegopt(*SHIPPED, "--json")
    assert (ran.code, ran.err) == (0, "")
    answer = json.loads(ran.out)
    assert list(answer) == [
        "snapshot", "time", "status", "solver", "seconds", "note", "levels", "queue", "running", "instances", "tenants",
        "warnings",
    ]  # fmt: skip
    statuses = {q["id"]: q["status"] for q in answer["queue"]}
    assert statuses["chat-885"] == "placed"
    assert statuses["chat-861"] == "refused"
    assert all((q["reason"] is None) == (q["status"] == "placed") for q in answer["queue"])
    assert {r["action"] for r in answer["running"]} <= {"keep", "preempt", "migrate"}
    assert [level["priority"] for level in answer["levels"]] == [0, 1, 2]


def test_nothing_but_the_answer_is_on_stdout() -> None:
    """Engines in this process print where Python does not see it: look at the process from outside."""
    command = [sys.executable, "-m", "iegopt", *SHIPPED, "--json", "--deadline-ms", "1000"]
    ran = subprocess.run(command, capture_output=True, text=True, check=True)
    assert json.loads(ran.stdout)["snapshot"] == "afternoon"
    assert ran.stderr == ""


def test_the_same_snapshot_gives_the_same_answer(iegopt: Run) -> None:
    answers = [json.loads(iegopt(*SHIPPED, "--json", "--deadline-ms", 30_000).out) for _ in range(2)]
    for answer in answers:
        del answer["seconds"]
    assert answers[0] == answers[1]


def test_without_a_policy_the_defaults_hold(iegopt: Run) -> None:
    ran = iegopt(*SHIPPED[:4], "--quiet", "--deadline-ms", 2000)
    assert (ran.code, ran.err) == (0, "")
    assert "10 queued: " in ran.out


@pytest.mark.parametrize("kind", ["snapshot", "policy"])
def test_a_malformed_file_is_one_line(iegopt: Run, kind: str) -> None:
    files = {
        "snapshot": CORPUS / "snapshot" / "memory-negative.yaml",
        "policy": CORPUS / "batch_policy" / "pace-zero.yaml",
    }
    words = {"snapshot": "afternoon", "policy": "afternoon", kind: files[kind]}
    ran = iegopt("replan", words["snapshot"], "--cluster", "mixed-racks", "--policy", words["policy"])
    assert (ran.code, ran.out) == (1, "")
    assert files[kind].name in ran.error_line


def test_a_page_shows_every_instance_and_request(iegopt: Run, tmp_path: Path) -> None:
    target = tmp_path / "queue.html"
    ran = iegopt(*SHIPPED, "--quiet", "--html", target)
    assert ran.code == 0
    text = target.read_text(encoding="utf-8")
    parsed = Checked(text)
    assert text.startswith("<!doctype html>")
    for name in ("h-0", "h-1", "a-0", "a-1", "a-2"):
        assert parsed.texts.count(name) >= 2, name  # drawing, table
    for name in ("chat-885", "chat-861", "label-44"):
        assert name in parsed.texts


def test_the_page_draws_prefills_shares_and_memory() -> None:
    parsed = Checked(replan_page(make_queue_plan(), "lab", window=10.0))
    kinds = [attrs["class"] for tag, attrs in parsed.tags if tag == "rect"]
    assert kinds.count("bar compute") == 2
    assert kinds.count("bar tool") == 1
    assert (kinds.count("memory"), kinds.count("control"), kinds.count("L")) == (3, 3, 3)
    prefill = next(attrs for tag, attrs in parsed.tags if tag == "rect" and attrs["class"] == "bar tool")
    first, second = (attrs for tag, attrs in parsed.tags if tag == "rect" and attrs["class"] == "bar compute")
    # a-0 prefills chat-2 and then labels-1, which begins where the other ends.
    apart = [float(bar["x"] or 0) + float(bar["width"] or 0) for bar in (first, second)]
    assert any(abs(end - float(prefill["x"] or 0)) < 0.2 for end in apart)
    for title in (
        "Instances over the window",
        "Priorities",
        "Placed",
        "Held and refused",
        "Running stages that change",
    ):
        assert title in parsed.texts


def test_a_large_plan_makes_a_page_of_bounded_size() -> None:
    small, large = (len(replan_page(make_queue_plan(held), "lab", window=10.0)) for held in (1000, 10_000))
    assert large < small + 1000


def test_nothing_of_the_page_is_fetched_and_names_are_escaped() -> None:
    text = replan_page(make_queue_plan(), "<script>x</script>", window=10.0)
    assert "://" not in text
    assert "url(" not in text
    assert not {tag for tag, _ in Checked(text).tags} & {"link", "script", "img", "iframe", "object"}


def test_what_does_not_fit_the_cluster_is_told_with_its_file(iegopt: Run, tmp_path: Path) -> None:
    path = tmp_path / "queue.yaml"
    instance = "{id: a, devices: [h100-99], variant: Llama-2-70B/fp16/TensorRT}"
    path.write_text(f"snapshot: {{time: 1s, instances: [{instance}]}}")
    ran = iegopt("replan", path, "--cluster", "mixed-racks")
    assert (ran.code, ran.out) == (1, "")
    assert f"{path}: snapshot.instances.0.devices: no device of cluster mixed-racks is called h100-99" in ran.error_line
