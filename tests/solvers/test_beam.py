"""Beams by compiled kernels give the plans, values and bounds of numpy's; what they leave out, brute force confirms."""

from __future__ import annotations

import dataclasses
import math
import time
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from iegopt.problem.arrays import Affinity
from iegopt.problem.families import Family, Memory, generate
from iegopt.solvers.api import solve
from iegopt.solvers.exact import candidates as laid_out
from iegopt.solvers.exact import compiled, reduction
from iegopt.solvers.exact.beam import Beam, beam
from iegopt.solvers.exact.candidates import Candidates, candidates
from iegopt.solvers.exact.links import LevelLink, TableLink
from iegopt.solvers.exact.messages import UNREACHABLE
from iegopt.solvers.exact.partial_plans import course
from iegopt.solvers.exact.pricing import Priced, Pricing, no_split
from iegopt.solvers.result import Params
from iegopt.solvers.search.greedy import GreedySolver
from tests.solvers.random_problems import random_problem

Bools = npt.NDArray[np.bool_]


def priced(c: Candidates, keep: Bools, steps: int, upper: int) -> Priced:
    """Of the nodes ``keep`` (n, B)."""
    B = keep.shape[1]
    pricing = Pricing(c, keep, np.zeros((len(c.capacity), B)), no_split(c, B))
    return pricing.run(lambda: upper, steps, 1.0, lambda plan: None, lambda _: False)


def nodes(c: Candidates, count: int, seed: int) -> Bools:
    """(n, count) all options, and some of them."""
    rng = np.random.default_rng(seed)
    keep = rng.random((len(c.option), count)) < 0.7
    keep[:, 0] = True
    for part in c.of:
        keep[part.start] = True
    return keep


def by_both(monkeypatch: pytest.MonkeyPatch, *arguments: Any, **named: Any) -> Beam:
    """The beam, by numpy and by the kernels."""
    fast = beam(*arguments, **named)
    with monkeypatch.context() as patch:
        patch.setattr(compiled, "_ready", None)
        plain = beam(*arguments, **named)
    assert plain.bound == fast.bound
    assert plain.value.tolist() == fast.value.tolist()
    assert plain.plans.tolist() == fast.plans.tolist()
    return fast


