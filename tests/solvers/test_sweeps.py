"""Messages in the order of a reduction are exact, cycles and all; dominated partial plans are dropped, no others."""

from __future__ import annotations

import networkx as nx
import numpy as np
import pytest

from iegopt.solvers.exact.candidates import Candidates, candidates
from iegopt.solvers.exact.dominance import undominated
from iegopt.solvers.exact.messages import UNREACHABLE
from iegopt.solvers.exact.reduction import Reduction, reduction
from iegopt.solvers.exact.relaxation import Forest
from iegopt.solvers.exact.sweeps import beliefs, choose, pass_up
from tests.solvers.random_problems import random_problem


def spanning(stages: int, ends: tuple[tuple[int, int], ...]) -> Forest:
    """A forest of the first edges that close no cycle, by breadth first."""
    graph = nx.Graph()
    graph.add_nodes_from(range(stages))
    tree, dropped = nx.Graph(), []
    tree.add_nodes_from(range(stages))
    for e, (u, v) in enumerate(ends):
        if nx.has_path(tree, u, v):
            dropped.append(e)
        else:
            tree.add_edge(u, v, number=e)
    order, parent, edge = [], [-1] * stages, [-1] * stages
    for part in sorted(nx.connected_components(tree), key=min):
        root = min(part)
        order.append(root)
        for u, v in nx.bfs_edges(tree, root):
            order.append(v)
            parent[v], edge[v] = u, tree.edges[u, v]["number"]
    return Forest(tuple(order), tuple(parent), tuple(edge), tuple(dropped))


def treewidth_is_two(stages: int, ends: tuple[tuple[int, int], ...]) -> bool:
    """Whether stages with two neighbours at most, which are joined then, can be taken one after another to the last."""
    graph = nx.Graph(ends)
    graph.add_nodes_from(range(stages))
    while graph:
        light = [v for v in graph if graph.degree(v) <= 2]
        if not light:
            return False
        near = list(graph[light[0]])
        graph.remove_node(light[0])
        if len(near) == 2:
            graph.add_edge(*near)
    return True


@pytest.mark.parametrize("first", range(0, 200, 50))
def test_a_reduction_takes_every_edge_of_a_graph_of_treewidth_two(first: int) -> None:
    kinds = set()
    for seed in range(first, first + 50):
        rng = np.random.default_rng(seed)
        stages = int(rng.integers(2, 9))
        pairs = [(u, v) for u in range(stages) for v in range(u)]
        ends = tuple(pairs[i] for i in rng.permutation(len(pairs))[: int(rng.integers(1, 2 * stages))])
        forest = spanning(stages, ends)
        order = reduction(forest, ends, rng.integers(1, 9, stages).tolist())
        whole = treewidth_is_two(stages, ends)
        kinds.add((whole, bool(forest.dropped)))
        assert order.dropped == (() if whole else forest.dropped)
        known = sorted(e for own in order.between.values() for e in own)
        assert known == sorted(set(range(len(ends))) - set(order.dropped))
        check_order(order, ends)
    assert len(kinds) == 3


def check_order(order: Reduction, ends: tuple[tuple[int, int], ...]) -> None:
    """Parents come first, two of them are parent and child of one another, and edges lead to parents."""
    place = {v: i for i, v in enumerate(order.order)}
    assert sorted(place) == list(range(len(order.parents)))
    for v, parents in enumerate(order.parents):
        assert [place[p] for p in parents] == sorted(place[p] for p in parents)
        assert all(place[p] < place[v] for p in parents)
        if len(parents) == 2:
            assert parents[0] in order.parents[parents[1]]
    for (p, v), own in order.between.items():
        assert all(set(ends[e]) == {p, v} for e in own)


def test_tables_that_are_too_large_leave_the_edges_to_be_split() -> None:
    ends = ((0, 1), (1, 2), (0, 2))
    forest = spanning(3, ends)
    assert reduction(forest, ends, [50, 50, 50]).dropped == ()
    assert reduction(forest, ends, [100, 100, 100]).dropped == (2,)


