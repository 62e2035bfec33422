"""What a controller is started with: the policy that it is given counts, and it knows the workers of its cluster."""

from __future__ import annotations

import asyncio
import contextlib
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from iegopt.control.policy import ControlPolicy
from iegopt_runtime.deployment import deployed, roles
from iegopt_runtime.shell import shell as module
from iegopt_runtime.shell.journal import Journal
from iegopt_runtime.shell.plan_service import PlanService
from iegopt_runtime.shell.shell import Shell
from tests.runtime.local import local_cluster, tiny_request


@asynccontextmanager
async def started(folder: Path, told: list[str], **policy: Any) -> AsyncIterator[Shell]:
    """A controller that has dealt with its beginning."""
    cluster = local_cluster()
    shell = Shell(
        ControlPolicy(**policy), Journal(folder / "j"), PlanService(cluster), b"s" * 32, told.append,
        workers=roles(deployed(cluster)),
    )  # fmt: skip
    running = asyncio.create_task(shell.run())
    try:
        while not shell.controller.core.pool.expected:
            await asyncio.sleep(0.001)
        yield shell
    finally:
        running.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await running


async def submitted(shell: Shell, *names: str) -> None:
    for name in names:
        asked = {"request_id": name, "request": tiny_request().document(), "inputs": {}}
        assert await shell.submit({"type": "Submitted", **asked}) is None


@pytest.mark.parametrize("begun_anew", [False, True])
def test_the_policy_that_is_given_counts_from_a_restart_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, begun_anew: bool
) -> None:
    """What was decided under the old one stays: the journal is replayed under it."""
    narrow = {"max_in_flight": 1, "max_queued": 0}
    told: list[str] = []

    async def play() -> None:
        async with started(tmp_path, told, **narrow) as shell:
            await submitted(shell, "first", "refused")
            assert set(shell.controller.core.runs) == {"first"}
        assert told == []
        async with started(tmp_path, told, **narrow, heartbeat=2.5) as shell:
            await submitted(shell, "refused, too")
            assert set(shell.controller.core.runs) == {"first"}
            if begun_anew:
                monkeypatch.setattr(module, "_SAVE_ABOVE", 0)
                monkeypatch.setattr(module, "_SAVE_TIMES", 0)
                await submitted(shell, "refused again")
                assert shell._journal.size == shell._journal.saved > 0
        assert told == [
            "the journal was written under another policy: from here on heartbeat is 2.5s, and no longer 1s"
        ]
        told.clear()
        async with started(tmp_path, told, max_queued=8, heartbeat=2.5) as shell:
            assert set(shell.controller.core.runs) == {"first"}
            await submitted(shell, "second")
            assert set(shell.controller.core.flying) == {"first", "second"}
            assert shell.controller.core.policy == ControlPolicy(max_queued=8, heartbeat=2.5)
        assert told == [
            "the journal was written under another policy: from here on max_in_flight is 64, and no longer 1; "
            "max_queued is 8, and no longer 0"
        ]
        told.clear()
        async with started(tmp_path, told, max_queued=8, heartbeat=2.5):
            assert told == []

    asyncio.run(asyncio.wait_for(play(), 30))


def test_a_request_before_any_worker_is_up_waits_for_those_of_the_cluster(tmp_path: Path) -> None:
    """It failed when ten seconds were over; a model takes longer to load."""

    async def play() -> dict[str, Any]:
        async with started(tmp_path, [], plan_patience=0.0, startup_grace=0.3) as shell:
            await submitted(shell, "r")
            async for message in shell.follow("r"):
                last = message
        return last.answer  # type: ignore[union-attr]

    answer = asyncio.run(asyncio.wait_for(play(), 30))
    assert answer["status"] == "failed"
    assert re.match(
        r"no plan: no worker is up yet, or none is left; 0\.[2-9] s were waited for workers", answer["reason"]
    )
    assert answer["reason"].endswith("did not come up: prefiller/lm, decoder/lm, host/cpu")
