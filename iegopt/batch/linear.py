"""A linear programme put together column by column and row by row, solved again and again with other objectives."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

__all__ = ["Programme"]

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]


class Programme:
    """max c·x with rows of at most (or, ``equal``, just) what they have, x ≥ 0. HiGHS solves it, by one thread."""

    def __init__(self) -> None:
        self._rows, self._columns = 0, 0
        self._low: list[Floats] = []
        self._high: list[Floats] = []
        self._most: list[Floats] = []
        self._entries: list[tuple[Ints, Ints, Floats]] = []
        self._highs: Any = None

    def columns(self, most: npt.ArrayLike) -> Ints:
        """New columns of at most so much, as an array of their indices in its shape; −1 for those of nothing at all,
        which are left out: what ``maximise`` returns is 0 there."""
        below = np.asarray(most, dtype=float)
        kept = below > 0.0
        found = np.where(kept, self._columns + np.cumsum(kept).reshape(below.shape) - 1, -1)
        self._columns += int(kept.sum())
        self._most.append(below[kept])
        return found

    def rows(self, high: npt.ArrayLike, *, low: npt.ArrayLike = -np.inf) -> Ints:
        """New rows between two limits, as an array of their indices in the shape of ``high``."""
        above = np.asarray(high, dtype=float)
        found = self._rows + np.arange(above.size).reshape(above.shape)
        self._rows += above.size
        self._high.append(above.ravel())
        self._low.append(np.broadcast_to(np.asarray(low, dtype=float), above.shape).ravel())
        return found

    def add(self, row: npt.ArrayLike, column: npt.ArrayLike, value: npt.ArrayLike) -> None:
        """Coefficients; the arguments broadcast against each other."""
        i, j, a = np.broadcast_arrays(row, column, value)
        there = (np.asarray(a, dtype=float).ravel() != 0.0) & (j.ravel() >= 0)
        self._entries.append((i.ravel()[there], j.ravel()[there], np.asarray(a, dtype=float).ravel()[there]))

    def costs(self) -> Floats:
        """An objective that counts nothing yet; its last entry is that of columns left out, and never counts."""
        return np.zeros(self._columns + 1)

    def maximise(self, objective: Floats, limit: float) -> tuple[float, Floats] | None:
        """Value and columns at the optimum, ``None`` where it is not found within ``limit`` seconds.

        Parameters
        ----------
        objective
            As ``costs`` makes it.
        """
        if limit <= 0.0:
            return None
        highs = self._loaded()
        highs.setOptionValue("time_limit", highs.getRunTime() + max(0.01, limit))
        every = np.arange(self._columns, dtype=np.int32)
        highs.changeColsCost(self._columns, every, -objective[:-1])
        highs.run()
        import highspy

        if highs.getModelStatus() != highspy.HighsModelStatus.kOptimal:
            return None
        return -float(highs.getInfo().objective_function_value), np.append(highs.getSolution().col_value, 0.0)

    def keep(self, objective: Floats, value: float) -> None:
        """From here on an objective is at least so much."""
        at = np.flatnonzero(objective[:-1]).astype(np.int32)
        self._loaded().addRow(value, np.inf, len(at), at, objective[at])

    def _loaded(self) -> Any:
        """The solver with the programme, handed over once."""
        if self._highs is not None:
            return self._highs
        import highspy

        class Quiet(highspy.Highs):
            """HiGHS prints a banner on stdout while it is made, unless it is told not to before its callbacks are."""

            def enableCallbacks(self) -> None:
                self.silent()
                super().enableCallbacks()  # type: ignore[no-untyped-call]

        programme: Any = highspy.HighsLp()
        i, j, a = (np.concatenate(parts) for parts in zip(*self._entries, strict=True))
        scale = np.zeros(self._rows)
        np.maximum.at(scale, i, np.abs(a))
        scale = 1.0 / np.where(scale > 0.0, scale, 1.0)
        a = a * scale[i]
        turn = np.lexsort((i, j))
        programme.num_col_, programme.num_row_ = self._columns, self._rows
        programme.col_cost_ = np.zeros(self._columns)
        programme.col_lower_, programme.col_upper_ = np.zeros(self._columns), np.concatenate(self._most)
        programme.row_lower_, programme.row_upper_ = (np.concatenate(part) * scale for part in (self._low, self._high))
        programme.a_matrix_.format_ = highspy.MatrixFormat.kColwise
        programme.a_matrix_.start_ = np.concatenate([[0], np.cumsum(np.bincount(j, minlength=self._columns))])
        programme.a_matrix_.index_, programme.a_matrix_.value_ = i[turn].astype(np.int32), a[turn]
        self._highs = Quiet()  # type: ignore[no-untyped-call]
        self._highs.setOptionValue("threads", 1)
        self._highs.passModel(programme)
        return self._highs
