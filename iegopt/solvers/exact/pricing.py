"""Lagrangian bounds with capacity as a price, for many nodes of a search at once (section 6.4 of the placement model).

A device's memory is relaxed with a price λ_d ≥ 0 for the whole of it: an option pays ⌊λ_d · weight⌋ on each of its
devices, and for stages that fit together the weights sum to at most 1 (``weights.py``). A limit in time is a row of its
own (``time_rows.py``). With both,

    bound(λ) = min over plans of [ cost + prices ] − Σ_d ⌈λ_d⌉ − ⌈Σ_r λ_r · limit_r⌉

holds for every λ. The minimum goes by messages (``sweeps.py``), in which two neighbours that do not fit on a device
together may not share it (``links.py``). An edge (u, v) of a cycle that these do not close (``reduction.py``) is split
over its ends: with any function A over the options of u,

    c(a, b) ≥ A(a) + B(b)        B(b) = min over a of [ c(a, b) − A(a) ]

λ follows a subgradient (``ascent.py``); A takes a part of the slack in the min-marginals of either end in turn
(block-coordinate ascent, as in max-product linear programming: Globerson & Jaakkola, NIPS 2007).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from iegopt.solvers.exact.ascent import Ascent
from iegopt.solvers.exact.candidates import Candidates
from iegopt.solvers.exact.evaluation import Dues, evaluation, rent
from iegopt.solvers.exact.links import Link
from iegopt.solvers.exact.messages import UNREACHABLE
from iegopt.solvers.exact.sweeps import Passed
from iegopt.solvers.exact.weights import weights_of_nodes

__all__ = ["Priced", "Pricing", "no_split", "split_rows"]

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]
Bools = npt.NDArray[np.bool_]

_SPLIT_MOST = 2
"""Split edges per stage from which the splits, which lower a bound before they raise it, are what counts: the steps of
prices beside them are not taken again."""
_SETTLED, _SLIGHT = 3, 0.02
"""Steps that together gain less than this part of the distance to the best known plan where prices have settled."""
_AHEAD = 3.5
"""What comes before the next look at the clock, and after the last one, in steps."""
_SPLIT_EVERY = 3
_SLACK_TAKEN = 0.1
"""Share of the slack at an end that an edge that closes a cycle takes over."""
_UNPAID = np.zeros((0, 0))
"""Rates where no time is priced."""


@dataclass(frozen=True, eq=False)
class Priced:
    """What the best prices found prove about B nodes.

    Attributes
    ----------
    bound (B,)
        Ticks, at least ``UNREACHABLE // 2`` where the node has no plan.
    price (D + 1, B), toll (R, B), split
        Ticks for a whole device; per unit of a limit in time; per edge that closes a cycle A (options of its source,
        B).
    marginals (n, B)
        Lower bounds on every plan of the node that uses the option.
    mass (n, B)
        How often the relaxed plans used an option of late, between 0 and 1: near the fractional optimum.
    """

    bound: Ints
    price: Floats
    toll: Floats
    split: tuple[Ints, ...]
    marginals: Ints
    mass: Floats
    passed: Passed


class Pricing:
    """B nodes (masks over the same candidates) under prices.

    Parameters
    ----------
    keep (n, B)
        Options of every node; a node has at least one for every stage.
    price (D + 1, B), split, toll (R, B)
        To start from, as in ``Priced``; limits that ``toll`` leaves out are free.
    strengthened
        Whether memory counts by dual feasible functions (``weights.py``) in place of bytes.
    """

    def __init__(
        self,
        candidates: Candidates,
        keep: Bools,
        price: Floats,
        split: Sequence[Ints],
        toll: Floats | None = None,
        strengthened: bool = True,
    ) -> None:
        self.c = candidates
        self.B = keep.shape[1]
        self.price = np.ascontiguousarray(np.rint(price))
        self.toll = candidates.rows.padded(np.zeros((0, self.B)) if toll is None else toll)
        self.split = [part.copy() for part in split]
        self._keep = keep
        self._evaluation = evaluation(candidates, keep, weights_of_nodes(candidates, keep, strengthened))
        self._links: tuple[Link | None, ...] = ()
        self._shifted: Ints | None = None

    def run(
        self,
        upper: Callable[[], int],
        steps: int,
        length: float,
        offer: Callable[[Ints], None],
        stop: Callable[[float], bool],
        patient: bool = True,
    ) -> Priced:
        """Improve the prices for some steps.

        Parameters
        ----------
        upper
            The best known plan in ticks: nodes at or above it are done.
        length
            Step length to start with, in parts of Polyak's.
        offer
            Receives (P, V) candidate indices of relaxed plans that keep every memory.
        stop
            Whether time is up in so many seconds; at least one evaluation is made.
        patient
            Whether to go on where the last steps gained little.
        """
        again = len(self.split) < _SPLIT_MOST * self.c.V
        ascent = Ascent(self.price, self.toll, self.c.rows, length, again)
        split_at_best = [part.copy() for part in self.split]
        mass, nodes = np.zeros(self._keep.shape), np.arange(self.B)
        reached: list[Ints] = []
        gain = np.zeros(self.B, dtype=np.bool_)
        begun = time.perf_counter()
        for step in range(steps):
            bound, chosen, excess, fits = self._evaluate()
            late = self._look(chosen, fits & (bound < UNREACHABLE // 2), offer)
            gain = ascent.record(bound, excess, late)
            if gain.any():
                self._evaluation.remember(bool(gain.all()))
            for kept, part in zip(split_at_best, self.split, strict=True):
                kept[:, gain] = part[:, gain]
            reached.append(ascent.best)
            fresh = 1.0 / (1 + step) if step < 6 else 1 / 6
            mass *= 1.0 - fresh
            mass[chosen, nodes] += fresh
            ahead = _AHEAD * (time.perf_counter() - begun) / (step + 1)
            if step + 1 == steps or bool((ascent.best >= upper()).all()) or stop(ahead):
                break
            if not patient and _settled(reached, upper()):
                break
            room = ascent.move(upper())
            self.price, self.toll = ascent.price, ascent.toll
            if self.split and step % _SPLIT_EVERY == _SPLIT_EVERY - 1:
                self._resplit(bound, room, step // _SPLIT_EVERY % 2 == 0)
                self._shifted = None
        self.price, self.toll, self.split = ascent.best_price, ascent.best_toll, split_at_best
        if not gain.all() and not self._evaluation.recall():  # else it was that of the best prices
            self._shifted = None
            self._evaluate()
        marginals = np.minimum(self._evaluation.beliefs() - self._rent(), UNREACHABLE)
        passed = self._evaluation.passed()
        return Priced(ascent.best, self.price, self.toll, tuple(self.split), marginals, mass, passed)

    def bounds(self) -> Ints:
        """(B,) ticks that the prices to start from prove."""
        return self._evaluate()[0]

    def _shift(self) -> Ints:
        """(n, B) what the edges that close cycles add to both their ends."""
        shift = np.zeros(self._keep.shape, dtype=np.int64)
        c = self.c
        for e, part in zip(c.reduction.dropped, self.split, strict=True):
            u, v = (c.of[stage] for stage in c.ends[e])
            shift[u] += part
            shift[v] = np.minimum(shift[v] + self._rest(e, part), UNREACHABLE)
        return shift

    def _rest(self, edge: int, part: Ints) -> Ints:
        """B of an edge for A = ``part``."""
        source = self.c.of[self.c.ends[edge][0]]
        link = self._links[edge]
        assert link is not None
        return link.send(np.where(self._keep[source], -part, UNREACHABLE), True)

    def _resplit(self, bound: Ints, room: Floats, towards_target: bool) -> None:
        """Let every edge that closes a cycle take over slack of one end."""
        c = self.c
        slack = self._evaluation.beliefs() - self._rent() - bound
        slack = np.minimum(np.maximum(slack, 0), room.astype(np.int64))
        taken = (slack * _SLACK_TAKEN).astype(np.int64)
        for i, e in enumerate(c.reduction.dropped):
            u, v = (c.of[stage] for stage in c.ends[e])
            if towards_target:
                self.split[i] = self.split[i] - taken[u]
                continue
            rest = np.minimum(self._rest(e, self.split[i]), UNREACHABLE) - taken[v]
            link = self._links[e]
            assert link is not None
            back = link.send(np.where(self._keep[v], -rest, UNREACHABLE), False)
            self.split[i] = np.where(back < UNREACHABLE // 2, back, self.split[i])

    def _evaluate(self) -> tuple[Ints, Ints, Floats, Bools]:
        """Bounds (B,), relaxed plans (V, B), the weights of these on every device (D + 1, B) less 1, and which fit."""
        c, rates, self._links = self.c, (_UNPAID, _UNPAID), self.c.links
        paid = bool(self.toll.any())
        if paid:
            rates = c.rows.rates(self.toll)
            self._links = tuple(link and link.at(rate) for link, rate in zip(c.links, rates[1], strict=True))
        if self._shifted is None or paid:
            self._shifted = self._shift()
        dues = Dues(self.price, self._shifted, *rates, self._links)
        bound, chosen, excess, fits = self._evaluation.up(dues)
        return bound - c.rows.rent(self.toll), chosen, excess, fits

    def _look(self, chosen: Ints, fits: Bools, offer: Callable[[Ints], None]) -> Floats:
        """Offer relaxed plans that fit, and make rows of paths on which plans are late; (R, B) their excess of time."""
        c = self.c
        late = np.zeros((0, self.B))
        if c.rows.timed:
            times, moved = c.time[chosen], c.moved(chosen)
            fits = fits & c.rows.in_time(times, moved)
            c.rows.add_late(times, moved)
            late = c.rows.excess(times, moved)
        if fits.any():
            offer(chosen.T[fits])
        return late

    def _rent(self) -> Ints:
        """(B,) ticks that the prices of devices and of time stand for."""
        return rent(self.price) + self.c.rows.rent(self.toll)


def _settled(reached: Sequence[Ints], upper: int) -> bool:
    """Whether the last steps gained little on the bounds (B,) of any node."""
    if len(reached) <= _SETTLED:
        return False
    best, before = reached[-1], reached[-1 - _SETTLED]
    return bool((best - before < _SLIGHT * (upper - best.astype(np.float64))).all())


def no_split(candidates: Candidates, nodes: int) -> list[Ints]:
    """A = 0 for every edge that closes a cycle: all of it falls on its target."""
    sources = [candidates.of[candidates.ends[e][0]] for e in candidates.reduction.dropped]
    return [np.zeros((part.stop - part.start, nodes), dtype=np.int64) for part in sources]


def split_rows(c: Candidates, split: Sequence[Ints], keep: Bools, part: Candidates) -> tuple[Ints, ...]:
    """What a split means for ``part``, the candidates of ``c`` in a mask: nothing for edges that only that drops."""
    known = dict(zip(c.reduction.dropped, split, strict=True))
    nodes = split[0].shape[1] if split else 1
    rows = []
    for e in part.reduction.dropped:
        source = c.of[c.ends[e][0]]
        rows.append(
            known[e][keep[source]] if e in known else np.zeros((int(keep[source].sum()), nodes), dtype=np.int64)
        )
    return tuple(rows)
