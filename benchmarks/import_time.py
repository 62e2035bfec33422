"""How long ``import iegopt`` takes, against the libraries it stands on.

``python benchmarks/import_time.py [--runs N] [--limit RATIO]`` starts fresh interpreters in turn, with
``import iegopt`` and with ``import pydantic, numpy, networkx``, and compares the medians of their wall times. Exit 1
above the limit.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import time
from statistics import median

OURS = "import iegopt"
BASE = "import pydantic, numpy, networkx"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=15, help="interpreters of each kind (default %(default)s)")
    parser.add_argument("--limit", type=float, default=1.5, help="most that iegopt may take (default %(default)s)")
    arguments = parser.parse_args()
    seconds: dict[str, list[float]] = {OURS: [], BASE: []}
    for statement in seconds:
        wall_time(statement)  # byte code and file cache
    for _ in range(arguments.runs):
        for statement, times in seconds.items():
            times.append(wall_time(statement))
    ours, base = median(seconds[OURS]), median(seconds[BASE])
    print(f"{OURS}: {ours * 1e3:.0f} ms, {BASE}: {base * 1e3:.0f} ms")
    print(f"ratio {ours / base:.2f}, limit {arguments.limit:g}")
    return 0 if ours <= arguments.limit * base else 1


def wall_time(statement: str) -> float:
    """Seconds from start to end of a fresh interpreter that runs one statement."""
    start = time.perf_counter()
    subprocess.run([sys.executable, "-c", statement], check=True)
    return time.perf_counter() - start


if __name__ == "__main__":
    sys.exit(main())
