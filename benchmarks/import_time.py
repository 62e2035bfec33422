"""How long ``import iegopt`` takes, against the libraries it stands on.

``python benchmarks/import_time.py [--runs N] [--limit RATIO]`` starts fresh interpreters in turn and compares the
medians of their wall times. Exit 1 where ``import iegopt``, whose names are loaded when they are first used, takes more
than the limit times ``import pydantic, numpy, networkx``. The planner, which loads nearly all of it, is shown beside.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import time
from pathlib import Path
from statistics import median

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from benchmarks.record import record

BASE = "import pydantic, numpy, networkx"
OURS = "import iegopt"
PLANNER = "from iegopt.planner import Planner"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=15, help="interpreters of each kind (default %(default)s)")
    parser.add_argument(
        "--limit", type=float, default=1.5, help="most that import iegopt may take (default %(default)s)"
    )
    arguments = parser.parse_args()
    seconds: dict[str, list[float]] = {statement: [] for statement in (BASE, OURS, PLANNER)}
    for statement in seconds:
        wall_time(statement)  # byte code and file cache
    for _ in range(arguments.runs):
        for statement, times in seconds.items():
            times.append(wall_time(statement))
    base = median(seconds[BASE])
    for statement, times in seconds.items():
        print(f"{median(times) * 1e3:6.0f} ms  {median(times) / base:5.2f}  {statement}")
    record("import_time", {"median_s": {statement: median(times) for statement, times in seconds.items()}})
    return 0 if median(seconds[OURS]) <= arguments.limit * base else 1


def wall_time(statement: str) -> float:
    """Seconds from start to end of a fresh interpreter that runs one statement."""
    start = time.perf_counter()
    subprocess.run([sys.executable, "-c", statement], check=True)
    return time.perf_counter() - start


if __name__ == "__main__":
    sys.exit(main())
