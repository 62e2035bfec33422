"""The moves of the local search, each with ``supports``, ``delta`` and ``apply``, and how the best of each is found.

``Shift`` gives one stage another option (another site, or another variant on its site); its delta is read from the
state. ``Swap`` exchanges the sites of two stages and ``Gather`` brings connected stages to one site:
their candidates are ranked by potentials, and the few best are priced exactly by doing and undoing them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import numpy.typing as npt

from iegopt.problem.arrays import Problem
from iegopt.solvers.search.state import State

__all__ = ["Gather", "Move", "Shift", "Swap", "best_shift", "cheapest_by_site", "gathers", "swaps"]

Ints = npt.NDArray[np.int64]

_TRIED = 3
"""Ranked candidates of a compound move that are priced exactly."""


class Move(Protocol):
    """A change of a plan."""

    def supports(self, state: State) -> bool:
        """Whether the move can be made and keeps every hard constraint that holds."""

    def delta(self, state: State) -> int:
        """Change of the objective in ticks; the state is left as it was."""

    def apply(self, state: State) -> int:
        """Make the move; returns its delta."""


@dataclass(frozen=True)
class Shift:
    """One stage to one option."""

    stage: int
    option: int

    def supports(self, state: State) -> bool:
        return bool(state.offers(self.stage).violation[self.option - state.ptr[self.stage]] <= 0)

    def delta(self, state: State) -> int:
        return int(state.offers(self.stage).cost[self.option - state.ptr[self.stage]])

    def apply(self, state: State) -> int:
        return state.place(self.stage, self.option)


@dataclass(frozen=True)
class _Several:
    """Several stages at once."""

    stages: tuple[int, ...]
    options: tuple[int, ...]

    def supports(self, state: State) -> bool:
        if not all(state.problem.allowed[o] for o in self.options):
            return False
        violation = state.violation()
        before = self._go(state)
        kept = state.violation() <= violation
        before._go(state)
        return kept

    def delta(self, state: State) -> int:
        value = state.value
        before = self._go(state)
        delta = state.value - value
        before._go(state)
        return delta

    def apply(self, state: State) -> int:
        value = state.value
        self._go(state)
        return state.value - value

    def _go(self, state: State) -> _Several:
        back = _Several(self.stages, tuple(state.choice[v] for v in self.stages))
        for v, o in zip(self.stages, self.options, strict=True):
            state.place(v, o)
        return back


class Swap(_Several):
    """Two stages take each other's sites."""


class Gather(_Several):
    """Connected stages to one site."""


def best_shift(state: State, stage: int) -> Shift | None:
    """The cheapest shift of a stage that lowers the objective and breaks nothing."""
    offers = state.offers(stage)
    cost = np.where(offers.violation <= 0, offers.cost, 0)
    best = int(cost.argmin())
    return Shift(stage, state.ptr[stage] + best) if cost[best] < 0 else None


def swaps(state: State, stage: int, at_site: Callable[[int], Ints]) -> Iterator[Swap]:
    """Swaps of a stage that look profitable, the most promising first.

    Parameters
    ----------
    at_site
        ``cheapest_by_site`` of a stage, kept by the caller.
    """
    problem, potential = state.problem, state.potential
    sites: list[int] = problem.options.site[state.plan()].tolist()
    here = sites[stage]
    mine: list[int] = at_site(stage)[sites].tolist()
    ranked: list[tuple[int, int, int, int]] = []
    for w in range(problem.V):
        theirs = int(at_site(w)[here])
        if sites[w] == here or mine[w] < 0 or theirs < 0:
            continue
        gain = 0
        for v, option in ((stage, mine[w]), (w, theirs)):
            gain += int(potential[v][option - state.ptr[v]]) - int(potential[v][state.choice[v] - state.ptr[v]])
        if gain < 0:
            ranked.append((gain, w, mine[w], theirs))
    ranked.sort()
    for _, w, option, theirs in ranked[:_TRIED]:
        yield Swap((stage, w), (option, theirs))


def cheapest_by_site(problem: Problem, stage: int) -> Ints:
    """(S,) the cheapest allowed option of a stage on every site, −1 where there is none."""
    span = problem.options.of(stage)
    options = np.flatnonzero(problem.allowed[span]) + span.start
    dearest_first = options[np.argsort(-problem.options.cost[options], kind="stable")]
    table = np.full(problem.topology.S, -1, dtype=np.int64)
    table[problem.options.site[dearest_first]] = dearest_first
    return table


def gathers(state: State, stages: tuple[int, ...]) -> Iterator[Gather]:
    """Moves of connected stages to one site that look profitable, the most promising first."""
    problem, options = state.problem, state.problem.options
    S = problem.topology.S
    total = np.zeros(S)
    need = np.zeros(S, dtype=np.int64)
    now = 0
    picks: list[Ints] = []
    for v in stages:
        potential = state.potential_without(v, stages)
        now += int(potential[state.choice[v] - state.ptr[v]])
        span = options.of(v)
        order = np.argsort(-np.where(problem.allowed[span], potential, np.inf), kind="stable")
        at = options.site[span][order]
        cheapest = np.full(S, np.inf)
        pick = np.full(S, -1, dtype=np.int64)
        cheapest[at] = np.where(problem.allowed[span], potential, np.inf)[order]
        pick[at] = order + span.start
        total += cheapest
        need += np.where(pick >= 0, options.share[pick], 0)
        picks.append(pick)
    inner = state.value_between(stages)
    free = state.free_without(stages)
    gain = np.where(need <= free, total - (now + inner), np.inf)
    for s in np.argsort(gain, kind="stable")[:_TRIED].tolist():
        if gain[s] < 0:
            yield Gather(stages, tuple(int(pick[s]) for pick in picks))
