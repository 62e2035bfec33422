"""One figure per stage out of an array over all options, for stages without options too."""

from __future__ import annotations

from typing import TypeVar

import numpy as np
import numpy.typing as npt

__all__ = ["per_stage"]


_Number = TypeVar("_Number", np.int64, np.float64)


def per_stage(
    ufunc: np.ufunc, values: npt.NDArray[_Number], ptr: npt.NDArray[np.int64], empty: int
) -> npt.NDArray[_Number]:
    """(V,) ``ufunc`` over the entries ``ptr[v]:ptr[v + 1]`` of every stage; ``empty`` where it has none.

    ``ufunc.reduceat`` alone gives a stage without options the first value of the next, and fails for the last stage.
    """
    found = np.full(len(ptr) - 1, empty, dtype=values.dtype)
    filled = np.flatnonzero(np.diff(ptr))
    if filled.size:
        found[filled] = ufunc.reduceat(values, ptr[filled])
    return found
