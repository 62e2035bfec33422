"""Tables of all pairs of options of coupled stages: what their edge costs, and which do not fit together."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from types import SimpleNamespace

import numpy as np
import numpy.typing as npt

from iegopt.problem.arrays import Problem
from iegopt.solvers.exact.compiled import kernels
from iegopt.solvers.exact.coupled_links import Ends
from iegopt.solvers.exact.couplings import Coupling
from iegopt.solvers.exact.links import TableLink
from iegopt.solvers.exact.messages import UNREACHABLE
from iegopt.solvers.exact.pair_costs import PairCosts, sharing

__all__ = ["pair_tables"]

Ints = npt.NDArray[np.int64]


def pair_tables(
    problem: Problem, ends: Ends, of: Sequence[slice], coupled: Sequence[Coupling], capacity: Ints
) -> list[TableLink]:
    """The tables of couplings without their rules: pairs that do not fit on a device together cost ``UNREACHABLE``.

    Parameters
    ----------
    ends
        All options, those of stage v being ``of[v]``.
    capacity (D + 1,)
        By the numbers of ``Ends.devices``, the last without a limit.
    """
    if not coupled:
        return []
    pairs, core = PairCosts(problem, problem.options.site[ends.option]), kernels()
    plain = [each.edge is None or pairs.by_link(each.edge) for each in coupled]
    quick = iter(()) if core is None else iter(_compiled(core, pairs, ends, of, _where(coupled, plain), capacity))
    slow = _where(coupled, [core is None or not fits for fits in plain])
    clash = iter(_clashes(ends, of, [(each.source, each.target) for each in slow], capacity))
    tables: list[TableLink] = []
    for each, fits in zip(coupled, plain, strict=True):
        if fits and core is not None:
            tables.append(next(quick))
            continue
        source, target = (ends.option[of[v]] for v in (each.source, each.target))
        if each.edge is None:
            time = cost = np.zeros((len(source), len(target)), dtype=np.int64)
        else:
            time, cost = pairs.ticks(each.edge, source, target)
        if time is cost and problem.has_path_limits:
            cost = cost.copy()
        cost[next(clash)] = UNREACHABLE
        tables.append(TableLink(cost, time if problem.has_path_limits else None))
    return tables


def _where(coupled: Sequence[Coupling], chosen: Sequence[bool]) -> list[Coupling]:
    return [each for each, take in zip(coupled, chosen, strict=True) if take]


def _compiled(
    core: SimpleNamespace,
    pairs: PairCosts,
    ends: Ends,
    of: Sequence[slice],
    coupled: Sequence[Coupling],
    capacity: Ints,
) -> list[TableLink]:
    if not coupled:
        return []
    spans = [
        (-1 if each.edge is None else each.edge, of[each.source].start, of[each.source].stop,
         of[each.target].start, of[each.target].stop)
        for each in coupled
    ]  # fmt: skip
    shapes = [(b - a, d - c) for _, a, b, c, d in spans]
    stops = np.cumsum([a * b for a, b in shapes]).tolist()
    timed = pairs.problem.has_path_limits
    time = pairs.time if timed else np.zeros((0, 0), dtype=np.int64)
    out = np.empty(stops[-1], dtype=np.int64)
    out_time = np.empty(stops[-1] if timed else 0, dtype=np.int64)
    numbers = pairs.numbers
    core.fill_tables(
        np.array(spans), pairs.problem.options.site[ends.option], (numbers.group, numbers.own),
        (numbers.first, numbers.kind), len(numbers.widths), pairs.cost, time, np.ascontiguousarray(ends.devices.T),
        (ends.least + ends.weight, ends.weight, ends.key, capacity), out, out_time,
    )  # fmt: skip
    parts = [slice(stop - a * b, stop) for stop, (a, b) in zip(stops, shapes, strict=True)]
    return [
        TableLink(out[part].reshape(shape), out_time[part].reshape(shape) if timed else None)
        for part, shape in zip(parts, shapes, strict=True)
    ]


def _clashes(
    ends: Ends, of: Sequence[slice], coupled: Sequence[tuple[int, int]], capacity: Ints
) -> list[tuple[Ints, Ints]]:
    """Per pair of stages the options, by their places within the stages, that do not fit on a device together."""
    if not coupled:
        return []
    stride, none = len(capacity), len(capacity) - 1
    # One look for all couplings: a device of each is a number of its own.
    sides = [[np.arange(of[v].start, of[v].stop) for v in side] for side in zip(*coupled, strict=True)]
    keys, options = [], []
    for side in sides:
        option = np.concatenate(side)
        number = np.repeat(np.arange(len(coupled)), [len(part) for part in side])
        devices = ends.devices[:, option]
        keys.append(np.where(devices < none, number * stride + devices, len(coupled) * stride))
        options.append(option)
    near, far, device = sharing(keys[0], keys[1], len(coupled) * stride)
    number, device = np.divmod(device, stride)
    a, b = options[0][near], options[1][far]
    need = (ends.least + ends.weight)[a] + (ends.least + ends.weight)[b]
    shared = ends.key[a] == ends.key[b]
    if shared.any():
        need -= np.where(shared & (ends.key[a] >= 0), ends.weight[b], 0)
    clash = np.flatnonzero(need > capacity[device])
    clash = clash[np.argsort(number[clash], kind="stable")]
    starts = np.array([part.start for part in of])
    source, target = np.array(coupled).T
    a, b, number = a[clash], b[clash], number[clash]
    a, b = a - starts[source[number]], b - starts[target[number]]
    stops = np.searchsorted(number, np.arange(len(coupled) + 1)).tolist()
    return [(a[i:j], b[i:j]) for i, j in pairwise(stops)]
