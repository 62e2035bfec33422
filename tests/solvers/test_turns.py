"""When the turns of ``auto`` end for an engine, on a clock that the turns move themselves."""

from __future__ import annotations

import random
from types import SimpleNamespace
from typing import Any

import pytest

from iegopt.problem.families import generate
from iegopt.solvers.clock import Clock
from iegopt.solvers.result import Params
from iegopt.solvers.turns import Turns


class Idle:
    """A run in which every turn takes all of its time; the gap becomes ``better`` times as much in each."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *, limit: float, gap: float, sites: int, better: float) -> None:
        self.now, self.better = 0.0, better
        monkeypatch.setattr("iegopt.solvers.clock.time", SimpleNamespace(perf_counter=lambda: self.now))
        run: Any = SimpleNamespace(
            problem=generate("agent", 14, sites, "tight", 24), clock=Clock(limit, 0.0), rng=random.Random(0),
            params=Params(), search=SimpleNamespace(offer_best=lambda _: None, nodes=0), learn=lambda _: None, steps=[],
            closed=False, best=(1, None), gap=gap, progress=0.0,
        )  # fmt: skip
        self.run = run
        for turn in ("_explore", "_neighbourhoods", "_search"):
            monkeypatch.setattr(Turns, turn, lambda _, clock: self.take(clock))
        self.turns = Turns(run)
        self.turns.take_turns(2.0)

    def take(self, clock: Clock) -> None:
        self.now = max(self.now, clock.limit)
        self.run.gap *= self.better


@pytest.mark.parametrize("gap", [0.01, 0.05, 0.2])
@pytest.mark.parametrize("limit", [5.0, 10.0, 60.0])
def test_a_small_problem_that_stands_still_has_an_engine_soon(
    monkeypatch: pytest.MonkeyPatch, gap: float, limit: float
) -> None:
    """168 options: after an eighth of a second of tabu search and one of turns. It was a fifth of any limit."""
    idle = Idle(monkeypatch, limit=limit, gap=gap, sites=12, better=1.0)
    assert idle.turns.stalled
    assert idle.now < 0.5


def test_a_gap_that_closes_has_no_engine(monkeypatch: pytest.MonkeyPatch) -> None:
    idle = Idle(monkeypatch, limit=10.0, gap=0.2, sites=12, better=0.4)
    assert not idle.turns.stalled
    assert idle.now >= 10.0


def test_a_large_problem_has_no_engine(monkeypatch: pytest.MonkeyPatch) -> None:
    idle = Idle(monkeypatch, limit=10.0, gap=0.2, sites=256, better=1.0)
    assert not idle.turns.stalled
    assert idle.now >= 10.0
