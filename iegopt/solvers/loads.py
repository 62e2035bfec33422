"""The memory rows of a problem, one per device that its stages could overfill (for CP-SAT and MILP)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from iegopt.problem.arrays import Problem

__all__ = ["DeviceLoad", "device_loads", "latest_finish", "shared_weights"]

Ints = npt.NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class DeviceLoad:
    """Σ share·x + Σ key_share·W ≤ capacity on one device, divided by the row's greatest common divisor.

    ``options`` and ``keys`` are option indices and keys of shared weights; ``share`` and ``key_share`` their memory.
    """

    device: int
    options: Ints
    share: Ints
    keys: Ints
    key_share: Ints
    capacity: int


def device_loads(problem: Problem, options: Sequence[Ints], every: bool = False) -> list[DeviceLoad]:
    """Rows of the devices that the given options (one array per stage) could overfill; ``every``: of all devices."""
    own, topology = problem.options, problem.topology
    chosen = np.concatenate([np.asarray(part, dtype=np.int64) for part in options])
    width = topology.width[own.site[chosen]]
    option = np.repeat(chosen, width)
    step = np.arange(len(option)) - np.repeat(np.cumsum(width) - width, width)
    device = topology.device_index[np.repeat(topology.device_ptr[own.site[chosen]], width) + step]
    memory = own.share[option] + np.where(own.weight_key[option] >= 0, own.weight_share[option], 0)
    most = np.zeros((problem.V, topology.D), dtype=np.int64)
    np.maximum.at(most, (own.stage[option], device), memory)
    binding = np.ones(topology.D, dtype=np.bool_) if every else most.sum(axis=0) > problem.capacity
    order = np.argsort(device, kind="stable")
    parts = np.split(option[order], np.searchsorted(device[order], np.arange(1, topology.D)))
    return [_row(problem, d, parts[d]) for d in np.flatnonzero(binding).tolist()]


def _row(problem: Problem, device: int, options: Ints) -> DeviceLoad:
    own = problem.options
    keyed = options[own.weight_key[options] >= 0]
    keys, first = np.unique(own.weight_key[keyed], return_index=True)
    key_share = own.weight_share[keyed[first]]
    some, heavy = own.share[options] != 0, key_share != 0
    options, keys, key_share = options[some], keys[heavy], key_share[heavy]
    share = own.share[options]
    divisor = max(1, int(np.gcd.reduce(np.concatenate([share, key_share]), initial=0)))
    capacity = int(problem.capacity[device]) // divisor
    return DeviceLoad(device, options, share // divisor, keys, key_share // divisor, capacity)


def shared_weights(problem: Problem, options: Sequence[Ints]) -> dict[int, Ints]:
    """Per key of shared weights the given options that use it."""
    chosen = np.concatenate([np.asarray(part, dtype=np.int64) for part in options])
    key = problem.options.weight_key[chosen]
    return {int(k): chosen[key == k] for k in np.unique(key[key >= 0])}


def latest_finish(problem: Problem) -> Ints:
    """(V,) ticks by which a stage has to finish: its own limit, or that of a stage that waits for it."""
    latest: Ints = np.minimum(problem.finish_by, problem.deadline)
    for v in problem.order[::-1].tolist():
        for w in problem.edges.target[problem.edges.source == v].tolist():
            latest[v] = min(latest[v], latest[w])
    return latest
