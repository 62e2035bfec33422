"""The link of a coupling: what a pair of options costs, whether it fits on the devices that both use, and its time."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from iegopt.problem.arrays import NO_LIMIT, Problem
from iegopt.problem.topology import Topology
from iegopt.problem.transfer import cost_ticks, time_ticks
from iegopt.solvers.exact.couplings import Coupling, broken_pairs, broken_per_level
from iegopt.solvers.exact.links import LevelLink, Link, TableLink
from iegopt.solvers.exact.messages import UNREACHABLE
from iegopt.solvers.exact.pair_costs import PairCosts
from iegopt.solvers.exact.site_tree import SiteTree

__all__ = ["Ends", "coupled_link", "follows_tree", "tree_shaped"]

Ints = npt.NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Ends:
    """Options of one end: their numbers in the problem, tree positions, sites among those in use, devices, memory.

    ``most`` is what an option takes where it brings its shared weights, ``least`` where they are there already.
    """

    option: Ints
    position: Ints
    site: Ints
    devices: Ints
    least: Ints
    weight: Ints
    key: Ints

    @classmethod
    def of(cls, problem: Problem, option: Ints, position: Ints, site: Ints, devices: Ints) -> Ends:
        options = problem.options
        key = options.weight_key[option]
        weight = np.where(key >= 0, options.weight_share[option], 0)
        return cls(option, position, site, devices, options.share[option], weight, key)


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
    tree: SiteTree | None,
    topology: Topology,
    source: Ends,
    target: Ends,
    tightest: Ints,
    pairs: PairCosts,
) -> Link | None:
    """The link between options of a coupling's stages; ``None`` where no pair costs or takes anything.

    Parameters
    ----------
    topology, tree
        Of the sites in use; no tree where measured pairs take its place.
    tightest
        Memory of the least device of every such site.
    pairs
        Costs of pairs of options on these sites.
    """
    edge, timed = coupling.edge, problem.has_path_limits
    if edge is not None and problem.edges.weight[edge] == 0 and not timed and not coupling.rules:
        return None
    if tree is not None and tree_shaped(topology) and follows_tree(problem, coupling):
        apart = np.zeros(tree.S, dtype=np.bool_)
        apart[tree.position] = _together(tree.S, source, target)[tree.position] > tightest
        return _level_link(problem, coupling, tree, topology, source, target, apart)
    shape = len(source.option), len(target.option)
    time, cost = np.zeros(shape, dtype=np.int64), np.zeros(shape, dtype=np.int64)
    if edge is not None:
        time, cost = pairs.ticks(edge, source.option, target.option, (source.site, target.site))
    site = problem.options.site
    for rule, ticks in coupling.rules:
        cost = cost + np.where(broken_pairs(problem, rule, site[source.option], site[target.option]), ticks, 0)
    equal = (source.key[:, None] == target.key[None, :]) & (source.key >= 0)[:, None]
    need = (source.least + source.weight)[:, None] + (target.least + target.weight)[None, :]
    need = need - np.where(equal, target.weight[None, :], 0)
    clash = need > pairs.common(source.site, target.site)
    return TableLink(np.where(clash, UNREACHABLE, np.minimum(cost, UNREACHABLE)), time if timed else None)


def _level_link(
    problem: Problem,
    coupling: Coupling,
    tree: SiteTree,
    topology: Topology,
    source: Ends,
    target: Ends,
    apart: npt.NDArray[np.bool_],
) -> LevelLink:
    costs: list[Ints] = [np.zeros(len(level.latency), dtype=np.int64) for level in tree.levels]
    times = costs
    home = 0
    if coupling.edge is not None:
        size = problem.edges.bytes[coupling.edge]
        seconds = [level.latency + size * level.seconds_per_byte for level in tree.levels]
        costs = [cost_ticks(problem, coupling.edge, each) for each in seconds]
        times = [time_ticks(each) for each in seconds]
    for rule, ticks in coupling.rules:
        broken, at_home = broken_per_level(topology, tree, rule)
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
