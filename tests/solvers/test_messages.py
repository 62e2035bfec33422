"""Messages on the tree are bit-equal to the dense product built from ``edge_ticks``."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from iegopt.problem.arrays import Problem
from iegopt.problem.families import generate
from iegopt.problem.topology import Topology
from iegopt.problem.transfer import edge_ticks
from iegopt.solvers.exact.messages import UNREACHABLE, Messages
from iegopt.solvers.exact.tree_index import tree_index
from tests.solvers.random_problems import random_problem


def with_shards(problem: Problem) -> Problem:
    return dataclasses.replace(problem, topology=dataclasses.replace(problem.topology, parallel_shards=True))


def with_overlap(problem: Problem, seed: int) -> Problem:
    rng = np.random.default_rng(seed)
    count = np.diff(problem.options.ptr)
    hidden = tuple(rng.uniform(0, 0.3, count[u]) if rng.random() < 0.8 else None for u in problem.edges.source)
    chunk = np.array([0.0 if h is None else rng.choice([0.0, 1e6]) for h in hidden])
    return dataclasses.replace(problem, edges=dataclasses.replace(problem.edges, hidden=hidden, chunk=chunk))


def assert_as_dense(problem: Problem, seed: int) -> None:
    rng = np.random.default_rng(seed)
    messages = Messages(problem)
    for e in range(problem.E):
        u, v = int(problem.edges.source[e]), int(problem.edges.target[e])
        ends = [np.arange(problem.options.ptr[w], problem.options.ptr[w + 1]) for w in (u, v)]
        time, cost = edge_ticks(problem, e, ends[0][:, None], ends[1][None, :])
        for forward, table in ((True, cost), (False, cost.T)):
            here, there = ends if forward else ends[::-1]
            theta = rng.integers(0, 10**9, len(here))
            theta[rng.random(len(here)) < 0.2] = UNREACHABLE
            theta[rng.integers(len(here))] = 7
            expected = (table + theta[:, None]).min(axis=0)
            assert messages.send(e, theta, forward).tolist() == expected.tolist()
            for i, option in enumerate(there.tolist()):
                assert messages.row(e, option, not forward).tolist() == table[:, i].tolist()
                best = messages.best(e, option, not forward, theta)
                assert theta[best] + table[best, i] == expected[i]
        for i, option in enumerate(ends[0].tolist()):
            assert messages.row(e, option, True, time=True).tolist() == time[i].tolist()


@pytest.mark.parametrize("links", ["tree", "odd", "pairs"])
@pytest.mark.parametrize("seed", range(25))
def test_equals_dense_product(links: str, seed: int) -> None:
    problem = random_problem(seed, links=links, gangs=seed % 3 > 0)
    assert_as_dense(problem, seed)
    assert_as_dense(with_overlap(problem, seed), seed)
    if links != "pairs":
        assert_as_dense(with_shards(problem), seed)
        assert_as_dense(with_overlap(with_shards(problem), seed), seed)


@pytest.mark.parametrize("gangs", [False, True])
def test_equals_dense_product_on_regular_and_gang_clusters(gangs: bool) -> None:
    assert_as_dense(generate("chain", 3, 257 if gangs else 300, gangs=gangs), 0)


def test_site_order_does_not_matter() -> None:
    problem = generate("chain", 3, 96)
    rng = np.random.default_rng(0)
    order = rng.permutation(96)
    options = dataclasses.replace(problem.options, site=np.argsort(order)[problem.options.site])
    old = problem.topology
    topology = dataclasses.replace(
        old,
        sites=tuple(old.sites[i] for i in order),
        device_index=old.device_index[order],
        group=old.group[:, order],
    )
    assert_as_dense(dataclasses.replace(problem, options=options, topology=topology), 0)


def test_index_is_kept_with_its_topology() -> None:
    topology = generate("chain", 2, 64).topology
    assert tree_index(topology) is tree_index(topology)
    # 64 sites: a domain of 4, host of 8, rack of 32; one datacenter, so the WAN joins nothing new.
    assert [len(level.start) for level in tree_index(topology).levels] == [16, 8, 2, 1]


def test_groups_that_do_not_nest_are_refused() -> None:
    flat = np.zeros(4, dtype=np.int64)
    one = tuple(np.array([value] * 2) for value in (1.0, 1.0, 1.0, 1.0))
    topology = Topology(
        sites=("a", "b", "c", "d"),
        devices=("a", "b", "c", "d"),
        device_ptr=np.arange(5),
        device_index=np.arange(4),
        group=np.array([[0, 1, 0, 1], [0, 0, 1, 1], flat, flat]),
        latency=(*one, np.ones(1)),
        seconds_per_byte=(*one, np.ones(1)),
    )
    with pytest.raises(ValueError, match="not inside one group"):
        tree_index(topology)