def every_plan(c: Candidates) -> np.ndarray:
    return np.stack(np.meshgrid(*[np.arange(p.start, p.stop) for p in c.of], indexing="ij"), -1).reshape(-1, c.V)


@pytest.mark.parametrize("first", range(0, 160, 40))
def test_messages_are_exact_over_cycles(first: int) -> None:
    tested = 0
    for seed in range(first, first + 40):
        problem = random_problem(seed, stages=5, shape="dag", combinations=3_000)
        if not problem.allowed.any() or any(rule.penalty < 0 for rule in problem.affinities):
            continue
        c = candidates(problem, problem.allowed)
        if min(p.stop - p.start for p in c.of) == 0 or c.reduction.dropped or not c.reduction.pairs:
            continue
        nodes = 3 if seed % 2 else 6
        rng = np.random.default_rng(seed)
        theta = c.cost[:, None] + rng.integers(0, int(c.cost.max()) + 2, (len(c.option), nodes))
        theta[rng.random(theta.shape) < 0.1] = UNREACHABLE
        plans = every_plan(c)
        costs = np.minimum(c.cost_of(plans) - c.cost[plans].sum(axis=1), UNREACHABLE)
        rate = rng.random((len(c.links), nodes)) * problem.has_path_limits
        links = tuple(link and link.at(own) for link, own in zip(c.links, rate, strict=True))
        passed = pass_up(c, links, theta)
        least, chosen = choose(passed)
        marginals = beliefs(passed)
        for node in range(nodes):
            total = np.minimum(costs, UNREACHABLE // 8)
            for e, (u, v) in enumerate(c.ends):
                link = links[e]
                if link is not None and link is not c.links[e]:
                    u_, v_ = plans[:, u] - c.of[u].start, plans[:, v] - c.of[v].start
                    paid, plain = link.of_node(node).pairs(u_, v_), link.pairs(u_, v_)
                    total = total + np.minimum(paid, UNREACHABLE // 8) - np.minimum(plain, UNREACHABLE // 8)
            total = total + np.minimum(theta[plans, node], UNREACHABLE // 8).sum(axis=1)
            if total.min() >= UNREACHABLE // 16:
                assert least[node] >= UNREACHABLE // 2, seed
                continue
            assert least[node] == total.min(), seed
            own = chosen[:, node] + [p.start for p in c.of]
            assert total[(plans == own).all(axis=1)] == total.min(), seed
            for option in range(len(c.option)):
                true = total[(plans == option).any(axis=1)].min()
                assert marginals[option, node] == true or min(marginals[option, node], true) >= UNREACHABLE // 16, seed
            tested += 1
    assert tested > 20


@pytest.mark.parametrize("seed", range(30))
@pytest.mark.parametrize("plans", [1, 40, 600, 2_500])
def test_what_is_dropped_is_dominated(seed: int, plans: int) -> None:
    rng = np.random.default_rng(seed)
    ahead = rng.integers(0, 3, (plans, int(rng.integers(0, 3))))
    free, spent = rng.integers(0, 4, (plans, int(rng.integers(0, 5)))), rng.integers(0, 6, plans)
    kept, group, first = undominated(ahead, free, spent)
    assert len(set(kept.tolist())) == len(kept) == len(group)
    assert np.array_equal(first, np.flatnonzero(np.diff(group, prepend=-1)))
    assert np.array_equal(ahead[kept], ahead[kept][first][group])
    assert len(np.unique(ahead[kept][first], axis=0)) == len(first) == len(np.unique(ahead, axis=0))
    for i in range(plans):
        better = (ahead[kept] == ahead[i]).all(axis=1) & (spent[kept] <= spent[i]) & (free[kept] >= free[i]).all(axis=1)
        assert better.any(), i
    assert plans == 1 or len(kept) < plans
