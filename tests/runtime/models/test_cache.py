"""Folders of the cache are there whole or not at all, whoever is killed or refused meanwhile."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pytest

from iegopt_runtime.models.cache import cache_dir, made

RUNTIME = Path(__file__).parents[3] / "runtime"


def test_what_fails_leaves_nothing(tmp_path: Path) -> None:
    def fail(draft: Path) -> None:
        (draft / "half").write_text("x")
        raise ValueError("no")

    with pytest.raises(ValueError, match="no"):
        made("a", fail, tmp_path)
    assert [p.name for p in tmp_path.iterdir()] == [".a.lock"]
    folder = made("a", lambda draft: (draft / "whole").touch(), tmp_path)
    assert [p.name for p in folder.iterdir()] == ["whole"]
    assert made("a", fail, tmp_path) == folder


def test_killed_in_the_middle_it_is_made_anew(tmp_path: Path) -> None:
    code = f"""
import sys
sys.path[:0] = [{str(RUNTIME)!r}, {str(RUNTIME.parent)!r}]
from pathlib import Path
from iegopt_runtime.models.cache import made

def make(draft):
    (draft / "half").touch()
    print("there", flush=True)
    sys.stdin.read()

made("a", make, Path({str(tmp_path)!r}))
"""
    with subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"there\n"
        process.send_signal(signal.SIGKILL)
    assert not (tmp_path / "a").exists()
    folder = made("a", lambda draft: (draft / "whole").touch(), tmp_path)
    assert [p.name for p in folder.iterdir()] == ["whole"]
    assert sorted(p.name for p in tmp_path.iterdir()) == [".a.lock", "a"]


def test_the_place_can_be_chosen(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("IEGOPT_CACHE", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert cache_dir() == tmp_path / "iegopt"
    monkeypatch.setenv("IEGOPT_CACHE", str(tmp_path / "own"))
    assert cache_dir() == tmp_path / "own"
