"""A device with workers is planned for what they serve, and for nothing else."""

from __future__ import annotations

import pytest

import iegopt
from iegopt.planner import Planner
from iegopt.solvers.clock import Clock
from iegopt.spec.cluster import ClusterSpec
from iegopt.spec.explain_error import validate
from iegopt.spec.request import RequestSpec
from iegopt.verify.report import Violation

REQUEST = validate(
    RequestSpec, {"model": "SmolLM2-135M", "prompt_tokens": 100, "output_tokens": 20, "precision": "fp32"}, "request"
)


def cluster(**workers: object) -> ClusterSpec:
    devices = [{"id": name, "model": "cpu-generic-32c", "worker": worker} for name, worker in workers.items()]
    return validate(ClusterSpec, {"devices": devices}, "cluster")


def test_stages_go_where_a_worker_serves_them() -> None:
    plan = Planner(cluster(a={"roles": ["cpu"]}, b={"roles": ["lm"]}, c=None)).plan(REQUEST)
    assert isinstance(plan, iegopt.Plan)
    places = {stage.id: stage.site for stage in plan.stages}
    assert places["tokenize"] in ("a", "c")
    assert places["prefill"] in ("b", "c")
    alone = Planner(cluster(a={"roles": ["cpu"]}, b={"roles": ["lm"]})).plan(REQUEST)
    assert isinstance(alone, iegopt.Plan)
    assert {stage.id: stage.site for stage in alone.stages} == {
        "tokenize": "a", "prefill": "b", "decode": "b", "output": "a",
    }  # fmt: skip


def test_no_worker_is_a_conflict_with_its_reason() -> None:
    answer = Planner(cluster(a={"roles": ["cpu", "tool"]})).plan(REQUEST)
    assert isinstance(answer, iegopt.NoPlan)
    assert answer.status == "infeasible"
    assert "no worker of cpu-generic-32c runs prefill stages" in str(answer.conflicts)


def test_the_verifier_sees_a_stage_without_a_worker() -> None:
    planner = Planner(cluster(a={"roles": ["cpu"]}, b={"roles": ["lm"]}))
    free = Planner(cluster(a=None, b=None)).plan(REQUEST)
    assert isinstance(free, iegopt.Plan)
    broken = [v for v in planner.verify(free, REQUEST).violations if v.rule == "option"]
    assert broken
    assert all(isinstance(v, Violation) for v in broken)


def test_gangs_are_not_made_of_devices_with_workers() -> None:
    devices = [{"id": "a", "model": "cpu-generic-32c", "count": 4, "spread": {"per_host": 4}}]
    wide = REQUEST.model_copy(update={"parallelism": None})
    free = validate(ClusterSpec, {"devices": devices}, "cluster")
    served = validate(ClusterSpec, {"devices": [devices[0] | {"worker": {"roles": ["cpu", "lm"]}}]}, "cluster")
    for spec in (free, served):
        plan = Planner(spec).plan(wide)
        assert isinstance(plan, iegopt.Plan)
    assert all(len(stage.devices) == 1 for stage in plan.stages)


@pytest.mark.parametrize(
    ("worker", "words"),
    [
        ({"roles": []}, "roles"),
        ({"roles": ["lm", "lm"]}, "a role stands twice"),
        ({"roles": ["gpu"]}, "roles"),
        ({"roles": ["lm"], "thread": 1}, "threads"),
        ({"roles": ["lm"], "kv": {"device": "2"}}, "no unit"),
    ],
)
def test_a_bad_worker_is_refused(worker: object, words: str) -> None:
    with pytest.raises(iegopt.errors.InputError, match=r"devices\.0\.worker") as caught:
        cluster(a=worker)
    assert words in str(caught.value)


def test_first_plans_put_stages_where_a_worker_serves_them() -> None:
    """Whatever the deadline: a plan that the verifier refused would be an error, and the request lost."""
    planner = Planner(cluster(a={"roles": ["lm"]}, b={"roles": ["cpu"]}, c={"roles": ["tool", "retrieval"]}))
    kinds = ("tokenize", "prefill", "tool", "retrieval", "decode", "output")
    stages = [{"id": kind, "type": kind, "compute": {"flops": "1G"}} for kind in kinds]
    plain = validate(RequestSpec, {"graph": {"stages": stages}}, "request")
    wanted = {"tokenize": "b", "prefill": "a", "tool": "c", "retrieval": "c", "decode": "a", "output": "b"}
    for asked in (REQUEST, plain):
        planner.load(asked)
        first = planner._in_time._first.plan(planner._cluster, planner.graph(asked), asked, Clock(1.0))
        answers = [first, *(planner.plan(asked, deadline_ms=ms) for ms in (0.5, 1.0, 2.0, 5.0, 20.0, 1000.0))]
        for plan in answers:
            if plan is not None and not isinstance(plan, iegopt.NoPlan):
                assert {stage.id: stage.site for stage in plan.stages}.items() <= wanted.items()
                assert planner.verify(plan, asked).ok
        assert isinstance(first, iegopt.Plan)
        assert isinstance(answers[-1], iegopt.Plan)
