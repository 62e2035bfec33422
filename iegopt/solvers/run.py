"""What a run of ``auto`` knows at any moment: one best plan, one bound with its proof, and the options left."""

from __future__ import annotations

import dataclasses
import math
import random

import numpy as np
import numpy.typing as npt

from iegopt.solvers.clock import Clock
from iegopt.solvers.exact.bounding import PricedSearch
from iegopt.solvers.exact.prices import PRICES_PROOF
from iegopt.solvers.exact.relaxation import Relaxation
from iegopt.solvers.grain import next_value
from iegopt.solvers.result import OPTIMALITY_GAP, Params, Result, Status, relative_gap
from iegopt.solvers.search.beginning import Best
from iegopt.solvers.search.outcome import outcome, relaxation_proof
from iegopt.solvers.seconds import relaxation_seconds

__all__ = ["Run"]


class Run:
    """Mutable; the steps of ``auto`` take turns on it.

    Parameters
    ----------
    first
        A plan from before, or ``None``.
    share
        The part of ``clock`` that constructions and repair get.
    note
        What the relaxation said.

    Attributes
    ----------
    search
        Branch and bound on prices over the whole problem, once its root is bounded.
    prices
        Multipliers to start the next search from.
    """

    def __init__(
        self, relaxed: Relaxation, first: Best | None, params: Params, clock: Clock, share: Clock, note: str
    ) -> None:
        self.relaxed, self.problem = relaxed, relaxed.problem
        self.best = first
        self.params, self.clock, self.share = params, clock, share
        self.rng = random.Random(params.seed)
        self.bound, self.proof = relaxed.bound, relaxation_proof(relaxed)
        self.steps = [note]
        self.search: PricedSearch | None = None
        self.prices = params.multipliers
        params.report(None if first is None else first[1], self.bound, self.proof)

    @property
    def closed(self) -> bool:
        """Whether the best plan is proven optimal, or that there is none."""
        if self.search is not None and self.search.done:
            return True
        gap = relative_gap(None if self.best is None else self.best[0], self.bound)
        return gap is not None and gap <= OPTIMALITY_GAP

    @property
    def gap(self) -> float:
        """(objective − bound) / |objective|, infinite without either."""
        gap = relative_gap(None if self.best is None else self.best[0], self.bound)
        return math.inf if gap is None else gap

    @property
    def progress(self) -> float:
        """What has been gained so far on either side of the gap, in ticks."""
        return float((self.bound or 0) - (0 if self.best is None else self.best[0]))

    @property
    def survivors(self) -> npt.NDArray[np.bool_]:
        """(O,) the options that a better plan can use, as far as there is time to find out."""
        known = self.relaxed.has_min_marginals or self.clock.left > relaxation_seconds(self.problem)
        mask = self.relaxed.prune(self.best[0]) if known and self.best is not None else self.problem.allowed
        return mask if self.search is None else mask & self.search.survivors()

    def covered(self, mask: npt.NDArray[np.bool_]) -> bool:
        """Whether every stage has an option in a mask (O,)."""
        return bool((np.bincount(self.problem.options.stage[mask], minlength=self.problem.V) > 0).all())

    def take(self, plan: Best) -> None:
        """Keep a plan where it is better."""
        if self.best is None or plan[0] < self.best[0]:
            self.best = plan
            self.params.report(plan[1], None, None)

    def raise_bound(self, bound: int) -> None:
        """Keep a bound of the prices, rounded up to what plans can cost, where it is better."""
        bound = next_value(self.problem, bound)
        if self.bound is None or bound > self.bound:
            self.bound, self.proof = bound, PRICES_PROOF

    def learn(self, search: PricedSearch | None) -> None:
        """Take over what prices over the whole problem have found and proven."""
        if search is None:
            return
        self.take_plan_of(search)
        if search.bound is not None:
            self.raise_bound(search.bound)

    def take_plan_of(self, search: PricedSearch) -> None:
        if search.value is not None and search.plan is not None:
            self.take((search.value, search.plan))

    def take_over(self, found: Result) -> None:
        """A plan and a bound from elsewhere."""
        if found.choice is not None and found.objective is not None:
            self.take((found.objective, found.choice))
        if found.bound is not None and (self.bound is None or found.bound > self.bound):
            self.bound, self.proof = found.bound, found.proof or ""
        self.steps = [found.note]

    def result(self, searched: str) -> Result:
        """What has been reached; ``searched`` says what local search did."""
        note = "; ".join([*self.steps, searched])
        if self.best is None and self.search is not None and self.search.done:
            return Result(Status.INFEASIBLE, None, None, None, PRICES_PROOF, "auto", self.clock.seconds, note)
        known = None if self.bound is None else (self.bound, self.proof)
        done = outcome(self.relaxed, self.best, "auto", self.clock, note, known)
        found = self.prices if self.search is None else self.search.multipliers
        return dataclasses.replace(done, multipliers=None if found is self.params.multipliers else found)
