"""Random task graphs and networks from the generators of anrg-saga, as problems of ours.

Their sets draw in-trees and out-trees of 2 to 4 levels with 2 or 3 branches, and 2 to 5 parallel chains of 2 to 5
tasks; weights of tasks, dependencies, nodes and links are normal of mean 1 and deviation 1/3, cut off at 0 and 2
(Coleman, Krishnamachari, PISA, 2024). A task of weight c takes c/speed seconds on a node, data of weight d takes
d/strength seconds over a link and none within a node; one task at a time on a node; the makespan counts.

``constant``: the weights that release 2.0.2 draws by default, where both cut-offs stand the wrong way round: all 2.
"""

from __future__ import annotations

import logging
import random
from collections.abc import Callable
from typing import Any

import numpy as np

from iegopt.bench.public.stg import task_graph
from iegopt.problem.arrays import Problem
from iegopt.problem.transfer import time_ticks
from iegopt.spec.suite import SagaGraph, SagaWeights

__all__ = ["random_task_graph"]

_LEAST, _MOST = 0.01, 2.0
"""Nodes and links of weight 0 would take for ever; everything else is as in the generators."""


def random_task_graph(graph: SagaGraph, weights: SagaWeights, nodes: int, seed: int) -> Problem:
    """A random instance; the same arguments give the same one. Needs the package anrg-saga."""
    from saga.schedulers.data.random import gen_in_trees, gen_out_trees, gen_parallel_chains, gen_random_networks

    quiet = logging.getLogger().level
    logging.getLogger().setLevel(logging.ERROR)  # it warns of every graph with several sources
    before = random.getstate()
    random.seed(f"{graph} {weights} {nodes} {seed}")
    draw: Callable[..., float] | None = None if weights == "constant" else _clipped
    try:
        if graph == "chains":
            made = gen_parallel_chains(1, random.randint(2, 5), random.randint(2, 5), draw, draw)[0]
        else:
            trees = gen_in_trees if graph == "in-trees" else gen_out_trees
            made = trees(1, random.randint(2, 4), random.randint(2, 3), draw, draw)[0]
        network = gen_random_networks(1, nodes, draw, draw)[0]
    finally:
        random.setstate(before)
        logging.getLogger().setLevel(quiet)
    return _problem(f"saga-{graph}-{weights}-n{nodes}-s{seed}", made, network)


def _clipped(*_: object) -> float:
    return min(max(random.gauss(1, 1 / 3), _LEAST), _MOST)


def _problem(name: str, made: Any, network: Any) -> Problem:
    tasks = [task.name for task in made.topological_sort()]
    nodes = sorted(network.nodes)
    weight = {task.name: float(task.cost) for task in made.tasks}
    seconds = np.array([weight[task] for task in tasks])[:, None] / np.array([float(node.speed) for node in nodes])
    place = {task: v for v, task in enumerate(tasks)}
    index = {node.name: s for s, node in enumerate(nodes)}
    rate = np.zeros((len(nodes), len(nodes)))
    for link in network.edges:
        a, b = index[link.source], index[link.target]
        if a != b:
            rate[a, b] = rate[b, a] = 1 / float(link.speed)
    inputs: list[list[tuple[int, float]]] = [[] for _ in tasks]
    for dependency in made.dependencies:
        inputs[place[dependency.target]].append((place[dependency.source], float(dependency.size)))
    inputs = [sorted(own) for own in inputs]
    predecessors = [[u for u, _ in own] for own in inputs]
    sizes = [[size for _, size in own] for own in inputs]
    return task_graph(name, time_ticks(seconds), predecessors, len(nodes), sizes, rate)
