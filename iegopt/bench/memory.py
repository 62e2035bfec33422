"""Peak resident memory of a process and what it started, on Linux; ``None`` elsewhere."""

from __future__ import annotations

import contextlib
import os
import re
from pathlib import Path

__all__ = ["forget_peak", "peak_bytes"]


def forget_peak() -> None:
    """Let the peak of this process and of its descendants begin anew."""
    for process in _tree(os.getpid()):
        with contextlib.suppress(OSError):  # no Linux, or a process that has just ended
            (process / "clear_refs").write_text("5")


def peak_bytes(number: int | None = None) -> int | None:
    """Sum of the peaks since ``forget_peak`` over a process, this one by default, and its descendants that live."""
    found = [peak for process in _tree(number or os.getpid()) if (peak := _peak(process)) is not None]
    return sum(found) if found else None


def _tree(number: int) -> list[Path]:
    process = Path("/proc") / str(number)
    children: list[Path] = []
    for listed in process.glob("task/*/children"):
        with contextlib.suppress(OSError):
            for child in listed.read_text().split():
                children += _tree(int(child))
    return [process, *children]


def _peak(process: Path) -> int | None:
    try:
        match = re.search(r"^VmHWM:\s+(\d+) kB", (process / "status").read_text(), re.MULTILINE)
    except OSError:
        return None
    return int(match[1]) * 1024 if match else None
