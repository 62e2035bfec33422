"""Where a request could go: all instances looked at together, the best few of them for an exact trial.

The look is optimistic (work due by a few deadlines stands for the whole order of the prefills), so that what it rules
out no trial would let pass, but for prefixes that the plan itself leaves.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

from iegopt.batch.board import Board
from iegopt.batch.model import BatchModel
from iegopt.batch.reach import Prices, Reach, Reaches, least

__all__ = ["Place", "Scout"]

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]
Bools = npt.NDArray[np.bool_]

SLACK = 1e-7
"""Relative rounding that the look allows, well above the exact trial's."""


@dataclass(frozen=True, slots=True)
class Place:
    """Instances of a request's prefill and decode, pace of the latter, and where its prefix is fetched from."""

    prefill: int
    decode: int
    rung: int
    fetch: int
    score: float


class Scout:
    """Places of the requests of one model."""

    def __init__(self, model: BatchModel) -> None:
        self.model = model
        every = np.arange(model.N)
        self.work = model.prefill.seconds(every[:, None], np.arange(model.K)[None, :])
        self.reaches = Reaches(model)
        self._shared = model.holdings.shared
        config = model.policy.kv_transfer_config
        # Part of a transfer that is sure to be seen: what a prefill hides is not known before it is placed.
        self._seen = 0.0 if config is not None and config.overlap_compute else 1.0

    def places(self, board: Board, i: int, prices: Prices, *, most: int = 6) -> Iterator[Place]:
        """The most promising places of request ``i``, best first: at most ``most`` that prefill and decode in one
        place, and as many that do not, merged by what they cost."""
        reach = self.reaches.near(board, i, prices)
        if not len(reach.instance):
            return
        look = self._look(board, i, reach, prices)
        together = look.prefill + look.decode
        together[~look.together] = np.inf
        found = []
        for n in least(together, most):
            j = int(reach.instance[n])
            found.append(Place(j, j, int(look.rung[n]), int(look.fetch[n]), float(together[n])))
        if self.model.plain["output"][i] and len(reach.instance) > 1:
            found += self._apart(board, i, reach, look, prices, found[0].score if found else np.inf)
            found.sort(key=lambda place: place.score)
        yield from found

    def _apart(self, board: Board, i: int, reach: Reach, look: _Look, prices: Prices, best: float) -> list[Place]:
        """Pairs of the cheapest prefills and decodes, where they beat the best single place."""
        queue, at, j = self.model.plain, self.model.instances, reach.instance
        found = []
        size = queue["wire_per_token"][i] * queue["prompt"][i]
        room = queue["kv_prompt"][i] <= board.memory[j]
        for q in least(look.decode, 3):
            b = int(j[q])
            way = at.latency[j, b] + size * at.seconds_per_byte[j, b]
            by = np.minimum(queue["prefill_by"][i], queue["e2e"][i] - look.tail[q] - way * self._seen)
            cost = look.prefill + prices.delay * queue["weight"][i] * way + queue["kv_prompt"][i] * prices.memory[j]
            fits = room & (reach.family == reach.family[q]) & (j != b)
            fits &= self._in_time(board, look.due, look.work, by, look.alone)
            cost = np.where(fits & (cost + look.decode[q] < best), cost, np.inf)
            for p in least(cost, 3):
                score = float(cost[p] + look.decode[q])
                found.append(Place(int(j[p]), b, int(look.rung[q]), int(look.fetch[p]), score))
        return found

    def _look(self, board: Board, i: int, reach: Reach, prices: Prices) -> _Look:
        """Cost of prefilling and of decoding request ``i`` at every instance in reach, ∞ where it cannot."""
        model, queue, j, k = self.model, self.model.plain, reach.instance, reach.kind
        other, weight, output = model.instances.other[j], queue["weight"][i], queue["output"][i]
        work, fetch, ready = self.works(board, i, reach)
        compute, read, tau, due = board.compute[j], board.read[j], board.tau[j], board.due[j]
        busy = np.isfinite(tau)
        share = np.where(busy, np.maximum(compute, read) / tau, 0.0)
        late = queue["e2e"][i]
        if output:
            own = self.own_rung(i)
            slow = ~busy | (tau > queue["itl"][i])
            wish = prices.wish[j]
            rung = np.where(slow, np.where(busy | (wish < 0), own, np.minimum(wish, own)), board.plan.pace[j])
            with_pace = self._paces[rung]
            a, b = model.queue.step_compute[i][k], model.queue.step_read[i][k]
            after = np.maximum(compute + a, read + b) / with_pace
            decode = np.where(reach.decodes & (queue["kv_full"][i] <= board.memory[j]), 0.0, np.inf)
            decode[queue["sequences"][i] > board.sequences[j]] = np.inf
            speed = 1.0 - other - after
            decode[(speed < -SLACK) | (due > (speed[:, None] + SLACK) * board.grid).any(axis=1)] = np.inf
            lost = model.plain["weight"][i] - np.array([board.utility(i, t) for t in self._paces])[rung]
            tail = output * with_pace
            # The prices count on instances whose pace they wish, so that opening one costs nothing more.
            begun = np.where(busy | (wish < 0), share, np.maximum(compute, read) / with_pace)
            decode += prices.share[j] * (after - begun) + prices.memory[j] * queue["kv_full"][i]
            decode += prices.batch[j, rung] * np.maximum(a, b)
            decode += prices.share[j] * self._crowding(board, i, j)
            decode += lost + prices.delay * weight * tail
        else:
            rung, after, tail = board.plan.pace[j], share, np.zeros(len(j))
            decode = np.where(queue["kv_full"][i] <= board.memory[j], prices.memory[j] * queue["kv_full"][i], np.inf)
            speed = 1.0 - other - share
        deadline = np.minimum(queue["prefill_by"][i], late - tail)
        alone = 1.0 - other - share
        together = self._in_time(board, due, work, deadline, speed) & reach.prefills
        at = np.searchsorted(board.grid, deadline)
        prefill = np.where(reach.prefills, prices.work[j, at] * work, np.inf)
        at = np.minimum(at, len(board.grid) - 1)
        with np.errstate(divide="ignore", invalid="ignore"):
            end = np.maximum(due[np.arange(len(j)), at] / np.maximum(alone, SLACK), ready) + work / np.maximum(
                alone, SLACK
            )
        prefill += prices.delay * weight * end + prices.delay * model.instances.price[j] * work
        together &= np.isfinite(prefill) & np.isfinite(decode)
        return _Look(prefill, decode, together, rung, fetch, work, due, alone, tail)

    def _crowding(self, board: Board, i: int, j: Ints) -> Floats:
        """What one more takes of memory and batch, as a part of all the instance could do: more the fuller they are,
        since time is worth nothing where memory is out."""
        free, most = self.model.instances.free[j], self.model.instances.max_batch[j]
        memory, batch = 1.0 - board.memory[j] / np.maximum(free, 1), 1.0 - board.sequences[j] / np.maximum(most, 1)
        more = memory + self.model.plain["kv_full"][i] / np.maximum(free, 1)
        joined = batch + self.model.plain["sequences"][i] / np.maximum(most, 1)
        return np.asarray(more**4 - memory**4 + joined**4 - batch**4)

    def _in_time(self, board: Board, due: Floats, work: Floats, deadline: Floats, speed: Floats) -> Bools:
        rows = due + np.where(board.grid >= deadline[:, None], work[:, None], 0.0)
        fits = (rows <= (speed[:, None] + SLACK) * board.grid).all(axis=1)
        return np.asarray(fits & (work <= (speed + SLACK) * deadline))

    @cached_property
    def _paces(self) -> Floats:
        return self.model.paces

    def own_rung(self, i: int) -> int:
        """The slowest pace that the request may have where it is the first to decode; at least the fastest."""
        model, queue = self.model, self.model.plain
        limit = queue["itl"][i]
        if queue["throughput"][i]:
            limit = min(limit, model.policy.reference_pace)
        if queue["e2e"][i] < np.inf and queue["output"][i]:
            limit = min(limit, 0.8 * queue["e2e"][i] / queue["output"][i])
        return max(0, int(np.searchsorted(model.paces, limit * (1.0 + 1e-9), side="right")) - 1)

    def may(self, i: int, p: int, q: int) -> bool:
        """Whether request ``i`` may prefill on one instance and decode on another, apart from all limits."""
        at, family = self.model.instances, self.model.kinds.family
        a, b = int(at.kind[p]), int(at.kind[q])
        runs = self.model.prefill.runs[i, a] and family[a] == family[b] and at.open[p] and at.open[q]
        if not self.model.plain["output"][i]:
            return bool(runs and p == q and at.prefills[p])
        return bool(runs and at.prefills[p] and at.decodes[q])

    def works(self, board: Board, i: int, reach: Reach) -> tuple[Floats, Ints, Floats]:
        """Seconds of the prefill at every instance in reach with what is there, what the plan leaves or a fetch
        brings, the holder fetched from (−1: none), and when it may start."""
        model, j, k = self.model, reach.instance, reach.kind
        work = self.work[i][k]
        fetch, ready = np.full(len(j), -1), np.zeros(len(j))
        prompt = model.plain["prompt"][i]
        holders, tokens, read = model.holdings.of(i, prompt)
        own = np.zeros(len(j), dtype=np.int64)
        if len(holders):
            kv = model.plain["kv_per_token"][i]
            held, slow = np.zeros(model.J, dtype=np.int64), np.zeros(model.J)
            held[holders], slow[holders] = tokens, read
            own = held[j]
            work = self._with_reuse(i, k, own, work)
            ready = kv * slow[j] * own
            best = holders[np.lexsort((holders, read, -tokens))[:3]]
            for h in best.tolist():
                self._try_fetch(i, h, int(held[h]), float(slow[h]), reach, own, work, fetch, ready)
        for n, reused in self._left(board, i, j, own):
            there = model.prefill.one(i, int(k[n]), reused)
            if there < work[n]:
                work[n], fetch[n], ready[n] = there, -1, 0.0
        return work, fetch, ready

    def _with_reuse(self, i: int, k: Ints, own: Ints, work: Floats) -> Floats:
        """``work`` with the tokens that are reused, each pair of kind and tokens worked out once."""
        code = own * self.model.K + k
        distinct, inverse = np.unique(code, return_inverse=True)
        seconds = [
            self.model.prefill.one(i, int(c % self.model.K), int(c // self.model.K)) for c in distinct.tolist()
        ]  # fmt: skip
        return np.asarray(np.array(seconds, dtype=float)[inverse.reshape(-1)])

    def _try_fetch(
        self, i: int, h: int, tokens: int, read: float, reach: Reach, own: Ints, work: Floats, fetch: Ints,
        ready: Floats,
    ) -> None:  # fmt: skip
        """Fetch from ``h`` wherever that makes first tokens earlier; ``work``, ``fetch``, ``ready`` are changed."""
        model, queue, j = self.model, self.model.plain, reach.instance
        family = model.kinds.family[model.instances.kind[h]]
        gain = (tokens > own) & (reach.family == family) & (j != h)
        if not gain.any():
            return
        rate = queue["wire_per_token"][i] * model.instances.seconds_per_byte[h, j] + queue["kv_per_token"][i] * read
        way = model.instances.latency[h, j] + (tokens - own) * rate
        with_it = self._with_reuse(i, reach.kind, np.where(gain, tokens, own), work)
        pays = gain & (way + with_it < ready + work)
        work[pays], fetch[pays], ready[pays] = with_it[pays], h, way[pays]

    def _left(self, board: Board, i: int, j: Ints, own: Ints) -> Iterator[tuple[int, int]]:
        """(row, tokens) of instances where prefills of the plan leave a prefix of the request's, whatever their order
        turns out to be."""
        blocks = self._shared.get(i)
        if blocks is None:
            return
        size, prompt = self.model.holdings.block_tokens, self.model.plain["prompt"][i]
        for held in np.unique(own).tolist():
            depth = -(-held // size)
            places = board.gains.get(blocks[depth]) if depth < len(blocks) else None
            for at in sorted(places) if places else ():
                n = int(np.searchsorted(j, at))
                if n == len(j) or j[n] != at or own[n] != held:
                    continue
                left = board.loads[at].left
                run = next((d for d in range(depth, len(blocks)) if not left.get(blocks[d])), len(blocks))
                yield n, min(run * size, prompt - 1)


@dataclass(frozen=True, eq=False)
class _Look:
    prefill: Floats
    decode: Floats
    together: Bools
    rung: Ints
    fetch: Ints
    work: Floats
    due: Floats
    alone: Floats
    tail: Floats
