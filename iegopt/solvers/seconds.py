"""Roughly what steps of a solve take, as measured on one core of a server: a step is begun where its time is left.

Times the pressure of late, and how much slower this processor is (``clock.lag``).
"""

from __future__ import annotations

from iegopt.problem.arrays import Problem
from iegopt.problem.layout import has_layout
from iegopt.solvers.clock import lag
from iegopt.solvers.exact.tree_index import has_tree_index
from iegopt.verify.assignment import quickened

__all__ = ["counting_seconds", "fold_seconds", "relaxation_seconds", "verification_seconds"]

_EDGE, _EDGE_SITE, _OPTION = 3e-5, 2.2e-8, 1e-8
"""Seconds of a message, more per site, and per option of the problem."""
_LAYOUT, _LAYOUT_SITE, _FIRST_LEAST = 3e-4, 8e-7, 8e-4
"""Seconds of laying out a topology for the first time, and more per site; and of that with messages at least."""
_FOLD, _FOLD_OPTION, _PLACES_SITE = 1e-3, 3e-7, 7e-6
"""Seconds of merging interchangeable devices, more per option, and per site whose places were never looked at."""
_COUNT, _COUNT_OPTION = 2e-4, 6e-8
"""Seconds of counting what fits, and more per option."""
_CHECK, _COMPILED_CHECK = (6e-5, 1.5e-6, 1.2e-6), (5e-5, 3e-7, 2e-7)
"""Seconds of the check of an answer, and more for every stage and edge, in Python and by a kernel."""
_MOMENT_CHECK = 6e-6
"""Seconds more for every stage whose memory counts in time."""


def relaxation_seconds(problem: Problem) -> float:
    """Of the relaxation, or of its min-marginals: a message over every edge for every width of gangs."""
    topology = problem.topology
    widths = len(topology.widths | {1}) if topology.parallel_shards else 1
    seconds = widths * problem.E * (_EDGE + _EDGE_SITE * topology.S) + _OPTION * len(problem.options.site)
    if not has_tree_index(topology):
        seconds = max(_FIRST_LEAST, seconds + _LAYOUT + _LAYOUT_SITE * topology.S)
    return lag() * seconds


def fold_seconds(problem: Problem) -> float:
    """Of merging interchangeable devices, before it is known whether there are any."""
    topology = problem.topology
    seconds = _FOLD + _FOLD_OPTION * len(problem.options.site)
    return lag() * (seconds if has_layout(topology) else seconds + _PLACES_SITE * topology.S)


def counting_seconds(problem: Problem) -> float:
    """Of counting whether all stages together can fit."""
    return lag() * (_COUNT + _COUNT_OPTION * len(problem.options.site))


def verification_seconds(problem: Problem) -> float:
    """Of the check of an answer against the arrays."""
    least, stage, edge = _COMPILED_CHECK if quickened(problem) else _CHECK
    seconds = least + stage * problem.V + edge * problem.E
    if problem.peak_memory:
        seconds += _MOMENT_CHECK * problem.V
    return lag() * seconds
