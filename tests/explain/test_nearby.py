"""A plan carried over to a changed cluster is a plan of it, moves no more than it must, and is never lost."""

from __future__ import annotations

import pytest

from iegopt.explain.chosen import options_of
from iegopt.explain.nearby import nearby
from iegopt.planner import Planner
from iegopt.plans import Plan
from iegopt.problem.arrays import TICKS_PER_SECOND
from iegopt.solvers.clock import Clock
from iegopt.solvers.evaluate import feasible, objective
from tests.explain.lab import chain, cluster_of, cpu, gpu, planned, random_cluster, random_request, stage


@pytest.mark.parametrize("seed", range(6))
def test_only_stages_without_a_place_move_and_a_plan_from_there_is_not_worse(seed: int) -> None:
    cluster, request = random_cluster(seed), random_request(seed)
    before = planned(cluster, request)
    for device in sorted({device for placed in before.stages for device in placed.devices}):
        changed = Planner(cluster).changed(remove=device)
        problem = changed.compile(request, tier=0).problem
        choice = nearby(problem, before, Clock(10.0))
        assert choice is not None
        assert feasible(problem, choice)
        stays = [option is not None for option in options_of(problem, before)]
        assert stays == [device not in placed.devices for placed in before.stages]
        assert [a == b for a, b in zip(choice.tolist(), options_of(problem, before), strict=True)] == stays
        best = changed.plan(request, explained=False)
        after = changed.plan(request, solver="greedy", near=before, explained=False)
        assert isinstance(after, Plan)
        assert isinstance(best, Plan)
        assert best.objective <= after.objective <= objective(problem, choice) / TICKS_PER_SECOND


def test_there_may_be_no_such_plan() -> None:
    cluster = cluster_of(gpu("fast"), gpu("slow", "200T"), cpu("cpu"))
    request = chain(stage("prefill", "prefill"), stage("search", "tool"))
    problem = Planner(cluster).changed(remove="cpu").compile(request, tier=0).problem
    assert nearby(problem, planned(cluster, request), Clock(10.0)) is None
