"""Lower bounds where the makespan counts, and the options that they rule out.

No plan ends before its longest path of least times. With ``no_overlap``, stages that have to wait for h seconds and are
followed by q do all their work in between, on the devices that there are: the makespan is at least h + work/devices + q
for every h and q (Fernández and Bussell 1973). The relaxation (``exact.relaxation``) leaves the makespan out, so its
bound and the weighted makespan's add up; so do an option's min-marginal and the path through it.
"""

from __future__ import annotations

from functools import cached_property

import numpy as np
import numpy.typing as npt

from iegopt.problem.arrays import TICKS_PER_SECOND, Problem
from iegopt.solvers.exact.relaxation import Relaxation

__all__ = ["MakespanBound", "surviving"]

Ints = npt.NDArray[np.int64]


class MakespanBound:
    """Ticks: ``least`` is no more than any makespan; ``head`` and ``tail`` (V,) the least before and after a stage.

    Over the allowed options; every stage has one.
    """

    def __init__(self, problem: Problem) -> None:
        options = problem.options
        time = np.where(problem.allowed, options.time, np.iinfo(np.int64).max)
        shortest: list[int] = np.minimum.reduceat(time, options.ptr[:-1]).tolist() if problem.V else []
        head, tail = [0] * problem.V, [0] * problem.V
        outgoing: list[list[int]] = [[] for _ in range(problem.V)]
        for u, v in zip(problem.edges.source.tolist(), problem.edges.target.tolist(), strict=True):
            outgoing[u].append(v)
        order = problem.order.tolist()
        for v in order:
            for w in outgoing[v]:
                head[w] = max(head[w], head[v] + shortest[v])
        for v in reversed(order):
            for w in outgoing[v]:
                tail[v] = max(tail[v], shortest[w] + tail[w])
        self._problem = problem
        self.shortest: Ints = np.array(shortest, dtype=np.int64)
        """(V,) the least time of every stage."""
        self.head: Ints = np.array(head, dtype=np.int64)
        self.tail: Ints = np.array(tail, dtype=np.int64)

    def late(self) -> str | None:
        """A limit in time that not even the path of least times to a stage keeps, in words, or ``None``."""
        problem = self._problem
        limit, soonest = np.minimum(problem.finish_by, problem.deadline), self.head + self.shortest
        missed = np.flatnonzero(soonest > limit)
        if not missed.size:
            return None
        v = int(missed[0])
        takes, has = int(soonest[v]) / TICKS_PER_SECOND, int(limit[v]) / TICKS_PER_SECOND
        return f"{problem.stages[v]} ends after {takes:.6g} s at the soonest, and has {has:.6g} s"

    @cached_property
    def path(self) -> int:
        """The longest path of least times."""
        return int((self.head + self.shortest + self.tail).max(initial=0))

    @cached_property
    def least(self) -> int:
        problem, bound = self._problem, self.path
        if problem.no_overlap:
            bound = max(bound, _work_bound(problem, self.head, self.tail))
        if _transfers_are_instant(problem):
            unit = max(1, int(np.gcd.reduce(problem.options.time[problem.allowed], initial=0)))
            bound = -(-bound // unit) * unit
        return bound


def surviving(relaxed: Relaxation, bound: MakespanBound, best: int) -> npt.NDArray[np.bool_]:
    """(O,) the options that a plan of at most ``best`` ticks can use."""
    problem = relaxed.problem
    options = problem.options
    path = bound.head[options.stage] + options.time + bound.tail[options.stage]
    longest = np.maximum(path, bound.least)
    # In floats, and a little less than they say: the exact ⌈·⌉ of millions of options would need big integers.
    weighted = np.floor(problem.makespan_millionths / 10**6 * longest * (1 - 1e-12))
    return np.asarray(problem.allowed & (relaxed.min_marginals + weighted <= best))


def _work_bound(problem: Problem, head: Ints, tail: Ints) -> int:
    options = problem.options
    width = problem.topology.width[options.site]
    work = np.minimum.reduceat(
        np.where(problem.allowed, options.time * width, np.iinfo(np.int64).max), options.ptr[:-1]
    )  # fmt: skip
    devices = int(_devices(problem, np.unique(options.site[problem.allowed])).sum())
    best = 0
    for h in np.unique(head).tolist():
        late = head >= h
        order = np.argsort(-tail[late], kind="stable")
        done = -(-np.cumsum(work[late][order]) // max(1, devices))
        best = max(best, h + int((done + tail[late][order]).max()))
    return best


def _transfers_are_instant(problem: Problem) -> bool:
    topology = problem.topology
    if problem.edges.bytes.any():
        return False
    if topology.pair_latency is not None:
        return not topology.pair_latency.any()
    return not any(latency.any() for latency in topology.latency)


def _devices(problem: Problem, sites: Ints) -> npt.NDArray[np.bool_]:
    """(D,) the devices under some of the sites."""
    under = np.zeros(problem.topology.D, dtype=np.bool_)
    for s in sites.tolist():
        under[problem.topology.devices_of(s)] = True
    return under
