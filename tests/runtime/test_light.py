"""The package is imported by processes that serve no model; torch is for those that do."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_import_loads_no_torch() -> None:
    code = """
import sys
sys.path[:0] = [{root!r}, {runtime!r}]
import iegopt_runtime
print(sorted(set(sys.modules) & {{"torch", "transformers", "safetensors", "usearch"}}))
""".format(root=str(ROOT), runtime=str(ROOT / "runtime"))
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
