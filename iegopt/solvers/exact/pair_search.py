"""Depth-first branch and bound over pair costs, thousands of partial plans at a time: for few options and many edges.

Where nearly all stages are joined, bounds over a spanning forest see little and cost much. Here the costs are moved
once, with multipliers μ between every pair of stages (the sum over a plan stays what it is, whatever μ),

    cost'(o) = cost(o) + Σ_j μ_vj(o)        pair'(o, p) = pair(o, p) − μ_vj(o) − μ_jv(p) − least of the pair

by diffusion until no pair gives more, and then stages get their options in a fixed order: the bound of a partial
plan is

    Σ fixed costs' and pairs' + Σ_v min over the options that still fit of [ cost'(o) + pairs' with what is fixed ]

at O(options) for every child, in one array operation for all. What is left then counts the pairs of a tree of the open
stages too (``pair_trees.py``). Costs are moved by whole ticks, so bounds are exact.

Sources: Larrosa, Meseguer, Schiex, Maintaining reversible DAC for Max-CSP, AIJ 107 (1999), for the bound; Kovalevsky,
Koval, and Werner, A linear programming approach to max-sum problem: a review, IEEE PAMI 29 (2007), for the diffusion.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from iegopt.problem.arrays import Problem
from iegopt.problem.restrict import restrict
from iegopt.problem.transfer import edge_ticks
from iegopt.solvers.clock import Clock, lag
from iegopt.solvers.exact.best_plan import BestPlan
from iegopt.solvers.exact.candidates import above_any_plan
from iegopt.solvers.exact.messages import UNREACHABLE
from iegopt.solvers.exact.pair_trees import LEAST_OPEN, heaviest_trees, root_costs
from iegopt.solvers.grain import grain_seconds
from iegopt.solvers.result import Report, unheard
from iegopt.solvers.search.tables import untabled

__all__ = ["PairSearch", "dense_reason", "few_edges", "get_on", "pairs_seconds", "unpaired"]

Ints = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]

_EDGES_PER_STAGE = 2
"""Edges per stage from which a spanning forest sees little."""
_MOST_OPTIONS, _MOST_CELLS = 400, 400_000
"""Options in all, and children · options of a block, up to which it is tried."""
_SWEEPS, _SWEPT, _LITTLE = 40, 2, 2e-3
"""Sweeps of diffusion at most; how many together must raise the bound by this part of it for more to follow."""
_SMALL, _SMALL_SWEEPS = 1e6, 6
"""Combinations of options up to which a search soon ends in any case, and the sweeps that are worth it then."""
_CELL_NEEDS, _EDGE_NEEDS = 3e-7, 5e-5
"""Seconds that the tables take per pair of options, and more per edge, before a search begins, as measured on one core
of a server."""
_TRIAL, _GETS_ON, _SHARE = 0.15, 1e-3, 0.95
"""Part of the time left in which a search may show that it gets on, the part of it that does show it when searched, and
the part of the time left that it then gets."""
_FAR = 1 << 58
"""Cost of what is not an option; sums of a few stay inside int64."""
_FARTHEST = _FAR >> 5
"""What it counts in a tree, so that the sum over all stages does."""


def few_edges(problem: Problem) -> bool:
    """Whether a spanning forest sees much of the costs."""
    return problem.E < _EDGES_PER_STAGE * problem.V


def unpaired(problem: Problem, mask: Bools) -> str | None:
    """Why the options of a mask (O,) are not searched by pairs; only what ``untabled`` passes may be asked about."""
    if (problem.topology.width > 1).any():
        return "gangs"
    if few_edges(problem):
        return "few edges"
    if above_any_plan(problem, mask) >= _FAR // 8:
        return "costs too large"
    left = int(mask.sum())
    return f"{left} options, more than {_MOST_OPTIONS}" if left > _MOST_OPTIONS else None


def dense_reason(problem: Problem, mask: Bools) -> str | None:
    """Why the options of a mask (O,) are not searched by ``search_pairs``, ``None`` where they are."""
    return untabled(problem) or unpaired(problem, mask)


def pairs_seconds(problem: Problem, mask: Bools) -> float:
    """Roughly what it takes until a search over the options of a mask (O,) begins."""
    most = int(np.bincount(problem.options.stage[mask], minlength=problem.V).max(initial=0))
    tables = _CELL_NEEDS * (problem.V * most) ** 2 + _EDGE_NEEDS * problem.E
    return lag() * (tables + grain_seconds(problem))


def get_on(search: PairSearch, clock: Clock) -> None:
    """Go on with a search, as long as it gets on."""
    search.run(clock.slice(_TRIAL * clock.left))
    if search.searched > _GETS_ON:
        search.run(clock.slice(_SHARE * clock.left))


@dataclass(frozen=True, eq=False)
class _Block:
    """Partial plans of one depth: what they cost so far (n,), costs' of what is open with what is fixed (n, open · K),
    free memory (n, D), option numbers chosen (n, depth), and each plan's part of the search (n,)."""

    paid: Ints
    cost: Ints
    free: Ints
    chosen: Ints
    part: npt.NDArray[np.float64]


