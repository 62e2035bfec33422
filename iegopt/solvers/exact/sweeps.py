"""Messages over the stages of many nodes at once, in the order of a reduction: up, down, and the marginals.

On the way up a stage with one parent sends it the least of its own cost and the edge's; one with two, p and q, leaves

    M(a, b) = min over o of [ c(a, o) + θ(o) + c(o, b) ]

between them, which counts with the edge between p and q from then on. What every stage knows after the way up is the
least cost of all that was taken onto it; from the roots down it is completed to the least cost of any plan (junction
trees; Lauritzen & Spiegelhalter, J. Royal Statistical Society B 50, 1988, with minima for sums).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from iegopt.solvers.exact.candidates import Candidates
from iegopt.solvers.exact.links import Link
from iegopt.solvers.exact.messages import UNREACHABLE
from iegopt.solvers.exact.single import OneNode, SingleNode, least_between

__all__ = ["Passed", "beliefs", "choose", "pass_up"]

Ints = npt.NDArray[np.int64]

_BLOCK = 1 << 15
"""Cells of a table over three stages that are worked out at a time: what stays in the cache."""
_FEW_NODES = 4
"""Nodes up to which tables over three stages are worked out node by node: minima along few nodes are slow."""


@dataclass(frozen=True, eq=False)
class Passed:
    """Messages of one evaluation of B nodes.

    Attributes
    ----------
    upward
        Per stage (options, B) θ with all that came from below.
    sent
        Per stage what it sent up: (options of the parent, B), or (…, options of the second parent, B) to two.
    links
        Those of the candidates with the prices on time of every node.
    tables
        (options of a, options of b, B or 1) what pairs of the stages (a, b), a the earlier, cost by edges and by what
        was taken onto them, where that is more than one link.
    """

    c: Candidates
    upward: tuple[Ints, ...]
    sent: tuple[Ints | None, ...]
    links: tuple[Link | None, ...]
    tables: dict[tuple[int, int], Ints]
    one: OneNode | None = None
    """The same of a single node over tables."""

    def link(self, coupling: int) -> Link:
        link = self.links[coupling]
        assert link is not None
        return link

    def single(self, parent: int, stage: int) -> tuple[Link, bool]:
        """The one link between a stage and its parent, and whether it leads from the parent to the stage."""
        (coupling,) = self.c.reduction.between[parent, stage]
        return self.link(coupling), self.c.ends[coupling][0] == parent

    def growth(self, stage: int, column: int, chosen: Ints) -> Ints:
        """(N or 1, m) by what the bound of partial plans of a node rises with each option of a stage.

        Parameters
        ----------
        chosen (N, V)
            Options of the stages before it in the order, counted within their stage.
        """
        own = self.upward[stage][:, column][None, :]
        parents, sent = self.c.reduction.parents[stage], self.sent[stage]
        if not parents:
            return np.asarray(own - own.min())
        assert sent is not None
        at = tuple(chosen[:, p] for p in parents)
        rise = own - sent[..., column][at][:, None]
        for p, option in zip(parents, at, strict=True):
            table = self.tables.get((p, stage))
            if table is not None:
                rise = rise + table[:, :, column if table.shape[2] > 1 else 0][option]
            else:
                link, forward = self.single(p, stage)
                rise = rise + link.of_node(column).rows(option, forward)
        return np.asarray(rise)


def pass_up(c: Candidates, links: tuple[Link | None, ...], theta: Ints) -> Passed:
    """The way up from θ (n, B), at most ``UNREACHABLE``."""
    if theta.shape[1] == 1 and links is c.links and c.single is not None:
        return _of_one(c, c.single, theta[:, 0].copy())
    order = c.reduction
    upward = [theta[part] for part in c.of]
    sent: list[Ints | None] = [None] * c.V
    tables: dict[tuple[int, int], Ints] = {}
    passed = Passed(c, (), (), links, tables)
    for v in reversed(order.order):
        parents = order.parents[v]
        for p in parents:
            _add_links(passed, p, v, needed=len(parents) == 2 or (p, v) in tables)
        if len(parents) == 1:
            p = parents[0]
            if (p, v) in tables:
                message = np.minimum((tables[p, v] + upward[v][None]).min(axis=1), UNREACHABLE)
            else:
                link, forward = passed.single(p, v)
                message = link.send(upward[v], not forward)
            sent[v] = message
            upward[p] = np.minimum(upward[p] + message, UNREACHABLE)
        elif parents:
            p, q = parents
            near = np.minimum(tables[p, v] + upward[v][None], UNREACHABLE)
            message = _least_between(near, tables[q, v].transpose(1, 0, 2))
            sent[v] = message
            known = tables.get((p, q))
            tables[p, q] = message if known is None else np.minimum(known + message, UNREACHABLE)
    return Passed(c, tuple(upward), tuple(sent), links, tables)


def _of_one(c: Candidates, single: SingleNode, theta: Ints) -> Passed:
    one = single.up(theta)
    sent = tuple(None if each is None else each[..., None] for each in one.sent)
    tables = {pair: table[:, :, None] for pair, table in one.tables.items()}
    for pair, couplings in c.reduction.between.items():
        if len(couplings) > 1 and pair not in tables:
            tables[pair] = single.table[pair][:, :, None]
    return Passed(c, tuple(each[:, None] for each in one.upward), sent, c.links, tables, one)


def _add_links(passed: Passed, parent: int, stage: int, needed: bool) -> None:
    """Complete the table of a pair by its links, where it needs one."""
    c = passed.c
    couplings = c.reduction.between.get((parent, stage), ())
    if not needed and len(couplings) == 1:
        return
    total = passed.tables.get((parent, stage))
    for e in couplings:
        own = passed.link(e).whole()
        if c.ends[e][0] != parent:
            own = own.transpose(1, 0, 2)
        total = own if total is None else np.minimum(total + own, UNREACHABLE)
    assert total is not None
    passed.tables[parent, stage] = total


def choose(passed: Passed) -> tuple[Ints, Ints]:
    """The least cost (B,) of every node and options (V, B), counted within their stage, that attain it."""
    c, B = passed.c, passed.upward[0].shape[1]
    if passed.one is not None and c.single is not None:
        least_of_one, plan = c.single.choose(passed.one)
        return np.array([least_of_one]), np.array(plan)[:, None]
    nodes = np.arange(B)
    least = np.zeros(B, dtype=np.int64)
    chosen = np.zeros((c.V, B), dtype=np.int64)
    for v in c.reduction.order:
        value = passed.upward[v]
        parents = c.reduction.parents[v]
        if not parents:
            chosen[v] = value.argmin(axis=0)
            least += value[chosen[v], nodes]
            continue
        total = value.T
        for p in parents:
            table = passed.tables.get((p, v))
            if table is not None:
                total = total + table[chosen[p], :, nodes if table.shape[2] > 1 else 0]
            else:
                link, forward = passed.single(p, v)
                total = total + link.rows(chosen[p], forward)
        chosen[v] = total.argmin(axis=1)
    return least, chosen


def beliefs(passed: Passed) -> Ints:
    """(n, B) least cost of any plan of the node that uses an option."""
    c, order = passed.c, passed.c.reduction
    if passed.one is not None and c.single is not None:
        return c.single.beliefs(passed.one)[:, None]
    belief = list(passed.upward)
    joint: dict[tuple[int, int], Ints] = {}
    least: dict[int, Ints] = {}
    root: dict[int, int] = {}
    for v in order.order:
        parents, up = order.parents[v], passed.sent[v]
        root[v] = root[parents[0]] if parents else v
        if not parents:
            least[v] = belief[v].min(axis=0)
            continue
        assert up is not None
        if len(parents) == 1:
            p = parents[0]
            rest = np.minimum(belief[p] - up, UNREACHABLE)
            if (p, v) not in passed.tables:
                link, forward = passed.single(p, v)
                belief[v] = np.minimum(belief[v] + link.send(rest, forward), UNREACHABLE)
                continue
            pairs = np.minimum(passed.tables[p, v] + rest[:, None], UNREACHABLE) + belief[v][None]
            joint[p, v] = np.minimum(pairs, UNREACHABLE)
            belief[v] = joint[p, v].min(axis=0)
            continue
        p, q = parents
        rest = np.minimum(joint[p, q] - up, UNREACHABLE)
        near, far = passed.tables[p, v], passed.tables[q, v]
        of_near = np.minimum(_least_between(rest, far), UNREACHABLE)  # (p, v, B)
        joint[p, v] = np.minimum(np.minimum(near + of_near, UNREACHABLE) + belief[v][None], UNREACHABLE)
        if (q, v) in order.pairs:
            of_far = np.minimum(_least_between(rest.transpose(1, 0, 2), near), UNREACHABLE)
            joint[q, v] = np.minimum(np.minimum(far + of_far, UNREACHABLE) + belief[v][None], UNREACHABLE)
        belief[v] = joint[p, v].min(axis=0)
    total = np.sum([np.minimum(value, UNREACHABLE // len(least)) for value in least.values()], axis=0)
    others = [total - least[root[v]] for v in range(c.V)]
    return np.concatenate([np.minimum(belief[v] + others[v], UNREACHABLE) for v in range(c.V)])


def _least_between(near: Ints, far: Ints) -> Ints:
    """(a, b, B) min over o of near (a, o, B or 1) + far (o, b, B or 1), at most ``UNREACHABLE``."""
    a, o, _ = near.shape
    b = far.shape[1]
    B = max(near.shape[2], far.shape[2])
    if 1 < B <= _FEW_NODES:
        each = [
            _least_between(near[:, :, node % near.shape[2], None], far[:, :, node % far.shape[2], None])
            for node in range(B)
        ]
        return np.concatenate(each, axis=2)
    if B == 1:
        return least_between(near[:, :, 0], far[:, :, 0])[:, :, None]
    least = np.empty((a, b, B), dtype=np.int64)
    step = max(1, _BLOCK // (o * b * B))
    for start in range(0, a, step):
        part = slice(start, start + step)
        (near[part, :, None] + far[None]).min(axis=1, out=least[part])
    return np.minimum(least, UNREACHABLE, out=least)
