"""Surcharges and pair tables add up to the cost and time of every pair of options."""

from __future__ import annotations

import numpy as np
import pytest

from iegopt.problem.arrays import Problem
from iegopt.problem.transfer import edge_ticks
from iegopt.solvers.surcharges import EdgeTerms, allowed_of, edge_terms, unstatable
from tests.solvers.random_problems import random_problem


def total(terms: EdgeTerms, source: int, target: int) -> tuple[int, int]:
    """Time and cost of a pair by the terms alone."""
    at = int(np.flatnonzero(terms.options == source)[0])
    time, cost = int(terms.time[at]), int(terms.cost[at])
    for term in terms.surcharges:
        if source in term.source and target not in term.target:
            time, cost = time + term.time, cost + term.cost
    if terms.table is not None:
        row = next(i for i, part in enumerate(terms.table.source) if source in part)
        column = next(j for j, part in enumerate(terms.table.target) if target in part)
        time, cost = time + int(terms.table.time[row, column]), cost + int(terms.table.cost[row, column])
    return time, cost


def edges_of(problem: Problem, timed: bool) -> list[EdgeTerms]:
    ends = problem.edges
    return [
        edge_terms(
            problem, e, timed, allowed_of(problem, int(ends.source[e])), allowed_of(problem, int(ends.target[e]))
        )
        for e in range(problem.E)
    ]


@pytest.mark.parametrize("links", ["tree", "odd", "pairs"])
def test_terms_add_up_to_every_pair(links: str) -> None:
    pairs = 0
    for seed in range(60):
        problem = random_problem(seed, links=links)
        for terms in edges_of(problem, timed=True):
            for target in allowed_of(problem, int(problem.edges.target[terms.edge])).tolist():
                for source in terms.options.tolist():
                    time, cost = edge_ticks(problem, terms.edge, np.array(source), np.array(target))
                    assert total(terms, source, target) == (int(time), int(cost)), f"seed {seed}"
                    pairs += 1
    assert pairs > 1000


def test_parallel_shards_and_overlap_are_among_the_terms() -> None:
    problems = [random_problem(seed, links="tree", gangs=True, extensions=True) for seed in range(80)]
    assert any(problem.topology.parallel_shards for problem in problems)
    assert any(hidden is not None for problem in problems for hidden in problem.edges.hidden)


def test_untimed_edges_have_no_times() -> None:
    for seed in range(20):
        for terms in edges_of(random_problem(seed), timed=False):
            assert not terms.time.any()
            assert not any(term.time for term in terms.surcharges)
            assert terms.table is None or not terms.table.time.any()


def test_a_dense_matrix_has_a_limit() -> None:
    problem = random_problem(3, links="pairs", stages=4)
    assert unstatable(problem, 10**6) is None
    reason = unstatable(problem, 1)
    assert reason is not None
    assert "pairs of options" in reason
