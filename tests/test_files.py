"""Files are written as a whole or not at all."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from iegopt.files import write_whole


def test_a_file_and_its_mode_stay_until_the_new_one_is_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    page = tmp_path / "page.html"
    write_whole(page, "ä")
    page.chmod(0o640)

    def full(_: int) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr("iegopt.files.os.fsync", full)
        with pytest.raises(OSError, match="No space"):
            write_whole(page, b"new")
    assert page.read_text(encoding="utf-8") == "ä"
    assert os.listdir(tmp_path) == ["page.html"]
    write_whole(page, b"new")
    assert page.read_bytes() == b"new"
    assert page.stat().st_mode & 0o777 == 0o640
    assert os.listdir(tmp_path) == ["page.html"]


def test_what_a_link_names_is_replaced_not_the_link(tmp_path: Path) -> None:
    (tmp_path / "there").mkdir()
    link = tmp_path / "link"
    link.symlink_to("there/file")
    write_whole(link, "one")
    write_whole(link, "two")
    assert link.is_symlink()
    assert (tmp_path / "there" / "file").read_text() == "two"


def test_no_regular_file_stays_what_it_is() -> None:
    write_whole(os.devnull, "text")
    assert not Path(os.devnull).is_file()


def test_an_output_that_is_a_pipe_is_written_to() -> None:
    code = "from iegopt.files import write_whole; write_whole('/dev/stdout', 'text')"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "text"


def test_no_file_beside_it_is_touched_whoever_writes_it_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    page, other = tmp_path / "page", tmp_path / "page.new"
    other.write_text("another's")
    begin = os.fsync

    def begun(stream: int) -> None:
        monkeypatch.setattr("iegopt.files.os.fsync", begin)
        write_whole(page, "first")
        begin(stream)

    monkeypatch.setattr("iegopt.files.os.fsync", begun)
    write_whole(page, "second")
    assert page.read_text() == "second"
    assert other.read_text() == "another's"
    assert sorted(os.listdir(tmp_path)) == ["page", "page.new"]


def test_a_file_that_is_read_only_is_not_replaced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    page = tmp_path / "page"
    write_whole(page, "old")
    known = page.stat().st_ino
    # Who may write anything, as root in a container, is asked nothing.
    monkeypatch.setattr("iegopt.files.os.access", lambda path, _: Path(path) != page)
    write_whole(page, "new")
    assert page.stat().st_ino == known
