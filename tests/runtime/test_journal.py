"""The journal: what was appended is there again, whoever was killed."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import sqlite3
import subprocess
import sys
from pathlib import Path

import msgpack
import pytest

from iegopt.control.policy import ControlPolicy
from iegopt.errors import InputError
from iegopt_runtime.errors import RuntimeFault
from iegopt_runtime.runtime import Run
from iegopt_runtime.shell import journal as module
from iegopt_runtime.shell.journal import Journal
from iegopt_runtime.shell.plan_service import PlanService
from iegopt_runtime.shell.shell import Shell
from tests.runtime.local import local_cluster, tiny_request

EVENTS = [{"type": "Ticked", "at": float(n), "body": b"\x00" * n} for n in range(5)]


def test_events_come_back_in_order(tmp_path: Path) -> None:
    with Journal(tmp_path / "j") as journal:
        journal.append(EVENTS[:2])
        journal.append([EVENTS[2], msgpack.packb(EVENTS[3]), EVENTS[4]])
    with Journal(tmp_path / "j", durable=True) as journal:
        assert list(journal.replay()) == EVENTS
        assert journal.size > 10
        journal.restart({"state": 7})
        assert (journal.size, journal.snapshot()) == (journal.saved, {"state": 7})
        journal.append(EVENTS[4:])
    with Journal(tmp_path / "j") as journal:
        assert journal.size > journal.saved > 0
        assert (journal.snapshot(), list(journal.replay())) == ({"state": 7}, EVENTS[4:])
        journal.restart()
        assert (journal.snapshot(), list(journal.replay()), journal.size) == (None, [], 0)


def test_what_no_row_holds_is_kept_in_several(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A batch of long requests, or a state with many, ended the controller: SQLite takes a billion bytes a row."""
    monkeypatch.setattr(module, "_LONGEST_ROW", 100)
    events = [{"n": n, "body": b"x" * size} for n, size in enumerate((10, 80, 10, 10, 10, 300, 10))]
    state = {"state": "y" * 1000}
    with Journal(tmp_path / "j") as journal:
        journal.append(events)
        assert journal._db.execute("SELECT count(*) FROM event").fetchone() == (5,)
        journal.append(events[:2])
        journal.take_back(2 + 3)
    with Journal(tmp_path / "j") as journal:
        assert list(journal.replay()) == events[:4]
        size = journal.size
        journal.restart(state)
        assert journal._db.execute("SELECT count(*) FROM snapshot").fetchone() == (11,)
        journal.append(events[:1])
        assert journal.saved > 1000 > size
    with Journal(tmp_path / "j") as journal:
        assert (journal.snapshot(), list(journal.replay())) == (state, events[:1])
        journal.restart()
        assert journal.size == 0


def test_a_journal_of_version_1_is_read_and_goes_on(tmp_path: Path) -> None:
    with Journal(tmp_path / "j") as journal:
        for event in EVENTS[:3]:
            journal._db.execute("INSERT INTO event (body) VALUES (?)", (msgpack.packb(event),))
        journal._db.execute("PRAGMA user_version=1")
    with Journal(tmp_path / "j") as journal:
        journal.append(EVENTS[3:])
    with Journal(tmp_path / "j") as journal:
        assert list(journal.replay()) == EVENTS


def test_the_log_is_written_back_beside_the_writer(tmp_path: Path) -> None:
    with Journal(tmp_path / "j") as journal:
        for _ in range(40):
            journal.append([{"body": b"x" * 2**17}])
        thread = journal._write_back._thread
        assert thread is not None
    assert not thread.is_alive()
    with Journal(tmp_path / "j") as journal:
        assert len(list(journal.replay())) == 40


def test_one_controller_at_a_time(tmp_path: Path) -> None:
    with Journal(tmp_path / "j"), pytest.raises(InputError, match="another controller holds this journal"):
        Journal(tmp_path / "j")
    Journal(tmp_path / "j").close()


def test_a_journal_is_discarded_only_by_who_made_it(tmp_path: Path) -> None:
    with Journal(tmp_path / "j") as journal:
        journal.discard()
    assert list(tmp_path.iterdir()) == []
    Journal(tmp_path / "j").close()
    with Journal(tmp_path / "j") as journal:
        journal.append(EVENTS)
        journal.discard()
    with Journal(tmp_path / "j") as journal:
        assert len(list(journal.replay())) == len(EVENTS)