class PairSearch(BestPlan):
    """The search of one problem, which goes on with every call of ``run``.

    Attributes
    ----------
    searched
        Estimated part of the search that is done, 0 to 1.
    nodes
        Partial plans looked at.
    """

    def __init__(self, problem: Problem, mask: Bools, best: tuple[int, Ints] | None, report: Report = unheard) -> None:
        super().__init__(problem, best, above_any_plan(problem, mask), report)
        small, self._kept = restrict(problem, mask)
        self.searched, self.nodes = 0.0, 0
        options, V = small.options, small.V
        count = np.diff(options.ptr)
        K = int(count.max())
        place = np.arange(len(self._kept)) - options.ptr[options.stage]
        cost, self._need = np.full((V, K), _FAR), np.zeros((V, K), dtype=np.int64)
        self._device, self._option = np.zeros((V, K), dtype=np.int64), np.zeros((V, K), dtype=np.int64)
        at = options.stage, place
        cost[at], self._need[at], self._option[at] = options.cost, options.share, self._kept
        self._device[at] = small.topology.device_index[small.topology.device_ptr[options.site]]
        pairs = _pairs(small, K)
        cost, pairs, self._least = _moved(cost, pairs)
        order = _heaviest_first(pairs)
        self._order = order
        self._need, self._device, self._option = self._need[order], self._device[order], self._option[order]
        self._between = np.ascontiguousarray(pairs[np.ix_(order, order)].transpose(0, 2, 1, 3))
        self._pairs = self._between.reshape(V, K, V * K)
        self._trees = heaviest_trees(self._between)
        self._shape = V, K
        self._stack = [_Block(
            np.zeros(1, dtype=np.int64), cost[order].reshape(1, -1), small.capacity[None].copy(),
            np.zeros((1, 0), dtype=np.int64), np.ones(1),
        )]  # fmt: skip

    @property
    def done(self) -> bool:
        """Whether ``value`` is proven optimal, or without one that there is no plan."""
        return not self._stack

    def run(self, clock: Clock) -> None:
        """Search until nothing is left or the clock ends."""
        V, K = self._shape
        most = max(1, _MOST_CELLS // (K * V * K))
        while self._stack and clock.left > 0:
            block = self._stack.pop()
            if len(block.paid) > most:
                self._stack.append(_part_of(block, slice(most, None)))
                block = _part_of(block, slice(0, most))
            self._open(block)

    def _open(self, block: _Block) -> None:
        """Give the next stage every option that fits."""
        V, K = self._shape
        depth = block.chosen.shape[1]
        need, device = self._need[depth], self._device[depth]
        row, pick = np.nonzero((block.free[:, device] >= need) & (block.cost[:, :K] < _FAR))
        self.nodes += len(row)
        paid = block.paid[row] + block.cost[row, pick]
        cost = block.cost[row, K:] + self._pairs[depth][pick, (depth + 1) * K :]
        bound = paid + self._least + _least_of(cost.reshape(len(row), V - depth - 1, K))
        alive = np.flatnonzero(bound < self._limit)
        row, pick, paid, cost = row[alive], pick[alive], paid[alive], cost[alive]
        free = block.free[row]
        free[np.arange(len(row)), device[pick]] -= need[pick]
        fits = free[:, self._device[depth + 1 :]] >= self._need[depth + 1 :]
        fitting = np.where(fits, cost.reshape(fits.shape), _FAR)
        bound = paid + self._least + _least_of(fitting)
        alive = np.flatnonzero(bound < self._limit)
        if V - depth > LEAST_OPEN:
            bound[alive] = self._close(depth, paid[alive], fitting[alive], cost, alive)
            alive = alive[bound[alive] < self._limit]
        alive = alive[np.argsort(bound[alive], kind="stable")]
        chosen = np.concatenate([block.chosen[row], pick[:, None]], axis=1)
        if depth + 1 == V:
            self._offer(chosen[alive[:1]])
            alive = alive[:0]
        children = np.bincount(row[alive], minlength=len(block.paid))
        self.searched += float(block.part[children == 0].sum())
        if alive.size:
            part = (block.part / np.maximum(children, 1))[row[alive]]
            self._stack.append(_Block(paid[alive], cost[alive], free[alive], chosen[alive], part))

    def _close(self, depth: int, paid: Ints, fitting: Ints, cost: Ints, rows: Ints) -> Ints:
        """(n,) bounds by a tree; options of the next stage that it excludes are no longer any in ``cost`` of the rows.

        Parameters
        ----------
        fitting (n, open, K)
            Costs of what fits.
        """
        tree = root_costs(np.minimum(fitting, _FARTHEST), self._between, self._trees[depth])
        bound = (paid + self._least)[:, None] + tree
        row, option = np.nonzero(bound >= self._limit)
        cost[rows[row], option] = _FAR
        return np.asarray(bound.min(axis=1))

    @property
    def _limit(self) -> int:
        return min(self.upper, _FAR)

    def _offer(self, chosen: Ints) -> None:
        for picks in chosen:
            plan = np.empty(len(picks), dtype=np.int64)
            plan[self._order] = self._option[np.arange(len(picks)), picks]
            self.offer(plan)


def _least_of(cost: Ints) -> Ints:
    """(n,) the sum over stages of the least of (n, stages, K) costs, ``_FAR`` where a stage has none."""
    least = cost.min(axis=2)
    return np.where((least < _FAR).all(axis=1), least.sum(axis=1), _FAR)


def _part_of(block: _Block, rows: slice) -> _Block:
    return _Block(block.paid[rows], block.cost[rows], block.free[rows], block.chosen[rows], block.part[rows])


def _pairs(problem: Problem, K: int) -> Ints:
    """(V, V, K, K) ticks of the edges between every two stages, by the places of their options."""
    ptr = problem.options.ptr
    pairs = np.zeros((problem.V, problem.V, K, K), dtype=np.int64)
    for e, (u, v) in enumerate(zip(problem.edges.source.tolist(), problem.edges.target.tolist(), strict=True)):
        source, target = np.arange(ptr[u], ptr[u + 1]), np.arange(ptr[v], ptr[v + 1])
        ticks = edge_ticks(problem, e, source[:, None], target[None, :])[1]
        pairs[u, v, : len(source), : len(target)] += ticks
        pairs[v, u, : len(target), : len(source)] += ticks.T
    return pairs


def _moved(cost: Ints, pairs: Ints) -> tuple[Ints, Ints, int]:
    """Costs' (V, K) and pairs' (V, V, K, K) ≥ 0 after diffusion, and the sum of the least of all pairs, in ticks."""
    V = len(cost)
    absent = cost >= _FAR
    far = float(_FAR)
    unary = cost.astype(np.float64)
    between = np.where(absent[None, :, None, :] | absent[:, None, :, None], far, pairs.astype(np.float64))
    moved = np.zeros((V, V, cost.shape[1]))
    reached = -np.inf
    few = np.prod((~absent).sum(axis=1), dtype=np.float64) <= _SMALL
    for sweep in range(_SMALL_SWEEPS if few else _SWEEPS):
        if sweep % _SWEPT == 0:
            before, reached = reached, float(unary.min(axis=1).sum())
            if reached - before < _LITTLE * abs(reached):
                break
        for i in range(V) if sweep % 2 == 0 else reversed(range(V)):
            slack = (between[i] - moved[:, i, None, :]).min(axis=2) - moved[i]
            slack[i] = 0.0
            slack[:, absent[i]] = 0.0
            total = unary[i] + slack.sum(axis=0)
            give = (np.where(absent[i], 0.0, total) - np.where(absent[i], far, total).min() * ~absent[i]) / V
            moved[i] += slack - give
            moved[i, i] = 0.0
            unary[i] = total - (V - 1) * give
    ticks = np.rint(moved).astype(np.int64)
    new_cost = np.where(absent, _FAR, cost + ticks.sum(axis=1))
    new_pairs = pairs - ticks[:, :, :, None] - ticks.transpose(1, 0, 2)[:, :, None, :]
    either = absent[None, :, None, :] | absent[:, None, :, None]
    least = np.where(either, UNREACHABLE, new_pairs).min(axis=(2, 3))
    np.fill_diagonal(least, 0)
    new_pairs = np.where(either, 0, new_pairs - least[:, :, None, None])
    new_pairs[np.arange(V), np.arange(V)] = 0
    return new_cost, new_pairs, int(least.sum()) // 2


def _heaviest_first(pairs: Ints) -> Ints:
    """(V,) the stages in the order in which each is tied most to those before it."""
    V = len(pairs)
    weight = pairs.max(axis=(2, 3), initial=0).astype(np.float64)
    order = [int(weight.sum(axis=0).argmax())] if V else []
    while len(order) < V:
        tied = weight[:, order].sum(axis=1)
        tied[order] = -1.0
        order.append(int(tied.argmax()))
    return np.array(order, dtype=np.int64)
