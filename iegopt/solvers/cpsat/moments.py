"""Memory at every moment, in the CP-SAT model: a row per device and moment at which its load can rise.

That is at a start, or where several stages hold parts of one KV cache that is let go of. (As a cumulative constraint,
bytes times nanoseconds would leave the int64 of CP-SAT.) At a moment t, per stage w and option o,

    h[w]      w holds its memory         start[w] > t ∨ release[w] ≤ t ∨ h[w]
    m[w, o]   and took option o          m ≥ x[o] + h[w] − 1
    k[e]      its KV is u's own copy     k → h[w] ∧ both options ∧ t < release[u]      e = (u, w) hands on
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import numpy as np
import numpy.typing as npt
from ortools.sat.python import cp_model

from iegopt.problem.arrays import Problem
from iegopt.solvers.cpsat.timing import Timing
from iegopt.solvers.loads import DeviceLoad, device_loads

__all__ = ["peak_memory"]

Ints = npt.NDArray[np.int64]


def peak_memory(timing: Timing, loaded: dict[int, cp_model.IntVar]) -> None:
    """Per device and moment: Σ shares held − Σ KV counted twice + Σ shared weights ≤ capacity.

    ``loaded`` are the literals of shared weights by key.
    """
    problem, options = timing.problem, timing.variables.options
    givers = np.bincount(problem.edges.source[_hands_on(problem)], minlength=problem.V)
    loads = device_loads(problem, options)
    topology, site = problem.topology, problem.options.site
    for v in range(problem.V):
        own = {d for s in np.unique(site[options[v]]).tolist() for d in topology.devices_of(s).tolist()}
        moments = [_Moment(timing, timing.start[v], partial(_start, timing, v))]
        if givers[v] > 1:
            moments.append(_Moment(timing, timing.release(v), partial(_release, timing, v)))
        for moment in moments:
            for load in loads:
                if load.device in own:
                    moment.limit(load, loaded)


def _start(timing: Timing, v: int, choice: Ints) -> int:
    return int(timing.times(choice).start[v])


def _release(timing: Timing, v: int, choice: Ints) -> int:
    return timing.released(choice, v)


class _Moment:
    """What is held at one moment; ``ticks`` tells when that is in a plan."""

    def __init__(self, timing: Timing, at: cp_model.IntVar, ticks: Callable[[Ints], int]) -> None:
        self._timing, self._at, self._ticks = timing, at, ticks
        self._variables, self._problem = timing.variables, timing.problem
        self._holds: dict[int, cp_model.IntVar] = {}
        self._terms: dict[int, cp_model.IntVar] = {}

    def limit(self, load: DeviceLoad, loaded: dict[int, cp_model.IntVar]) -> None:
        """The row of one device."""
        options = self._problem.options
        literals = [self._held(o) for o in load.options.tolist()]
        amounts = options.share[load.options].tolist()
        for key in load.keys.tolist():
            literals.append(loaded[key])
            amounts.append(int(options.weight_share[np.flatnonzero(options.weight_key == key)[0]]))
        for literal, amount in self._copies(load):
            literals.append(literal)
            amounts.append(-amount)
        row = cp_model.LinearExpr.weighted_sum(literals, amounts)
        self._variables.model.add(row <= int(self._problem.capacity[load.device]))

    def _stage_holds(self, w: int) -> cp_model.IntVar:
        """h[w]."""
        if w not in self._holds:
            timing, model = self._timing, self._variables.model
            before = self._variables.literal(lambda c: int(timing.times(c).start[w] > self._ticks(c)))
            after = self._variables.literal(lambda c: int(timing.released(c, w) <= self._ticks(c)))
            holds = self._variables.literal(lambda c: self._now(c, w))
            model.add(timing.start[w] >= self._at + 1).only_enforce_if(before)
            model.add(timing.release(w) <= self._at).only_enforce_if(after)
            model.add_bool_or([before, after, holds])
            self._holds[w] = holds
        return self._holds[w]

    def _now(self, choice: Ints, w: int) -> int:
        moment = self._ticks(choice)
        return int(self._timing.times(choice).start[w] <= moment < self._timing.released(choice, w))

    def _held(self, o: int) -> cp_model.IntVar:
        """m[w, o]."""
        if o not in self._terms:
            w = int(self._problem.options.stage[o])
            holds = self._stage_holds(w)
            term = self._variables.literal(lambda c: int(c[w] == o) * self._now(c, w))
            self._variables.model.add_bool_or([~self._variables.x[o], ~holds, term])
            self._terms[o] = term
        return self._terms[o]

    def _one_copy(self, u: int, a: int, w: int, b: int, choice: Ints) -> int:
        taken = choice[u] == a and choice[w] == b and self._now(choice, w)
        return int(taken and self._ticks(choice) < self._timing.released(choice, u))

    def _copies(self, load: DeviceLoad) -> list[tuple[cp_model.IntVar, int]]:
        """k and its KV, per edge that hands on and pair of options on one site over the device."""
        problem, timing, model = self._problem, self._timing, self._variables.model
        kv, site = problem.options.kv_share, problem.options.site
        found: list[tuple[cp_model.IntVar, int]] = []
        if kv is None:
            return found
        on = set(load.options.tolist())
        for e in np.flatnonzero(_hands_on(problem)).tolist():
            u, w = int(problem.edges.source[e]), int(problem.edges.target[e])
            for a in (o for o in self._variables.options[u].tolist() if o in on):
                for b in (o for o in self._variables.options[w].tolist() if o in on and site[o] == site[a]):
                    both = int(min(kv[a], kv[b]))
                    if not both:
                        continue
                    k = self._variables.literal(partial(self._one_copy, u, a, w, b))
                    for needed in (self._variables.x[a], self._variables.x[b], self._stage_holds(w)):
                        model.add_implication(k, needed)
                    model.add(self._at + 1 <= timing.release(u)).only_enforce_if(k)
                    found.append((k, both))
        return found


def _hands_on(problem: Problem) -> npt.NDArray[np.bool_]:
    none = np.zeros(problem.E, dtype=np.bool_)
    return none if problem.edges.hands_on is None else problem.edges.hands_on
