"""The generated families: sizes, shapes, memory regimes, determinism."""

from __future__ import annotations

import networkx as nx
import numpy as np
import pytest

from iegopt.errors import InputError
from iegopt.problem.arrays import NO_LIMIT, Problem
from iegopt.problem.families import FAMILIES, Memory, generate
from iegopt.problem.instance import from_problem, parse_instance


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("memory", ["slack", "tight", "part_full"])
@pytest.mark.parametrize(("stages", "sites"), [(1, 1), (2, 1), (12, 5), (20, 64)])
def test_every_family_is_well_formed(family: str, memory: Memory, stages: int, sites: int) -> None:
    problem = generate(family, stages, sites, memory, 1)  # type: ignore[arg-type]
    assert stages == problem.V
    assert sites == problem.topology.S
    parse_instance(from_problem(problem).document)
    assert all(problem.allowed[problem.options.of(v)].any() for v in range(stages))


def graph(problem: Problem) -> nx.DiGraph[int]:
    return nx.DiGraph(list(zip(problem.edges.source.tolist(), problem.edges.target.tolist(), strict=True)))


def test_shapes() -> None:
    assert nx.is_path(graph(generate("chain", 9, 8)), list(range(9)))
    agent: nx.Graph[int] = nx.Graph(graph(generate("agent", 30, 8)))
    assert nx.approximation.treewidth_min_degree(agent)[0] == 2
    assert nx.is_weakly_connected(graph(generate("fanout", 30, 8)))
    layered = generate("layered", 400, 2)
    assert 1.6 < layered.E / layered.V < 2.0


def test_a_seed_fixes_everything() -> None:
    first, again, other = (from_problem(generate("layered", 8, 16, "tight", s)).document for s in (5, 5, 6))
    assert first == again
    assert first["stages"] != other["stages"]


def test_tight_means_a_tenth_of_slack() -> None:
    problem = generate("chain", 64, 32, "tight", 0)
    need = problem.options.share[problem.options.ptr[:-1]].sum()
    assert problem.capacity.sum() / need == pytest.approx(1.1, rel=1e-6)


def test_slack_never_binds() -> None:
    problem = generate("chain", 64, 32, "slack", 0)
    assert problem.options.share[problem.options.ptr[:-1]].sum() <= problem.capacity.min()


def test_part_full_shuts_a_third_of_the_sites_to_the_largest_stage() -> None:
    problem = generate("chain", 16, 300, "part_full", 0)
    assert np.mean(problem.topology.tightest(problem.capacity) < problem.options.share.max()) == pytest.approx(1 / 3)


def test_part_full_is_the_everyday_case() -> None:
    for seed in range(20):
        problem = generate("joins", 20, 700, "part_full", seed, gangs=True)
        need = (problem.options.share * problem.topology.width[problem.options.site]).max()
        assert 0.05 < np.mean((problem.capacity >= need) & (problem.capacity < 2 * need)) < 0.35
        assert 1 <= sum(degree > 1 for _, degree in graph(problem).in_degree()) <= 2
        assert len(problem.affinities) == 1
    limited = generate("chain", 600, 20, "part_full", 0).sla < NO_LIMIT
    assert 0.25 < limited.mean() < 0.42
    rules = [generate("joins", 20, 70, "part_full", seed).affinities[0] for seed in range(20)]
    assert {rule.required for rule in rules} == {True, False}
    assert all(rule.penalty > 0 for rule in rules if not rule.required)


def test_some_stages_have_an_sla_that_cuts() -> None:
    problem = generate("chain", 200, 20, "slack", 0)
    limited = problem.sla < NO_LIMIT
    assert 0.1 < limited.mean() < 0.2
    assert not problem.allowed.reshape(200, 20)[limited].all(axis=1).any()


def test_gangs_lie_inside_a_domain() -> None:
    problem = generate("agent", 5, 70, "tight", 0, gangs=True)
    topology = problem.topology
    assert (topology.S, topology.D, problem.memory_scale) == (70, 40, 4)
    assert sorted(set(topology.width.tolist())) == [1, 2, 4]
    for s in range(topology.S):
        assert set(topology.devices_of(s) // 4) == {topology.group[0, s]}


def test_unknown_words_are_refused() -> None:
    with pytest.raises(InputError, match="family 'ring'"):
        generate("ring", 3, 3)  # type: ignore[arg-type]
    with pytest.raises(InputError, match="at least"):
        generate("chain", 0, 3)


def test_more_options_than_memory_holds_are_refused() -> None:
    with pytest.raises(InputError, match="10,000,000,000 options: at most 5,000,000"):
        generate("chain", 100_000, 100_000)
