"""The graph as such: order, cycles, and the way to networkx."""

from __future__ import annotations

import networkx as nx
import pytest
from pydantic import ValidationError

from iegopt.spec.graph import GraphSpec


def _graph(*edges: tuple[str, str]) -> GraphSpec:
    stages = sorted({end for edge in edges for end in edge})
    return GraphSpec.model_validate(
        {
            "stages": [{"id": stage, "type": "tool"} for stage in stages],
            "edges": [{"from": a, "to": b, "bytes": 7} for a, b in edges],
        }
    )


def test_topological_order_puts_predecessors_first() -> None:
    spec = _graph(("d", "a"), ("a", "b"), ("d", "c"), ("c", "b"))
    order = [spec.stages[v].id for v in spec.topological_order()]
    assert order == ["d", "a", "c", "b"]


def test_a_cycle_is_named_stage_by_stage() -> None:
    with pytest.raises(ValidationError, match="cycle: b -> c -> d -> b"):
        _graph(("a", "b"), ("b", "c"), ("c", "d"), ("d", "b"), ("d", "e"))


def test_networkx_gets_stages_and_bytes() -> None:
    graph = _graph(("a", "b"), ("b", "c")).to_networkx()
    assert nx.dag_longest_path(graph) == ["a", "b", "c"]
    assert graph.edges["a", "b"]["bytes"] == 7
    assert graph.nodes["a"]["spec"].type == "tool"


def test_an_agent_without_tools_plans_no_rounds() -> None:
    from iegopt.spec.request import AgentConfig

    with pytest.raises(ValidationError, match="lookahead 3, but a round needs tools or a retrieval"):
        AgentConfig(lookahead=3)
    assert AgentConfig().lookahead == 1
