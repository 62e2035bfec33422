"""Generalised quadratic assignment, Cordeau, Gaudioso, Laporte, Moccia (INFORMS J. on Computing 18(4), 2006).

``n m transport-cost``, best known value, flow (n, n), distance (m, m), installation (n, m), demand (n,), capacity (m,).
Objective: installation + transport-cost · Σ over ordered pairs flow · distance.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from iegopt.bench.public.assignment import Published, assemble, numbers, separate_sites, take
from iegopt.errors import SpecError
from iegopt.problem.arrays import TICKS_PER_SECOND, Problem
from iegopt.spec.text import file_name

__all__ = ["load", "published"]


def load(path: Path) -> Problem:
    """Read a file of the set (raises ``SpecError``, also where distances are not symmetric with a zero diagonal)."""
    source = numbers(path)
    n, m, transport, _best = take(source, 4, path=path).tolist()
    flow, distance = take(source, n, n, path=path), take(source, m, m, path=path)
    installation = take(source, n, m, path=path)
    need, capacity = take(source, n, path=path), take(source, m, path=path)
    if distance.diagonal().any() or not np.array_equal(distance, distance.T):
        raise SpecError(file_name(path), "", "expected symmetric distances with a zero diagonal")
    topology = separate_sites(m, pair_seconds_per_byte=(transport * distance).astype(np.float64))
    both = np.triu(flow + flow.T, 1)
    return assemble(path.stem, topology, installation, np.repeat(need[:, None], m, axis=1), capacity, both)


def published(path: Path) -> Published | None:
    """The best known value, which stands on the second line."""
    source = numbers(path)
    take(source, 3, path=path)
    return Published(int(take(source, 1, path=path)[0]) * TICKS_PER_SECOND, optimal=False)
