"""Complete enumeration of the placements of a tiny model: the oracle of everything that plans a queue.

Every combination of actions, paces and places is looked at, except those that cannot be the best: a partial placement
breaks a rule that more requests cannot mend, or all that is still open could not make it better than the best so far.
What a placement is worth, and what it breaks, ``schedule.evaluate`` alone says.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product

import numpy as np
import numpy.typing as npt

from iegopt.batch.model import BatchModel
from iegopt.batch.outcome import Outcome
from iegopt.batch.placement import KEEP, MIGRATE, PREEMPT, Placement
from iegopt.batch.schedule import evaluate

__all__ = ["MOST_EVALUATIONS", "Optimum", "TooLargeError", "brute_force"]

Floats = npt.NDArray[np.float64]
Option = tuple[int, int, int]
"""Prefill, decode, fetch; −1 each: not placed."""

MOST_EVALUATIONS = 200_000
EPSILON = 1e-9
"""What the utilities of a level must differ by to count."""

_NOT_PLACED = (-1, -1, -1)
_MONOTONE = frozenset({"memory", "batch", "time", "place", "itl", "migration", "pace"})
"""Rules that a placement breaks for ever. Not among them: times of prefills, which an earlier one may shorten,
fairness, and preemption, which waits for whom it is in favour of."""


class TooLargeError(ValueError):
    """More placements than are looked at."""


@dataclass(frozen=True, eq=False)
class Optimum:
    """The best placement by levels, and how many were evaluated."""

    placement: Placement
    outcome: Outcome
    evaluations: int

    @property
    def objective(self) -> Floats:
        """(L,) best objective of the first level, best of the second without losing any of it, …"""
        return self.outcome.objective


def brute_force(model: BatchModel, most: int = MOST_EVALUATIONS) -> Optimum:
    """The lexicographic optimum.

    Raises
    ------
    TooLargeError
        More than ``most`` placements would have to be evaluated.
    """
    search = _Search(model, most)
    for action, to in _actions(model):
        search.under(action, to)
    return Optimum(search.best, search.outcome, search.evaluations)


def _actions(model: BatchModel) -> Iterator[tuple[list[int], list[int]]]:
    """What may be done to running stages, keeping them all first."""
    running, instances = model.running, model.instances
    family = model.kinds.family[instances.kind]
    choices: list[list[tuple[int, int]]] = []
    for r in range(model.R):
        own = [(KEEP, -1)]
        if model.policy.preemption_config.enabled:
            own.append((PREEMPT, -1))
        if model.policy.migration and not running.is_prefill[r]:
            at = int(running.instance[r])
            there = np.flatnonzero(instances.open & instances.decodes & (family == family[at]))
            own += [(MIGRATE, j) for j in there.tolist() if j != at]
        choices.append(own)
    for combination in product(*choices):
        yield [action for action, _ in combination], [to for _, to in combination]


class _Search:
    def __init__(self, model: BatchModel, most: int) -> None:
        self.model, self.most, self.evaluations = model, most, 0
        self.best = Placement.empty(model)
        self.outcome = evaluate(model, self.best)
        self.levels = self.outcome.levels.tolist()
        self.options = [list(self._options(i)) for i in range(model.N)]

    def _options(self, i: int) -> Iterator[Option]:
        """Places of a request, and fetches that bring more than is there."""
        model, instances = self.model, self.model.instances
        family = model.kinds.family[instances.kind]
        holders = list(zip(*(x.tolist() for x in model.holdings.of(i, int(model.queue.prompt[i]))[:2]), strict=True))
        held = dict(holders)
        decodes = bool(model.queue.output[i] > 0)
        for p, q in product(range(model.J), repeat=2):
            open_there = instances.open[p] and instances.open[q] and instances.prefills[p]
            runs = model.prefill.runs[i, instances.kind[p]] and family[p] == family[q]
            if open_there and runs and (instances.decodes[q] if decodes else p == q):
                yield p, q, -1
                for h, tokens in holders:
                    if h != p and family[h] == family[p] and tokens > held.get(p, 0):
                        yield p, q, h

    def under(self, action: list[int], to: list[int]) -> None:
        """All paces and places under one choice of actions."""
        model = self.model
        ranked: list[tuple[tuple[float, ...], int, Placement, Floats]] = []
        for pace in product(*self._ladders(action, to)):
            start = Placement.empty(model)
            start.action[:], start.to[:], start.pace[:] = action, to, pace
            outcome = self._evaluate(start)
            broken = {v.rule for v in outcome.violations if v.rule != "itl" or v.where not in model.queue.ids}
            if broken & _MONOTONE:
                continue
            loss = outcome.level_loss
            hoped = tuple((self._most(start, 0) - loss).tolist())
            ranked.append((hoped, len(ranked), start, loss))
        ranked.sort(key=lambda row: (tuple(-value for value in row[0]), row[1]))
        for _, _, start, loss in ranked:
            self._place(start, 0, -loss)

    def _ladders(self, action: list[int], to: list[int]) -> list[range]:
        """Paces to try for every instance: none where nothing could decode, one where something does."""
        running = self.model.running
        at = [to[r] if action[r] == MIGRATE else int(running.decode[r]) for r in range(self.model.R)]
        busy = {j for r, j in enumerate(at) if action[r] != PREEMPT and running.sequences[r]}
        wanted = {option[1] for options in self.options for option in options}
        P = len(self.model.paces)
        return [range(0 if j in busy else -1, P if j in busy | wanted else 0) for j in range(self.model.J)]

    def _most(self, placement: Placement, first: int) -> Floats:
        """(L,) utility of the requests from ``first`` on at best."""
        found = np.zeros(len(self.levels))
        for i in range(first, self.model.N):
            worth = max((self._worth(placement, i, option) for option in self.options[i]), default=0.0)
            found[self.levels.index(int(self.model.queue.priority[i]))] += worth
        return found

    def _worth(self, placement: Placement, i: int, option: Option) -> float:
        """Utility of a request on an option if it keeps its limits; negative where nothing may decode there."""
        queue, rung = self.model.queue, int(placement.pace[option[1]])
        if not queue.output[i]:
            return float(queue.weight[i])
        if rung < 0 or self.model.paces[rung] > queue.itl[i] * (1.0 + EPSILON):
            return 0.0
        slower = min(1.0, self.model.policy.reference_pace / float(self.model.paces[rung]))
        return float(queue.weight[i]) * (slower if queue.throughput[i] else 1.0)

    def _place(self, placement: Placement, i: int, worth: Floats) -> None:
        """Place requests i, i + 1, …; ``worth`` is the objective of those before."""
        if not self._better(worth + self._most(placement, i)):
            return
        if i == self.model.N:
            outcome = self._evaluate(placement)
            if outcome.feasible and self._better(outcome.objective):
                self.best, self.outcome = placement.copy(), outcome
            return
        level = self.levels.index(int(self.model.queue.priority[i]))
        for option in sorted(self.options[i], key=lambda o: -self._worth(placement, i, o)):
            gain = self._worth(placement, i, option)
            if gain <= 0.0:
                break
            placement.prefill[i], placement.decode[i], placement.fetch[i] = option
            more = worth.copy()
            more[level] += gain
            if i + 1 == self.model.N or not self._hopeless(placement):
                self._place(placement, i + 1, more)
        placement.prefill[i], placement.decode[i], placement.fetch[i] = _NOT_PLACED
        self._place(placement, i + 1, worth)

    def _hopeless(self, placement: Placement) -> bool:
        return any(v.rule in _MONOTONE for v in self._evaluate(placement).violations)

    def _better(self, objective: Floats) -> bool:
        """Whether it is more than the best so far at the first level at which they differ."""
        for new, old in zip(objective.tolist(), self.outcome.objective.tolist(), strict=True):
            if abs(new - old) > EPSILON:
                return bool(new > old)
        return False

    def _evaluate(self, placement: Placement) -> Outcome:
        self.evaluations += 1
        if self.evaluations > self.most:
            raise TooLargeError(f"more than {self.most} placements: expected a smaller model")
        return evaluate(self.model, placement)
