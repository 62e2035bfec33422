"""Shared by all tests: the repository on the import path, the shared data where there is some, malformed files."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import hypothesis
import pytest

# The same examples in every run, and no deadline that a busy machine would miss.
hypothesis.settings.register_profile("fixed", derandomize=True, deadline=None)
hypothesis.settings.load_profile("fixed")

ROOT = Path(__file__).resolve().parent.parent
for folder in (ROOT / "runtime", ROOT):
    if str(folder) not in sys.path:
        sys.path.insert(0, str(folder))


def shared_dir() -> Path:
    """The folder of shared data: ``IEGOPT_SHARED``, else beside the repository; skips the test without it."""
    path = Path(os.environ.get("IEGOPT_SHARED", ROOT.parent / "shared"))
    if not path.is_dir():
        pytest.skip("no shared data: set IEGOPT_SHARED")
    return path


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """A test that asks for ``malformed_case`` runs once for each file of ``tests/corpus``."""
    if "malformed_case" in metafunc.fixturenames:
        from tests.corpus import malformed_cases

        cases = malformed_cases()
        metafunc.parametrize("malformed_case", cases, ids=[f"{case.key}/{case.path.name}" for case in cases])
