"""What clients and workers say that is none of their words: one sentence, in the words that are theirs."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from iegopt.control.messages import Heartbeat, Submitted
from iegopt.control.policy import ControlPolicy
from iegopt.errors import InputError
from iegopt_runtime.net.address import Address
from iegopt_runtime.net.connection import connect
from iegopt_runtime.shell.journal import Journal
from iegopt_runtime.shell.plan_service import PlanService
from iegopt_runtime.shell.senders import event_of_client, event_of_worker
from iegopt_runtime.shell.shell import Shell
from tests.runtime.local import local_cluster

WORDS = "is not for a client to say: expected Submitted, Cancelled, Acknowledged, Follow or State"
BEAT = {"type": "Heartbeat", "worker": "w", "epoch": "1", "running": [], "kv_free": 0, "variants": [], "load": 0.0}


@pytest.mark.parametrize(
    ("frame", "told"),
    [
        ({}, f"client c: nothing {WORDS}"),
        ({"type": "Submited"}, f"client c: Submited {WORDS}"),
        ({"type": "Start"}, f"client c: Start {WORDS}"),
        (BEAT, f"client c: Heartbeat {WORDS}"),
        ({"type": ["a", 1]}, f"client c: a list {WORDS}"),
        ({"type": "Cancelled", "request_id": 7}, "client c: request_id: 7: expected text"),
        ({"type": "Acknowledged"}, "client c: request_id: missing, and required"),
    ],
)
def test_what_is_none_of_a_clients_words_is_told_in_those(frame: dict[str, Any], told: str) -> None:
    with pytest.raises(InputError) as caught:
        event_of_client(frame, "c", 1.0)
    assert str(caught.value) == told


@pytest.mark.parametrize(
    ("frame", "told"),
    [
        ({"type": "Submitted"}, "worker w: Submitted is not for a worker to say"),
        ({"type": {}}, "worker w: a mapping is not for a worker to say"),
        ({**BEAT, "worker": "v"}, "worker w: it speaks of itself as v"),
        ({**BEAT, "load": "much"}, "worker w: load: much: expected a finite number"),
    ],
)
def test_what_is_none_of_a_workers_words_is_told(frame: dict[str, Any], told: str) -> None:
    with pytest.raises(InputError) as caught:
        event_of_worker(frame, "w", 1.0)
    assert str(caught.value) == told


def test_what_is_theirs_is_an_event_of_now() -> None:
    assert isinstance(event_of_worker({**BEAT, "at": 99.0}, "w", 1.0), Heartbeat)
    submitted = event_of_client({"type": "Submitted", "request_id": "r", "request": {}, "inputs": {}}, "c", 2.0)
    assert submitted == Submitted(2.0, "r", {}, {})


def test_a_client_hears_what_was_wrong_and_others_go_on(tmp_path: Path) -> None:
    async def talk() -> list[Any]:
        shell = Shell(ControlPolicy(), Journal(tmp_path / "j"), PlanService(local_cluster()), b"s" * 32)
        address = await shell.listen(Address(path=str(tmp_path / "c.sock")))
        running = asyncio.create_task(shell.run())
        told: list[Any] = []
        for frame in ({"type": "Follow"}, {"type": "Strat"}, {"type": "State"}):
            connection = await connect(address, b"s" * 32, "c", "client")
            connection.send(frame)
            told.append(await connection.receive())
            await connection.closed()
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
        return told

    assert asyncio.run(talk()) == [
        {"type": "wrong", "reason": "client c: Follow: request_id: nothing: expected the id of a request"},
        {"type": "wrong", "reason": f"client c: Strat {WORDS}"},
        {"type": "State", "workers": {}, "requests": {}, "left_out": 0},
    ]
