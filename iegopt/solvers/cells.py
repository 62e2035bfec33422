"""What two sites need to have in common to meet at a level."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from iegopt.problem.arrays import Problem
from iegopt.problem.topology import Topology

__all__ = ["cell_of", "cells"]


def cell_of(problem: Problem, level: int) -> npt.NDArray[np.int64]:
    """The ``cells`` of a problem's sites."""
    return cells(problem.topology, level)


def cells(topology: Topology, level: int) -> npt.NDArray[np.int64]:
    """(S,) labels, equal for sites that meet at a level (−1: the site itself).

    The label is the group; a site without one meets nobody but itself and bears −1 − its index.
    """
    own = -1 - np.arange(topology.S)
    if level < 0:
        return own
    group = topology.group[level]
    return np.where(group >= 0, group, own)
