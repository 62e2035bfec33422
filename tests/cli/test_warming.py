"""``iegopt warmup``: what it prints, and how it refuses."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from typing import Any

import pytest

Run = Callable[..., Any]


def test_compiles_and_says_so(iegopt: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("numba", reason="the extra 'fast' is not installed")
    from iegopt.solvers.exact import compiled

    monkeypatch.setattr(compiled, "_ready", None)
    ran = iegopt("warmup")
    assert ran.code == 0
    assert ran.out.startswith("numba: ")
    done = json.loads(iegopt("warmup", "--check", "--json").out)
    assert done["core"] == "numba"
    assert sorted(done) == ["compiled", "core", "loaded", "reason", "seconds"]
    assert {"forward", "backward", "choose"} <= set(done["loaded"])
    assert done["compiled"] == []


def test_a_check_fails_where_kernels_are_missing(iegopt: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("numba", reason="the extra 'fast' is not installed")
    from iegopt.solvers.exact import compiled

    class Uncompiled:
        signatures = ()

    monkeypatch.setattr(compiled, "_registered", lambda: ({"forward": (Uncompiled(), "")}, None))
    monkeypatch.setattr(compiled, "_from_cache", lambda *_: False)
    ran = iegopt("warmup", "--check", "--json")
    assert ran.code == 1
    assert json.loads(ran.out)["reason"].startswith("the cache lacks kernels")


def test_without_the_extra(iegopt: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "numba", None)
    ran = iegopt("warmup")
    assert ran.code == 1
    assert "compiled kernels need numba: pip install 'iegopt[fast]'" in ran.error_line
    checked = iegopt("warmup", "--check")
    assert (checked.code, checked.err) == (1, "")
    assert checked.out.startswith("numpy: compiled kernels need numba")
