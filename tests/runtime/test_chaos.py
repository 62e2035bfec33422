"""Processes are killed at random, and every request gets its one right answer all the same."""

from __future__ import annotations

import asyncio

import pytest

from benchmarks.chaos import play, uninterrupted

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

ROUNDS = 10
"""Thirty kills; ``benchmarks/chaos.py`` plays as many as one has time for."""


def test_no_request_is_lost_or_answered_twice_or_otherwise() -> None:
    with uninterrupted() as undisturbed:
        rounds = asyncio.run(play(ROUNDS, 0, undisturbed))
    assert rounds.wrong == []
    assert rounds.count == ROUNDS
    assert {"controller", "prefiller/lm", "decoder/lm", "host/cpu"} <= set(rounds.kills)
    assert {"L1", "L2"} & set(rounds.figures()["levels"])
