"""Branch and bound on priced bounds (``pricing.py``): the root in phases over ever fewer options, then its nodes."""

from __future__ import annotations

import math
import time

import numpy as np
import numpy.typing as npt

from iegopt.problem.arrays import Problem
from iegopt.solvers.clock import Clock
from iegopt.solvers.exact.best_plan import BestPlan
from iegopt.solvers.exact.branching import propagate
from iegopt.solvers.exact.candidates import Candidates, above_any_plan, candidates
from iegopt.solvers.exact.exchange import exchange_stages
from iegopt.solvers.exact.handover import multipliers_of, prices_from
from iegopt.solvers.exact.in_time import in_time
from iegopt.solvers.exact.messages import UNREACHABLE
from iegopt.solvers.exact.open_nodes import OpenNodes
from iegopt.solvers.exact.parts_of_gap import SOLVING_WIDTH, search_by_parts
from iegopt.solvers.exact.priced_plans import offer_plans_of, search_beam
from iegopt.solvers.exact.pricing import Priced, Pricing, no_split, split_rows
from iegopt.solvers.exact.windows import through_windows
from iegopt.solvers.multipliers import Multipliers
from iegopt.solvers.result import Report, relative_gap, unheard

__all__ = ["PRICES_PROOF", "PricedSearch"]

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]
Bools = npt.NDArray[np.bool_]

PRICES_PROOF = "capacity prices"

_PHASES, _FIRST_STEPS, _STEPS = 12, (1, 4), 12
"""Phases of the root at most, steps in its first ones, and steps in every other phase."""
_DECAY = 0.85
"""By what the length of the root's steps shrinks from 1 with every phase."""
_WORTH, _FAR = 0.03, 0.1
"""Part of the gap that a phase of the root must close for another to follow; the gap as part of the bound at most."""
_WARM_PHASES = 4
"""Phases, with their longer steps, that a root skips which starts from known prices."""
_WIDTHS = (16,), (128,), (512,), (256, 2000)
"""Widths of the beams after every phase of the root."""
_CLOSE_WIDTH = 256
"""Width of the beam of later ones where the gap is small, once it is cut: it is there to solve the node."""
_FEWER, _FEW, _FEW_STEPS = 0.6, 750, 4
"""Share of the options left below which a phase goes on to the next before it looks for plans; the options with which
a beam soon is done, and the steps before it then."""
_HANDFUL, _MANY = 100, 600
"""Options left with which a beam is done at once; from which on the gap is closed in parts."""
_KICKS = 10
"""Times that the plan of the first phase is kicked where the gap is not small."""
_MORE_PROMISING = 0.05
"""By how much more of the distance to the best plan a narrower beam must close for a wider one to follow than when one
followed in vain."""
_CLOSE, _NEAR = 0.01, 0.02
"""Gap up to which it does, and from the third phase on is to solve the node; up to which it is closed in parts."""
_LAID_AGAIN = 2.0
"""Times as long as the layout of the root that of what is left of it may take, with a first node."""
_OF_BEAMS, _OF_WINDOW = 1.0, 0.5
"""Parts of the time of the first prices of the root that beams after them take, and a window."""
_SHRUNK = 0.7
"""Share of the options left below which the root is laid out again."""


