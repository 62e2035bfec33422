"""Factors of a polynomial hash of rows of integers: equal rows have equal hashes, and few others do."""

from __future__ import annotations

from functools import lru_cache

import numpy as np
import numpy.typing as npt

__all__ = ["hash_factors"]

_BASE = 0x9E3779B97F4A7C15
"""2^64 over the golden ratio, odd."""


@lru_cache(maxsize=256)
def hash_factors(n: int) -> npt.NDArray[np.int64]:
    """(n,) odd factors, powers of one base modulo 2^64; the hash of a row is its sum of products, which may wrap."""
    powers = np.array([pow(_BASE, i + 1, 1 << 64) for i in range(n)], dtype=np.uint64)
    powers.flags.writeable = False
    return powers.view(np.int64)
