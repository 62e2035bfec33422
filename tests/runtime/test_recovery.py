"""Faults of every level on real workers: what is done again, at which level, how soon, and that the tokens stay."""

from __future__ import annotations

import asyncio
import json
import random
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

import pytest

from iegopt.control.messages import Event, Failed, Finished, Preempted
from iegopt.control.policy import ControlPolicy
from iegopt_runtime.kv.history import BLOCK_TOKENS
from iegopt_runtime.lm.jobs import Generate, Stop
from iegopt_runtime.runtime import Runtime
from iegopt_runtime.view import account
from tests.runtime.conftest import Client
from tests.runtime.faulty import (
    CENTRE,
    DOCUMENTS,
    LONG,
    RACK,
    TOOLS,
    Fault,
    Struck,
    Watch,
    hanging,
    killed,
    short_of_memory,
    slowed,
    struck,
    two_centres,
)  # fmt: skip
from tests.runtime.hosted import Hosted, hosted
from tests.runtime.local import tiny_request

pytestmark = pytest.mark.slow

BYTES = 512
"""Of a token's KV: 2 layers, keys and values, 2 heads of 16 numbers of 4 bytes."""
POLICY = ControlPolicy(heartbeat=0.5, lost_after=40, grace=0.2, slow_factor=1e4)
"""Quick to give up who is gone; on a busy machine every stage of the tiny model is slow."""


class World:
    """Workers of two data centres, and an engine that nobody disturbs."""

    def __init__(self, here: Hosted, counter: Path) -> None:
        self.here, self.runtime, self.counter = here, here.runtime, counter
        self.watch = Watch(here.runtime)

    def inputs(self, seed: int) -> dict[str, Any]:
        """Of a seed whose output goes on for longer than any fault takes to strike."""
        self.counter.unlink(missing_ok=True)
        prompt = random.Random(seed).choices(range(256), k=100)
        return {"tokens": prompt, "arguments": {"file": str(self.counter)}, "documents": DOCUMENTS}

    def struck(self, name: str, seed: int, fault: Fault | None, **more: int) -> Struck:
        return self.here.wait(struck(self.runtime, self.watch, name, self.inputs(seed), fault, **more))

    @contextmanager
    def policy(self, **changed: Any) -> Iterator[None]:
        """The controller goes by another policy for a while, and forgets which devices were slow."""
        core = self.runtime.shell.controller.core
        before, core.policy = core.policy, core.policy.model_copy(update=changed)
        try:
            yield
        finally:
            core.policy = before
            core.pool.slow.clear()


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    folder = tmp_path_factory.mktemp("recovery")
    tools = folder / "tools.json"
    tools.write_text(json.dumps({"tools": TOOLS | {"nap": {"python": "tests.runtime.tools_of_tests:nap"}}}))
    with hosted(two_centres(), tools=tools, policy=POLICY) as here:
        yield World(here, folder / "counter")


def undisturbed(client: Client, prompt: list[int], output: int) -> list[int]:
    return list(client.run(Generate("whole", "tiny", tuple(prompt), "fp32", max_tokens=output, stop=Stop())).tokens)


def check(world: World, found: Struck, client: Client, level: str) -> dict[str, Any]:
    """Answered once, with the tokens of an undisturbed run; only the decode ran again; returns the first recovery."""
    answer = found.answer
    assert (answer["status"], answer["reason"], found.answers) == ("complete", "", 1)
    assert answer["tokens"] == found.streamed
    assert answer["tokens"] == undisturbed(client, found.prompt, len(answer["tokens"]))
    attempts = {name: stage["attempts"] for name, stage in answer["stages"].items()}
    recoveries = answer["recoveries"]
    assert attempts == {"count": 1, "find": 1, "prefill": 1, "decode": 1 + len(recoveries), "output": 1}
    assert world.counter.read_text() == "1"  # the tool was called once: its result was kept
    assert {(r["stage"], r["level"]) for r in recoveries} == {("decode", level)}
    for recovery in recoveries:
        assert recovery["began"] <= recovery["noticed"] < recovery["ended"]
    return recoveries[0]


def test_memory_that_is_short_is_asked_for_again_at_l0(world: World, client: Client) -> None:
    with short_of_memory(world.runtime, world.watch, "decoder/lm"):
        found = world.struck("l0", 3, None, output=LONG)
    first = check(world, found, client, "L0")
    assert (first["from"], first["to"]) == ("decoder/lm", "decoder/lm")


def test_a_lost_device_is_recovered_at_l2_with_the_kv_of_the_prefill(world: World, client: Client) -> None:
    found = world.struck("l2", 11, lambda runtime, worker: killed(runtime, worker))
    recovery = check(world, found, client, "L2")
    assert (recovery["from"], recovery["kv"], recovery["cause"]) == ("decoder/lm", "copy", "device")


def test_what_a_killed_decode_had_computed_is_read_from_its_files(world: World, client: Client) -> None:
    with world.policy(keep_copy="L2"):
        found = world.struck("files", 27, killed, after=150)
    assert check(world, found, client, "L2")["kv"] == "copy"
    decode, computed_before = found.answer["stages"]["decode"], len(found.prompt) + 150
    assert decode["reused"] >= computed_before - BLOCK_TOKENS  # the block that it was in is lost
    assert decode["moved"] == BYTES * decode["reused"]


