"""Compiled search where nothing but costs and time couples the stages.

It opens with the list schedules of the literature (``openings``, ``dispatching``). Then a search over the orders of the
devices (``reinsertion``), which starts from the best plan every time, and a walk over list schedules (``kernels.walk``)
take turns: the first improves what it finds, the second finds what the first would not come by. Where stages are few,
branch and bound (``schedule_tree``) is the third, until it has proven the best plan.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from fractions import Fraction

import numpy as np
import numpy.typing as npt

from iegopt.problem.arrays import NO_LIMIT, TICKS_PER_SECOND, Problem
from iegopt.solvers.clock import Clock
from iegopt.solvers.exact.compiled import kernels
from iegopt.solvers.result import OPTIMALITY_GAP, Report, unheard
from iegopt.solvers.timed.pricer import Found, Pricer
from iegopt.solvers.timetable import Timetable

__all__ = ["Walk", "walkable"]

Ints = npt.NDArray[np.int64]

_MOST_LINKS = 2_000_000
"""Edges · sites² up to which all transfers are laid out, in memory of 8 bytes each."""
_LINK_SECONDS = 1e-8
"""Seconds that one of them takes, as measured on one core of a server."""
_FEW_LINKS, _LAYOUT_SHARE = 50_000, 0.3
"""How many take less time than one plan by other means, and the share of the time left that more of them may take."""
_CHUNK_SHARE, _CHUNK_LEAST, _CHUNK_MOST = 0.15, 6e-5, 0.005
"""Share of the time left, and seconds at least and at most, between two looks at the clock: a look takes as long as a
few plans."""
_OPENINGS, _RULES = 10, 6
"""As in ``openings`` and ``dispatching``, which only a process with numba can import."""
_OPENING_SHARE, _OPENINGS_NEED = 0.5, 4e-5
"""Part of the time left that openings may take, and seconds of them beside their plans."""
_PLAN_NEEDS, _PAIR_NEEDS, _OPTION_NEEDS, _RULE_NEEDS = 3e-7, 8e-10, 1e-8, 5e-9
"""Seconds of a plan, more per stage squared, and per option, and of one by a rule per stage and option, as measured on
one core of a server."""
_SLACK = 0.02
"""A plan worse by this share may be the next to start from at the beginning; falls to 0 over the run."""
_DRIFT = 10.0
"""Times as much in the search over orders, whose every step is the best of many."""
_ANYWHERE, _ANYWHERE_COSTS = 0.1, 0.5
"""Share of its steps that begin at any stage: where only the makespan counts, and where costs do."""
_CALL_NEEDS, _CALL_STAGE, _FEWEST_STEPS = 5e-6, 1e-7, 4
"""Seconds of a call of a kernel without its steps, more per stage, and how many steps are worth one."""
_CAUTION = 3.0
"""How many times as long as a plan a step is taken to last before any was timed."""
_FEW_STAGES, _FEW_OPTIONS = 12, 256
"""Up to which branch and bound may well end."""
_WORTH_EXPLORING = 300_000
"""Partial schedules that it looks at, some tenth of a second, before an engine has its turn."""
_AT_ONCE, _LATER = 9, 500
"""Stages up to which it ends so soon that it has turns from the start, and plans per stage after which it does where
these are more."""
_EXPLORE = 2
"""Its place among the turns."""


def walkable(price: Pricer, clock: Clock) -> bool:
    """Whether the walk can state the problem, this process has its kernel, and there is time to lay it out."""
    problem = price.problem
    links = problem.E * problem.topology.S**2
    return (
        kernels() is not None
        and bool((problem.topology.width == 1).all())
        and all(hidden is None for hidden in problem.edges.hidden)
        and not (price.memory_binds or problem.affinities or problem.has_path_limits or problem.budget < NO_LIMIT)
        and links <= _MOST_LINKS
        and (links <= _FEW_LINKS or links * _LINK_SECONDS < _LAYOUT_SHARE * clock.left)
    )


class Walk:
    """A walk that begins at ``ranks`` (V,), the priorities to which changed ones return.

    Attributes
    ----------
    turns
        What takes turns: each takes a slack, as a share, and how many steps.
    """

    def __init__(self, price: Pricer, ranks: Sequence[float], rng: random.Random) -> None:
        problem = self._problem = price.problem
        core, options = kernels(), problem.options
        assert core is not None
        self._core = core
        self._price = price
        self._own = np.concatenate(price.own)
        topology = problem.topology
        self._sites = topology.S
        self._layout = _layout(price, self._own, topology.device_index[options.site[self._own]])
        self._devices = topology.D if problem.no_overlap else 0
        *_, times, prices, _, _, _, _, _, _, paid = self._layout
        self._mean = int(times.sum()) / len(times)
        self._ranks = np.array(ranks, dtype=np.float64)
        self._weight = problem.makespan_millionths / 10**6
        costs = bool(len(paid) or prices.any())
        self._anywhere = 1.0 if self._weight == 0 else _ANYWHERE_COSTS if costs else _ANYWHERE
        self.turns: list[Callable[[float, int], None]] = [self._reinsert, self._walk]
        self._fraction = Fraction(problem.makespan_millionths, 10**6)
        self._frames: Ints | None = None
        if problem.V <= _FEW_STAGES and len(self._own) <= _FEW_OPTIONS and self._counts():
            self._frames = np.full((problem.V, 2 + len(self._own)), -1, dtype=np.int64)
            self.turns.append(self._explore)
        self._depth, self._looked = np.zeros(1, dtype=np.int64), 0
        self._call = _CALL_NEEDS + _CALL_STAGE * problem.V
        self._step = [_CAUTION * self._plan_seconds] * len(self.turns)
        self._state = np.array([rng.randrange(1, 2**63)], dtype=np.uint64)
        self._values = np.array([np.inf, np.inf, 0.0])
        self._priorities = np.array([ranks, ranks], dtype=np.float64)
        self._plans = np.full((5, problem.V), -1, dtype=np.int64)

    def best(self, clock: Clock, least: int, patience: int | None, report: Report = unheard) -> tuple[Found, int]:
        """The best plan until the clock ends, and how many plans were made.

        Before, it ends at a plan proven optimal, by the bound ``least`` (ticks) or by branch and bound, or after
        ``patience`` plans without a better one. ``report`` receives better plans.
        """
        total, known = max(clock.left, 1e-9), float(self._values[1])
        count = self._open(clock) if known == np.inf else 0
        stale, turn, stages = 0, 0, self._problem.V
        while True:
            if self._values[1] < known:
                known, stale = float(self._values[1]), 0
                if report is not unheard:
                    found = self._found()
                    report(found.choice, None, None, found.table.start if self._devices else None)
            closed = self.exhausted or known - least <= OPTIMALITY_GAP * abs(known)
            if closed or clock.left <= 0:
                break
            if patience is not None and stale >= patience:
                if self._frames is None or self._looked > _WORTH_EXPLORING:
                    break
                turn = _EXPLORE
            began, left = clock.seconds, clock.left
            seconds = min(max(_CHUNK_SHARE * left, min(left, _CHUNK_LEAST)), _CHUNK_MOST) - self._call
            chunk = max(_FEWEST_STEPS, int(seconds / self._step[turn]))
            self.turns[turn](_SLACK * left / total, chunk)
            self._step[turn] = max(1e-7, (clock.seconds - began - self._call) / chunk)
            if turn != _EXPLORE:
                count, stale = count + chunk, stale + chunk
            explores = stages <= _AT_ONCE or count >= _LATER * stages
            turn = (turn + 1) % (len(self.turns) if explores else _EXPLORE)
        return self._found(), count

    @property
    def exhausted(self) -> bool:
        """Whether branch and bound has proven the best plan."""
        return int(self._depth[0]) < 0

    @property
    def _plan_seconds(self) -> float:
        return _PLAN_NEEDS + _PAIR_NEEDS * self._problem.V**2 + _OPTION_NEEDS * len(self._own)

    def _open(self, clock: Clock) -> int:
        """The given ranks, and the other openings where there is time; how many plans that makes."""
        core, V, S, weight = self._core, self._problem.V, self._sites, self._weight
        priorities, pins = np.empty((_OPENINGS, V)), np.empty((_OPENINGS, V), dtype=np.int64)
        count = 1
        priorities[0], pins[0] = self._ranks, -1
        if _OPENINGS_NEED + _OPENINGS * self._plan_seconds < _OPENING_SHARE * clock.left:
            count = _OPENINGS
            core.openings(self._layout, S, self._ranks, priorities, pins)
        core.schedules(
            self._layout, S, self._devices, weight, priorities[:count], pins[:count], self._values, self._priorities,
            self._plans,
        )  # fmt: skip
        if count == 1:
            return 1
        if _RULE_NEEDS * _RULES * V * len(self._own) > _OPENING_SHARE * clock.left:
            return count
        core.dispatched(self._layout, S, self._devices, weight, priorities[1], self._values, self._plans)
        return count + _RULES

    def _walk(self, slack: float, steps: int) -> None:
        """Take steps of the walk over priorities."""
        self._core.walk(
            self._layout, self._sites, self._devices, self._weight, self._mean, self._ranks, slack, steps,
            self._state, self._values, self._priorities, self._plans,
        )  # fmt: skip

    def _reinsert(self, slack: float, steps: int) -> None:
        """Take steps of the search over orders from the best plan, and let the walk go on from a better one."""
        known = float(self._values[1])
        self._core.reinsert(
            self._layout, self._sites, self._devices, self._weight, _DRIFT * slack, self._anywhere, steps,
            self._state, self._values, self._plans,
        )  # fmt: skip
        self._go_on_from_better_than(known)

    def _explore(self, _: float, steps: int) -> None:
        """Look at partial schedules, and let the walk go on from a better plan."""
        assert self._frames is not None
        known = float(self._values[1])
        self._core.explore(
            self._layout, self._sites, self._devices, self._weight, *self._fraction.as_integer_ratio(), steps,
            self._values, self._plans, self._frames, self._depth,
        )  # fmt: skip
        self._looked += steps
        self._go_on_from_better_than(known)

    def _go_on_from_better_than(self, known: float) -> None:
        """Set the walk to the best plan where that is better than one of so many ticks."""
        if self._values[1] < known:
            start, finish = self._plans[3], self._plans[4]
            self._values[0], self._values[2] = self._values[1], 0
            self._priorities[:] = finish.max() + 1 - start
            self._plans[:2] = self._plans[2]

    def _counts(self) -> bool:
        """Whether branch and bound can count what any makespan costs in 63 bits."""
        times, moved = self._layout[3], self._layout[10]
        most = self._problem.V * int(times.max()) + self._problem.E * int(moved.max(initial=0))
        return self._fraction.numerator * most < 2**62

    def _found(self) -> Found:
        chosen = self._own[self._plans[2]].tolist()
        return self._price(chosen, table=Timetable(self._plans[3].copy(), self._plans[4].copy()))


def _layout(price: Pricer, own: Ints, device: Ints) -> tuple[Ints, ...]:
    problem, options, edges = price.problem, price.problem.options, price.problem.edges
    into, outof = edges.target.argsort(kind="stable"), edges.source.argsort(kind="stable")
    moved, paid = _transfers(price, problem)
    return (
        _starts(options.stage[own], problem.V),
        options.site[own],
        device,
        options.time[own],
        options.cost[own],
        _starts(edges.target, problem.V),
        into,
        edges.source[into],
        _starts(edges.source, problem.V),
        edges.target[outof],
        moved,
        paid,
    )


def _starts(stage: Ints, stages: int) -> Ints:
    """(V + 1,) where the parts of every stage begin, if these are in its order."""
    starts = np.zeros(stages + 1, dtype=np.int64)
    np.bincount(stage, minlength=stages).cumsum(out=starts[1:])
    return starts


def _transfers(price: Pricer, problem: Problem) -> tuple[Ints, Ints]:
    """(E · S · S,) ticks of time and of cost over every edge and link, the last empty where nothing is paid."""
    S, edges = problem.topology.S, problem.edges
    nothing = np.zeros(0, dtype=np.int64)
    if not problem.E:
        return nothing, nothing
    latency, rate = problem.topology.pair_latency, problem.topology.pair_seconds_per_byte
    if latency is None or rate is None:
        links = [price.transfers.links(s) for s in range(S)]
        latency, rate = np.array([each for each, _ in links]), np.array([each for _, each in links])
    seconds = latency + edges.bytes[:, None, None] * rate
    seconds[:, np.arange(S), np.arange(S)] = 0.0
    moved = np.rint(seconds * TICKS_PER_SECOND).astype(np.int64).ravel()
    if not edges.weight.any():
        return moved, nothing
    return moved, np.rint(edges.weight[:, None, None] * seconds * TICKS_PER_SECOND).astype(np.int64).ravel()
