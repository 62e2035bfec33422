"""Whether the indices of a problem point to anything: compiled loops follow them without a look."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from iegopt.errors import InputError
from iegopt.problem.arrays import Problem
from iegopt.problem.topology import Topology

__all__ = ["check_indices"]

Ints = npt.NDArray[np.int64]


def check_indices(problem: Problem) -> None:
    """Refuse a problem with an index that points to nothing, or whose order is none; looked at once.

    Arrays that were made read-only since the problem was built are copied: compiled loops take no other.

    Raises
    ------
    InputError
        Naming the array, the place in it, its value, and what was expected.
    """
    if vars(problem).get("_indices_checked"):
        return
    topology, options, edges, V = problem.topology, problem.options, problem.edges, problem.V
    for part in (topology, options, edges, problem):
        own = vars(part)
        if any(type(own[name]) is np.ndarray and not own[name].flags.carray for name in type(part).__match_args__):
            part.__post_init__()
    _check_topology(topology)
    _ascending("Options.ptr", options.ptr, 0)
    _below("Options.site", options.site, topology.S, "a site")
    _below("Options.variant", options.variant, len(problem.variants), "a variant")
    for name, ends in (("source", edges.source), ("target", edges.target)):
        _below(f"Edges.{name}", ends, V, "a stage")
    _check_order(problem)
    for n, rule in enumerate(problem.affinities):
        if min(rule.stages, default=0) < 0 or max(rule.stages, default=0) >= V:
            raise InputError(f"Problem.affinities[{n}].stages: {rule.stages}, expected stages from 0 to {V - 1}")
        if not -1 <= rule.level < len(topology.group):
            expected = f"expected -1 for the site itself, or a level from 0 to {len(topology.group) - 1}"
            raise InputError(f"Problem.affinities[{n}].level: {rule.level}, {expected}")
    budget = problem.budget_stages
    if min(budget, default=0) < 0 or max(budget, default=0) >= V:
        raise InputError(f"Problem.budget_stages: {budget!r:.80}, expected stages from 0 to {V - 1}")
    vars(problem)["_indices_checked"] = True


def _check_topology(topology: Topology) -> None:
    if vars(topology).get("_indices_checked"):
        return
    _ascending("Topology.device_ptr", topology.device_ptr, 1)
    _below("Topology.device_index", topology.device_index, topology.D, "a device")
    if topology.group.min(initial=-1) < -1:
        level, site = np.argwhere(topology.group < -1)[0].tolist()
        value = topology.group[level, site]
        raise InputError(f"Topology.group[{level}, {site}]: {value}, expected a group from 0, or -1 for none")
    vars(topology)["_indices_checked"] = True


def _below(name: str, index: Ints, count: int, what: str) -> None:
    """As unsigned numbers, negative ones are the largest: one look at each suffices."""
    if len(index) and index.view(np.uint64).max() >= count:
        at = int(((index < 0) | (index >= count)).argmax())
        raise InputError(f"{name}[{at}]: {index[at]}, expected {what} from 0 to {count - 1}")


def _ascending(name: str, ptr: Ints, least: int) -> None:
    if ptr[0] != 0:
        raise InputError(f"{name}[0]: {ptr[0]}, expected 0")
    steps = np.diff(ptr)
    if len(steps) and steps.min() < least:
        at = int((steps < least).argmax())
        raise InputError(f"{name}[{at + 1}]: {ptr[at + 1]}, expected {ptr[at] + least} or more, after {ptr[at]}")


def _check_order(problem: Problem) -> None:
    order, V, edges = problem.order.tolist(), problem.V, problem.edges
    at = [-1] * V
    for n, v in enumerate(order):
        if not 0 <= v < V or at[v] >= 0:
            raise InputError(f"Problem.order[{n}]: {v}, expected every stage from 0 to {V - 1} once")
        at[v] = n
    for e, (u, v) in enumerate(zip(edges.source.tolist(), edges.target.tolist(), strict=True)):
        if at[u] >= at[v]:
            raise InputError(f"Problem.order: expected stage {u} before stage {v}, as edge {e} leads")
