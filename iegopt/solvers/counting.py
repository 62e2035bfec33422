"""Proofs by counting that no plan fits: what the stages need at least, against what the devices hold.

Two necessary conditions, both in exact integers and over the allowed options, shared weights left out:

- total memory: Σ over the stages of the least that they take ≤ Σ over the devices of what these hold;
- slots: where every option of a stage takes more than 1/(k + 1) of each of its devices, no device holds more than k
  stages of this sort, so that they take k places a device at most (Martello and Toth 1990, for k = 1).
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from iegopt.problem.arrays import Problem
from iegopt.problem.segments import per_stage

__all__ = ["COUNTING_PROOF", "overfull"]

Ints = npt.NDArray[np.int64]

COUNTING_PROOF = "counting memory"

_MANY = int(np.iinfo(np.int64).max)
_MOST_SLOTS = 8
"""Stages on a device at most that slots are counted for."""


def overfull(problem: Problem) -> str | None:
    """The proof that memory does not suffice for any plan, in words, or ``None`` where these two tell nothing.

    Every stage has an allowed option. Nothing is told under ``peak_memory``, where stages follow each other in memory.
    """
    if problem.peak_memory or not problem.V:
        return None
    options, topology, allowed = problem.options, problem.topology, problem.allowed
    width = topology.width[options.site]
    least = per_stage(np.minimum, np.where(allowed, options.share * width, _MANY), options.ptr, 0)
    devices = _devices(problem, options.site[allowed])
    needed, held = sum(least.tolist()), sum(problem.capacity[devices].tolist())
    scale = problem.memory_scale
    if needed > held:
        return f"the stages need {needed / scale:.6g} B at least, and the devices hold {held / scale:.6g} B in all"
    roomiest = np.maximum.reduceat(problem.capacity[topology.device_index], topology.device_ptr[:-1])[options.site]
    beside = np.where(options.share > 0, roomiest // np.maximum(options.share, 1), _MANY)
    slots = per_stage(np.maximum, np.where(allowed, beside, 0), options.ptr, 0)
    narrowest = per_stage(np.minimum, np.where(allowed, width, _MANY), options.ptr, 0)
    for k in [k for k in np.unique(slots).tolist() if 0 < k <= _MOST_SLOTS]:
        alike = slots <= k
        places = k * len(_devices(problem, options.site[allowed & alike[options.stage]]))
        wanted = int(narrowest[alike].sum())
        if wanted > places:
            each = f"{int(alike.sum())} stages take more than 1/{k + 1} of every device they can be on"
            return f"{each}: {wanted} places are needed, and there are {places}"
    return None


def _devices(problem: Problem, sites: Ints) -> Ints:
    """The devices under some of the sites, ascending."""
    topology = problem.topology
    used = np.zeros(topology.S, dtype=np.bool_)
    used[sites] = True
    return np.unique(topology.device_index[np.repeat(used, topology.width)])
