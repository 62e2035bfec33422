"""The pace of a planner's steps: what is expected of the next after some."""

from __future__ import annotations

import pytest

from iegopt.planner.pace import Pace


def test_a_pace_goes_to_what_steps_take() -> None:
    pace = Pace(least=1e-4, each=1e-5)
    assert pace.seconds(10) == pytest.approx(2e-4)
    for _ in range(60):
        pace.learn(4e-4, 10)
    assert pace.seconds(10) == pytest.approx(4e-4, rel=1e-3)
    assert pace.seconds(50) == pytest.approx(1.2e-3, rel=1e-3)


def test_slow_steps_count_at_once_where_that_is_asked_for() -> None:
    pace = Pace(least=1e-4, each=1e-5, fresh=0.1)
    pace.learn_slowest(6e-4, 10)
    assert pace.seconds(10) == pytest.approx(6e-4)
    pace.learn_slowest(2e-4, 10)
    assert pace.seconds(10) == pytest.approx(5.4e-4)


def test_a_pace_has_ends_and_what_is_not_begun_is_forgotten() -> None:
    pace = Pace(least=1e-4, each=1e-5)
    pace.learn_slowest(1.0, 10)
    assert pace.seconds(10) == pytest.approx(8e-4)
    for _ in range(60):
        pace.forget()
    assert pace.seconds(10) == pytest.approx(1.4e-4)
