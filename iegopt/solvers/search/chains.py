"""Ejection chains for stages that share memory and nothing else: a stage shifts, and ejects one from where it goes.

Of the chains that begin at a stage the best is taken, whether what it leads to fits or not: what a device lacks has a
price, which rises where devices are overloaded and falls where none is, so that the search swings through the border of
what fits, where the best plans of tight problems lie. Once no chain gains, a few stages of the best plan are thrown to
random options, and all begins again. It needs few options of a stage, those that prices call promising: with many,
what is thrown seldom comes back.

Sources: Yagiura, Ibaraki, Glover, An ejection chain approach for the generalized assignment problem, INFORMS Journal on
Computing 16 (2004), for chains and prices; Lourenço, Martin, Stützle, Iterated local search, Handbook of Metaheuristics
(2003).
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from iegopt.errors import InternalError
from iegopt.problem.arrays import Problem
from iegopt.problem.restrict import restrict
from iegopt.solvers.clock import Clock, lag
from iegopt.solvers.evaluate import feasible, objective
from iegopt.solvers.exact.compiled import as_ints, kernels
from iegopt.solvers.result import Report

__all__ = ["ChainSearch", "chains_reason"]

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]
Bools = npt.NDArray[np.bool_]

_KICKED = 3
"""Stages thrown at once, at most: more help from afar, fewer near the best plans."""
_OVER = 2.0
"""How many times what prices say overload costs at first."""
_LEAST_PRICE = 0.1
"""What a device is worth at least, in parts of the mean."""
_MOST_OPTIONS, _MOST_CELLS = 20_000, 2_000_000
"""Options up to which a search gets on, and stages · devices, of which each takes 8 bytes."""
_LOOK_NEEDS, _CHUNK_SHARE, _CHUNK_MOST, _FEWEST_LOOKS = 2e-8, 0.2, 0.02, 100
"""Seconds per look at a stage that may be ejected before any was timed; part of the time left, and seconds, between two
looks at the clock; how many looks are worth a call."""


def chains_reason(problem: Problem, mask: Bools) -> str | None:
    """Why the options of a mask (O,) are not searched here, ``None`` where they are."""
    if kernels() is None:
        return "no kernels"
    options, cells = int(mask.sum()), problem.V * problem.topology.D
    if options > _MOST_OPTIONS:
        return f"{options:,} options, more than {_MOST_OPTIONS:,}"
    return f"{cells:,} stages · devices, more than {_MOST_CELLS:,}" if cells > _MOST_CELLS else None


class ChainSearch:
    """A search of one problem that ``separable.inseparable`` does not refuse, nor ``chains_reason``.

    It goes on with every call of ``run``.

    Parameters
    ----------
    mask (O,)
        Options that take part, at least one of every stage.
    best
        (objective, plan) to start from, or ``None`` for the options of least ``guide``.
    worth (D,)
        Ticks for the whole memory of every device (``capacity_prices``).
    guide (O,)
        Of every stage's options the least is the one to start from.

    Attributes
    ----------
    best
        The best feasible (objective, plan) so far.
    """

    def __init__(
        self,
        problem: Problem,
        mask: Bools,
        best: tuple[int, Ints] | None,
        seed: int,
        check: bool,
        report: Report,
        worth: Floats,
        guide: Ints,
    ) -> None:
        if best is not None:
            mask = mask.copy()
            mask[best[1]] = True
        small, self._kept = restrict(problem, mask)
        self.best, self._problem, self._check, self._report = best, problem, check, report
        options, topology, capacity = small.options, small.topology, np.maximum(small.capacity, 1)
        device = topology.device_index[topology.device_ptr[options.site]]
        price = _OVER * worth / capacity
        usual = float(price.mean()) or float(options.cost.mean()) / max(1.0, float(options.share.mean()))
        self._first = np.maximum(price, _LEAST_PRICE * max(usual, 1e-9))
        self._price = self._first.copy()
        self._options = tuple(map(as_ints, (options.ptr, device, options.cost, options.share)))
        if best is not None:
            plan = np.searchsorted(self._kept, best[1])
        else:
            least = guide[self._kept]
            plan = np.array([of.start + least[of].argmin() for of in map(options.of, range(small.V))], dtype=np.int64)
        self._plan, self._best = plan, np.full(small.V, -1)
        self._free = small.capacity.copy()
        np.subtract.at(self._free, device[plan], options.share[plan])
        known = 2**62 if best is None else best[0]
        self._values = np.array([options.cost[plan].sum(), known, 0], dtype=np.int64)
        if best is not None:
            self._best[:] = plan
        self._state = np.array([np.random.default_rng(seed).integers(1, 2**63)], dtype=np.uint64)
        self._each = lag() * _LOOK_NEEDS

    @property
    def steps(self) -> int:
        """Chains made."""
        return int(self._values[2])

    def run(self, clock: Clock, target: int | None = None) -> None:
        """Search until the clock ends or ``best`` is at most ``target`` ticks."""
        core = kernels()
        assert core is not None
        while clock.left > 0 and (target is None or self.best is None or self.best[0] > target):
            given = max(_FEWEST_LOOKS, int(min(_CHUNK_SHARE * clock.left, _CHUNK_MOST) / self._each))
            looks, known, begun = np.array([given]), int(self._values[1]), clock.seconds
            core.chains(
                *self._options, self._first, self._price, self._free, self._plan, self._best, self._values, _KICKED,
                looks, self._state,
            )  # fmt: skip
            self._each = max(1e-10, (clock.seconds - begun) / (given - int(looks[0])))
            if self._values[1] < known:
                self._take()

    def _take(self) -> None:
        self.best = int(self._values[1]), self._kept[self._best]
        if self._check:
            value = objective(self._problem, self.best[1])
            if value != self.best[0] or not feasible(self._problem, self.best[1]):
                raise InternalError(f"chains: {self.best[0]} ticks by deltas, {value} in full")
        self._report(self.best[1], None, None)
