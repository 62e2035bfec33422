"""Processes are killed at random, and every request gets its one right answer all the same."""

from __future__ import annotations

import asyncio

import pytest

from iegopt_runtime.chaos import Chaos
from iegopt_runtime.lm.jobs import Generate, Stop
from tests.runtime.chaos_case import requests_of
from tests.runtime.conftest import Client
from tests.runtime.local import local_cluster

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

ROUNDS = 30


def test_no_request_is_lost_or_answered_twice_or_otherwise(client: Client) -> None:
    def undisturbed(prompt: list[int], output: int) -> list[int]:
        return list(client.run(Generate("whole", "tiny", tuple(prompt), "fp32", max_tokens=output, stop=Stop())).tokens)

    cases = [requests_of(seed, 8, undisturbed) for seed in range(ROUNDS)]

    async def rounds() -> tuple[list[str], set[str], set[str]]:
        wrong: list[str] = []
        killed: set[str] = set()
        levels: set[str] = set()
        async with Chaos(local_cluster()) as chaos:
            for seed, requests in enumerate(cases):
                outcome = await chaos.round(requests, seed, kills=3, span=0.8)
                wrong += [f"seed {seed}: {words}" for words in outcome.wrong]
                killed |= {name for _, name in outcome.kills}
                levels |= {recovery["level"] for recovery in outcome.recoveries}
        return wrong + chaos.left, killed, levels

    wrong, killed, levels = asyncio.run(rounds())
    assert wrong == []
    assert {"controller", "prefiller/lm", "decoder/lm", "host/cpu"} <= killed
    assert levels