class PricedSearch(BestPlan):
    """The search of one problem; ``value``, ``plan`` and ``bound`` hold at any moment.

    Parameters
    ----------
    mask (O,)
        Options that take part: a plan that uses another is no better than ``value``.
    best
        (objective, plan) to beat, or ``None``.
    known
        Prices to start from: those of a solve on nearly the same cluster save steps.
    report
        Receives every better plan and bound as it is found.

    Attributes
    ----------
    price (D,), toll (R,)
        Prices at the root: ticks for the whole memory of every device, and per unit of the limits in time.
    bound
        Ticks: no plan costs less, ``value`` once that is proven optimal; ``None`` where nothing is known.
    marginals (O,)
        Lower bounds of the root on any plan that uses the option.
    """

    def __init__(
        self,
        problem: Problem,
        mask: Bools,
        best: tuple[int, Ints] | None,
        clock: Clock,
        known: Multipliers | None = None,
        report: Report = unheard,
    ) -> None:
        begun = time.perf_counter()
        super().__init__(problem, best, above_any_plan(problem, mask), report)
        self.clock = clock
        self.price, self.toll = np.zeros(problem.topology.D), np.zeros(0)
        self.marginals = np.where(mask, -UNREACHABLE, UNREACHABLE)
        self._started = False
        self._root: tuple[Candidates, Bools, Priced, int] | None = None
        self._unsolved: int | None = None
        self._open: OpenNodes | None = None
        self._c = candidates(problem, mask)
        if known is not None:
            given, self.toll = prices_from(problem, known, self._c.rows)
            self.price[self._c.used] = given[self._c.used]
        # Seconds here and now: whether caches know a problem makes more of a difference than its size.
        self._layout_took, self._prices_took = time.perf_counter() - begun, 0.0

    @property
    def multipliers(self) -> Multipliers:
        """The prices of the root by name, for the next solve and for the user."""
        return multipliers_of(self.problem, self.price, self._c.rows, self.toll)

    @property
    def done(self) -> bool:
        """Whether ``value`` is proven optimal, or without one that there is no plan."""
        return self._started and self._root is None and (self._open is None or self._open.none)

    @property
    def nodes(self) -> int:
        """Bounded so far."""
        return int(self._started) + (0 if self._open is None else self._open.bounded)

    @property
    def bound(self) -> int | None:
        """Ticks; ``None`` before the root and where no plan exists."""
        if not self._started:
            return None
        bounds = [] if self._open is None else self._open.bounds
        if self._root is not None:
            bounds.append(self._root[3])
        if self.value is not None:
            bounds.append(self.value)
        return min(bounds, default=None)

    def bound_root(self, stop: int = _PHASES, first: int = 0, sure: bool = False, enough: float = 0.0) -> None:
        """The root's bound, its pruning, and plans from its prices, in phases over ever fewer options.

        Parameters
        ----------
        stop, first
            The phase after the last, and the first: 1 where a good plan is known, which phase 0 looks for.
        sure
            Whether the known prices are good ones of this very problem, over fewer options.
        enough
            Gap at which to end.
        """
        c = self._c
        self._started, self._root = True, None
        exchange_stages(c, self, self.clock)
        keep = propagate(c, in_time(c, np.ones((len(c.option), 1), dtype=np.bool_))[:, 0])
        split = tuple(no_split(c, 1))
        price, toll = (part[:, None] for part in (np.append(self.price[c.used], 0.0), self.toll))
        if keep is not None and not sure and (price.any() or toll.any()):
            price, toll = _better_start(c, keep, price, toll)
        ahead = _WARM_PHASES if price.any() or toll.any() else 0
        bound, promising = -UNREACHABLE, dict[int, float]()
        for phase in range(first, stop):
            if keep is None:
                return
            if (phase == first and not keep.all()) or keep.sum() < _SHRUNK * len(keep):
                wide, c = c, c.restrict(keep, reorder=True)
                split, keep = split_rows(wide, split, keep, c), np.ones(len(c.option), dtype=np.bool_)
            before, upper, begun = bound, self.upper, time.perf_counter()
            early = phase < len(_FIRST_STEPS)
            steps = _FIRST_STEPS[phase] if early else _STEPS if len(keep) > _FEW else _FEW_STEPS
            pricing = Pricing(c, keep[:, None], price, split, toll)
            length = _DECAY ** (phase - first + ahead)
            patient = self._gap(bound) > _CLOSE  # beams close small gaps sooner than prices do
            priced = pricing.run(lambda: self.upper, steps, length, offer_plans_of(c, self), self._late, patient)
            self._prices_took = self._prices_took or time.perf_counter() - begun
            self.price[c.used], self.toll = priced.price[:-1, 0], priced.toll[:, 0]
            price, toll, split = priced.price, priced.toll, priced.split
            bound = max(bound, int(priced.bound[0]))
            self._raise_marginals(c, keep, priced.marginals[:, 0])
            if phase == 0 and self._gap(bound) > _CLOSE:
                exchange_stages(c, self, self.clock, _KICKS)
            left = self._left(c, keep)
            if not enough and _count(left) > _MANY and self._gap(bound) <= _NEAR and left is not None:
                bound = search_by_parts(c, priced, keep, bound, length, self, self.clock, self._late)
            if bound < self.upper and not self._late(_OF_BEAMS * self._prices_took):
                bound, left = self._search_beams(c, keep, priced, bound, phase, phase == stop - 1, promising)
            if bound > before:
                self._tell(min(bound, self.upper))
            if bound >= min(self.upper, UNREACHABLE // 2):
                return
            shrunk, keep = _fewer(left, keep), left
            missing = min(self.upper - bound, int(_FAR * abs(bound)))
            slow = bound - before < _WORTH * missing and self.upper == upper
            if (self._gap(bound) <= enough or (slow and not early)) and not shrunk:
                break
            if self._late(self._prices_took):
                break
        if keep is not None:
            self._root = c, keep, priced, bound

    def _search_beams(
        self,
        c: Candidates,
        keep: Bools,
        priced: Priced,
        bound: int,
        phase: int,
        last: bool,
        promising: dict[int, float],
    ) -> tuple[int, Bools | None]:
        """The bound and the options left after the beams of a phase, each wider than the one before.

        Parameters
        ----------
        promising
            By width, the part of the distance to the best plan that the beam before must have closed; kept up to date.
        """
        left = self._left(c, keep)
        own, closed = int(priced.bound[0]), 1.0
        for i, (width, wide) in enumerate(self._widths(phase, left, bound)):
            settled = not last and _fewer(left, keep, i > 0) and self._gap(bound) <= _CLOSE
            if (settled and _count(left) > _HANDFUL) or (i and closed < promising.get(width, 0.0)):
                break
            upper = self.upper
            found = search_beam(c, priced, 0, keep, width, self, self.clock, wide)
            bound = max(bound, found)
            if bound >= self.upper or self._late():
                break
            if wide:
                self._unsolved = _count(left)
            if i and self.upper == upper:
                promising[width] = closed + _MORE_PROMISING
            closed = (found - own) / (self.upper - own)
            left = self._left(c, keep)
        return bound, left

    def _gap(self, bound: int) -> float:
        """(value − bound) / |value|, infinite without a plan."""
        gap = relative_gap(self.value, bound)
        return math.inf if gap is None else gap

    def _widths(self, phase: int, left: Bools | None, bound: int) -> tuple[tuple[int, int], ...]:
        """Of the beams of a phase, and those up to which they are not cut, where the gap is small: to be done with it.

        These follow one in vain only where far fewer options are left.
        """
        few = phase >= len(_FIRST_STEPS) or _count(left) <= _HANDFUL
        if few and self._gap(bound) <= _CLOSE:
            again = self._unsolved is not None and _count(left) > _FEWER * self._unsolved
            return ((_CLOSE_WIDTH, 0 if again else SOLVING_WIDTH),)
        return tuple((width, 0) for width in _WIDTHS[min(phase, len(_WIDTHS) - 1)])

    def _left(self, c: Candidates, keep: Bools) -> Bools | None:
        """The options of a mask (n,) that a better plan can use; ``None`` where there is none."""
        better = keep & (self.marginals[c.option] < self.upper)
        return propagate(c, in_time(c, better[:, None])[:, 0])

    def improve_in_windows(self) -> None:
        """Better plans near the best one (``windows.py``), where that is among the candidates."""
        needs = _OF_WINDOW * self._prices_took
        if self.plan is not None and not self._late(needs) and np.isin(self.plan, self._c.option).all():
            through_windows(self._c, self, self._late, needs)

    def _raise_marginals(self, c: Candidates, keep: Bools, marginals: Ints) -> None:
        raised = np.full(len(self.marginals), UNREACHABLE)
        raised[c.option] = np.where(keep, marginals, UNREACHABLE)
        np.maximum(self.marginals, raised, out=self.marginals)

    def _lay_out(self) -> None:
        """Open the root over the options that survive its own pruning."""
        if self._root is None:
            return
        wide, left, priced, bound = self._root
        self._root = None
        mask = np.zeros(len(self.problem.options.site), dtype=np.bool_)
        mask[wide.option[left]] = True
        self._c = c = candidates(self.problem, mask, wide.rows)
        price = np.append(priced.price[np.searchsorted(wide.used, c.used)], [[0.0]], axis=0)
        split = tuple(part[:, 0] for part in split_rows(wide, priced.split, left, c))
        self._open = OpenNodes(c, self, bound, price[:, 0], priced.toll[:, 0], split, priced.mass[left, 0], self._tell)

    @property
    def priced(self) -> bool:
        """Whether any capacity had a price at the root when it was left."""
        some = self._root is not None and bool((self._root[2].price > 0).any() or (self._root[2].toll > 0).any())
        return some or (self._open is not None and self._open.priced)

    def offer_best(self, best: tuple[int, Ints] | None) -> None:
        """Take a feasible (objective, plan) found elsewhere where it is better."""
        if best is None or not self.take(best):
            return
        if self._root is not None and self._root[3] >= self.upper:
            self._root = None
        if self._open is not None:
            self._open.forget_done()

    def survivors(self) -> Bools:
        """(O,) options that a plan better than the best known can use, by the root's min-marginals, and that plan's."""
        mask = self.marginals < self.upper
        if self.plan is not None:
            mask[self.plan] = True
        return mask

    def explore(self, clock: Clock) -> None:
        """Split open nodes, the lowest bound first, until none is left or the time is up.

        Ends early where the next node would take more than is left of the time of the whole search, or the layout.
        """
        if clock.left > 0 and not self._late(_LAID_AGAIN * self._layout_took):
            self._lay_out()
        if self._open is not None:
            self._open.explore(clock, self.clock)

    def _tell(self, bound: int) -> None:
        if bound < UNREACHABLE // 2:  # beyond, it says that there is no plan
            self._report(None, bound if self.value is None else min(bound, self.value), PRICES_PROOF)

    def _late(self, ahead: float = 0.0) -> bool:
        return self.clock.left <= ahead


def _fewer(left: Bools | None, keep: Bools, settled: bool = False) -> bool:
    """Whether so few options are left that the next phase knows more; if ``settled`` not if few are left anyway."""
    count = _count(left)
    return left is None or (count < _FEWER * keep.sum() and not (settled and count <= _FEW))


def _count(left: Bools | None) -> int:
    return 0 if left is None else int(left.sum())


def _better_start(c: Candidates, keep: Bools, price: Floats, toll: Floats) -> tuple[Floats, Floats]:
    """The given prices, or none where these bound better: prices of another request may be far off."""
    both = [np.concatenate([part, np.zeros_like(part)], axis=1) for part in (price, toll)]
    given, none = Pricing(c, np.stack([keep, keep], axis=-1), both[0], no_split(c, 2), both[1]).bounds().tolist()
    return (price, toll) if given > none else (np.zeros_like(price), np.zeros_like(toll))
