"""Shared by all tests: the repository on the import path, and the shared data where there is some."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
if str(ROOT) not in sys.path:
    sys.path.insert(0, str(ROOT))


def shared_dir() -> Path:
    """The folder of shared data: ``IEGOPT_SHARED``, else beside the repository; skips the test without it."""
    path = Path(os.environ.get("IEGOPT_SHARED", ROOT.parent / "shared"))
    if not path.is_dir():
        pytest.skip("no shared data: set IEGOPT_SHARED")
    return path
