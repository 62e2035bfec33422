"""What a heuristic may claim: its best plan, and the relaxation's bound."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from iegopt.solvers.clock import Clock
from iegopt.solvers.exact.relaxation import Relaxation
from iegopt.solvers.exact.tree import TREE_PROOF
from iegopt.solvers.result import OPTIMALITY_GAP, Result, Status, relative_gap

__all__ = ["RELAXATION_PROOF", "outcome", "relaxation_proof"]

RELAXATION_PROOF = "relaxation"


def relaxation_proof(relaxed: Relaxation) -> str:
    """What proves the relaxation's bound: messages over the whole graph, or over a spanning forest of it."""
    return RELAXATION_PROOF if relaxed.forest.dropped else TREE_PROOF


def outcome(
    relaxed: Relaxation,
    best: tuple[int, npt.NDArray[np.int64]] | None,
    solver: str,
    clock: Clock,
    note: str,
    proven: tuple[int, str] | None = None,
) -> Result:
    """The best (objective, plan) found, or ``UNKNOWN`` without one.

    ``proven`` is a bound in ticks, and what proved it, where something stronger than the relaxation is known.
    """
    bound, proof = proven if proven is not None else (relaxed.bound, relaxation_proof(relaxed))
    if best is None:
        note = f"{note}; no feasible plan found"
        return Result(Status.UNKNOWN, None, None, bound, proof, solver, clock.seconds, note)
    value, plan = best
    gap = relative_gap(value, bound)
    status = Status.OPTIMAL if gap is not None and gap <= OPTIMALITY_GAP else Status.FEASIBLE
    return Result(status, plan, value, bound, proof, solver, clock.seconds, note)