@pytest.mark.parametrize(("level", "lost", "cause"), [("L3", RACK, "rack"), ("L4", CENTRE, "datacenter")])
def test_what_is_lost_whole_is_recovered_elsewhere(
    world: World, client: Client, level: str, lost: tuple[str, ...], cause: str
) -> None:
    found = world.struck(level, 12 if cause == "rack" else 18, lambda runtime, worker: killed(runtime, *lost))
    recovery = check(world, found, client, level)
    assert (recovery["cause"], recovery["kv"]) == (cause, "recomputed")
    assert recovery["to"] not in lost
    (_, _, _, _, table, *_) = account(found.answer)
    assert [next(iter(column.cells)) for column in table.columns][:3] == [level, "decode", cause]


def test_a_slow_worker_is_recovered_at_l1_and_its_kv_moves(world: World, client: Client) -> None:
    with world.policy(slow_factor=1.0, slow_floor=0.3, max_migrations=1, heartbeat=100.0, stop_grace=30.0):
        found = world.struck("slow", 20, slowed)
    recovery = check(world, found, client, "L1")
    assert (recovery["cause"], recovery["from"], recovery["kv"]) == ("slow", "decoder/lm", "copy")
    assert found.answer["stages"]["decode"]["moved"] > 0


def test_a_worker_that_hangs_is_recovered_at_l1_and_what_it_says_when_it_wakes_is_void(
    world: World, client: Client
) -> None:
    late: list[str] = []
    told = asyncio.Event()

    def hear(event: Event) -> None:
        if isinstance(event, Failed | Finished | Preempted) and event.request_id == "hangs" and event.attempt == 1:
            late.append(f"{event.worker} {type(event).__name__}")
            if event.stage == "decode":
                told.set()

    world.watch.hooks.append(hear)
    with world.policy(slow_factor=1.0, slow_floor=0.3, max_migrations=1):
        found = world.struck("hangs", 23, hanging)
    recovery = check(world, found, client, "L1")
    assert (recovery["from"], recovery["kv"]) == ("decoder/lm", "copy")
    world.here.wait(asyncio.wait_for(told.wait(), 30.0))
    world.watch.hooks.remove(hear)
    assert late[-1].startswith("decoder/lm ")
    again = world.struck("woken", 24, None, output=40)
    assert again.answer["stages"]["decode"]["device"] == "decoder"
    assert again.answer["tokens"] == undisturbed(client, again.prompt, len(again.answer["tokens"]))
    assert again.answer["stages"]["decode"]["computed"] == 1
    assert (world.watch.answers["hangs"], world.watch.answers["woken"]) == (1, 1)


def test_kv_of_a_worker_that_hangs_is_waited_for_and_then_computed_again(world: World, client: Client) -> None:
    """The decode's process is killed, and the one that has the prefill's KV is stopped."""

    @asynccontextmanager
    async def both(runtime: Runtime, worker: str) -> AsyncIterator[None]:
        async with killed(runtime, worker), hanging(runtime, "prefiller/lm"):
            yield

    with world.policy(heartbeat=100.0, kv_patience=0.5):
        found = world.struck("waits", 26, both)
    recovery = check(world, found, client, "L2")
    assert (recovery["from"], recovery["kv"]) == ("decoder/lm", "copy")  # as it was meant to be
    assert found.resumed is not None
    assert found.resumed - recovery["ended"] > 0.5
    assert found.answer["stages"]["decode"]["moved"] == 0


def test_kv_that_a_stage_was_to_keep_and_nobody_has_is_computed_again(world: World, client: Client) -> None:
    work = {"model": "tiny"}
    stages = [
        {"id": "nap", "type": "tool"},
        {"id": "prefill", "type": "prefill", **work, "tokens": {"new": 100}, "affinity": {"device": "prefiller"}},
        {"id": "move", "type": "kv_migrate", **work, "tokens": {"context": 100}, "affinity": {"device": "across"}},
        {"id": "decode", "type": "decode", **work, "tokens": {"context": 100, "output": 40}},
    ]  # fmt: skip
    edges = [
        {"from": "prefill", "to": "move", "kv": True, "bytes": "50kB"}, {"from": "nap", "to": "move"},
        {"from": "move", "to": "decode", "kv": True},
    ]  # fmt: skip
    prompt = random.Random(19).choices(range(256), k=100)

    async def lost_meanwhile() -> dict[str, Any]:
        request = tiny_request("keeps", graph={"stages": stages, "edges": edges})
        run = world.runtime.run(request, {"tokens": prompt, "arguments": {"seconds": 0.6}}, request_id="keeps")
        async for _ in run:  # the first token is chosen by the prefill
            async with killed(world.runtime, "prefiller/lm"):
                return await run.answer()
        raise AssertionError("it said nothing")

    answer = world.here.wait(lost_meanwhile())
    assert (answer["status"], answer["reason"]) == ("complete", "")
    assert answer["tokens"] == undisturbed(client, prompt, 40)
    assert {name: stage["attempts"] for name, stage in answer["stages"].items()} == dict.fromkeys(answer["stages"], 1)
    assert [(r["stage"], r["level"], r["kv"]) for r in answer["recoveries"]] == [("move", "L2", "recomputed")]
