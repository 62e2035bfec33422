"""What all modules of kernels share: how their functions are compiled (numba, the extra ``fast``), and random numbers.

Imported by modules of kernels alone, which ``iegopt.warmup`` loads.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import numba
import numpy as np

__all__ = ["kernel", "part", "uniform"]

F = TypeVar("F", bound=Callable[..., Any])


def part(function: F) -> F:
    """A function of kernels, compiled into each that calls it."""
    return numba.njit(nogil=True)(function)  # type: ignore[no-any-return]


def kernel(function: F) -> F:
    """A function that is compiled for itself, and kept on disk."""
    return numba.njit(cache=True, nogil=True)(function)  # type: ignore[no-any-return]


@part
def uniform(state: Any) -> float:
    """The next number in [0, 1) of xorshift64* (Vigna 2016)."""
    x = state[0]
    x ^= x >> np.uint64(12)
    x ^= x << np.uint64(25)
    x ^= x >> np.uint64(27)
    state[0] = x
    return float((x * np.uint64(2685821657736338717)) >> np.uint64(11)) / 9007199254740992.0
