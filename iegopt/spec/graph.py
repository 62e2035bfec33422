"""IEG = (V, E, σ, δ): the inference execution graph (section 2.1 of the source)."""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING, Literal, Self

from pydantic import Field, model_validator

from iegopt.spec.base import Identifier, Name, Spec
from iegopt.spec.figures import Figures, Wiring, figures_of
from iegopt.spec.quantities import Bytes, Seconds
from iegopt.spec.stage import StageSpec

if TYPE_CHECKING:
    import networkx as nx

__all__ = ["AffinityRule", "EdgeKind", "EdgeSpec", "GraphSpec"]


_SHOWN_CYCLE = 8


class EdgeKind(StrEnum):
    DATA = "data"
    CONTROL = "control"


class EdgeSpec(Spec):
    """A dependency. ``bytes`` is δ(e), 0 on a control edge; ``kv`` marks a KV cache, which may be
    compressed and streamed on its way."""

    source: Identifier = Field(alias="from")
    target: Identifier = Field(alias="to")
    kind: EdgeKind = EdgeKind.DATA
    bytes: Bytes = 0
    kv: bool = False

    @model_validator(mode="after")
    def _control_is_empty(self) -> Self:
        if self.kind is EdgeKind.CONTROL and self.bytes:
            raise ValueError(f"control edge {self.source} -> {self.target} bears {self.bytes} bytes: expected 0")
        if self.source == self.target:
            raise ValueError(f"edge from {self.source} to itself")
        return self


class AffinityRule(Spec):
    """Stages that share a group of a level, or (``apart``) must not. Preferred ones cost ``penalty`` seconds."""

    stages: tuple[Identifier, ...] = Field(min_length=2)
    level: Literal["site", "domain", "host", "rack", "datacenter"]
    apart: bool = False
    required: bool = True
    penalty: Seconds = 0.0

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        if len(set(self.stages)) != len(self.stages):
            raise ValueError("a stage stands twice in an affinity")
        if self.required and self.penalty:
            raise ValueError("a required affinity has no penalty: expected required: false")
        return self


_Sorted = tuple[tuple[int, ...], list[list[int]], list[tuple[int, int]]]
"""Order of the stages, their successors, and both ends of every edge."""


class GraphSpec(Spec):
    """A DAG of stages. Cycles, dangling ends and duplicate ids are refused."""

    name: Name = "graph"
    stages: tuple[StageSpec, ...] = Field(min_length=1)
    edges: tuple[EdgeSpec, ...] = ()
    affinity: tuple[AffinityRule, ...] = ()

    @model_validator(mode="after")
    def _well_formed(self) -> Self:
        ids = [stage.id for stage in self.stages]
        known: set[str] = set()
        for name in ids:
            if name in known:
                raise ValueError(f"stage id {name} stands twice")
            known.add(name)
        pairs: set[tuple[str, str]] = set()
        for number, edge in enumerate(self.edges):
            for end in (edge.source, edge.target):
                if end not in known:
                    raise ValueError(f"edges.{number}: no stage is called {end}")
            if (edge.source, edge.target) in pairs:
                raise ValueError(f"edges.{number}: a second edge from {edge.source} to {edge.target}")
            pairs.add((edge.source, edge.target))
        for number, rule in enumerate(self.affinity):
            for end in rule.stages:
                if end not in known:
                    raise ValueError(f"affinity.{number}: no stage is called {end}")
        self.topological_order()
        return self

    def topological_order(self) -> tuple[int, ...]:
        """Indices of the stages, predecessors first, ties in file order; found when the graph is read.

        Raises
        ------
        ValueError
            Naming the stages of a cycle.
        """
        return self._sorted()[0]

    def successors(self) -> list[list[int]]:
        """Per stage the stages that its edges lead to, in the order of the edges; the same object each time."""
        return self._sorted()[1]

    def ends(self) -> list[tuple[int, int]]:
        """Per edge the stages that it leads from and to; the same object each time."""
        return self._sorted()[2]

    def figures(self) -> Figures:
        """What the stages ask for, found when a request that gives the graph is read; the same object each time."""
        known: tuple[tuple[StageSpec, ...], Figures] | None = self.__dict__.get("_figures")
        if known is None or known[0] is not self.stages:
            known = self.__dict__["_figures"] = self.stages, figures_of(self.stages)
        return known[1]

    def wiring(self) -> Wiring:
        """The edges along the order of the stages, found with ``figures``; the same object each time."""
        known: tuple[_Sorted, Wiring] | None = self.__dict__.get("_wiring")
        found = self._sorted()
        if known is None or known[0] is not found:
            order, _, ends = found
            sizes = [float(edge.bytes) for edge in self.edges]
            known = self.__dict__["_wiring"] = found, Wiring.of(order, ends, sizes)
        return known[1]

    def _sorted(self) -> _Sorted:
        """What is kept for these stages and edges: a copy with others sorts them anew."""
        known: tuple[tuple[StageSpec, ...], tuple[EdgeSpec, ...], _Sorted] | None = self.__dict__.get("_order")
        if known is None or known[0] is not self.stages or known[1] is not self.edges:
            known = self.__dict__["_order"] = self.stages, self.edges, self._sort()
        return known[2]

    def _sort(self) -> _Sorted:
        index = {stage.id: i for i, stage in enumerate(self.stages)}
        ends = [(index[edge.source], index[edge.target]) for edge in self.edges]
        successors: list[list[int]] = [[] for _ in self.stages]
        waiting = [0] * len(self.stages)
        for u, v in ends:
            successors[u].append(v)
            waiting[v] += 1
        ready = [i for i, n in enumerate(waiting) if n == 0]
        order: list[int] = []
        for i in ready:
            order.append(i)
            for j in successors[i]:
                waiting[j] -= 1
                if waiting[j] == 0:
                    ready.append(j)
        if len(order) < len(self.stages):
            names = self._a_cycle()
            if len(names) > _SHOWN_CYCLE:
                names[_SHOWN_CYCLE - 2 : -2] = [f"({len(names) - _SHOWN_CYCLE} more)"]
            raise ValueError("cycle: " + " -> ".join(names))
        return tuple(order), successors, ends

    def to_networkx(self) -> nx.DiGraph[str]:
        """The graph for networkx: stage ids as nodes with their ``spec``, edges with their ``bytes``."""
        import networkx as nx  # some 100 ms, which planning does without

        graph: nx.DiGraph[str] = nx.DiGraph(name=self.name)
        graph.add_nodes_from((stage.id, {"spec": stage}) for stage in self.stages)
        graph.add_edges_from((edge.source, edge.target, {"bytes": edge.bytes}) for edge in self.edges)
        return graph

    def _a_cycle(self) -> list[str]:
        """Stages of one cycle, the first repeated at the end."""
        import networkx as nx

        cycle = [source for source, _ in nx.find_cycle(self.to_networkx())]
        return [*cycle, cycle[0]]
