"""Constrained task assignment, TAP library of S. Elloumi (CNAM, 1991).

``.dat``: tasks n, processors m, execution costs (m, n), communication costs (upper triangle, paid when two tasks
sit on different processors), memory (n,), capacity (m,). In ``tassc*`` every two tasks communicate, in ``tass*`` some.
``.sol``: one line ``task processor`` each, from 1, then the optimal value.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from iegopt.bench.public.assignment import Published, assemble, numbers, separate_sites, take
from iegopt.problem.arrays import TICKS_PER_SECOND, Problem

__all__ = ["load", "published", "solution"]


def load(path: Path) -> Problem:
    """Read a ``.dat`` file (raises ``SpecError``)."""
    source = numbers(path)
    n, m = take(source, 2, path=path).tolist()
    execution = take(source, m, n, path=path)
    flow = np.zeros((n, n), dtype=np.int64)
    flow[np.triu_indices(n, 1)] = take(source, n * (n - 1) // 2, path=path)
    need, capacity = take(source, n, path=path), take(source, m, path=path)
    return assemble(path.stem, separate_sites(m), execution.T, np.repeat(need[:, None], m, axis=1), capacity, flow)


def published(path: Path) -> Published | None:
    """The optimum of the ``.sol`` file beside a ``.dat`` file, ``None`` without one."""
    file = path.with_suffix(".sol")
    return Published(int([*numbers(file)][-1]) * TICKS_PER_SECOND, optimal=True) if file.is_file() else None


def solution(path: Path, problem: Problem) -> list[int]:
    """The published assignment as option indices."""
    values = [int(value) for value in numbers(path.with_suffix(".sol"))][:-1]
    place = dict(zip(values[::2], values[1::2], strict=True))
    return [int(problem.options.ptr[v]) + place[v + 1] - 1 for v in range(problem.V)]
