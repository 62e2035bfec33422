"""A worker process that is ended while it starts: at once, with nothing left."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from iegopt.spec.load import dump
from tests.runtime.local import local_cluster

_ROOT = Path(__file__).parents[2]
_LOADS_FOR_EVER = """
import sys, time
from pathlib import Path
from iegopt.spec.load import load_cluster
from iegopt_runtime.net.address import Address
from iegopt_runtime.processes import run_to_the_end
from iegopt_runtime.workers import launch

def load(setting):
    (setting.folder / "kv.sock").touch()
    (setting.kv / "block").touch()
    print(flush=True)
    time.sleep(60)

launch._ROLES["lm"] = load
folder = Path(sys.argv[1])
files = launch.WorkerFiles(folder=folder, kv=None, tools=None, documents=None)
where = Address(path=str(folder / "no-controller"))
run_to_the_end(launch.serve(load_cluster(folder / "cluster.yaml"), "decoder", "lm", where, b"s" * 32, files, None, 1.0))
"""


def _loading(folder: Path) -> subprocess.Popen[str]:
    """A worker that loads its model, in ``folder`` and with the cache beside it."""
    paths = os.pathsep.join([str(_ROOT), str(_ROOT / "runtime")])
    worker = subprocess.Popen(
        [sys.executable, "-c", _LOADS_FOR_EVER, str(folder)],
        stdout=subprocess.PIPE,
        text=True,
        env=os.environ | {"PYTHONPATH": paths, "IEGOPT_CACHE": str(folder / "cache")},
    )
    assert worker.stdout is not None
    worker.stdout.readline()
    return worker


def _left(folder: Path) -> list[str]:
    return sorted(path.name for place in (folder, folder / "cache" / "kv") for path in place.glob("iegopt-*"))


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGUSR1])
def test_a_worker_that_is_ended_while_it_loads_ends_at_once(tmp_path: Path, number: signal.Signals) -> None:
    (tmp_path / "cluster.yaml").write_text(dump("cluster", local_cluster()))
    with _loading(tmp_path) as killed:
        killed.kill()
    assert len(_left(tmp_path)) == 2
    with _loading(tmp_path) as worker:
        mine = _left(tmp_path)
        begun = time.monotonic()
        worker.send_signal(number)
        assert worker.wait(10) == 0
        assert time.monotonic() - begun < 2.0
    assert len(mine) == 2, "what the killed one left is not swept"
    assert _left(tmp_path) == []
