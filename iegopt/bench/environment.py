"""Where a benchmark ran: packages, interpreter, processor, and what runs the messages."""

from __future__ import annotations

import os
import platform
from datetime import UTC, datetime
from importlib.metadata import distributions
from pathlib import Path
from typing import Any

from iegopt.solvers.exact.compiled import warmup

__all__ = ["environment"]


def environment() -> dict[str, Any]:
    """Plain data: the time, versions of all installed packages, Python, processor, cores, system, core of messages."""
    versions = {entry.metadata["Name"]: entry.version for entry in distributions()}
    return {
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "python": platform.python_version(),
        "processor": _processor(),
        "cores": os.cpu_count(),
        "system": f"{platform.system()} {platform.machine()}",
        "messages": warmup(compile=False).core,
        "versions": dict(sorted(versions.items(), key=lambda item: item[0].lower())),
    }


def _processor() -> str:
    cpuinfo = Path("/proc/cpuinfo")
    if cpuinfo.is_file():
        for line in cpuinfo.read_text(encoding="utf-8", errors="replace").splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()
