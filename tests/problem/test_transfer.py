"""All edges at once against one edge at a time, bit for bit."""

from __future__ import annotations

import numpy as np
import pytest

from iegopt.problem.transfer import chosen_transfers, edge_ticks, raw_seconds
from tests.solvers.random_problems import random_problem


@pytest.mark.parametrize("seed", range(80))
def test_chosen_transfers_equal_the_edges_one_by_one(seed: int) -> None:
    problem = random_problem(seed)
    rng = np.random.default_rng(seed)
    options = problem.options
    if (np.diff(options.ptr) == 0).any():
        return
    for _ in range(5):
        choice = rng.integers(options.ptr[:-1], options.ptr[1:])
        moved = chosen_transfers(problem, choice)
        for e in range(problem.E):
            ends = choice[problem.edges.source[e]], choice[problem.edges.target[e]]
            time, cost = edge_ticks(problem, e, *ends)
            assert (int(moved.time[e]), int(moved.cost[e])) == (int(time), int(cost))
            assert moved.raw[e] == raw_seconds(problem, e, *ends)
