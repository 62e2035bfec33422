"""What a good plan looks like from afar: a linear programme over groups of requests and classes of instances.

x_{g,c} of a group prefill on class c, z_{g,c,τ} decode there at pace τ, y_{c,τ} instances of c decode at τ and s_c is
the time that decode takes of them. For every class, and deadline G of a grid,

    Σ_{D_g ≤ G} P_{g,c}·x_{g,c}  +  G·s_c  +  λ·room   ≤   G·Σ_j (1 − ρ_j)
    Σ_τ (B_c/τ)·y_{c,τ} + Σ_{g,τ} (b_g/τ)·z_{g,c,τ}    ≤   s_c
    Σ_g b_g·z_{g,c,τ}  ≤  0.9·((1 − ρ)·τ − B_c)·y_{c,τ}       likewise sequences and memory
    Σ_{c,τ} z_{g,c,τ}  ≤  n_g         Σ_c x_{g,c} = Σ_{c,τ} z_{g,c,τ}  within a family
    Σ_{t ≥ τ} y_{c,t}  ≤  instances whose running stages may have pace τ         quotas of tenants

B_c is the step of what runs. Level by level the utility is as large as it can be; then λ, the part of the spare time
that stays free everywhere, is large, and the time that is used small, and so are batches of more than 0.3 of what fits,
since they leave little time for the prefills of their instances. It is a guide, no bound: sizes are means.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from iegopt.batch.board import Board
from iegopt.batch.bound_rows import Classes, Items
from iegopt.batch.groups import Groups
from iegopt.batch.linear import Programme
from iegopt.solvers.clock import Clock

__all__ = ["Blueprint", "drawn", "slowest_allowed"]

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]
Bools = npt.NDArray[np.bool_]

FILLED, EASY = 0.9, 0.3
"""Part of a batch that is filled at most, and better is not exceeded: prefills share the instance, and are whole."""
CROWDED = 0.3
"""What all a batch beyond that counts beside the time of its instance."""
KEPT = 1e-5
"""Relative utility of a level that later levels may cost it, so that the programme stays well-conditioned."""
THRIFT = 1.0
"""What time used on the mean class counts beside time that stays free on all."""


@dataclass(frozen=True, eq=False)
class Blueprint:
    """Requests of every group by where they prefill (n, C), and where and at what pace they decode (n, C, P), of the
    same ``family`` of classes (C,); and the instances of every class that decode at every pace (C, P)."""

    groups: Groups
    family: Ints
    prefill: Floats
    decode: Floats
    opened: Floats


@dataclass(frozen=True, eq=False)
class _Plant:
    """Classes as the programme sees them, (C,) each unless said, with what runs and is placed there.

    ``steps`` is the mean step of that with its base, ``least`` (C, G) the time that it takes by every deadline at its
    slowest paces; ``allowed`` (C, P) counts the instances whose decodes may have a pace at least so slow.
    """

    count: Floats
    busy: Floats
    steps: Floats
    due: Floats
    least: Floats
    share: Floats
    sequences: Floats
    memory: Floats
    allowed: Floats

    @classmethod
    def of(cls, board: Board, classes: Classes) -> _Plant:
        model, inside = board.model, np.flatnonzero(classes.of >= 0)
        member = classes.of[inside]

        def total(values: npt.NDArray[np.generic]) -> Floats:
            return np.asarray(np.bincount(member, values[inside], classes.size))

        count = np.maximum(1.0, total(np.ones(model.J)))
        busy, rung = np.isfinite(board.tau), slowest_allowed(board)
        steps = np.maximum(board.compute, board.read)
        due = np.array([total(seconds) for seconds in board.due.T]).T
        least = due + total(np.where(busy, steps / model.paces[rung], 0.0))[:, None] * board.grid
        return cls(
            count, total(busy), total(steps) / count, due, least, total(1.0 - model.instances.other) / count,
            total(np.maximum(0, board.sequences)) / count, total(np.maximum(0, board.memory)) / count,
            np.array([total(rung >= slowest) for slowest in range(len(model.paces))]).T,
        )  # fmt: skip


def slowest_allowed(board: Board) -> Ints:
    """(J,) the slowest pace, as an index, that the limits of what decodes on every instance leave it."""
    found = np.searchsorted(board.model.paces, board.tightest * (1.0 + 1e-9), side="right") - 1
    return np.maximum(0, found)


def drawn(board: Board, classes: Classes, items: Items, clock: Clock) -> Blueprint | None:
    """The blueprint of what is not yet placed on a board; ``None`` where that is nothing, or time is up too soon."""
    groups = Groups.of_queue(board.model, items, board.grid, board.plan.prefill < 0)
    if not len(groups) or not classes.size:
        return None
    drawing = _Drawing(board, classes, groups)
    found = drawing.solved(clock)
    if found is None:
        return None
    shape = len(groups), classes.size, len(board.model.paces)
    chosen = (np.maximum(0.0, found[at]) for at in (drawing.x, drawing.z.reshape(shape), drawing.y))
    return Blueprint(groups, classes.family, *chosen)


class _Drawing:
    """The programme and its columns."""

    def __init__(self, board: Board, classes: Classes, groups: Groups) -> None:
        self.board, self.classes, self.groups = board, classes, groups
        self.plant, self.paces = _Plant.of(board, classes), board.model.paces
        self.lp = Programme()
        prefills, decodes, opens = self._options()
        self.x, self.z, self.y = (self.lp.columns(np.where(may, np.inf, 0.0)) for may in (prefills, decodes, opens))
        self.s, self.spare = self.lp.columns(np.full(classes.size, np.inf)), self.lp.columns([1.0])
        self.over = self.lp.columns(np.where(opens, np.inf, 0.0))
        self.used = self._time()
        self._batches()
        self._places()
        self._quotas()

    def _options(self) -> tuple[Bools, Bools, Bools]:
        """(n, C), (n, C, P), (C, P): where a group may prefill, where and how it may decode, and what may be opened."""
        groups, classes, plant = self.groups, self.classes, self.plant
        soon = classes.most_share * self.board.grid[groups.due][:, None] >= groups.work.T
        able = np.isfinite(groups.step).T & (classes.decodes | ~groups.decodes[:, None])
        able &= groups.memory[:, None] <= classes.most_memory
        opens = plant.share[:, None] * self.paces >= plant.steps[:, None]
        decodes = able[:, :, None] & (groups.worth.T[:, None, :] > 0.0) & (opens | ~groups.decodes[:, None, None])
        return np.isfinite(groups.work).T & soon, decodes, opens

    @property
    def step(self) -> Floats:
        """(n, C) what a decode adds to a step, 0 where there is none."""
        return np.where(self.groups.decodes, np.where(np.isfinite(self.groups.step), self.groups.step, 0.0), 0.0).T

    def _time(self) -> Floats:
        """Rows of time; and (n, C) the part of a class's time that a prefill there takes, for the last objective."""
        lp, groups, plant, grid = self.lp, self.groups, self.plant, self.board.grid
        whole = (plant.share * plant.count)[:, None] * grid
        rows = lp.rows(np.maximum(0.0, whole - plant.due))
        work = np.where(np.isfinite(groups.work), groups.work, 0.0).T
        late = groups.due[:, None] <= np.arange(len(grid))
        lp.add(rows[None, :, :], self.x[:, :, None], work[:, :, None] * late[:, None, :])
        lp.add(rows, self.s[:, None], grid)
        lp.add(rows, self.spare[0], np.maximum(0.0, whole - plant.least))
        share = lp.rows(np.zeros(self.classes.size))
        lp.add(share, self.s, -1.0)
        lp.add(share[:, None], self.y, plant.steps[:, None] / self.paces)
        lp.add(share[:, None], self.z, self.step[:, :, None] / self.paces)
        by = grid[groups.due][:, None] * np.maximum(plant.share * plant.count, 1e-9)
        return np.asarray(work / by)

    def _batches(self) -> None:
        """Rows of steps, sequences and memory of what decodes at a pace, and of memory of a class."""
        lp, groups, plant = self.lp, self.groups, self.plant
        shape = self.classes.size, len(self.paces)
        stored = groups.memory * groups.decodes
        room = np.maximum(0.0, plant.share[:, None] * self.paces - plant.steps[:, None])
        for amount, have, part in (
            (self.step[:, :, None], room, FILLED),
            (self.step[:, :, None], room, EASY),
            (groups.sequences[:, None, None], np.broadcast_to(plant.sequences[:, None], shape), FILLED),
            (stored[:, None, None], np.broadcast_to(plant.memory[:, None], shape), FILLED),
        ):
            rows = lp.rows(np.zeros(shape))
            lp.add(rows, self.z, amount)
            lp.add(rows, self.y, -part * have)
            if part == EASY:
                lp.add(rows, self.over, -have)
        store = lp.rows(plant.memory * plant.count)
        lp.add(store[None, :, None], self.z, groups.memory[:, None, None])

    def _places(self) -> None:
        """Rows of requests, of families, and of instances."""
        lp, groups, plant = self.lp, self.groups, self.plant
        asked = lp.rows(groups.count)
        lp.add(asked[:, None, None], self.z, 1.0)
        for family in np.unique(self.classes.family).tolist():
            member = np.flatnonzero(self.classes.family == family)
            same = lp.rows(np.zeros(len(groups)), low=0.0)
            lp.add(same[:, None], self.x[:, member], 1.0)
            lp.add(same[:, None, None], self.z[:, member], -1.0)
        slow = lp.rows(plant.allowed)
        for rung in range(len(self.paces)):
            lp.add(slow[:, : rung + 1], self.y[:, [rung]], 1.0)
        lp.add(lp.rows(plant.count, low=plant.busy)[:, None], self.y, 1.0)

    def _quotas(self) -> None:
        """Rows of requests, memory and time that tenants may still have."""
        model, groups = self.board.model, self.groups
        held = self.board.tenancy.sums[:3].sum(axis=1)
        quotas = np.array([model.quota_requests, model.quota_memory, model.quota_time])
        work = np.where(np.isfinite(groups.work), groups.work, 0.0).T / model.policy.window
        for t in np.unique(groups.tenant[groups.tenant >= 0]).tolist():
            mine = np.flatnonzero(groups.tenant == t)
            rows = self.lp.rows(np.maximum(0.0, quotas[:, t] - held[:, t]))
            self.lp.add(rows[0], self.z[mine], 1.0)
            self.lp.add(rows[1], self.z[mine], groups.memory[mine][:, None, None])
            self.lp.add(rows[2], self.z[mine], self.step[mine][:, :, None] / self.paces)
            self.lp.add(rows[2], self.x[mine], work[mine])

    def solved(self, clock: Clock) -> Floats | None:
        """The columns at the optimum, or as near to it as there was time for."""
        groups, found = self.groups, None
        for level in np.unique(groups.level).tolist():
            worth = self.lp.costs()
            mine = np.where(groups.level == level, groups.weight, 0.0)
            worth[self.z] = mine[:, None, None] * groups.worth.T[:, None, :]
            better = self.lp.maximise(worth, clock.left)
            if better is None:
                return found
            value, found = better
            self.lp.keep(worth, value * (1.0 - KEPT) - 1e-9)
        last = self.lp.costs()
        last[self.spare] = 1.0
        last[self.x] = -THRIFT / self.classes.size * self.used
        last[self.over] = -CROWDED / self.classes.size / self.plant.count[:, None]
        last[self.s] = -THRIFT / self.classes.size / np.maximum(self.plant.share * self.plant.count, 1e-9)
        even = self.lp.maximise(last, clock.left)
        return found if even is None else even[1]
