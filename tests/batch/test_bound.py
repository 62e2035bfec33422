"""No bound is below what brute force finds, and every plan is one that brute force could have found."""

from __future__ import annotations

import pytest

from iegopt.batch.brute import TooLargeError, brute_force
from iegopt.batch.levels import Search
from iegopt.solvers.clock import Clock

from .random_snapshots import random_case

EPSILON = 1e-6
MOST = 2_000
"""Placements that brute force looks at."""


# 113: a running prefill on instances that do not decode; 20: a throughput request that decodes slowly.
@pytest.mark.parametrize("seed", [*range(8), 20, 113])
def test_bounds_hold(seed: int) -> None:
    model = random_case(seed, "tiny").model
    try:
        best = brute_force(model, MOST).objective.tolist()
    except TooLargeError:
        pytest.skip("too large for brute force")
    search = Search(model, Clock(60.0))
    search.run()
    for level, mine, theirs in zip(search.levels, search.outcome.objective.tolist(), best, strict=True):
        assert theirs <= search.bounds[level] + EPSILON * max(1.0, abs(theirs))
        assert mine <= theirs + EPSILON
        if mine < theirs - EPSILON:
            break  # the levels below are then free to differ
