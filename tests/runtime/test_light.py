"""The package is imported by processes that serve no model; torch is for those that do."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from iegopt_runtime.models.registry import Registry

ROOT = Path(__file__).parents[2]


FIND_TOKENIZER = """
from iegopt_runtime.models.registry import Registry
from iegopt_runtime.workers.texts import Texts
Texts(Registry.of(cache=Path(sys.argv[1]))).of("tiny")
"""


@pytest.mark.parametrize("what", ["import iegopt_runtime", FIND_TOKENIZER], ids=["package", "tokenizer"])
def test_no_torch_is_loaded(what: str, registry: Registry, model_cache: Path) -> None:
    registry.find("tiny").folder()  # making it takes torch, finding it does not
    code = """
import sys
from pathlib import Path
sys.path[:0] = [{root!r}, {runtime!r}]
{what}
print(sorted(set(sys.modules) & {{"torch", "transformers", "safetensors", "usearch"}}))
""".format(root=str(ROOT), runtime=str(ROOT / "runtime"), what=what)
    done = subprocess.run([sys.executable, "-c", code, str(model_cache)], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
