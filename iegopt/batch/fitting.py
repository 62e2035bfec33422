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
from iegopt.solvers.clock import Clock

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

    def some(self, rows: Ints, stays: Bools, clock: Clock) -> Bools:
        """Which of ``rows`` fit somewhere beside running stages (R,) that stay, or were not looked at in time."""
        free = np.maximum(0.0, free_beside(self.model, stays)) * EASE
        return np.array([bool(self.on(i, free, clock).any()) for i in rows.tolist()], dtype=bool)

    def by(self, i: int) -> float:
        """The latest end of a prefill: of a request with an end, what its tokens leave at the fastest pace."""
        queue = self.model.plain
        # Rounding is allowed the whole of a limit, of which the tokens may take nearly all.
        end = queue["e2e"][i] + (EASE - 1.0) * max(1.0, abs(queue["e2e"][i]))
        late = end - queue["output"][i] * float(self.model.paces[0])
        return float(min(queue["prefill_by"][i] * EASE + ROUNDING, late))

    def least_together(self, i: int) -> Floats:
        """(J,) the least seconds of a prefill beside others of a plan, which may leave it what they share; ∞ where it
        cannot run."""
        at, model = self.model.instances, self.model
        blocks = model.holdings.shared.get(i, ())
        left = min(len(blocks) * model.holdings.block_tokens, int(model.queue.prompt[i]) - 1)
        seconds = np.asarray(model.prefill.seconds(i, np.arange(model.K), left))[at.kind]
        runs = at.open & at.prefills & model.prefill.runs[i, at.kind]
        return np.where(runs, np.minimum(self._alone(i), seconds), np.inf)

    def on(self, i: int, free: Floats, clock: Clock) -> Bools:
        """(…, J) where request ``i`` is in time with shares (…, J) of their time that instances have for it."""
        at, by = self.model.instances, self.by(i)
        runs = at.open & at.prefills & self.model.prefill.runs[i, at.kind]
        if clock.left <= 0.0:
            return np.broadcast_to(runs, free.shape)
        after = self._least[i][at.kind] + self._before(i, clock)
        return np.asarray(runs & (self._in_time(i, by, free) | (after <= free * by)))

    def _in_time(self, i: int, by: float, free: Floats) -> Bools:
        """(…, J) where it is in time with what it holds or fetches."""
        model, queue, at = self.model, self.model.plain, self.model.instances
        kv, wire = queue["kv_per_token"][i], queue["wire_per_token"][i]
        holders, tokens, read = model.holdings.of(i, queue["prompt"][i])
        own, amounts, work = self._works(i, holders, tokens)
        in_time = work[np.searchsorted(amounts, own), np.arange(model.J)] <= free * by
        at_amount = work[np.searchsorted(amounts, tokens)]
        for h, held, slow, seconds in zip(holders.tolist(), tokens.tolist(), read.tolist(), at_amount, strict=True):
            may = (held > own) & (self._family == self._family[h])
            ready = np.where(may, at.latency[h] + (held - own) * (wire * at.seconds_per_byte[h] + kv * slow), 0.0)
            in_time |= may & (seconds <= free * (by - ready))
        return in_time

    def _before(self, i: int, clock: Clock) -> Floats:
        """(J,) the least that the first of those takes that leave it something; 0 where no time is left to know."""
        blocks, least = self.model.holdings.blocks[i], np.full(self.model.J, np.inf)
        for k in self._first.get(blocks[0], ()) if blocks else ():
            if clock.left <= 0.0:
                return np.zeros(self.model.J)
            if k != i:
                least = np.minimum(least, self._alone(k))
        return least

    def _alone(self, k: int) -> Floats:
        """``_least_alone``, worked out once."""
        if k not in self._known:
            self._known[k] = self._least_alone(k)
        return self._known[k]

    def _least_alone(self, k: int) -> Floats:
        """(J,) the least seconds that a prefill takes with what it holds or could fetch in its family."""
        holders, tokens, _ = self.model.holdings.of(k, self.model.plain["prompt"][k])
        own, amounts, work = self._works(k, holders, tokens)
        least = work[np.searchsorted(amounts, own), np.arange(self.model.J)]
        families = self._family[holders]
        for family in np.unique(families).tolist():
            for amount in np.unique(tokens[families == family]).tolist():
                may = (self._family == family) & (amount > own)
                least = np.where(may, np.minimum(least, work[np.searchsorted(amounts, amount)]), least)
        return least

    def _works(self, i: int, holders: Ints, tokens: Ints) -> tuple[Ints, Ints, Floats]:
        """(J,) tokens held; (D,) different amounts that may be reused, 0 the first; (D, J) seconds with each."""
        model = self.model
        own = np.zeros(model.J, dtype=np.int64)
        own[holders] = tokens
        amounts = np.unique(np.append(tokens, 0))
        by_kind = model.prefill.seconds(i, np.arange(model.K), amounts[:, None])
        return own, amounts, by_kind[:, model.instances.kind]
