"""The link of a coupling: what a pair of options costs, whether it fits on the devices that both use, and its time."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import numpy.typing as npt

from iegopt.problem.arrays import NO_LIMIT, Problem
from iegopt.problem.topology import Topology
from iegopt.problem.transfer import cost_ticks, time_ticks
from iegopt.solvers.exact.couplings import Coupling, broken_pairs, broken_per_level
from iegopt.solvers.exact.links import LevelLink, Link, TableLink
from iegopt.solvers.exact.messages import UNREACHABLE
from iegopt.solvers.exact.pair_costs import PairCosts, sharing
from iegopt.solvers.exact.site_tree import SiteTree

__all__ = ["Ends", "TreePart", "clashes", "coupled_link", "follows_tree", "tree_shaped"]

Ints = npt.NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Ends:
    """Options, maybe those of one end: their numbers in the problem, tree positions, devices, memory.

    ``least`` is what an option takes where its shared weights are there already, ``weight`` what these take.
    """

    option: Ints
    position: Ints
    devices: Ints
    least: Ints
    weight: Ints
    key: Ints

    @classmethod
    def of(cls, problem: Problem, option: Ints, position: Ints, devices: Ints) -> Ends:
        options = problem.options
        key = options.weight_key[option]
        weight = np.where(key >= 0, options.weight_share[option], 0)
        return cls(option, position, devices, options.share[option], weight, key)

    def part(self, of: slice) -> Ends:
        return Ends(
            self.option[of], self.position[of], self.devices[:, of], self.least[of], self.weight[of], self.key[of]
        )


@dataclass(frozen=True, eq=False)
class TreePart:
    """The topology of the sites in use, its tree, and per site the memory of the least of its devices."""

    topology: Topology
    tree: SiteTree
    tightest: Ints


def tree_shaped(topology: Topology) -> bool:
    """Whether links depend on the group where two sites meet alone: no measured pairs, no gangs that move in shards."""
    shards = topology.parallel_shards and bool((topology.width > 1).any())
    return topology.pair_latency is None and not shards


def follows_tree(problem: Problem, coupling: Coupling) -> bool:
    """Whether a coupling costs by its link alone, in a topology that is ``tree_shaped``."""
    return coupling.edge is None or problem.edges.hidden[coupling.edge] is None


def coupled_link(
    problem: Problem,
    coupling: Coupling,
    part: TreePart | None,
    source: Ends,
    target: Ends,
    clash: tuple[Ints, Ints] | None,
    pairs: PairCosts,
) -> Link | None:
    """The link between options of a coupling's stages; ``None`` where no pair costs or takes anything.

    Parameters
    ----------
    part
        The tree of the sites in use, where links may follow one.
    clash
        Places in ``source`` and in ``target`` of the pairs that do not fit together (``clashes``), where it is tabled.
    """
    edge, timed = coupling.edge, problem.has_path_limits
    if edge is not None and problem.edges.weight[edge] == 0 and not timed and not coupling.rules:
        return None
    if part is not None and follows_tree(problem, coupling):
        apart = np.zeros(part.tree.S, dtype=np.bool_)
        apart[part.tree.position] = _together(part.tree.S, source, target)[part.tree.position] > part.tightest
        return _level_link(problem, coupling, part, source, target, apart)
    if edge is None:
        cost = np.zeros((len(source.option), len(target.option)), dtype=np.int64)
        time = cost.copy()
    else:
        time, cost = pairs.ticks(edge, source.option, target.option)
    site = problem.options.site
    for rule, ticks in coupling.rules:
        broken = broken_pairs(problem, rule, site[source.option], site[target.option])
        cost = np.minimum(cost + np.where(broken, ticks, 0), UNREACHABLE)
    if clash is not None:
        cost[clash] = UNREACHABLE
    return TableLink(cost, time if timed else None)


def clashes(
    ends: Ends, of: Sequence[slice], coupled: Sequence[tuple[int, int]], capacity: Ints
) -> list[tuple[Ints, Ints]]:
    """Per pair of stages the options, by their places within the stages, that do not fit on a device together.

    Parameters
    ----------
    ends
        All options, those of stage v being ``of[v]``.
    coupled
        Pairs of stages.
    capacity (D + 1,)
        By the numbers of ``Ends.devices``, the last without a limit.
    """
    stride, none = len(capacity), len(capacity) - 1
    # One look for all couplings: a device of each is a number of its own.
    sides = [[np.arange(of[v].start, of[v].stop) for v in side] for side in zip(*coupled, strict=True)]
    if not coupled:
        return []
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


def _level_link(
    problem: Problem,
    coupling: Coupling,
    part: TreePart,
    source: Ends,
    target: Ends,
    apart: npt.NDArray[np.bool_],
) -> LevelLink:
    tree = part.tree
    costs: list[Ints] = [np.zeros(len(level.latency), dtype=np.int64) for level in tree.levels]
    times = costs
    home = 0
    if coupling.edge is not None:
        size = problem.edges.bytes[coupling.edge]
        seconds = [level.latency + size * level.seconds_per_byte for level in tree.levels]
        costs = [cost_ticks(problem, coupling.edge, each) for each in seconds]
        times = [time_ticks(each) for each in seconds]
    for rule, ticks in coupling.rules:
        broken, at_home = broken_per_level(part.topology, tree, rule)
        costs = [np.minimum(cost + ticks * b, UNREACHABLE) for cost, b in zip(costs, broken, strict=True)]
        home = min(home + ticks * at_home, UNREACHABLE)
    levels = tuple(times) if problem.has_path_limits else None
    return LevelLink(tree, tuple(costs), source.position, target.position, apart, levels, home)


def _together(sites: int, source: Ends, target: Ends) -> Ints:
    """(S,) by position the least memory that options of both ends take on one site, 0 where an end has none.

    Shared weights are counted once, on the side where that is more.
    """
    least = [_least(sites, end.position, end.least) for end in (source, target)]
    most = [_least(sites, end.position, end.least + end.weight) for end in (source, target)]
    return np.asarray(np.maximum(most[0] + least[1], least[0] + most[1]))


def _least(sites: int, position: Ints, share: Ints) -> Ints:
    """(S,) the least share of an option on every position, 0 where there is none."""
    least = np.full(sites, NO_LIMIT)
    np.minimum.at(least, position, share)
    return np.where(least < NO_LIMIT, least, 0)
