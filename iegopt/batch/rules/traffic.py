"""What a router knows of every instance while it sends requests out one by one."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from iegopt.batch.leavings import Leavings
from iegopt.batch.loads import loads
from iegopt.batch.model import BatchModel
from iegopt.batch.placement import Placement

__all__ = ["Reach", "Traffic"]

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]
Bools = npt.NDArray[np.bool_]

ELSEWHERE = 0.75
"""What a token held in host memory counts beside one on the device (Dynamo's host tier)."""


@dataclass(frozen=True, eq=False)
class Reach:
    """Instances that may prefill a request: their indices and kinds, and whether they decode too; ``every`` selects
    them from an array over all, without a copy where they are all."""

    instance: Ints
    every: slice | Ints
    kind: Ints
    both: Bools


class Traffic:
    """Load of every instance, (J,) each, what runs included.

    Parameters
    ----------
    speeds
        Whether the router knows how fast and how large its instances are; all alike to it otherwise.

    Attributes
    ----------
    requests, waiting
        Requests in flight, and those whose prefill is not done.
    tokens, seconds
        Prefill that is not done: tokens, and seconds of work.
    memory
        Bytes of KV caches, at their end.
    speed, size
        Prefill speed beside the mean one, and memory for KV caches beside the mean; 1 where the router does not know.
    """

    def __init__(self, model: BatchModel, *, speeds: bool) -> None:
        self.model, self.speeds = model, speeds
        running, J = model.running, model.J
        prefills = np.flatnonzero(running.is_prefill)
        left = {stage.id: stage.remaining * stage.sequences for stage in model.snapshot.running}
        at = running.instance[prefills]
        self.requests = np.bincount(running.instance, minlength=J).astype(float)
        self.waiting = np.bincount(at, minlength=J).astype(float)
        self.tokens = np.bincount(at, [left[running.ids[r]] for r in prefills.tolist()], J).astype(float)
        self.seconds = np.bincount(at, running.prefill[prefills], J).astype(float)
        self.memory = loads(model, Placement.empty(model)).memory.astype(float)
        self.work = model.prefill.seconds(np.arange(model.N)[:, None], np.arange(model.K))
        self.speed, self.size = self._figures() if speeds else (np.ones(J), np.ones(J))
        self._leavings = Leavings(model)
        self._last: tuple[int, tuple[Floats, Floats]] = -1, (np.zeros(0), np.zeros(0))
        rows, group = np.unique(model.prefill.runs, axis=0, return_inverse=True)
        self._reaches, self._group = [self._reach(row) for row in rows], group.reshape(-1).tolist()

    def reach(self, i: int) -> Reach:
        """Open instances that run and prefill request ``i``."""
        return self._reaches[self._group[i]]

    def decoders(self, p: int) -> Ints:
        """Open instances that decode what ``p`` prefills, the emptiest first."""
        at = self.model.instances
        family = self.model.kinds.family[at.kind]
        found = np.flatnonzero(at.open & at.decodes & (family == family[p]))
        return np.asarray(found[np.argsort(self.memory[found] / np.maximum(1, at.free[found]), kind="stable")])

    def matched(self, i: int, reach: Reach) -> tuple[Floats, Floats]:
        """Tokens of the prompt that instances in reach hold or were sent before, and the same with those that are not
        on the device counted at ``ELSEWHERE``."""
        if self._last[0] == i:
            return self._last[1]
        model, prompt = self.model, self.model.plain["prompt"][i]
        there, credit = np.zeros(model.J), np.zeros(model.J)
        holders, tokens, read = model.holdings.of(i, prompt)
        there[holders] = tokens
        credit[holders] = tokens * np.where(read > 0.0, ELSEWHERE, 1.0)
        for sent, run in self._leavings.runs(i):
            for known in (there, credit):
                known[sent] = np.maximum(known[sent], float(run))
        self._last = i, (there[reach.every], credit[reach.every])
        return self._last[1]

    def send(self, i: int, p: int, q: int) -> None:
        """Request ``i`` goes out to ``p``, and decodes on ``q``."""
        queue, self._last = self.model.plain, (-1, self._last[1])
        kind = int(self.model.instances.kind[p])
        self.requests[p] += 1.0
        self.waiting[p] += 1.0
        self.tokens[p] += queue["prompt"][i] * queue["sequences"][i]
        self.seconds[p] += self.work[i, kind]
        self.memory[q] += queue["kv_full"][i]
        if q != p:
            self.requests[q] += 1.0
            self.memory[p] += queue["kv_prompt"][i]
        self._leavings.leave(i, p)

    def _reach(self, row: Bools) -> Reach:
        at = self.model.instances
        found = np.flatnonzero(at.open & at.prefills & row[at.kind])
        return Reach(found, slice(None) if len(found) == self.model.J else found, at.kind[found], at.decodes[found])

    def _figures(self) -> tuple[Floats, Floats]:
        """Prompt tokens a second of each instance's kind over its requests, beside the mean; and memory."""
        model, at = self.model, self.model.instances
        runs = model.prefill.runs
        seconds = np.where(runs, self.work, 0.0).sum(axis=0)
        tokens = (runs * (model.queue.prompt * model.queue.sequences)[:, None]).sum(axis=0)
        rate = np.divide(tokens, seconds, out=np.ones(model.K), where=seconds > 0.0)[at.kind] * (1.0 - at.other)
        size = at.free.astype(float)
        return _beside_the_mean(rate), _beside_the_mean(size)


def _beside_the_mean(figure: Floats) -> Floats:
    mean = float(figure.mean()) if len(figure) else 1.0
    return np.asarray(np.maximum(figure, 1e-3 * mean) / mean) if mean > 0.0 else np.ones(len(figure))
