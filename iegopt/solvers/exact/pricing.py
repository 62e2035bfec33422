"""Lagrangian bounds with capacity as a price, for many nodes of a search at once (section 6.4 of the placement model).

A device's memory is relaxed with a price λ_d ≥ 0 for the whole of it: an option pays ⌊λ_d · weight⌋ on each of its
devices, and for stages that fit together the weights sum to at most 1 (``weights.py``). A limit in time is a row of its
own (``time_rows.py``). With both,

    bound(λ) = min over plans of [ cost + prices ] − Σ_d ⌈λ_d⌉ − ⌈Σ_r λ_r · limit_r⌉

holds for every λ. The minimum goes by messages (``sweeps.py``), in which two neighbours that do not fit on a device
together may not share it (``links.py``). An edge (u, v) of a cycle that these do not close (``reduction.py``) is split
over its ends: with any function A over the options of u,

    c(a, b) ≥ A(a) + B(b)        B(b) = min over a of [ c(a, b) − A(a) ]

λ follows a deflected subgradient with Polyak's step towards the best known plan (Camerini, Fratta, Maffioli, Math.
Programming Study 3, 1975); A takes a part of the slack in the min-marginals of either end in turn (block-coordinate
ascent, as in max-product linear programming: Globerson & Jaakkola, NIPS 2007).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from iegopt.solvers.exact.candidates import Candidates
from iegopt.solvers.exact.links import Link
from iegopt.solvers.exact.messages import UNREACHABLE
from iegopt.solvers.exact.sweeps import Passed, beliefs, choose, pass_up
from iegopt.solvers.exact.weights import node_weights

__all__ = ["Priced", "Pricing", "no_split", "split_rows"]

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]
Bools = npt.NDArray[np.bool_]

_PATIENCE, _SHRINK = 5, 0.6
"""Steps without a gain until the step length shrinks, and by what."""
_DEFLECTION = 0.5
_FALL, _CUT = 0.1, 0.3
"""Fall of the bound, in parts of the distance to the best known plan, from which a step was too long and is taken again
from the best prices, and by what it is shorter then: a gap of the integers makes Polyak's step too long."""
_SPLIT_MOST = 2
"""Split edges per stage from which the splits, which lower a bound before they raise it, are what counts: the steps of
prices beside them are not taken again."""
_SETTLED, _SLIGHT = 3, 0.02
"""Steps that together gain less than this part of the distance to the best known plan where prices have settled."""
_GAIN = 1e-5
"""Relative gain of the bound that counts as one."""
_FARTHEST = 0.05
"""Distance to the best known plan that a step reckons with at most, in parts of the bound."""
_AHEAD = 3.5
"""What comes before the next look at the clock, and after the last one, in steps."""
_SPLIT_EVERY = 3
_SLACK_TAKEN = 0.1
"""Share of the slack at an end that an edge that closes a cycle takes over."""


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
        self.price = np.rint(price)
        self.toll = candidates.rows.padded(np.zeros((0, self.B)) if toll is None else toll)
        self.split = [part.copy() for part in split]
        self._nodes = np.arange(self.B)
        self._keep = keep
        self._base = np.where(keep, candidates.cost[:, None], UNREACHABLE)
        self._weight = np.stack([node_weights(candidates, keep[:, b], strengthened) for b in range(self.B)], axis=-1)
        self._starts = np.array([part.start for part in candidates.of])
        self._stage = np.repeat(np.arange(candidates.V), [part.stop - part.start for part in candidates.of])
        self._split_most = len(self.split) >= _SPLIT_MOST * candidates.V
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
            Receives (V,) candidate indices of relaxed plans that keep every memory.
        stop
            Whether time is up in so many seconds; at least one evaluation is made.
        patient
            Whether to go on where the last steps gained little.
        """
        B = self.B
        best = np.full(B, -UNREACHABLE)
        at_best = self.price.copy(), self.toll.copy(), [part.copy() for part in self.split]
        rows = self.c.rows
        direction, pressure = np.zeros_like(self.price), np.zeros_like(self.toll)
        steepest = direction.copy(), pressure.copy()
        pace, stall = np.full(B, length), np.zeros(B, dtype=np.int64)
        mass = np.zeros(self._base.shape)
        reached: list[Ints] = []
        begun = time.perf_counter()
        for step in range(steps):
            passed = self._up()
            bound, chosen = self._down(passed)
            gain = bound > best
            stall = np.where(bound > best + np.abs(best) * _GAIN, 0, stall + 1)
            at_best[0][:, gain] = self.price[:, gain]
            at_best[1][:, gain] = self.toll[:, gain]
            for kept, part in zip(at_best[2], self.split, strict=True):
                kept[:, gain] = part[:, gain]
            best = np.maximum(best, bound)
            reached.append(best)
            fresh = 1.0 / (1 + step) if step < 6 else 1 / 6
            mass *= 1.0 - fresh
            mass[chosen, self._nodes] += fresh
            excess, late = self._excess(chosen, bound, offer)
            ahead = _AHEAD * (time.perf_counter() - begun) / (step + 1)
            if step + 1 == steps or bool((best >= upper()).all()) or stop(ahead):
                break
            if not patient and _settled(reached, upper()):
                break
            self.toll, pressure = rows.padded(self.toll), rows.padded(pressure)
            at_best = at_best[0], rows.padded(at_best[1]), at_best[2]
            steepest = np.where(gain, excess, steepest[0]), np.where(gain, late, rows.padded(steepest[1]))
            fell = (best - bound > _FALL * (upper() - best.astype(np.float64))) & (not self._split_most)
            self.price, self.toll = np.where(fell, at_best[0], self.price), np.where(fell, at_best[1], self.toll)
            excess, late = np.where(fell, steepest[0], excess), np.where(fell, steepest[1], late)
            pace = np.where(fell, pace * _CUT, np.where(stall >= _PATIENCE, pace * _SHRINK, pace))
            stall = np.where(fell | (stall >= _PATIENCE), 0, stall)
            reach = np.where(fell, best, bound)
            excess[(self.price <= 0) & (excess < 0)] = 0.0
            late[(self.toll <= 0) & (late < 0)] = 0.0
            direction = excess + _DEFLECTION * np.where(fell, 0.0, direction)
            pressure = late + _DEFLECTION * np.where(fell, 0.0, pressure)
            norm = np.maximum((direction * direction).sum(axis=0) + (pressure * pressure).sum(axis=0), 1e-9)
            size = np.abs(np.minimum(reach, UNREACHABLE // 2)).astype(np.float64)
            room = np.clip(upper() - reach.astype(np.float64), 1e-4 * size, _FARTHEST * size)
            self.price = np.rint(np.maximum(0.0, self.price + pace * room / norm * direction))
            self.toll = np.rint(np.clip(self.toll + pace * room / norm * pressure, 0.0, rows.most))
            if self.split and step % _SPLIT_EVERY == _SPLIT_EVERY - 1:
                self._resplit(passed, bound, room, step // _SPLIT_EVERY % 2 == 0)
                self._shifted = None
        # The last step may have made rows too.
        self.price, self.toll, self.split = at_best[0], rows.padded(at_best[1]), at_best[2]
        self._shifted = None
        passed = self._up()
        marginals = np.minimum(beliefs(passed) - self._rent(), UNREACHABLE)
        return Priced(best, self.price, self.toll, tuple(self.split), marginals, mass, passed)

    def bounds(self) -> Ints:
        """(B,) ticks that the prices to start from prove."""
        return self._down(self._up())[0]

    def _shift(self) -> Ints:
        """(n, B) what the edges that close cycles add to both their ends."""
        shift = np.zeros_like(self._base)
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

    def _resplit(self, passed: Passed, bound: Ints, room: Floats, towards_target: bool) -> None:
        """Let every edge that closes a cycle take over slack of one end."""
        c = self.c
        slack = beliefs(passed) - self._rent() - bound
        slack = np.minimum(np.maximum(slack, 0), room.astype(np.int64))
        taken = (slack * _SLACK_TAKEN).astype(np.int64)
        for i, e in enumerate(c.reduction.dropped):
            u, v = (c.of[stage] for stage in c.ends[e])
            if towards_target:
                self.split[i] = self.split[i] - taken[u]
                continue
            rest = np.minimum(self._rest(e, self.split[i]), UNREACHABLE) - taken[v]
            back = passed.link(e).send(np.where(self._keep[v], -rest, UNREACHABLE), False)
            self.split[i] = np.where(back < UNREACHABLE // 2, back, self.split[i])

    def _up(self) -> Passed:
        c = self.c
        theta = self._base
        self._links = c.links
        paid = bool(self.toll.any())
        if paid:
            of_stage, of_coupling = c.rows.rates(self.toll)
            theta = theta + (of_stage[self._stage] * c.time[:, None]).astype(np.int64)
            self._links = tuple(link and link.at(rate) for link, rate in zip(c.links, of_coupling, strict=True))
        if self._shifted is None or paid:
            self._shifted = self._shift()
        theta = theta + self._shifted
        for devices, weight in zip(c.devices, self._weight, strict=True):
            theta += (self.price[devices] * weight).astype(np.int64)
        np.minimum(theta, UNREACHABLE, out=theta)
        return pass_up(c, self._links, theta)

    def _down(self, passed: Passed) -> tuple[Ints, Ints]:
        """Bounds (B,) and the relaxed plans (V, B), as candidate indices."""
        least, chosen = choose(passed)
        return least - self._rent(), chosen + self._starts[:, None]

    def _excess(self, chosen: Ints, bound: Ints, offer: Callable[[Ints], None]) -> tuple[Floats, Floats]:
        """The subgradient: (D + 1, B) weights of the relaxed plan on every device, less 1, and (R, B) excess of time.

        Offers plans that fit, and makes rows of paths on which plans are late.
        """
        c = self.c
        shape = len(c.capacity), self.B
        cell = (c.devices[:, chosen] * self.B + self._nodes).ravel()
        share = np.broadcast_to(c.share[chosen], (len(c.devices), *chosen.shape))
        load = np.bincount(cell, self._weight[:, chosen, self._nodes].ravel(), shape[0] * self.B)
        used = np.bincount(cell, share.ravel(), shape[0] * self.B)
        fits = (used.reshape(shape) <= c.capacity[:, None])[:-1].all(axis=0) & (bound < UNREACHABLE // 2)
        late = np.zeros((0, self.B))
        if c.rows.timed:
            times, moved = c.time[chosen], c.moved(chosen)
            fits &= c.rows.in_time(times, moved)
            c.rows.add_late(times, moved)
            late = c.rows.excess(times, moved)
        for b in np.flatnonzero(fits).tolist():
            offer(chosen[:, b])
        excess = np.asarray(load.reshape(shape) - 1.0, dtype=np.float64)
        excess[-1] = 0.0
        return excess, late

    def _rent(self) -> Ints:
        """(B,) Σ ⌈λ⌉, and a tick more per price against the rounding of floats."""
        return np.asarray((self.price + (self.price > 0)).sum(axis=0).astype(np.int64)) + self.c.rows.rent(self.toll)


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
