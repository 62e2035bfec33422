"""Requests that fit nowhere beside what stays, however the rest is planned.

On instance j with a share F free of what stays, a prefill that ends by D takes P ≤ F·(D − R) with the most that it
holds there or fetches, ready at R. What an earlier prefill of the plan leaves it costs that prefill first: of those
that share its first block, one runs first and finds nothing left, so that both take least + min_k P_k ≤ F·D.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from iegopt.batch.bound_rows import ROUNDING
from iegopt.batch.model import BatchModel
from iegopt.batch.pinned import free_beside
from iegopt.batch.scout import Scout

__all__ = ["Fitting"]

Bools = npt.NDArray[np.bool_]
Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]

EASE = 1.0 + 100 * ROUNDING


class Fitting:
    """Prefills of a model's requests alone on instances."""

    def __init__(self, model: BatchModel, scout: Scout) -> None:
        self.model, self._least = model, scout.reaches.least
        self._family = model.kinds.family[model.instances.kind]
        self._first: dict[int, list[int]] = {}
        for i, blocks in enumerate(model.holdings.blocks):
            if blocks:
                self._first.setdefault(blocks[0], []).append(i)
        self._known: dict[int, Floats] = {}

    def some(self, rows: Ints, stays: Bools) -> Bools:
        """Which requests of ``rows`` fit somewhere beside running stages (R,) that stay."""
        free = np.maximum(0.0, free_beside(self.model, stays)) * EASE
        return np.array([bool(self._fits(i, free).any()) for i in rows.tolist()], dtype=bool)

    def _fits(self, i: int, free: Floats) -> Bools:
        """(J,) where request ``i`` is in time."""
        at, queue = self.model.instances, self.model.plain
        by = min(queue["prefill_by"][i], queue["e2e"][i]) * EASE + ROUNDING
        time, _ = self._alone(i, by, free)
        after = self._least[i][at.kind] + self._before(i)
        runs = at.open & at.prefills & self.model.prefill.runs[i, at.kind]
        return np.asarray(runs & (time | (after <= free * by)))

    def _alone(self, i: int, by: float, free: Floats) -> tuple[Bools, Floats]:
        """(J,) where it is in time with what it holds or fetches; and the least seconds that it takes so."""
        model, queue, at = self.model, self.model.plain, self.model.instances
        prompt, kv, wire = queue["prompt"][i], queue["kv_per_token"][i], queue["wire_per_token"][i]
        holders, tokens, read = model.holdings.of(i, prompt)
        own = np.zeros(model.J, dtype=np.int64)
        own[holders] = tokens
        least = self._work(i, own)
        in_time = least <= free * by
        for h, held, slow in zip(holders.tolist(), tokens.tolist(), read.tolist(), strict=True):
            may = (held > own) & (self._family == self._family[h])
            rate = wire * at.seconds_per_byte[h] + kv * slow
            ready = np.where(may, at.latency[h] + (held - own) * rate, 0.0)
            work = self._work(i, np.full(model.J, held))
            in_time |= may & (work <= free * (by - ready))
            least = np.where(may, np.minimum(least, work), least)
        return in_time, least

    def _before(self, i: int) -> Floats:
        """(J,) the least that the first of those takes that leave it something."""
        blocks, none = self.model.holdings.blocks[i], np.full(self.model.J, np.inf)
        for k in self._first.get(blocks[0], ()) if blocks else ():
            if k != i:
                if k not in self._known:
                    _, self._known[k] = self._alone(k, np.inf, np.ones(self.model.J))
                none = np.minimum(none, self._known[k])
        return none

    def _work(self, i: int, reused: Ints) -> Floats:
        """(J,) seconds of a prefill with so many tokens reused; ∞ where it does not run."""
        return self.model.prefill.seconds(i, self.model.instances.kind, reused)
