"""Keep the figures of a benchmark under ``benchmarks/results``, with what they were measured on."""

from __future__ import annotations

import datetime
import json
import platform
import sys
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from typing import Any

__all__ = ["processor", "record"]

RESULTS = Path(__file__).parent / "results"
PACKAGES = ("numpy", "pydantic", "networkx", "ortools", "pulp", "highspy", "numba")


def record(name: str, figures: dict[str, Any]) -> None:
    """Write ``results/<name>.json``: the command, the figures, versions, processor and date."""
    document = {
        "command": " ".join(["python", f"benchmarks/{Path(sys.argv[0]).name}", *sys.argv[1:]]),
        **figures,
        "date": datetime.date.today().isoformat(),
        "python": platform.python_version(),
        "versions": {package: version(package) for package in PACKAGES if find_spec(package)},
        "processor": processor(),
        "system": f"{platform.system()} {platform.machine()}",
    }
    RESULTS.mkdir(exist_ok=True)
    (RESULTS / f"{name}.json").write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")


def processor() -> str:
    """The processor's own name where the system tells it."""
    try:
        text = Path("/proc/cpuinfo").read_text(encoding="utf-8")
    except OSError:
        return platform.processor() or "unknown"
    names = [line.split(":", 1)[1].strip() for line in text.splitlines() if line.startswith("model name")]
    return names[0] if names else platform.processor() or "unknown"
