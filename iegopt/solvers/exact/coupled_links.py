"""The link of a coupling: what a pair of options costs, whether it fits on the devices that both use, and its time."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from iegopt.problem.arrays import NO_LIMIT, Affinity, Problem
from iegopt.problem.topology import Topology
from iegopt.problem.transfer import cost_ticks, time_ticks
from iegopt.solvers.exact.couplings import Coupling, broken_pairs, broken_per_level
from iegopt.solvers.exact.links import LevelLink, TableLink
from iegopt.solvers.exact.messages import UNREACHABLE
from iegopt.solvers.exact.site_tree import SiteTree

__all__ = ["Ends", "TreePart", "costs_nothing", "follows_tree", "ruled", "tree_link", "tree_shaped"]

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
    known: dict[tuple[int, bool], tuple[list[bool], bool]] = field(default_factory=dict)

    def broken(self, rule: Affinity) -> tuple[list[bool], bool]:
        """``broken_per_level`` of a rule, of which an affinity of hundreds of stages asks for every pair of them."""
        kind = rule.level, rule.apart
        if kind not in self.known:
            self.known[kind] = broken_per_level(self.topology, self.tree, rule)
        return self.known[kind]


def tree_shaped(topology: Topology) -> bool:
    """Whether links depend on the group where two sites meet alone: no measured pairs, no gangs that move in shards."""
    shards = topology.parallel_shards and bool((topology.width > 1).any())
    return topology.pair_latency is None and not shards


def follows_tree(problem: Problem, coupling: Coupling) -> bool:
    """Whether a coupling costs by its link alone, in a topology that is ``tree_shaped``."""
    return coupling.edge is None or problem.edges.hidden[coupling.edge] is None


def costs_nothing(problem: Problem, coupling: Coupling) -> bool:
    """Whether no pair of options costs anything or takes time that counts."""
    edge = coupling.edge
    return edge is not None and problem.edges.weight[edge] == 0 and not problem.has_path_limits and not coupling.rules


def tree_link(problem: Problem, coupling: Coupling, part: TreePart, source: Ends, target: Ends) -> LevelLink:
    """The link between options of the stages of a coupling that follows the tree."""
    apart = np.zeros(part.tree.S, dtype=np.bool_)
    apart[part.tree.position] = _together(part.tree.S, source, target)[part.tree.position] > part.tightest
    return _level_link(problem, coupling, part, source, target, apart)


def ruled(problem: Problem, coupling: Coupling, table: TableLink, source: Ends, target: Ends) -> TableLink:
    """A table with what the rules of a coupling charge on top."""
    cost, site = table.table, problem.options.site
    for rule, ticks in coupling.rules:
        broken = broken_pairs(problem, rule, site[source.option], site[target.option])
        cost = np.minimum(cost + np.where(broken, ticks, 0), UNREACHABLE)
    return TableLink(cost, table.time)


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
        broken, at_home = part.broken(rule)
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
