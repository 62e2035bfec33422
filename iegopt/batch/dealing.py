"""Which requests a blueprint places, and on which classes: what it gives a group, dealt out to its requests."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from iegopt.batch.blueprint import Blueprint
from iegopt.batch.board import Board
from iegopt.batch.scout import Scout

__all__ = ["Dealing", "Target", "dealt", "whole_instances"]

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]
Target = tuple[int, int, int]
"""Classes of a prefill and of its decode, and the pace of that."""

MOST = 0.6
"""Part of the quickest instance's time until its deadline from which a prefill takes most of any."""
ALL_BUT = 0.02
"""Part of a level's requests that a blueprint may leave out and still place nearly all."""


@dataclass(frozen=True)
class Dealing:
    """Requests of a level that are not yet placed: where those go that the blueprint places, in the order in which they
    do, those first whose prefill takes most of the time it has; and the others."""

    targets: dict[int, Target]
    rest: list[int]


def dealt(board: Board, scout: Scout, blueprint: Blueprint, level: int) -> Dealing:
    """A level of a blueprint, dealt out."""
    groups, queue = blueprint.groups, board.model.queue
    best, part = scout.work.min(axis=1, initial=np.inf), _parts(board, scout)
    waits = (queue.priority == level) & (board.plan.prefill < 0) & (groups.of >= 0)
    targets: dict[int, Target] = {}
    rest: list[int] = []
    for g in np.flatnonzero(groups.level == level).tolist():
        rows = np.flatnonzero(waits & (groups.of == g))
        rows = rows[np.lexsort((rows, -queue.weight[rows] / best[rows]))]
        count = round(float(blueprint.decode[g].sum()))
        rest += rows[count:].tolist()
        chosen = rows[:count]
        targets.update(_targets(blueprint, g, chosen[np.lexsort((chosen, -best[chosen]))].tolist()))
    turn = np.array(list(targets), dtype=np.int64)
    return Dealing({i: targets[i] for i in turn[np.lexsort((turn, -part[turn]))].tolist()}, rest)


def whole_instances(board: Board, scout: Scout, blueprint: Blueprint) -> dict[int, Target]:
    """Requests whose prefill takes most of the time of any instance, level by level as long as the blueprint places
    nearly all that is asked for: where it does not, many small ones are worth more than one of them."""
    part, found = _parts(board, scout), {}
    for level in np.unique(blueprint.groups.level).tolist():
        dealing = dealt(board, scout, blueprint, level)
        if len(dealing.rest) > ALL_BUT * (len(dealing.targets) + len(dealing.rest)):
            break
        found.update({i: target for i, target in dealing.targets.items() if part[i] > MOST})
    return found


def _parts(board: Board, scout: Scout) -> Floats:
    """(N,) part that a prefill takes of the time of the quickest kind of instance until its deadline."""
    queue = board.model.queue
    by = np.maximum(np.minimum(queue.prefill_by, queue.e2e), 1e-9)
    return np.asarray(scout.work.min(axis=1, initial=np.inf) / by)


def _targets(blueprint: Blueprint, g: int, rows: list[int]) -> Iterator[tuple[int, Target]]:
    """The group's requests dealt out so that every class has its part after each of them."""
    prefill, decode = blueprint.prefill[g], blueprint.decode[g]
    first, last = prefill / max(prefill.sum(), 1e-12), decode / max(decode.sum(), 1e-12)
    owed_first, owed_last = np.zeros_like(first), np.zeros_like(last)
    for i in rows:
        owed_first += first
        owed_last += last
        c = int(owed_first.argmax())
        owed = np.where((blueprint.family == blueprint.family[c])[:, None], owed_last, -np.inf)
        together = owed[c].max() > 0.5 * owed.max()
        d, rung = (c, int(owed[c].argmax())) if together else divmod(int(owed.argmax()), last.shape[1])
        owed_first[c] -= 1.0
        owed_last[d, rung] -= 1.0
        yield i, (c, d, rung)