@pytest.mark.parametrize("first", [0, 60])
@pytest.mark.parametrize("cycles", ["tabled", "split", "split over trees"])
def test_kernels_give_the_beams_of_numpy(first: int, cycles: str, core: None, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: set[str] = set()
    if cycles != "tabled":
        monkeypatch.setattr(reduction, "_MOST_CELLS", 0)
    if cycles == "split over trees":
        monkeypatch.setattr(laid_out, "_TABLE_CELLS", 0)
    for seed in range(first, first + 60):
        problem = random_problem(seed, combinations=1_500, deadline=False, extensions=seed % 2 == 0)
        truth = solve(problem, "brute").objective
        c = candidates(problem, problem.allowed) if problem.allowed.any() else None
        if truth is None or c is None or c.rows.timed or any(rule.penalty < 0 for rule in problem.affinities):
            continue
        seen |= features(c)
        keep = nodes(c, 2, seed)
        bounded = priced(c, keep, 1 + seed % 3 * 6, truth + 1)
        for column, upper in ((0, truth + 1), (0, 2 * abs(truth) + 10**6), (1, 2 * abs(truth) + 10**6)):
            for width in (1, 3, 10**6):
                by_both(monkeypatch, c, bounded, column, keep[:, column], upper, width, wide=(40, 40_000))
                found = by_both(monkeypatch, c, bounded, column, keep[:, column], upper, width)
            assert column or min([found.bound, *found.value.tolist()]) == truth, seed
    expected = {"tabled": {"pairs"}, "split": {"split"}, "split over trees": {"split", "trees"}}
    assert seen >= {"gangs", "weights", "rules"} | expected[cycles]


def features(c: Candidates) -> set[str]:
    way = course(c)
    has = {
        "gangs": len(c.devices) > 1,
        "weights": len(np.unique(c.weight_key[c.weight_key >= 0])) < (c.weight_key >= 0).sum(),
        "rules": any(way.rules),
        "pairs": bool(c.reduction.pairs),
        "split": any(way.closing),
        "trees": any(isinstance(link, LevelLink) for link in c.links),
    }
    return {name for name, some in has.items() if some}


@pytest.mark.parametrize(
    ("family", "stages", "sites", "memory", "gangs"),
    [
        ("joins", 20, 200, "part_full", True),
        ("agent", 12, 128, "tight", False),
        ("chain", 20, 256, "tight", False),
        ("layered", 12, 128, "tight", False),
    ],
)
def test_kernels_give_the_wide_beams_of_numpy(
    family: Family, stages: int, sites: int, memory: Memory, gangs: bool, core: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    most = 0
    for seed in range(2):
        problem = generate(family, stages, sites, memory, seed, gangs=gangs)
        c = candidates(problem, problem.allowed)
        keep = nodes(c, 2, seed)
        plan = GreedySolver().solve(problem, Params(), None).objective
        assert plan is not None
        bounded = priced(c, keep, 10, plan)
        for width, wide in ((16, None), (300, None), (64, (2_000, 400_000))):
            for column in range(2):
                found = by_both(monkeypatch, c, bounded, column, keep[:, column], plan, width, 200_000, wide=wide)
                most = max(most, len(found.plans))
    assert most > 0


@pytest.mark.parametrize("compiles", [True, False])
def test_an_option_that_fits_nowhere_is_not_taken_for_one_that_gains(
    compiles: bool, core: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What several unreachable edges cost together is more than an integer holds."""
    monkeypatch.setattr(reduction, "_MOST_CELLS", 0)
    if not compiles:
        monkeypatch.setattr(compiled, "_ready", None)
    problem = generate("layered", 20, 8, "slack", 1)
    c = candidates(problem, problem.allowed)
    way = course(c)
    leaving = [sum(c.ends[e][0] == v for e, _ in closing) for v, closing in zip(way.order, way.closing, strict=True)]
    stage = way.order[int(np.argmax(leaving))]
    assert max(leaving) >= 3
    for link, (source, target) in zip(c.links, c.ends, strict=True):
        assert isinstance(link, TableLink)
        if stage == source:
            link.table[0] = UNREACHABLE
        elif stage == target:
            link.table[:, 0] = UNREACHABLE
    keep = np.ones((len(c.option), 1), dtype=np.bool_)
    keep[c.of[stage].start] = False
    found = beam(c, priced(c, keep, 2, 2**60), 0, keep[:, 0], 2**60, 50)
    assert len(found.plans) > 0
    assert (found.plans[:, stage] != c.of[stage].start).all()


@pytest.mark.parametrize("sized", [False, True])
def test_hundreds_of_stages_are_put_in_order_at_once(sized: bool) -> None:
    """The next stage leaves the fewest placed ones waiting for another, and that is told without counting them anew."""
    rng, V = np.random.default_rng(0), 300
    family = generate("chain", V, 4, "slack", 0)
    rules = tuple(
        Affinity(tuple(rng.choice(V, 2, replace=False).tolist()), -1, True, False, 10**6) for _ in range(2 * V)
    )
    none = dataclasses.replace(family.edges, weight=np.zeros(family.E))
    c = candidates(dataclasses.replace(family, edges=none, affinities=rules), family.allowed)
    begun = time.thread_time()
    order = course(c, sized).order
    assert time.thread_time() - begun < 1.0
    needs = [{w for rule in rules if v in rule.stages for w in rule.stages} - {v} for v in range(V)]
    size = [round(4 * math.log2(1 + part.stop - part.start)) if sized else 1 for part in c.of]
    for i in range(0, V, 50):
        done, left = set(order[:i]), set(order[i:])
        free = [v for v in left if all(p in done for p in c.reduction.parents[v])]
        waiting = {v: sum(bool(needs[w] - done - {v}) * size[w] for w in (*done, v)) for v in free}
        assert order[i] == min(free, key=lambda v: (waiting[v], size[v], v))


def test_hundreds_of_stages_that_share_weights_are_put_in_order_at_once() -> None:
    """Sets of all that share, made anew for every stage and place, take a second."""
    problem = generate("fanout", 400, 5, "slack", 1)
    key = problem.options.site
    options = dataclasses.replace(problem.options, weight_key=key, weight_share=np.ones_like(key))
    c = candidates(dataclasses.replace(problem, options=options), problem.allowed)
    begun = time.thread_time()
    found = course(c)
    assert time.thread_time() - begun < 0.5
    assert sorted(found.order) == list(range(400))
    assert found.ahead[398] == found.order[:399]
