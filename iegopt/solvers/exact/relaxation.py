"""A lower bound, its choice and its min-marginals: the problem without what couples more than one edge.

Memory, path limits, the budget and affinities are left out, and so are the edges that close a cycle (the
lightest ones): every dropped term is ≥ 0, so the optimum of what is left, found exactly by messages
over a spanning forest, is a lower bound. A forward pass gives the bound and the choice, a backward pass the
min-marginals: for every option the least relaxed cost of any plan that uses it (section 6.2 of the placement
model). An option above the best known plan is in no better one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import overload

import numpy as np
import numpy.typing as npt

from iegopt.problem.arrays import Problem
from iegopt.solvers.clock import Clock
from iegopt.solvers.exact.compiled import kernels
from iegopt.solvers.exact.messages import UNREACHABLE, Messages
from iegopt.solvers.exact.passes import CompiledPasses

__all__ = ["Forest", "Relaxation", "kruskal", "prune", "relaxation", "relaxed_under", "spanning_forest"]

Ints = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Forest:
    """A spanning forest of the graph.

    Attributes
    ----------
    order
        Stages, every parent before its children.
    parent, edge
        Per stage its parent and the edge to it, −1 at a root.
    dropped
        Edges with a cost that are not in the forest.
    """

    order: tuple[int, ...]
    parent: tuple[int, ...]
    edge: tuple[int, ...]
    dropped: tuple[int, ...]


@dataclass(frozen=True, eq=False)
class Relaxation:
    """Optimum of the relaxed problem.

    Attributes
    ----------
    bound
        Ticks; no plan costs less. ``None`` where a stage has no allowed option.
    choice (V,)
        A plan that attains it in the relaxed problem; ``None`` likewise.
    upward
        Per stage (options,) the least relaxed cost of the stage's subtree with each option.
    sent
        Per stage the message to its parent, ``None`` at a root; empty where kernels send it again.
    compiled
        ``None`` where numpy does the work.
    """

    problem: Problem
    messages: Messages
    forest: Forest
    bound: int | None
    choice: Ints | None
    upward: tuple[Ints, ...]
    sent: tuple[Ints | None, ...]
    compiled: CompiledPasses | None = None

    @property
    def core(self) -> str:
        """``numba`` where compiled kernels did the work, else ``numpy``."""
        return "numpy" if self.compiled is None else "numba"

    @cached_property
    def min_marginals(self) -> Ints:
        """(O,) ticks: a lower bound on every plan that uses the option; ``UNREACHABLE`` where it is not allowed."""
        problem, forest = self.problem, self.forest
        marginals = self._beliefs()
        part = [slice(a, b) for a, b in pairwise(self.messages.ptr)]
        best = {v: int(marginals[part[v]].min()) for v in forest.order if forest.parent[v] < 0}
        if len(best) > 1:
            total, root = sum(best.values()), dict[int, int]()
            for v in forest.order:
                root[v] = root.get(forest.parent[v], v)
                marginals[part[v]] += total - best[root[v]]
        np.copyto(marginals, UNREACHABLE, where=~problem.allowed)
        return marginals

    @property
    def has_min_marginals(self) -> bool:
        """Whether they are worked out already, which takes as long as the relaxation did."""
        return "min_marginals" in vars(self)

    def _beliefs(self) -> Ints:
        """(O,) the least cost of every option's tree with it: messages from the parents down."""
        if self.compiled is not None:
            return self.compiled.backward()
        messages, forest = self.messages, self.forest
        belief: Ints = np.concatenate(self.upward)
        at = [belief[a:b] for a, b in pairwise(messages.ptr)]
        for v in forest.order:
            parent, edge, up = forest.parent[v], forest.edge[v], self.sent[v]
            if up is not None:
                rest = np.minimum(at[parent] - up, UNREACHABLE)
                at[v] += messages.send(edge, rest, messages.source[edge] == parent)
        return belief

    def prune(self, upper_bound: int) -> npt.NDArray[np.bool_]:
        """(O,) the options that a plan of at most ``upper_bound`` ticks can use."""
        return np.asarray(self.problem.allowed & (self.min_marginals <= upper_bound))


