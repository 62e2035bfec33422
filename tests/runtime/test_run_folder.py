"""Folders of runs: each its own, whoever sweeps what killed ones left."""

from __future__ import annotations

import fcntl
from pathlib import Path

import pytest

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
