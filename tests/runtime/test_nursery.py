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


def test_when_it_is_killed_its_children_end_and_another_one_starts_the_next(tmp_path: Path) -> None:
    """A child that lives on must not keep that from its parent; a zygote that cannot be had again is told."""
    run, cluster = f"iegopt-nursery-{os.getpid()}", tmp_path / "cluster.yaml"
    cluster.write_text(dump("cluster", local_cluster()))

    def controller(name: str) -> list[str]:
        files = ["--listen", f"unix:{tmp_path / name}", "--journal", str(tmp_path / f"{name}-j")]
        return ["controller", str(cluster), *files, "--secret-file", str(tmp_path / f"{name}-secret")]

    async def part() -> None:
        nursery = Nursery(run, ("iegopt.cli.main", "iegopt_runtime.shell.launch"), tmp_path / "log")
        await nursery.open()
        try:
            async with asyncio.timeout(60):
                child = await nursery.start(controller("first"), tmp_path / "child.log")
                while not (tmp_path / "first").exists():
                    await asyncio.sleep(0.02)
                assert nursery._process is not None
                nursery._process.kill()
                waiting = asyncio.create_task(nursery.start(controller("second"), tmp_path / "child.log"))
                assert await child.wait() == -signal.SIGKILL
                again = await waiting
                assert again.pid != child.pid
                while not (tmp_path / "second").exists():
                    await asyncio.sleep(0.02)
                again.signal(signal.SIGKILL)
                assert await again.wait() == -signal.SIGKILL
                nursery._preloaded = ("no_such_module",)
                nursery._process.kill()
                with pytest.raises(InputError, match=r"workers cannot be started: .*no_such_module"):
                    await nursery.start(controller("second"), tmp_path / "child.log")
        finally:
            end_run(run)
            await nursery.close()

    asyncio.run(part())
