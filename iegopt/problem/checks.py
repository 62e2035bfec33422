"""Whether the arrays of a problem say anything: compiled loops follow their indices, and add their values, unseen."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from iegopt.errors import InputError
from iegopt.problem.arrays import MOST_TICKS, Problem
from iegopt.problem.topology import Topology

__all__ = ["check_arrays"]

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]


def check_arrays(problem: Problem, *, values: bool = True) -> None:
    """Refuse a problem with an index that points to nothing, a value that is none, or an order that is none.

    A problem is looked at once. Arrays that were made read-only since it was built are copied: compiled loops take no
    other.

    Parameters
    ----------
    values
        Whether to look at what every option costs and takes, too: of fifty thousand, a tenth of a millisecond.

    Raises
    ------
    InputError
        Naming the array, the place in it, its value, and what was expected.
    """
    known = vars(problem)
    if known.get("_indices_checked") and (known.get("_values_checked") or not values):
        return
    if not problem.V:
        raise InputError("Problem.stages: none, expected one or more")
    for part in (problem.topology, problem.options, problem.edges, problem):
        own = vars(part)
        if any(type(own[name]) is np.ndarray and not own[name].flags.carray for name in type(part).__match_args__):
            part.__post_init__()
    _check_topology(problem.topology)
    _check_indices(problem)
    _check_order(problem)
    _check_rules(problem)
    known["_indices_checked"] = True
    if values:
        _check_values(problem)
        known["_values_checked"] = True


def _check_topology(topology: Topology) -> None:
    if vars(topology).get("_checked"):
        return
    _ascending("Topology.device_ptr", topology.device_ptr, 1)
    _below("Topology.device_index", topology.device_index, topology.D, "a device")
    if topology.group.min(initial=-1) < -1:
        level, site = np.argwhere(topology.group < -1)[0].tolist()
        value = topology.group[level, site]
        raise InputError(f"Topology.group[{level}, {site}]: {value}, expected a group from 0, or -1 for none")
    for name, links in zip(("latency", "seconds_per_byte"), topology.all_links, strict=True):
        if not _are_amounts(links):
            for level, own in enumerate(getattr(topology, name)):
                _amounts(f"Topology.{name}[{level}]", own)
    for name in ("pair_latency", "pair_seconds_per_byte"):
        if getattr(topology, name) is not None:
            _amounts(f"Topology.{name}", getattr(topology, name))
    vars(topology)["_checked"] = True


def _check_indices(problem: Problem) -> None:
    options, edges = problem.options, problem.edges
    _ascending("Options.ptr", options.ptr, 0)
    _below("Options.site", options.site, problem.topology.S, "a site")
    _below("Options.variant", options.variant, len(problem.variants), "a variant")
    for name in ("source", "target"):
        _below(f"Edges.{name}", getattr(edges, name), problem.V, "a stage")
    for name in ("bytes", "weight", "chunk"):
        _amounts(f"Edges.{name}", getattr(edges, name))


def _check_values(problem: Problem) -> None:
    options = problem.options
    if len(options.cost) and max(int(options.cost.max()), -int(options.cost.min())) > MOST_TICKS:
        at = int(np.flatnonzero((options.cost > MOST_TICKS) | (options.cost < -MOST_TICKS))[0])
        raise InputError(f"Options.cost[{at}]: {options.cost[at]}, expected at most {MOST_TICKS} ticks either way")
    for name in ("time", "share", "weight_share", "kv_share"):
        if getattr(options, name) is not None:
            _below(f"Options.{name}", getattr(options, name), MOST_TICKS + 1, "a number")
    for e, hidden in enumerate(problem.edges.hidden):
        if hidden is not None:
            _amounts(f"Edges.hidden[{e}]", hidden)


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


def _check_rules(problem: Problem) -> None:
    V, levels = problem.V, len(problem.topology.group)
    ties = [(f"affinities[{n}].stages", rule.stages) for n, rule in enumerate(problem.affinities)]
    for name, stages in (*ties, ("budget_stages", problem.budget_stages)):
        if min(stages, default=0) < 0 or max(stages, default=0) >= V:
            raise InputError(f"Problem.{name}: {stages!r:.80}, expected stages from 0 to {V - 1}")
    for n, rule in enumerate(problem.affinities):
        if not -1 <= rule.level < levels:
            expected = f"expected -1 for the site itself, or a level from 0 to {levels - 1}"
            raise InputError(f"Problem.affinities[{n}].level: {rule.level}, {expected}")
    if not 0.0 <= problem.makespan_weight < np.inf:
        raise InputError(f"Problem.makespan_weight: {problem.makespan_weight}, expected 0 or more, and finite")
    if problem.memory_scale < 1:
        raise InputError(f"Problem.memory_scale: {problem.memory_scale}, expected 1 or more")


def _below(name: str, index: Ints, count: int, what: str) -> None:
    """As unsigned numbers, negative ones are the largest: one look at each suffices."""
    if len(index) and index.view(np.uint64).max() >= count:
        at = int(((index < 0) | (index >= count)).argmax())
        raise InputError(f"{name}[{at}]: {index[at]}, expected {what} from 0 to {count - 1}")


def _ascending(name: str, ptr: Ints, least: int) -> None:
    if ptr[0] != 0:
        raise InputError(f"{name}[0]: {ptr[0]}, expected 0")
    _below(name, ptr, int(ptr[-1]) + 1, "a number")  # steps between those do not overflow
    steps = np.diff(ptr)
    if len(steps) and steps.min() < least:
        at = int((steps < least).argmax())
        raise InputError(f"{name}[{at + 1}]: {ptr[at + 1]}, expected {ptr[at] + least} or more, after {ptr[at]}")


def _are_amounts(values: Floats) -> bool:
    """Not negative, and finite."""
    return not values.size or bool(values.min() >= 0.0 and values.max() < np.inf)


def _amounts(name: str, values: Floats) -> None:
    if not _are_amounts(values):
        at = tuple(np.argwhere(~((values >= 0.0) & (values < np.inf)))[0].tolist())
        raise InputError(f"{name}{[*at]}: {values[at]}, expected 0 or more, and finite")
