"""The change of a weight at which a stage would leave its devices.

C(p) = α·L + β·T + γ·M + λ·D + penalties is linear in every weight, so a move that changes the terms by ΔL, ΔT, ΔM, ΔD
and costs δ more becomes cheaper where one weight changes by −δ/Δ. Two kinds of flip:

``move``
    The stage's best single move, all other stages fixed: exact, from the differences by term.
``replan``
    The weight at which the re-solved optimum has the stage elsewhere (``iegopt.explain.parametric``).
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from iegopt.problem.arrays import NO_LIMIT, TICKS_PER_SECOND, Problem
from iegopt.problem.compile import Compiled
from iegopt.problem.transfer import edge_ticks
from iegopt.solvers.clock import Clock
from iegopt.solvers.evaluate import affinity_holds, device_load, feasible

__all__ = ["TERM_OF", "Flip", "Sensitivity", "flips_by_move", "weights_of"]

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]

TERM_OF = {"alpha": "L", "beta": "T", "gamma": "M", "lambda": "D"}
"""Weight -> the term that it multiplies."""

MOVE, REPLAN = "move", "replan"
_NOTHING = 1e-12
"""A weight below this share of itself is 0: there the move only draws level."""


@dataclass(frozen=True)
class Flip:
    """A weight at which a stage leaves its devices.

    Attributes
    ----------
    kind
        ``move`` or ``replan``, see the module.
    weight
        ``alpha``, ``beta``, ``gamma`` or ``lambda``.
    now, at
        Its present value, and the one from which on ``site`` and ``variant`` are cheaper.
    proven
        Whether nothing between ``now`` and ``at`` flips the stage for certain: always for ``move``; for ``replan``
        where every solve on the way was proven optimal.
    """

    kind: str
    stage: str
    weight: str
    now: float
    at: float
    site: str
    variant: str
    proven: bool

    @property
    def change(self) -> float:
        """What has to be added to the weight."""
        return self.at - self.now


@dataclass(frozen=True)
class Sensitivity:
    """Flips of all stages, by stage and weight, at most one upwards and one downwards of each kind.

    ``complete`` is false where the time limit left some weights or stages out; ``note`` says which. ``searched`` is
    the range of every weight that ``replan`` looked at, ``None`` where it was not asked for.
    """

    flips: tuple[Flip, ...]
    complete: bool
    note: str
    searched: dict[str, tuple[float, float]] | None = None

    def document(self) -> dict[str, Any]:
        """As one JSON object."""
        return {
            "flips": [{**asdict(flip), "change": flip.change} for flip in self.flips],
            "complete": self.complete,
            "note": self.note,
            "searched": None if self.searched is None else {name: list(span) for name, span in self.searched.items()},
        }


def weights_of(compiled: Compiled) -> dict[str, float]:
    """The four weights by name."""
    w = compiled.weights
    return {"alpha": w.alpha, "beta": w.beta, "gamma": w.gamma, "lambda": w.lambda_}


def flips_by_move(compiled: Compiled, choice: Ints, clock: Clock) -> Sensitivity:
    """Per stage and weight the nearest change, up and down, at which its best single move becomes cheaper."""
    flips: list[Flip] = []
    for v, stage in enumerate(compiled.problem.stages[: len(compiled.graph.stages)]):
        if clock.left <= 0:
            return Sensitivity(tuple(flips), False, f"the time limit came before {stage} and the stages after it")
        flips += _of_stage(compiled, choice, v)
    return Sensitivity(tuple(flips), True, "")


def _of_stage(compiled: Compiled, choice: Ints, v: int) -> list[Flip]:
    problem = compiled.problem
    span = problem.options.of(v)
    candidates = np.arange(span.start, span.stop)
    candidates = candidates[problem.options.site[candidates] != problem.options.site[choice[v]]]
    candidates = candidates[_fits(problem, choice, v, candidates)]
    if not candidates.size:
        return []
    change = _changes(compiled, choice, v, candidates)
    weights = weights_of(compiled)
    delta = sum(weights[name] * change[name] for name in weights) + change["penalty"]
    possible: dict[int, bool] = {}

    def allowed(i: int) -> bool:
        if i not in possible:
            moved = choice.copy()
            moved[v] = candidates[i]
            possible[i] = feasible(problem, moved)
        return possible[i]

    flips = []
    for name, now in weights.items():
        slope = change[name]
        with np.errstate(divide="ignore", invalid="ignore"):
            at = np.where(slope != 0, now - np.maximum(delta, 0.0) / slope, np.nan)
        for turns in (np.flatnonzero(slope < 0), np.flatnonzero((slope > 0) & (at > _NOTHING * now))):
            nearest = turns[np.argsort(np.abs(at[turns] - now), kind="stable")]
            first = next((i for i in nearest.tolist() if allowed(i)), None)
            if first is not None:
                o = int(candidates[first])
                site = problem.topology.sites[int(problem.options.site[o])]
                variant = problem.variants[int(problem.options.variant[o])]
                flips.append(Flip(MOVE, problem.stages[v], name, now, float(at[first]), site, variant, True))
    return flips


def _fits(problem: Problem, choice: Ints, v: int, candidates: Ints) -> npt.NDArray[np.bool_]:
    """(n,) the moves of a stage that keep memory, its SLA and the budget; the rest of the rules is for ``feasible``."""
    options = problem.options
    others = np.delete(choice, v)
    # What else is held at the worst moment depends on the move: there the whole is left to ``feasible``.
    held = 0 if problem.peak_memory else device_load(problem, others)
    room = problem.topology.tightest(problem.capacity - held)
    key = options.weight_key[candidates]
    new = (key >= 0) & ~np.isin(key, options.weight_key[others])
    need = options.share[candidates] + np.where(new, options.weight_share[candidates], 0)
    keeps = (need <= room[options.site[candidates]]) & (options.time[candidates] <= problem.sla[v])
    if problem.budget < NO_LIMIT and v in problem.budget_stages:
        rest = sum(int(options.time[choice[u]]) for u in problem.budget_stages if u != v)
        keeps &= options.time[candidates] <= problem.budget - rest
    return np.asarray(keeps)


def _changes(compiled: Compiled, choice: Ints, v: int, candidates: Ints) -> dict[str, Floats]:
    """Weight -> (n,) unweighted change of its term in seconds, and ``penalty`` -> change of the penalties."""
    problem, options, kept = compiled.problem, compiled.stages[v], compiled.kept[v]
    start = int(problem.options.ptr[v])
    old, new = int(kept[choice[v] - start]), kept[candidates - start]
    transfer = np.zeros(len(candidates), dtype=np.int64)
    for e in np.flatnonzero((problem.edges.source == v) != (problem.edges.target == v)).tolist():
        u, w = int(problem.edges.source[e]), int(problem.edges.target[e])
        ends = (candidates, choice[w]) if u == v else (choice[u], candidates)
        transfer += edge_ticks(problem, e, *ends)[0] - edge_ticks(problem, e, choice[u], choice[w])[0]
    extra = compiled.penalty[v][new] - compiled.penalty[v][old]
    for rule in problem.affinities:
        if not rule.required and v in rule.stages:
            moved = np.tile(choice, (len(candidates), 1))
            moved[:, v] = candidates
            broken = np.array([not affinity_holds(problem, rule, row) for row in moved], dtype=np.float64)
            was = 0.0 if affinity_holds(problem, rule, choice) else 1.0
            extra = extra + (broken - was) * (rule.penalty / TICKS_PER_SECOND)
    return {
        "alpha": options.t0[new] - options.t0[old],
        "beta": options.time[new] - options.time[old],
        "gamma": options.money[new] - options.money[old],
        "lambda": transfer / TICKS_PER_SECOND,
        "penalty": extra,
    }
