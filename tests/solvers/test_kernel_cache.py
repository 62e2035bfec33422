"""Files of numba's cache that were cut short or garbled cost a compilation, and no more."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pytest

from iegopt.solvers.exact import compiled

SOURCE = """
from numba import njit

@njit(cache=True)
def helper(x):
    return 3 * x

@njit(cache=True)
def kernel(x):
    return helper(x) + 1

@njit(cache=True)
def other(x):
    return x - 1
"""
NUMBER = "int64(int64)"
DAMAGES: dict[str, Callable[[Path], object]] = {
    "garbage": lambda path: path.write_bytes(b"garbage"),
    "empty": lambda path: path.write_bytes(b""),
    "cut short": lambda path: path.write_bytes(path.read_bytes()[:-20]),
    "no kernel": lambda path: path.write_bytes(b"I1\n."),  # pickled: 1
}

Start = Callable[[], ModuleType]
"""What a new process does: import the module, whose functions then hold no machine code."""


@pytest.fixture
def start(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Start:
    pytest.importorskip("numba", reason="the extra 'fast' is not installed")
    path = tmp_path / "toy_kernels.py"
    path.write_text(SOURCE)
    monkeypatch.setattr(compiled, "_call_each", lambda: None)

    def begin() -> ModuleType:
        spec = importlib.util.spec_from_file_location("toy_kernels", path)
        assert spec is not None
        assert spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        known = {name: (getattr(module, name), NUMBER) for name in ("kernel", "other")}
        monkeypatch.setattr(compiled, "_registered", lambda: (known, None))
        monkeypatch.setattr(compiled, "_ready", None)
        return module

    begin()
    assert compiled.warmup().compiled == ("kernel", "other")
    return begin


def files(start: Start, ending: str) -> list[Path]:
    """The files of the cache that belong to ``kernel``, and those of its helper."""
    folder = Path(start().kernel.stats.cache_path)
    return [path for name in ("kernel", "helper") for path in folder.glob(f"toy_kernels.{name}-*{ending}")]


@pytest.mark.parametrize("ending", [".nbc", ".nbi"])
@pytest.mark.parametrize("damage", DAMAGES)
def test_what_cannot_be_loaded_is_compiled_anew(start: Start, ending: str, damage: str) -> None:
    damaged = files(start, ending)
    assert len(damaged) == 2
    for path in damaged:
        DAMAGES[damage](path)
    left = [path.read_bytes() for path in damaged]

    start()
    checked = compiled.warmup(compile=False)
    assert checked.core == "numpy"
    assert checked.reason is not None
    assert "run iegopt warmup" in checked.reason
    assert compiled.kernels() is None
    assert [path.read_bytes() for path in damaged] == left

    module = start()
    done = compiled.warmup()
    assert (done.core, done.compiled, done.loaded) == ("numba", ("kernel",), ("other",))
    assert module.kernel(5) == 16

    module = start()
    assert compiled.warmup(compile=False).loaded == ("kernel", "other")
    assert module.kernel(5) == 16


def test_files_that_may_not_be_read_are_replaced(start: Start) -> None:
    (index, _), (data, _) = files(start, ".nbi"), files(start, ".nbc")
    for path in (index, data):
        path.chmod(0)
    module = start()
    assert compiled.warmup().core == "numba"
    assert module.kernel(5) == 16
    start()
    assert compiled.warmup(compile=False).loaded == ("kernel", "other")


def test_a_damaged_kernel_leaves_those_for_other_types_in_the_cache(start: Start) -> None:
    """As it leaves those for other processors, of which machines that share a folder keep one each."""
    module = start()
    module.kernel.compile("float64(float64)")
    folder = Path(module.kernel.stats.cache_path)
    first, _ = sorted(folder.glob("toy_kernels.kernel-*.nbc"))
    first.write_bytes(b"garbage")
    start()
    assert compiled.warmup().compiled == ("kernel",)
    module = start()
    module.kernel.compile("float64(float64)")
    assert sum(module.kernel.stats.cache_hits.values()) == 1
