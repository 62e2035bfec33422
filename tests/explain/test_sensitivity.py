"""Flips: just below the weight the stage stays, just above it moves."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from iegopt.explain.chosen import chosen, spent_dollars, term_sums
from iegopt.explain.sensitivity import Flip, Sensitivity, flips_by_move, weights_of
from iegopt.planner import Planner
from iegopt.plans import Plan
from iegopt.problem.compile import compile_graph
from iegopt.solvers.clock import Clock
from iegopt.solvers.evaluate import feasible, objective
from iegopt.spec.request import RequestSpec, Weights
from tests.explain.lab import at, chain, cluster_of, gpu, planned, random_cluster, random_request, stage

SEEDS = range(12)
STEP = 1e-4
"""Relative step to either side of a flip: far above what nanoseconds round, far below the next flip."""


def with_weight(request: RequestSpec, plan: Plan, name: str, value: float) -> RequestSpec:
    given = {**plan.weights.document(), name: value}
    return request.model_copy(update={"weights": Weights.model_validate(given)})


def beside(flip: Flip) -> tuple[float, float]:
    """Weights just before and just behind a flip, as seen from the present one."""
    step = STEP * max(abs(flip.at), 1e-3)
    towards = 1 if flip.change >= 0 else -1
    return flip.at - towards * step, flip.at + towards * step


def test_a_flip_by_hand() -> None:
    """100 TFLOP: 0.25 s at 3.60 $/h or 0.5 s at 1.20 $/h, mean 2.40 $/h; so L + T rise by 0.25, M falls by 0.125."""
    cluster = cluster_of(gpu("fast"), gpu("slow", "200T", price=1.2))
    asked = chain(stage("prefill", "prefill"), weights={"alpha": 1.0, "beta": 0.5, "gamma": 0.1, "lambda": 0.8})
    answer = Planner(cluster).sensitivity(asked)
    assert isinstance(answer, Sensitivity)
    assert answer.complete
    (up,) = answer.flips
    assert (up.stage, up.weight, up.site, up.now) == ("prefill", "gamma", "slow", 0.1)
    assert up.at == pytest.approx(0.1 + (1.5 * 0.25 - 0.1 * 0.125) / 0.125)
    assert up.change == pytest.approx(up.at - 0.1)


@pytest.mark.parametrize("seed", SEEDS)
def test_single_moves_turn_at_their_flip(seed: int) -> None:
    """The cheapest feasible move of the stage, all others fixed, costs more just before and less just behind."""
    planner, request = Planner(random_cluster(seed)), random_request(seed)
    plan = planner.plan(request, explained=False)
    assert isinstance(plan, Plan)
    compiled, choice = chosen(planner._cluster, planner.graph(request), request, plan)
    answer = flips_by_move(compiled, choice, Clock(10.0))
    assert answer.complete
    for flip in answer.flips:
        v = compiled.problem.stages.index(flip.stage)
        cheaper = []
        for value in beside(flip):
            other = compile_graph(
                compiled.cluster, compiled.graph, with_weight(request, plan, flip.weight, value)
            ).problem
            moved = [np.concatenate([choice[:v], [o], choice[v + 1 :]]) for o in range(*other.options.ptr[v : v + 2])]
            away = [row for row in moved if other.options.site[row[v]] != other.options.site[choice[v]]]
            best = min(objective(other, row) for row in away if feasible(other, row))
            cheaper.append(best < objective(other, choice))
        assert cheaper == [False, True], flip


@pytest.mark.parametrize("seed", SEEDS)
def test_replanned_optima_turn_at_their_flip(seed: int) -> None:
    """Just before, the old site still attains the optimum of the stage; just behind, it does not."""
    planner, request = Planner(random_cluster(seed)), random_request(seed)
    plan = planner.plan(request, explained=False)
    assert isinstance(plan, Plan)
    answer = planner.sensitivity(request, before=plan, exact=True, time_limit=30.0)
    assert isinstance(answer, Sensitivity)
    assert answer.complete, answer.note
    solved = [flip for flip in answer.flips if flip.kind == "replan"]
    assert all(flip.proven for flip in solved)
    for flip in solved:
        kept = [_stays(planner, with_weight(request, plan, flip.weight, value), plan, flip) for value in beside(flip)]
        assert kept == [True, False], flip


def _stays(planner: Planner, request: RequestSpec, plan: Plan, flip: Flip) -> bool:
    """Whether some optimum has the stage where the plan has it: pinning it there costs nothing."""
    free = planner.plan(request, explained=False)
    site = plan.stage(flip.stage).site
    assert request.graph is not None
    stages = [
        s.model_copy(update={"affinity": s.affinity.model_copy(update={"device": site, "required": True})})
        if s.id == flip.stage else s
        for s in request.graph.stages
    ]  # fmt: skip
    graph = request.graph.model_copy(update={"stages": tuple(stages)})
    pinned = planner.plan(request.model_copy(update={"graph": graph}), explained=False)
    assert isinstance(free, Plan)
    assert isinstance(pinned, Plan)
    return pinned.objective <= free.objective + 1e-8


def test_no_flip_of_the_optimum_lies_nearer_than_any_change_of_plan() -> None:
    """Between the present weight and its first flip the plan is still optimal."""
    for seed in SEEDS:
        planner, request = Planner(random_cluster(seed)), random_request(seed)
        plan = planner.plan(request, explained=False)
        assert isinstance(plan, Plan)
        answer = planner.sensitivity(request, before=plan, exact=True)
        assert isinstance(answer, Sensitivity)
        for name in ("alpha", "gamma", "lambda"):
            above = [f for f in answer.flips if f.kind == "replan" and f.weight == name and f.change > 0]
            if not above:
                continue
            first = min(above, key=lambda flip: flip.at)
            halfway = with_weight(request, plan, name, (first.now + first.at) / 2)
            for flip in above:
                assert _stays(planner, halfway, plan, flip), (seed, flip)


def test_a_stage_that_cannot_move_has_no_flip() -> None:
    """The only other device is too small."""
    cluster = cluster_of(gpu("fast"), gpu("small", "200T", vram="20GB", price=0.1))
    answer = Planner(cluster).sensitivity(chain(stage("prefill", "prefill")), exact=True)
    assert isinstance(answer, Sensitivity)
    assert answer.flips == ()


def test_without_time_it_says_what_is_missing() -> None:
    planner, request = Planner(random_cluster(0)), random_request(0)
    compiled, choice = chosen(planner._cluster, planner.graph(request), request, planned(random_cluster(0), request))
    answer = flips_by_move(compiled, choice, Clock(0.0))
    assert (answer.flips, answer.complete) == ((), False)
    assert answer.note == "the time limit came before prefill and the stages after it"
    plan = planned(random_cluster(0), request)
    exact = planner.sensitivity(request, before=plan, exact=True, time_limit=0.0)
    assert isinstance(exact, Sensitivity)
    assert not exact.complete
    assert "the time limit ended the search of alpha down, alpha up" in exact.note


def test_terms_of_a_choice_are_the_plans() -> None:
    for seed in SEEDS:
        planner, request = Planner(random_cluster(seed)), random_request(seed)
        plan = planned(random_cluster(seed), request)
        compiled, choice = chosen(planner._cluster, planner.graph(request), request, plan)
        sums = term_sums(compiled, choice)
        assert sums == pytest.approx({term: getattr(plan.cost, term) for term in "LTMD"})
        assert spent_dollars(compiled, choice) == pytest.approx(plan.cost.dollars)
        assert set(weights_of(compiled)) == set(plan.weights.document())


def test_a_preferred_affinity_counts_in_the_flip() -> None:
    """The penalty of 0.05 s for leaving the host comes on top of what gamma has to outweigh."""
    cluster = cluster_of(gpu("fast", **at("a", "x")), gpu("slow", "200T", price=1.2, **at("b", "y")))
    request = chain(stage("prefill", "prefill", vram="10GB"), stage("decode", "decode", vram="10GB"), size="1kB")
    assert request.graph is not None
    plain = Planner(cluster).sensitivity(request)
    rule = {"stages": ["prefill", "decode"], "level": "host", "required": False, "penalty": "50ms"}
    graph = type(request.graph).model_validate({**request.graph.document(), "affinity": [rule]})
    bound = Planner(cluster).sensitivity(request.model_copy(update={"graph": graph}))
    assert isinstance(plain, Sensitivity)
    assert isinstance(bound, Sensitivity)
    (before,) = (f.at for f in plain.flips if f.stage == "decode" and f.weight == "gamma")
    (after,) = (f.at for f in bound.flips if f.stage == "decode" and f.weight == "gamma")
    assert after - before == pytest.approx(0.05 / 0.125)


def test_a_flip_documents_its_change() -> None:
    flip = Flip("move", "s", "alpha", 1.0, 0.25, "x", "y", True)
    document = Sensitivity((flip,), True, "").document()
    assert document["flips"] == [{**dataclasses.asdict(flip), "change": -0.75}]
    assert document["searched"] is None
