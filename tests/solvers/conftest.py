from __future__ import annotations

import pytest

from iegopt.solvers.exact import compiled


@pytest.fixture
def core(monkeypatch: pytest.MonkeyPatch) -> None:
    """The kernels, compiled where this machine has none yet, for one test alone."""
    pytest.importorskip("numba")
    monkeypatch.setattr(compiled, "_ready", None)
    compiled.warmup()
