"""What the questions of a planner refuse, and what they take in its stead."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from iegopt.errors import InputError
from iegopt.explain.questions import Questions
from iegopt.planner import Planner
from tests.explain.lab import chain, cluster_of, cpu, gpu, planned, random_cluster, random_request, stage

CLUSTER = cluster_of(gpu("fast"), gpu("slow", "200T"), cpu("cpu"))
REQUEST = chain(stage("prefill", "prefill"), stage("decode", "decode", vram="10GB"))
PLANNER = Planner(CLUSTER)


@pytest.mark.parametrize(
    ("ask", "says"),
    [
        (lambda: PLANNER.suggest(REQUEST, top=0), "suggest: top 0: expected a whole number, at least 1"),
        (lambda: PLANNER.suggest(REQUEST, top=-1), "suggest: top -1: expected a whole number, at least 1"),
        (lambda: PLANNER.suggest(REQUEST, "H1000"), "unknown device model H1000"),
        (lambda: PLANNER.idle_devices("L40S", "a", 0), "idle_devices: count 0: expected a whole number, at least 1"),
        (lambda: PLANNER.what_if(REQUEST, remove="fats"), "no device of cluster lab is called fats. Maybe fast?"),
        (
            lambda: PLANNER.what_if(REQUEST, update={"fast": {"qeue": (1, 0.5)}}),  # type: ignore[typeddict-unknown-key]
            "update fast: unknown figure qeue. Maybe queue?",
        ),
        (lambda: PLANNER.what_if(REQUEST, update={"fast": 3}), "update fast: 3: expected a mapping"),  # type: ignore[dict-item]
        (lambda: PLANNER.what_if(REQUEST, add=["L40S"]), "add: L40S: expected devices"),  # type: ignore[list-item]
    ],
)
def test_what_is_wrong_is_named(ask: Callable[[], object], says: str) -> None:
    with pytest.raises(InputError, match=says.replace("(", r"\(")):
        ask()


QUESTIONS: list[Any] = [
    Questions.what_if, Questions.suggest, Questions.criticality, Questions.sensitivity, Questions.shadow_prices
]  # fmt: skip


@pytest.mark.parametrize("ask", QUESTIONS, ids=lambda ask: ask.__name__)
@pytest.mark.parametrize("limit", [-1, float("nan"), "3"])
def test_a_time_limit_is_called_by_its_name(ask: Any, limit: Any) -> None:
    with pytest.raises(InputError, match=r"^time_limit .*: expected a number of seconds, at least 0"):
        ask(PLANNER, REQUEST, time_limit=limit)


@pytest.mark.parametrize("ask", QUESTIONS, ids=lambda ask: ask.__name__)
def test_the_name_of_a_file_is_no_request(ask: Any) -> None:
    before = planned(CLUSTER, REQUEST)
    with pytest.raises(TypeError, match=r"^request: got a str, expected a RequestSpec \(iegopt.load_request"):
        ask(PLANNER, "request.yaml", before=before)


@pytest.mark.parametrize("ask", QUESTIONS, ids=lambda ask: ask.__name__)
def test_a_plan_of_another_request_is_refused(ask: Any) -> None:
    other = planned(CLUSTER, chain(stage("prefill", "prefill")))
    with pytest.raises(InputError, match="before: a plan of another request chain, of other stages"):
        ask(PLANNER, REQUEST, before=other)
    with pytest.raises(InputError, match="before: a plan of chain on lab, asked about mine on lab"):
        ask(PLANNER, REQUEST.model_copy(update={"id": "mine"}), before=planned(CLUSTER, REQUEST))


def test_one_name_stands_for_a_list_of_it() -> None:
    cluster, request = random_cluster(0), random_request(0)
    planner, name = Planner(cluster), cluster.devices[0].id
    before = planned(cluster, request)
    assert (
        planner.what_if(request, remove=name, before=before).after.document()["placement"]
        == planner.what_if(request, remove=[name], before=before).after.document()["placement"]
    )
    alone, listed = (planner.suggest(request, it, before=before) for it in ("L40S", ["L40S"]))
    assert [one.places for one in alone] == [one.places for one in listed]
    assert {one.model for one in alone} == {"L40S"}


def test_without_time_for_a_plan_the_answer_says_so() -> None:
    """A long request: a short one has its first plan within the half millisecond that an answer may be late."""
    stages = [stage(f"s{n}", "decode", vram="1MB") for n in range(200)]
    long = chain(*stages, dag_constraints={"max_depth": 200, "max_nodes": 200})
    for answer in (PLANNER.sensitivity(long, time_limit=0), PLANNER.shadow_prices(long, time_limit=1e-9)):
        assert answer is not None
        assert (answer.complete, answer.note) == (False, "the time limit came before there was a plan")
