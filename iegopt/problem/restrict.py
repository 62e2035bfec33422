"""A problem with fewer options: what is left of one after pruning."""

from __future__ import annotations

import dataclasses

import numpy as np
import numpy.typing as npt

from iegopt.problem.arrays import Options, Problem

__all__ = ["restrict"]

Ints = npt.NDArray[np.int64]


def restrict(problem: Problem, mask: npt.NDArray[np.bool_]) -> tuple[Problem, Ints]:
    """The problem with only the options in ``mask`` (O,), and the old index of each of them.

    A plan of the new problem is ``kept[choice]`` in the old one, with the same value. ``meta`` stays as it is.
    """
    old = problem.options
    kept = np.flatnonzero(mask)
    count = np.bincount(old.stage[kept], minlength=problem.V)
    options = Options(
        ptr=np.concatenate([[0], np.cumsum(count)]),
        site=old.site[kept],
        variant=old.variant[kept],
        cost=old.cost[kept],
        time=old.time[kept],
        share=old.share[kept],
        weight_key=old.weight_key[kept],
        weight_share=old.weight_share[kept],
        kv_share=None if old.kv_share is None else old.kv_share[kept],
    )
    hidden = tuple(
        None if seconds is None else seconds[mask[old.of(int(source))]]
        for seconds, source in zip(problem.edges.hidden, problem.edges.source, strict=True)
    )
    edges = dataclasses.replace(problem.edges, hidden=hidden)
    return dataclasses.replace(problem, options=options, edges=edges), kept
