"""One request as it is carried out: its graph as far as it has grown, its plan, its stages, what it holds."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from iegopt.control.kv_book import KvBook
from iegopt.control.recovery import Recovery
from iegopt.control.stage_run import Note, PlannedStage, StageRun
from iegopt.control.states import State
from iegopt.graph.templates import GrowthTemplate
from iegopt.spec.graph import EdgeSpec, GraphSpec
from iegopt.spec.request import RequestSpec
from iegopt.spec.stage import StageKind, StageSpec

__all__ = ["Ending", "Links", "RequestRun"]


@dataclass(frozen=True)
class Ending:
    """Why a request ends before its graph does. ``status`` of ``answer.STATUSES``; ``limit`` of its constraints."""

    status: str
    reason: str
    limit: str | None


@dataclass(frozen=True)
class Links:
    """The edges of a graph by their ends."""

    into: dict[str, tuple[EdgeSpec, ...]]
    out_of: dict[str, tuple[EdgeSpec, ...]]

    @classmethod
    def of(cls, graph: GraphSpec) -> Links:
        into: dict[str, list[EdgeSpec]] = {stage.id: [] for stage in graph.stages}
        out_of: dict[str, list[EdgeSpec]] = {stage.id: [] for stage in graph.stages}
        for edge in graph.edges:
            into[edge.target].append(edge)
            out_of[edge.source].append(edge)
        return cls({k: tuple(v) for k, v in into.items()}, {k: tuple(v) for k, v in out_of.items()})


@dataclass
class RequestRun:
    """A request between its submission and the client's acknowledgement.

    Attributes
    ----------
    number
        Of its arrival: earlier ones go first among equals.
    graph
        Without rounds that are only planned ahead.
    lookahead
        Rounds that are planned ahead.
    generation, planned, planning, replan
        Plans asked for so far; the one in force; the one that is being made; why another is wanted.
    asked_on
        The devices, with their roles, that the present plan was asked for.
    unplanned_since
        Since when the planner has none.
    avoid
        Devices not to be used for it, and why.
    rounds
        Rounds that its graph has grown.
    tokens, prefilled, reused
        Tokens used of its budget (prompt, results, generated); forwarded in prefills; taken from caches instead.
    held
        Its stages that a worker has.
    watched
        How many stages at work its limit of compute time was last watched for.
    touched
        Workers that hold something of it.
    """

    id: str
    number: int
    priority: int
    request: RequestSpec
    inputs: dict[str, Any]
    submitted: float
    graph: GraphSpec
    template: GrowthTemplate | None
    lookahead: int
    links: Links = field(init=False)
    specs: dict[str, StageSpec] = field(init=False)
    stages: dict[str, StageRun] = field(default_factory=dict)
    admitted: bool = False
    plan: dict[str, PlannedStage] = field(default_factory=dict)
    transfers: tuple[dict[str, Any], ...] = ()
    generation: int = 0
    planned: int = 0
    planning: int | None = None
    replan: str | None = None
    asked_on: dict[str, list[str]] = field(default_factory=dict)
    unplanned_since: float | None = None
    avoid: dict[str, str] = field(default_factory=dict)
    rounds: int = 0
    preemptions: int = 0
    prefilled: int = 0
    reused: int = 0
    tokens: int = 0
    kv: KvBook = field(default_factory=KvBook)
    recoveries: list[Recovery] = field(default_factory=list)
    ending: Ending | None = None
    answer: dict[str, Any] | None = None
    held: dict[str, None] = field(default_factory=dict)
    watched: int = 0
    touched: dict[str, None] = field(default_factory=dict)
    history: list[Note] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.take_graph(self.graph)

    @property
    def over(self) -> bool:
        return self.answer is not None

    def live(self) -> Iterator[StageRun]:
        """Stages that a worker has."""
        return (stage for stage in map(self.stages.__getitem__, self.held) if stage.live)

    def take_graph(self, graph: GraphSpec) -> list[StageRun]:
        """Let the graph be this one, which has grown or been counted anew; new stages come in INIT."""
        self.graph, self.links, self.specs = graph, Links.of(graph), {stage.id: stage for stage in graph.stages}
        new = [StageRun(spec.id, spec.type) for spec in graph.stages if spec.id not in self.stages]
        self.stages |= {stage.id: stage for stage in new}
        return new

    def spec(self, stage: str) -> StageSpec:
        """What the graph says of a stage."""
        return self.specs[stage]

    def is_ready(self, stage: StageRun) -> bool:
        """Whether all before a stage has completed."""
        return all(self.stages[edge.source].state is State.COMPLETED for edge in self.links.into[stage.id])

    def following(self, stage: str) -> list[StageRun]:
        """The stages right after this one."""
        return [self.stages[edge.target] for edge in self.links.out_of[stage]]

    def kv_source(self, stage: str) -> StageRun | None:
        """The stage whose KV cache this one continues."""
        return next((self.stages[edge.source] for edge in self.links.into[stage] if edge.kv), None)

    def kv_targets(self, stage: str) -> list[StageRun]:
        """The stages that continue the KV cache of this one."""
        return [self.stages[edge.target] for edge in self.links.out_of[stage] if edge.kv]

    def decodes(self) -> list[StageRun]:
        """In the order of the graph."""
        return [stage for stage in self.stages.values() if stage.kind is StageKind.DECODE]

    def compute_time(self, at: float) -> float:
        """Seconds that its stages ran, in sum."""
        return sum(stage.run_time(at) for stage in self.stages.values())

    def note(self, at: float, text: str) -> None:
        self.history.append(Note(at, text))