def test_a_policy_stays_in_force_as_long_as_its_events(tmp_path: Path) -> None:
    with Journal(tmp_path / "j") as journal:
        assert journal.policy({"heartbeat": "1s"}) == {"heartbeat": "1s"}
        assert journal.policy({"heartbeat": "2s"}) == {"heartbeat": "2s"}
        journal.append(EVENTS)
    with Journal(tmp_path / "j") as journal:
        assert journal.policy({"heartbeat": "3s"}) == {"heartbeat": "2s"}
        journal.restart()
        assert journal.policy({"heartbeat": "3s"}) == {"heartbeat": "3s"}


def test_nobody_waits_for_a_controller_that_was_ended(tmp_path: Path) -> None:
    async def play() -> None:
        shell = Shell(ControlPolicy(), Journal(tmp_path / "j"), PlanService(local_cluster()), b"s" * 32)
        running = asyncio.create_task(shell.run())
        asked = {"request": tiny_request().document(), "inputs": {}, "priority": None}
        before = Run(shell, "before", asked)
        waiting = asyncio.create_task(before.answer())
        await asyncio.sleep(0.05)
        running.cancel()
        await asyncio.wait([running])
        for answer in (waiting, Run(shell, "after", asked).answer()):
            with pytest.raises(RuntimeFault, match="the controller has ended"):
                await answer

    asyncio.run(asyncio.wait_for(play(), 30))


def test_followers_hear_that_the_controller_has_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A disk that is full under the journal ends the controller; nobody waits for it for ever."""

    def full(journal: Journal, events: object) -> None:
        raise RuntimeFault("journal j: database or disk is full")

    async def follow() -> None:
        shell = Shell(ControlPolicy(), Journal(tmp_path / "j"), PlanService(local_cluster()), b"s" * 32)
        monkeypatch.setattr(Journal, "append", full)
        running = asyncio.create_task(shell.run())
        shell.say({"type": "Submitted", "request_id": "r", "request": tiny_request().document(), "inputs": {}})
        with pytest.raises(RuntimeFault, match="the controller has ended: journal j: database or disk is full"):
            async for _ in shell.follow("r"):
                pass
        with pytest.raises(RuntimeFault, match="disk is full"):
            await running

    asyncio.run(asyncio.wait_for(follow(), 60))


_WRITER = """
import sys
from pathlib import Path
from iegopt_runtime.shell.journal import Journal
from iegopt_runtime.shell.plan_service import PlanService
from iegopt_runtime.shell.shell import Shell
from tests.runtime.local import local_cluster, tiny_request
journal = Journal(Path(sys.argv[1]))
n = 0
while True:
    journal.append([{"n": n}, {"n": n + 1}])
    n += 2
    print(n, flush=True)
"""


def test_a_killed_writer_loses_nothing_it_has_told(tmp_path: Path) -> None:
    writer = subprocess.Popen([sys.executable, "-c", _WRITER, str(tmp_path / "j")], stdout=subprocess.PIPE, text=True)
    assert writer.stdout is not None
    told = [int(writer.stdout.readline()) for _ in range(20)]
    os.kill(writer.pid, signal.SIGKILL)
    rest = writer.stdout.read().split()
    writer.wait()
    writer.stdout.close()
    last = max([*told, *(int(n) for n in rest[:-1])])
    with Journal(tmp_path / "j") as journal:
        events = list(journal.replay())
    assert events == [{"n": n} for n in range(len(events))]
    assert len(events) >= last
    assert len(events) % 2 == 0


def test_a_database_of_something_else_is_left_as_it_is(tmp_path: Path) -> None:
    path = tmp_path / "accounts.db"
    with contextlib.closing(sqlite3.connect(path)) as db:
        db.execute("CREATE TABLE account (owner TEXT)")
        db.commit()
    before = path.read_bytes()
    with pytest.raises(InputError, match="expected a journal, but it is a database with a table account"):
        Journal(path)
    assert path.read_bytes() == before


def test_other_files_are_refused(tmp_path: Path) -> None:
    (tmp_path / "text").write_text("not a database, but long enough to be looked at " * 50)
    with pytest.raises(InputError, match="expected a journal"):
        Journal(tmp_path / "text")
    with pytest.raises(InputError, match="cannot write there"):
        Journal(tmp_path / "missing" / "j")
    with Journal(tmp_path / "j") as journal:
        journal._db.execute("PRAGMA user_version=7")
    with pytest.raises(InputError, match="a journal of version 7: expected 2"):
        Journal(tmp_path / "j")
    with Journal(tmp_path / "broken") as journal:
        journal._db.execute("INSERT INTO event (body) VALUES (x'c1')")
        with pytest.raises(InputError, match="the journal is damaged"):
            list(journal.replay())
