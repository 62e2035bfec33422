"""The process that forks workers, seen from the one that wants them."""

from __future__ import annotations

import asyncio
import os
import signal
from pathlib import Path

import pytest

from iegopt.errors import InputError
from iegopt.spec.load import dump
from iegopt_runtime.nursery import Nursery
from iegopt_runtime.processes import end_run
from tests.runtime.local import local_cluster


def test_when_it_is_killed_who_waits_for_it_hears_so(tmp_path: Path) -> None:
    """Its children may live on, and must not keep that from its parent."""
    run, cluster, socket = f"iegopt-nursery-{os.getpid()}", tmp_path / "cluster.yaml", tmp_path / "s"
    cluster.write_text(dump("cluster", local_cluster()))
    controller = [
        "controller", str(cluster), "--listen", f"unix:{socket}", "--journal", str(tmp_path / "j"), "--secret-file",
        str(tmp_path / "secret"),
    ]  # fmt: skip

    async def part() -> None:
        nursery = Nursery(run, ("iegopt.cli.main", "iegopt_runtime.shell.launch"), tmp_path / "log")
        await nursery.open()
        try:
            async with asyncio.timeout(60):
                child = await nursery.start(controller, tmp_path / "child.log")
                while not socket.exists():
                    await asyncio.sleep(0.02)
                assert nursery._process is not None
                nursery._process.kill()
                waiting = asyncio.create_task(nursery.start(controller, tmp_path / "child.log"))
                assert await child.wait() == -signal.SIGKILL
                with pytest.raises(InputError, match="the process that forks them has ended"):
                    await waiting
        finally:
            end_run(run)
            await nursery.close()

    asyncio.run(part())
