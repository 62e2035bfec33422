"""The passes of ``sweeps.py`` over tables as loops that numba compiles, node by node of a search (``kernels.py``).

``table_passes.py`` lays out what they take. A pair of a stage v with its k-th parent is slot 2·v + k; its table is
stored by the options of v, or turned, by those of the parent. Costs are not negative, so that what comes to
``UNREACHABLE`` stays there in any order of sums.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from iegopt.solvers.compiling import part
from iegopt.solvers.exact.kernels import UNREACHABLE, kernel
from iegopt.solvers.exact.node_messages import (
    Order,
    add_links,
    costs_of_pairs,
    from_parent,
    onto_pair,
    towards_parent,
)

__all__ = ["evaluate_nodes", "node_beliefs"]

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]
Bools = npt.NDArray[np.bool_]

_TABLES = "UniTuple(int64[::1], 10), UniTuple(int64[::1], 2), float64[:, ::1]"
_BUFFERS = "UniTuple(int64[:, ::1], 3)"


@kernel(
    f"void({_TABLES}, UniTuple(int64[:, ::1], 3), UniTuple(float64[:, ::1], 2), float64[:, :, ::1], "
    f"UniTuple(int64[::1], 4), {_BUFFERS}, int64[::1], int64[:, ::1], float64[:, ::1], boolean[::1])"
)
def evaluate_nodes(
    order: Order, tables: tuple[Ints, Ints], rate: Floats, cost: tuple[Ints, Ints, Ints],
    priced: tuple[Floats, Floats], weight: Floats, options: tuple[Ints, Ints, Ints, Ints],
    buffers: tuple[Ints, Ints, Ints], bound: Ints, chosen: Ints, excess: Floats, fits: Bools,
) -> None:  # fmt: skip
    """One evaluation of B nodes: their bounds and relaxed plans, and the subgradient.

    Parameters
    ----------
    tables, rate (C, B)
        Flat costs and times of pairs; ticks of cost per tick of time of every coupling, C = 0 where none is due.
    cost
        Of options (n, B), what split edges add (n, B), and devices (K, n).
    priced
        Prices (D + 1, B), and rates on the time of stages (V, B) or (0, B).
    options
        Stage, time and share (n,), capacity (D + 1,).
    buffers
        θ with what came from below (B, n), messages (B, …), and tables that are more than one link (B, …).
    bound (B,)
        Least costs, less the rent of devices.
    chosen (V, B), excess (D + 1, B), fits (B,)
        Candidates of the relaxed plans, weights on devices less 1, and whether the plans keep every memory.
    """
    base, shift, devices = cost
    stage, time, share, capacity = options
    price, of_stage = priced
    upward, sent, whole = buffers
    used = np.zeros(len(capacity), np.int64)
    excess[:] = 0.0
    for b in range(len(bound)):
        theta = upward[b]
        for o in range(len(stage)):
            total = base[o, b] + shift[o, b]
            if len(of_stage) > 0:
                total += np.int64(of_stage[stage[o], b] * time[o])
            for k in range(len(devices)):
                total += np.int64(price[devices[k, o], b] * weight[k, o, b])
            theta[o] = min(total, UNREACHABLE)
        _up(order, tables, rate, b, theta, sent[b], whole[b])
        bound[b] = _choose(order, tables, rate, b, theta, whole[b], chosen)
        rent = 0.0
        for d in range(len(price)):
            rent += price[d, b] + (price[d, b] > 0)
        bound[b] -= np.int64(rent)
        for k in range(len(devices)):
            for v in range(len(chosen)):
                o = chosen[v, b]
                excess[devices[k, o], b] += weight[k, o, b]
                used[devices[k, o]] += share[o]
        fits[b] = True
        for d in range(len(capacity) - 1):
            fits[b] &= used[d] <= capacity[d]
            excess[d, b] -= 1.0
        used[:] = 0
        excess[-1, b] = 0.0


@kernel(f"void({_TABLES}, {_BUFFERS}, int64[:, ::1])")
def node_beliefs(
    order: Order, tables: tuple[Ints, Ints], rate: Floats, buffers: tuple[Ints, Ints, Ints], out: Ints
) -> None:
    """Fill ``out`` (n, B) with the least cost of any plan that uses an option, from the buffers of an evaluation."""
    ptr, stages, parent = order[0], order[1], order[2]
    upward, sent, whole = buffers
    belief, joint = np.empty(ptr[-1], np.int64), np.empty(whole.shape[1], np.int64)
    root, least = np.empty(len(stages), np.int64), np.zeros(len(stages), np.int64)
    roots = 0
    for v in stages:
        roots += parent[2 * v] < 0
    for b in range(len(upward)):
        belief[:] = upward[b]
        total = np.int64(0)
        for v in stages:
            if parent[2 * v] < 0:
                root[v] = v
                least[v] = belief[ptr[v] : ptr[v + 1]].min()
                total += min(least[v], UNREACHABLE // roots)
                continue
            root[v] = root[parent[2 * v]]
            if parent[2 * v + 1] < 0:
                _complete_by_one(order, tables, rate, b, v, belief, sent[b], whole[b], joint)
            else:
                _complete_by_two(order, tables, rate, b, v, belief, sent[b], whole[b], joint)
        for v in stages:
            others = total - least[root[v]]
            for o in range(ptr[v], ptr[v + 1]):
                out[o, b] = min(belief[o] + others, UNREACHABLE)


@part
def _up(order: Order, tables: tuple[Ints, Ints], rate: Floats, b: int, theta: Ints, sent: Ints, whole: Ints) -> None:
    ptr, stages, parent, _, _, _, _, at_whole, into, at_sent = order
    taken = np.zeros(len(parent), np.bool_)
    for i in range(len(stages) - 1, -1, -1):
        v = stages[i]
        p, q = parent[2 * v], parent[2 * v + 1]
        if p < 0:
            continue
        for slot in range(2 * v, 2 * v + 1 + (q >= 0)):
            if at_whole[slot] >= 0:
                add_links(order, tables, rate, b, slot, taken[slot], whole)
        own = theta[ptr[v] : ptr[v + 1]]
        near = ptr[p + 1] - ptr[p]
        if q < 0:
            message = sent[at_sent[v] : at_sent[v] + near]
            towards_parent(order, tables, rate, b, 2 * v, own, whole, message)
            for a in range(near):
                theta[ptr[p] + a] = min(theta[ptr[p] + a] + message[a], UNREACHABLE)
            continue
        cells = near * (ptr[q + 1] - ptr[q])
        message = sent[at_sent[v] : at_sent[v] + cells]
        of_near, of_far = (
            costs_of_pairs(order, tables[0], 2 * v, whole),
            costs_of_pairs(order, tables[0], 2 * v + 1, whole),
        )
        onto_pair(own, of_near, of_far, near, ptr[q + 1] - ptr[q], message)
        known = whole[at_whole[into[v]] : at_whole[into[v]] + cells]
        for j in range(cells):
            known[j] = min(known[j] + message[j], UNREACHABLE) if taken[into[v]] else message[j]
        taken[into[v]] = True


@part
def _choose(
    order: Order, tables: tuple[Ints, Ints], rate: Floats, b: int, theta: Ints, whole: Ints, chosen: Ints
) -> np.int64:
    """Fill a column of ``chosen`` (V, B), the first of equals, and return the least cost."""
    ptr, stages, parent = order[0], order[1], order[2]
    total = np.empty(len(theta), np.int64)
    bound = np.int64(0)
    for v in stages:
        start, stop = ptr[v], ptr[v + 1]
        total[start:stop] = theta[start:stop]
        for slot in range(2 * v, 2 * v + 2):
            if parent[slot] >= 0:
                option = chosen[parent[slot], b] - ptr[parent[slot]]
                _add_row(order, tables, rate, b, slot, option, whole, total[start:stop])
        best = start
        for o in range(start + 1, stop):
            if total[o] < total[best]:
                best = o
        if parent[2 * v] < 0:
            bound += total[best]
        chosen[v, b] = best
    return bound


@part
def _add_row(
    order: Order, tables: tuple[Ints, Ints], rate: Floats, b: int, slot: int, option: int, whole: Ints, total: Ints
) -> None:
    """Add what the options of a stage cost with one option of its parent."""
    ptr, parent, first, coupling, at, turned, at_whole = (
        order[0], order[2], order[3], order[4], order[5], order[6], order[7],
    )  # fmt: skip
    size = ptr[parent[slot] + 1] - ptr[parent[slot]]
    if at_whole[slot] >= 0:
        for o in range(len(total)):
            total[o] += whole[at_whole[slot] + o * size + option]
        return
    c = first[slot]
    start, step = (at[c] + option * len(total), 1) if turned[slot] > 0 else (at[c] + option, size)
    paid = rate[coupling[c], b] if len(rate) > 0 else 0.0
    for o in range(len(total)):
        total[o] += tables[0][start + o * step]
        if paid > 0:
            total[o] += np.int64(tables[1][start + o * step] * paid)


@part
def _complete_by_one(
    order: Order, tables: tuple[Ints, Ints], rate: Floats, b: int, v: int, belief: Ints, sent: Ints, whole: Ints,
    joint: Ints,
) -> None:  # fmt: skip
    ptr, parent, at_whole, at_sent = order[0], order[2], order[7], order[9]
    p = parent[2 * v]
    own, near = belief[ptr[v] : ptr[v + 1]], ptr[p + 1] - ptr[p]
    rest = np.empty(near, np.int64)
    for a in range(near):
        rest[a] = min(belief[ptr[p] + a] - sent[at_sent[v] + a], UNREACHABLE)
    start = at_whole[2 * v]
    if start < 0:
        message = np.empty(len(own), np.int64)
        from_parent(order, tables, rate, b, 2 * v, rest, message)
        for o in range(len(own)):
            own[o] = min(own[o] + message[o], UNREACHABLE)
        return
    for o in range(len(own)):
        least = UNREACHABLE
        for a in range(near):
            j = start + o * near + a
            joint[j] = min(min(whole[j] + rest[a], UNREACHABLE) + own[o], UNREACHABLE)
            least = min(least, joint[j])
        own[o] = least


@part
def _complete_by_two(
    order: Order, tables: tuple[Ints, Ints], rate: Floats, b: int, v: int, belief: Ints, sent: Ints, whole: Ints,
    joint: Ints,
) -> None:  # fmt: skip
    ptr, parent, at_whole, into, at_sent = order[0], order[2], order[7], order[8], order[9]
    p, q = parent[2 * v], parent[2 * v + 1]
    own, near, far = belief[ptr[v] : ptr[v + 1]], ptr[p + 1] - ptr[p], ptr[q + 1] - ptr[q]
    of_near, of_far = costs_of_pairs(order, tables[0], 2 * v, whole), costs_of_pairs(order, tables[0], 2 * v + 1, whole)
    known, message = at_whole[into[v]], at_sent[v]
    rest = np.empty(far * near, np.int64)
    for j in range(far * near):
        rest[j] = min(joint[known + j] - sent[message + j], UNREACHABLE)
    by = np.empty(near, np.int64)
    at_near, at_far = at_whole[2 * v], at_whole[2 * v + 1]
    for o in range(len(own)):
        if own[o] >= UNREACHABLE:
            if at_near >= 0:
                joint[at_near + o * near : at_near + (o + 1) * near] = UNREACHABLE
            if at_far >= 0:
                joint[at_far + o * far : at_far + (o + 1) * far] = UNREACHABLE
            own[o] = UNREACHABLE
            continue
        by[:] = UNREACHABLE
        for j in range(far):
            start = of_far[o * far + j]
            if start < UNREACHABLE:
                row = rest[j * near : (j + 1) * near]
                for a in range(near):
                    by[a] = min(by[a], row[a] + start)
        if at_far >= 0:
            pairs = joint[at_far + o * far : at_far + (o + 1) * far]
            for j in range(far):
                least = UNREACHABLE
                for a in range(near):
                    least = min(least, rest[j * near + a] + of_near[o * near + a])
                pairs[j] = min(min(of_far[o * far + j] + least, UNREACHABLE) + own[o], UNREACHABLE)
        lowest = UNREACHABLE
        for a in range(near):
            value = min(min(of_near[o * near + a] + by[a], UNREACHABLE) + own[o], UNREACHABLE)
            lowest = min(lowest, value)
            if at_near >= 0:
                joint[at_near + o * near + a] = value
        own[o] = lowest
