"""Folders of runs: each its own, whoever sweeps what killed ones left."""

from __future__ import annotations

import fcntl
from pathlib import Path

import pytest

from iegopt.errors import InputError
from iegopt_runtime.run_folder import RunFolder


def test_what_a_killed_run_left_is_swept_and_a_live_one_is_not(tmp_path: Path) -> None:
    left = tmp_path / "iegopt-killed"
    left.mkdir()
    (left / "lock").touch()
    with RunFolder(tmp_path) as first, RunFolder(tmp_path) as second:
        assert {path.name for path in tmp_path.iterdir()} == {first.run, second.run}
    assert list(tmp_path.iterdir()) == []


def test_a_folder_that_is_swept_before_it_is_locked_is_made_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two runs begin at once: one finds the other's folder in the moment between making and locking it."""
    flock, other = fcntl.flock, list[RunFolder]()

    def late(file: int, how: int) -> None:
        if how == fcntl.LOCK_EX and not other:
            monkeypatch.setattr(fcntl, "flock", flock)
            other.append(RunFolder(tmp_path))
        flock(file, how)

    monkeypatch.setattr(fcntl, "flock", late)
    with RunFolder(tmp_path) as folder, other[0]:
        assert folder.secret_file.read_text() == folder.secret.hex()
        assert {path.name for path in tmp_path.iterdir()} == {folder.run, other[0].run}
    assert list(tmp_path.iterdir()) == []


def test_kv_files_of_a_run_lie_in_the_cache_though_its_sockets_are_in_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    memory, disk = tmp_path / "memory", tmp_path / "disk"
    memory.mkdir()
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(memory))
    monkeypatch.setenv("IEGOPT_CACHE", str(disk))
    left = disk / "kv" / "iegopt-killed" / "kv"
    left.mkdir(parents=True)
    (left.parent / "lock").touch()
    with RunFolder() as folder:
        assert folder.path.parent == memory
        assert list((disk / "kv").iterdir()) == [folder.files]
    assert list(memory.iterdir()) == list((disk / "kv").iterdir()) == []


def test_a_folder_that_cannot_be_made_is_told(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(InputError, match="file: no folder can be made there"):
        RunFolder(tmp_path / "file")
