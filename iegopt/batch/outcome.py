"""What follows from a placement: times, shares, memory, utilities, losses, and what it violates."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

__all__ = ["EPSILON", "FROM_PLAN", "Outcome", "RunningOutcome", "TenantShares", "Violation", "better", "worth_more"]

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]
Bools = npt.NDArray[np.bool_]

EPSILON = 1e-9
"""Relative difference of two objectives that counts."""
FROM_PLAN = -2
"""``reused_from`` of tokens that an earlier prefill of the plan leaves."""


@dataclass(frozen=True)
class Violation:
    """A rule that a placement breaks.

    ``rule`` is ``ttft`` (the window included), ``e2e``, ``itl`` (of a request or running stage ``where``), ``time``,
    ``memory``, ``batch``, ``pace`` (of an instance), ``place`` (a request may not stand there), ``preemption``,
    ``migration`` (of a running stage), ``quota`` or ``fairness`` (of a tenant). ``have`` is what there is or is
    allowed, ``need`` what the placement takes.
    """

    rule: str
    where: str
    need: float
    have: float


@dataclass(frozen=True, eq=False)
class RunningOutcome:
    """Running stages, (R,) each.

    Attributes
    ----------
    first_token, finish
        End of a prefill and of all, where kept or moved; −∞ for the first token of a decode.
    loss
        What preempting or moving it costs in utility.
    seconds, bytes
        Of the swap, the second prefill, or the move.
    swaps
        Whether a preempted one's KV cache goes to the host; it is computed again otherwise.
    misses
        Whether it misses e2e for being put aside or moved.
    by
        Queued request in whose favour it is preempted, −1 without.
    """

    first_token: Floats
    finish: Floats
    loss: Floats
    seconds: Floats
    bytes: Ints
    swaps: Bools
    misses: Bools
    by: Ints


@dataclass(frozen=True, eq=False)
class TenantShares:
    """Tenants by priority, (L, T) each: what they hold, running and placed.

    ``memory`` in bytes, ``time`` in seconds per second, ``dominant`` the larger of the shares of all instances;
    ``placed`` and ``waiting`` count queued requests, without those that are refused.
    """

    requests: Ints
    memory: Floats
    time: Floats
    dominant: Floats
    placed: Ints
    waiting: Ints


@dataclass(frozen=True, eq=False)
class Outcome:
    """What follows from a placement, seconds after the snapshot.

    Attributes
    ----------
    deadline, reused, reused_from, fetched, work, ready, start, first_token, transfer, wire, finish (N,)
        Of placed requests; NaN, 0 or −1 for the others. ``reused_from`` is an instance, ``FROM_PLAN`` or −1; ``ready``
        when the fetch or the reading ends; ``fetched`` and ``wire`` are bytes on a link.
    kept (N,)
        Whether a placed request keeps all its limits.
    utility (N,)
        What it is worth; 0 unless placed and kept.
    step, decode_share, speed (J,)
        Seconds of a decode step, φ, and 1 − φ − ρ.
    prefill_seconds, memory, sequences (J,)
        Work of all prefills, bytes, sequences that decode.
    levels (L,)
        Priorities of queue and running stages, ascending.
    level_utility, level_loss (L,)
        Their difference is the level's objective.
    delay, money
        What breaks ties (docs/replanning.md), weighted seconds and seconds at the reference price.
    changed (N,)
        Whether a placed request left the place that an earlier plan gave it.
    """

    deadline: Floats
    reused: Ints
    reused_from: Ints
    fetched: Ints
    work: Floats
    ready: Floats
    start: Floats
    first_token: Floats
    transfer: Floats
    wire: Ints
    finish: Floats
    kept: Bools
    utility: Floats
    changed: Bools
    step: Floats
    decode_share: Floats
    speed: Floats
    prefill_seconds: Floats
    memory: Ints
    sequences: Ints
    running: RunningOutcome
    levels: Ints
    level_utility: Floats
    level_loss: Floats
    tenants: TenantShares
    delay: float
    money: float
    violations: tuple[Violation, ...]

    @property
    def feasible(self) -> bool:
        return not self.violations

    @property
    def objective(self) -> Floats:
        """(L,) utility less losses, by priority: compared level by level."""
        return self.level_utility - self.level_loss


def better(new: Outcome, old: Outcome, margin: float = EPSILON) -> bool:
    """Whether a plan is worth more, level by level, by more than a relative margin; among equals, but for rounding,
    whether it has less delay and less money."""
    for mine, theirs in zip(new.objective.tolist(), old.objective.tolist(), strict=True):
        if abs(mine - theirs) > margin * max(1.0, abs(theirs)):
            return bool(mine > theirs)
    return margin <= EPSILON and new.delay + new.money < old.delay + old.money


def worth_more(new: Floats, old: Floats) -> bool:
    """Whether one objective is more than the other, level by level."""
    for mine, theirs in zip(new.tolist(), old.tolist(), strict=True):
        if abs(mine - theirs) > EPSILON * max(1.0, abs(theirs)):
            return bool(mine > theirs)
    return False