@overload
def relaxation(problem: Problem) -> Relaxation: ...
@overload
def relaxation(problem: Problem, clock: Clock | None) -> Relaxation | None: ...
def relaxation(problem: Problem, clock: Clock | None = None) -> Relaxation | None:
    """Solve the relaxation of any problem, in O(E · S · levels) where links follow the topology tree.

    ``None`` where the clock ends first.
    """
    messages = Messages(problem)
    if clock is not None and clock.left <= 0:
        return None
    forest = spanning_forest(problem)
    return relaxed_under(problem, messages, forest, problem.options.cost, clock)


def relaxed_under(
    problem: Problem, messages: Messages, forest: Forest, cost: Ints, clock: Clock | None = None
) -> Relaxation | None:
    """The relaxation with other costs (O,) of the options; ``None`` where the clock ends first."""
    if clock is not None and clock.left <= 0:
        return None
    theta = np.where(problem.allowed, cost, UNREACHABLE)
    ptr = messages.ptr
    upward = [theta[a:b] for a, b in pairwise(ptr)]
    sent: list[Ints | None] = [None] * problem.V
    filled = min(map(len, upward), default=1) > 0
    if not filled or (problem.V and np.minimum.reduceat(theta, ptr[:-1]).max() >= UNREACHABLE):
        return Relaxation(problem, messages, forest, None, None, tuple(upward), tuple(sent))
    core = kernels()
    if core is not None and not messages.dense:
        compiled = CompiledPasses(core, messages, forest, theta)
        if not compiled.forward(clock):
            return None
        bound, choice = compiled.choose()
        return Relaxation(problem, messages, forest, bound, choice, compiled.upward(), (), compiled)
    for v in reversed(forest.order):
        if clock is not None and clock.left <= 0:
            return None
        parent, edge = forest.parent[v], forest.edge[v]
        if parent >= 0:
            message = messages.send(edge, upward[v], messages.source[edge] == v)
            sent[v] = message
            upward[parent] = upward[parent] + message
    bound = 0
    choice = np.zeros(problem.V, dtype=np.int64)
    for v in forest.order:
        if clock is not None and clock.left <= 0:
            return None
        parent, edge = forest.parent[v], forest.edge[v]
        value = upward[v]
        if parent < 0:
            best = int(value.argmin())
            bound += int(value[best])
        else:
            best = messages.best(edge, int(choice[parent]), messages.source[edge] == parent, value)
        choice[v] = ptr[v] + best
    return Relaxation(problem, messages, forest, bound, choice, tuple(upward), tuple(sent))


def prune(problem: Problem, upper_bound: int) -> npt.NDArray[np.bool_]:
    """(O,) the options that a plan of at most ``upper_bound`` ticks can use, by min-marginals."""
    return relaxation(problem).prune(upper_bound)


def spanning_forest(problem: Problem) -> Forest:
    """Spanning forest of the heaviest edges (bytes · weight). Edges of weight 0 cost nothing: left out."""
    edges = problem.edges
    ends = list(zip(edges.source.tolist(), edges.target.tolist(), strict=True))
    return kruskal(problem, ends, np.where(edges.weight == 0, -1.0, edges.bytes * edges.weight))


def kruskal(problem: Problem, ends: Sequence[tuple[int, int]], weight: npt.ArrayLike) -> Forest:
    """Spanning forest of the heaviest pairs of stages; those of negative weight are left out (Kruskal, 1956)."""
    weights = np.asarray(weight, dtype=np.float64)
    leader = list(range(problem.V))

    def find(v: int) -> int:
        while leader[v] != v:
            leader[v] = leader[leader[v]]
            v = leader[v]
        return v

    neighbours: list[list[tuple[int, int]]] = [[] for _ in range(problem.V)]
    dropped: list[int] = []
    for e in np.argsort(-weights, kind="stable").tolist():
        if weights[e] < 0:
            continue
        u, v = ends[e]
        a, b = find(u), find(v)
        if a == b:
            dropped.append(e)
            continue
        leader[a] = b
        neighbours[u].append((v, e))
        neighbours[v].append((u, e))

    parent, via = [-1] * problem.V, [-1] * problem.V
    order: list[int] = []
    reached = [False] * problem.V
    for root in problem.order.tolist():
        if reached[root]:
            continue
        reached[root] = True
        todo = [root]
        for v in todo:
            order.append(v)
            for w, e in neighbours[v]:
                if not reached[w]:
                    reached[w] = True
                    parent[w], via[w] = v, e
                    todo.append(w)
    return Forest(tuple(order), tuple(parent), tuple(via), tuple(sorted(dropped)))
