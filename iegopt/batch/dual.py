"""The Lagrangian dual of a level's relaxation (``iegopt.batch.bound_rows``): for given prices every item takes its
best option by itself, and the sum is an upper bound, whatever the prices."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from iegopt.batch.bound_rows import ROUNDING, Classes, Items
from iegopt.batch.model import BatchModel
from iegopt.batch.outcome import EPSILON

__all__ = ["Dual", "Priced"]

FLOAT = 1e-11
"""Relative error of the sums of a bound, generously."""

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]
Bools = npt.NDArray[np.bool_]


@dataclass(frozen=True, eq=False)
class Priced:
    """What the dual says at prices.

    Attributes
    ----------
    value, slope
        A bound, and a subgradient of it.
    least (M,)
        What every item costs at least.
    gain (K,), use (K, rows)
        Of the best options of each group of items: utility at the level, and use of every row, so that the group adds
        at least gain − use·prices at any others.
    opened (C, P)
        Instances that decode at every pace.
    """

    value: float
    slope: Floats
    least: Floats
    gain: Floats
    use: Floats
    opened: Floats


class Dual:
    """The dual for one level.

    The prices are one vector, each for the whole capacity of its row: rows of (class, deadline) with a, the same with
    b, links of (class, pace) with a, with b, of sequences, of memory, memory of classes, then levels above.

    Parameters
    ----------
    level
        Items of lower levels do not count, and what is lost there costs nothing.
    above
        Priority -> the objective that it keeps at least; ``None``: all its items are placed at full value.
    part
        Of every capacity, and of what levels above keep, that counts: less than one for prices of a cluster that is
        too small, which bound nothing.
    groups
        Number of groups of items whose uses are told apart.
    free (C,)
        The most of its time that an instance of each class has for prefills; what no other work takes, where not given.
    """

    def __init__(
        self, model: BatchModel, classes: Classes, items: Items, grid: Floats, level: int,
        above: dict[int, float | None], groups: int = 1,
        part: float = 1.0, free: Floats | None = None,
    ) -> None:  # fmt: skip
        self.classes, self.items, self.paces = classes, items, model.paces
        # As late as the items' deadlines with their rounding: one that lies on the grid is due there, not at the next.
        self.grid = grid * (1.0 + 2 * ROUNDING) + 2 * ROUNDING
        self.level, self.above = level, {h: kept for h, kept in above.items() if kept is not None}
        self._whole = [h for h, kept in above.items() if kept is None]
        # Levels that have all may lose what no comparison of two plans counts.
        full = {h: float(items.value[(items.level == h) & ~items.running].sum()) for h in self._whole}
        self._nothing = np.array([EPSILON * max(1.0, full.get(h, 0.0)) for h in items.level.tolist()])
        self.groups, self.count = groups, part * classes.count
        self._group = np.arange(len(items)) % groups
        C, G, P = classes.size, len(grid), len(model.paces)
        self.shape = C, G, P
        kind = classes.kind
        self._bases = model.kinds.base_compute[kind], model.kinds.base_read[kind]
        ease = 1.0 + 10 * ROUNDING
        due = classes.share[:, None] * self.grid[None, :] * ease
        spare = classes.most_share[:, None] * self.paces[None, :] * ease
        self._room = [np.maximum(0.0, spare - base[:, None]) for base in self._bases]
        batch = np.repeat(classes.most_batch[:, None], P, axis=1)
        store = np.repeat(classes.most_memory[:, None], P, axis=1) * ease
        self._room += [batch, store]
        links = [room * classes.count[:, None] for room in self._room]
        scales = [due, due, *links, classes.memory * ease]
        self.scale = np.maximum(np.concatenate([part.ravel() for part in scales]), 1e-30)
        static = np.concatenate([due.ravel(), due.ravel(), np.zeros(4 * C * P), classes.memory * ease])
        # Per whole capacity; levels above ask for what they keep.
        self.static = np.concatenate([part * static / self.scale, [-part * kept for kept in self.above.values()]])
        self.pull = self._pulls()
        self._options(ease, classes.most_share if free is None else free)

    @property
    def size(self) -> int:
        return len(self.scale) + len(self.above)

    def _pulls(self) -> Floats:
        """(C, P, rows) what an instance that decodes at a pace adds to every row, base of its step taken off."""
        C, G, P = self.shape
        found = np.zeros((C, P, self.size))
        for c in range(C):
            for t in range(P):
                for row in (0, 1):
                    due = slice(row * C * G + c * G, row * C * G + (c + 1) * G)
                    found[c, t, due] = -self._bases[row][c] * self.grid / self.paces[t]
                for link, room in enumerate(self._room):
                    found[c, t, 2 * C * G + link * C * P + c * P + t] = room[c, t]
        found[:, :, : len(self.scale)] /= self.scale
        return found

    def split(self, rows: Floats) -> list[Floats]:
        """Rows apart: (class, deadline) with a, b, (class, pace) with a, b, sequences, memory; of classes memory."""
        C, G, P = self.shape
        return np.split(rows, np.cumsum([C * G, C * G, C * P, C * P, C * P, C * P]))

    def mean_work(self) -> Floats:
        """(C,) seconds of a prefill on every class, of those that it can run; 1 where there are none."""
        there = np.isfinite(self.items.work) & ~self.items.running
        count = there.sum(axis=1)
        return np.asarray(np.where(count > 0, (self._work * there).sum(axis=1) / np.maximum(1, count), 1.0))

    def _options(self, ease: float, free: Floats) -> None:
        """What does not depend on prices: which options there are, and the bucket of their deadlines."""
        items, classes, (C, _, P) = self.items, self.classes, self.shape
        self._work = np.where(np.isfinite(items.work), items.work, 0.0)
        self._compute = np.where(np.isfinite(items.compute), items.compute, 0.0)
        self._read = np.where(np.isfinite(items.read), items.read, 0.0)
        # What is not decoded takes memory, but no instance need decode for it.
        self._stored = np.where(items.decodes, items.memory, 0.0)
        self._together = np.searchsorted(self.grid, items.together)
        self._apart = np.searchsorted(self.grid, items.apart)
        self._decode = np.full((C, P, len(items)), np.inf)
        self._same = np.full((C, P, len(items)), np.inf)
        self._prefill = np.full((C, P, len(items)), np.inf)
        whole = np.isin(items.level, self._whole)
        for c in range(C):
            runs = np.isfinite(items.work[c])
            for t in range(P):
                step = np.maximum(self._bases[0][c] + items.compute[c], self._bases[1][c] + items.read[c])
                share = np.where(items.decodes, step / self.paces[t], 0.0)
                speed = classes.most_share[c] * ease - share
                fits = np.isfinite(items.compute[c]) & (speed >= 0.0)
                loss = items.lost[t] + items.away[c]
                self._decode[c, t] = np.where(fits & ((loss <= self._nothing) | ~whole), loss, np.inf)
                with np.errstate(invalid="ignore"):
                    early = self._work[c] <= np.clip(speed, 0.0, free[c] * ease) * items.together[t]
                    alone = self._work[c] <= free[c] * ease * items.apart[t]
                self._same[c, t] = np.where(runs & (early | items.running) & fits, 0.0, np.inf)
                self._prefill[c, t] = np.where(runs & alone & ~items.running, 0.0, np.inf)

    def at(self, prices: Floats) -> Priced:
        """The dual at prices, none of them negative."""
        items, classes, (C, G, P) = self.items, self.classes, self.shape
        rows = prices[: len(self.scale)] / self.scale
        da, db, la, lb, ls, lm, memory = self.split(rows)
        due_a, due_b = da.reshape(C, G), db.reshape(C, G)
        spread = self.grid[None, None, :] / self.paces[None, :, None]
        cost_a = (due_a[:, None, :] * spread).sum(axis=2) + la.reshape(C, P)
        cost_b = (due_b[:, None, :] * spread).sum(axis=2) + lb.reshape(C, P)
        cost_s, cost_m = ls.reshape(C, P), lm.reshape(C, P)
        tail = np.zeros((C, G + 1))
        tail[:, :G] = np.cumsum((due_a + due_b)[:, ::-1], axis=1)[:, ::-1]
        mu = self._multipliers(prices)
        best = np.full(len(items), np.inf)
        at_p, at_q, pace = (np.zeros(len(items), dtype=np.int64) for _ in range(3))
        apart = np.zeros(len(items), dtype=bool)
        for t in range(P):
            decode = self._decodes(t, cost_a, cost_b, cost_s, cost_m, memory, mu)
            for c in range(C):
                cost = decode[c] + (self._work[c] * tail[c][self._together[t]] + self._same[c, t])
                better = cost < best
                if better.any():
                    best = np.where(better, cost, best)
                    at_p[better], at_q[better], pace[better], apart[better] = c, c, t, False
            for family in np.unique(classes.family).tolist():
                member = np.flatnonzero(classes.family == family)
                if not np.isfinite(classes.latency[np.ix_(member, member)]).any():
                    continue
                prefill = np.array([
                    self._work[c] * tail[c][self._apart[t]] + self._prefill[c, t] + items.moved_memory * memory[c]
                    for c in member
                ])  # fmt: skip
                p, q = prefill.argmin(axis=0), decode[member].argmin(axis=0)
                every = np.arange(len(items))
                cost = prefill[p, every] + decode[member][q, every]
                better = cost < best
                if better.any():
                    best = np.where(better, cost, best)
                    at_p[better], at_q[better] = member[p[better]], member[q[better]]
                    pace[better], apart[better] = t, True
        return self._sum_up(prices, mu, best, at_p, at_q, pace, apart)

    def _multipliers(self, prices: Floats) -> Floats:
        """(M,) what a unit of each item's utility counts for."""
        mu = np.where(self.items.level == self.level, 1.0, 0.0)
        for h, price in zip(self.above, prices[len(self.scale) :].tolist(), strict=True):
            mu[self.items.level == h] = price
        return mu

    def _decodes(self, t: int, a: Floats, b: Floats, s: Floats, m: Floats, memory: Floats, mu: Floats) -> Floats:
        items, (C, _, _) = self.items, self.shape
        found = np.empty((C, len(items)))
        for c in range(C):
            with np.errstate(invalid="ignore"):
                cost = np.where(np.isinf(self._decode[c, t]), np.inf, self._decode[c, t] * mu)
            cost += self._read[c] * b[c, t] + self._stored * m[c, t] + items.memory * memory[c]
            if a[c, t] > 0.0:
                cost += self._compute[c] * a[c, t]
            if s[c, t] > 0.0:
                cost += items.sequences * s[c, t]
            found[c] = cost
        return found

    def _sum_up(self, prices: Floats, mu: Floats, best: Floats, p: Ints, q: Ints, t: Ints, apart: Bools) -> Priced:
        items, (C, _, P) = self.items, self.shape
        whole = np.isin(items.level, self._whole)
        counts = (items.level <= self.level) | items.running
        value = np.where(np.isinf(items.value), 0.0, items.value)
        # A request not placed earns nothing; a stage put aside loses its value. Of levels that keep all they have
        # every request stays, and no stage that costs anything goes.
        aside = np.where(items.running & ~whole, np.where(np.isinf(items.value), np.inf, mu * value), 0.0)
        forced = whole & (items.value > self._nothing)
        gain = np.where(items.running, 0.0, mu * value) - best
        takes = counts & np.isfinite(best) & ((gain > -aside) | forced)
        lost = np.where(takes, self._decode[q, t, np.arange(len(items))], 0.0)
        got = np.where(items.running, np.where(takes, -lost, -value), np.where(takes, value - lost, 0.0))
        got[~counts] = 0.0
        use = self._use(takes, p, q, t, apart)
        for at, h in enumerate(self.above):
            mine = items.level == h
            use[:, len(self.scale) + at] = -np.bincount(self._group[mine], got[mine], self.groups)
        own = items.level == self.level
        sums = np.bincount(self._group[own], got[own], self.groups)
        pull = self.pull @ prices
        at_pace, most = pull.argmax(axis=1), np.maximum(pull.max(axis=1), 0.0)
        opened = np.zeros((C, P))
        opened[np.arange(C), at_pace] = np.where(most > 0.0, self.count, 0.0)
        paid = use @ prices
        total = self.static @ prices + (sums - paid).sum() + (self.count * most).sum()
        # Terms that are far larger than their sum leave little of it in float64: no bound may profit from that.
        total += FLOAT * (np.abs(self.static) @ prices + np.abs(sums).sum() + np.abs(paid).sum() + self.count @ most)
        slope = self.static - use.sum(axis=0) + np.tensordot(opened, self.pull, 2)
        return Priced(float(total), slope, best, np.asarray(sums, dtype=float), use, opened)

    def _use(self, takes: Bools, p: Ints, q: Ints, t: Ints, apart: Bools) -> Floats:
        """(K, rows) what the items of each group that are taken use of every row."""
        items, K, (C, G, P) = self.items, self.groups, self.shape
        n = np.flatnonzero(takes)
        k, p, q, t, apart = self._group[n], p[n], q[n], t[n], apart[n]
        bucket = np.where(apart, self._apart[t, n], self._together[t, n])
        cell = (k * C + p) * (G + 1) + bucket
        work = np.bincount(cell, self._work[p, n], K * C * (G + 1)).reshape(K, C, G + 1)
        done = np.cumsum(work[:, :, :G], axis=2)
        cell = (k * C + q) * P + t
        compute, read, batch, store = (
            np.bincount(cell, part, K * C * P).reshape(K, C, P)
            for part in (self._compute[q, n], self._read[q, n], items.sequences[n], self._stored[n])
        )
        dues = [done + (part / self.paces).sum(axis=2)[:, :, None] * self.grid for part in (compute, read)]
        memory = np.bincount(k * C + q, items.memory[n], K * C)
        memory = memory + np.bincount(k * C + p, np.where(apart, items.moved_memory[n], 0.0), K * C)
        parts = [part.reshape(K, -1) for part in (*dues, compute, read, batch, store, memory)]
        use = np.zeros((K, self.size))
        use[:, : len(self.scale)] = np.concatenate(parts, axis=1) / self.scale
        return use
