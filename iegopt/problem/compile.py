"""Compile a graph on a cluster into a ``Problem``: the user's words become arrays.

A stage bound to a KV location gets a companion stage ``kv:<stage>`` that can only stand on that
device, costs nothing, and has a data edge to it: data affinity is an edge from that place.
"""

from __future__ import annotations

import math
import time
from dataclasses import dataclass
from typing import overload

import numpy as np
import numpy.typing as npt

from iegopt.cost.weights import CostWeights, weights_for
from iegopt.errors import InputError
from iegopt.problem.arrays import NO_LIMIT, Affinity, Problem
from iegopt.problem.cluster import CompiledCluster
from iegopt.problem.columns import option_columns
from iegopt.problem.compile_edges import EdgeBuilder, buffers, handed_on, location_bytes, wire_bytes
from iegopt.problem.limits import Limits, request_limits, ticks, without_slack_limits
from iegopt.problem.opened import opened_options
from iegopt.problem.preference import asked_precision, preference_for, stage_preference
from iegopt.problem.sites import SiteTable
from iegopt.problem.stage_options import SiteFigures, StageOptions
from iegopt.problem.tiers import Preferred
from iegopt.problem.topology import LEVEL_NAMES
from iegopt.spec.graph import GraphSpec
from iegopt.spec.kinds import LLM_KINDS
from iegopt.spec.policy import KvTransferConfig
from iegopt.spec.request import MemoryAccounting, RequestSpec
from iegopt.spec.stage import AT_LEAST_16_BIT, SIXTEEN_BIT, Precision, StageSpec

__all__ = ["Compiled", "affinities_of", "can_focus", "compile_graph", "degrees_of", "precisions_of"]

Ints = npt.NDArray[np.int64]

_OPTION_NEEDS, _DEVICE_NEEDS = 1.5e-8, 2e-5
"""Seconds that the arrays take for an option, and a table of sites for a device and gang size, as measured on one core
of a server."""


@dataclass(frozen=True, eq=False)
class Compiled:
    """A problem and what it takes to say its answer in the user's words.

    Attributes
    ----------
    stages
        Options of every stage of the graph, before tiers; companions of KV locations come after them.
    kept
        Per stage, which of its options the problem has (indices into ``StageOptions``).
    penalty
        Per stage, seconds added to each option for missing a preferred device.
    tier
        Name of the fallback tier that is open, ``None`` without a preference.
    """

    problem: Problem
    graph: GraphSpec
    request: RequestSpec
    cluster: CompiledCluster
    table: SiteTable
    stages: tuple[StageOptions, ...]
    kept: tuple[Ints, ...]
    penalty: tuple[npt.NDArray[np.float64], ...]
    weights: CostWeights
    limits: Limits
    kv: KvTransferConfig | None
    tier: str | None
    preference: Preferred | None

    @property
    def tiers(self) -> tuple[str, ...]:
        """Names of the tiers that can be opened one after the other; empty without a preference."""
        return self.preference.names if self.preference else ()


@overload
def compile_graph(
    cluster: CompiledCluster, graph: GraphSpec, request: RequestSpec, *, tier: int | None = None
) -> Compiled: ...
@overload
def compile_graph(
    cluster: CompiledCluster,
    graph: GraphSpec,
    request: RequestSpec,
    *,
    tier: int | None = None,
    focus: bool = False,
    until: float | None = None,
) -> Compiled | None: ...
def compile_graph(
    cluster: CompiledCluster, graph: GraphSpec, request: RequestSpec, *, tier: int | None = None, focus: bool = False,
    until: float | None = None,
) -> Compiled | None:  # fmt: skip
    """Compile.

    Parameters
    ----------
    tier
        The lowest fallback tier that is open; ``None``: all of them.
    focus
        Over the cluster's promising sites only, where that is possible (``can_focus``).
    until
        ``time.perf_counter()`` by which to be done; where that is too early, the result is ``None``. What was worked
        out by then is kept for the next time.

    Raises
    ------
    InputError
        Naming the stage and the field: unknown model, device or precision, KV location without bytes.
    """
    kv = request.kv_transfer_config or cluster.spec.kv_transfer_config
    degrees = [degrees_of(stage, cluster) for stage in graph.stages]
    table = _table(cluster, {k for ks in degrees for k in ks}, focus, until)
    if table is None:
        return None
    figures = SiteFigures(
        load=cluster.state.site_load(table.topology),
        price=cluster.state.site_price(table.topology),
        reference_price=cluster.reference_price,
    )
    preference = preference_for(request, cluster)
    preferences = [stage_preference(preference, stage, request) for stage in graph.stages]
    by_id = {stage.id: stage for stage in graph.stages}
    sizes = [wire_bytes(edge, by_id[edge.source], kv) for edge in graph.edges]
    held = buffers(graph, sizes, kv)
    weights = weights_for(request.sla_class, request.weights, request.objective)
    stages: list[StageOptions] = []
    for stage, ks, buffer, own in zip(graph.stages, degrees, held, preferences, strict=True):
        layout = cluster.layout(stage, precisions_of(stage, request, preference), table, ks, own)
        stages.append(StageOptions.of(layout, figures, buffer))
        if until is not None and time.perf_counter() > until:
            return None
    if until is not None and time.perf_counter() + _OPTION_NEEDS * sum(len(options.site) for options in stages) > until:
        return None
    opened = [
        opened_options(stage, options, tier, own, cluster, table)
        for stage, options, own in zip(graph.stages, stages, preferences, strict=True)
    ]
    kept, penalty = [keep for keep, _ in opened], [extra for _, extra in opened]
    limits = request_limits(graph, request)
    problem = _problem(
        cluster, graph, request, table, figures, stages, kept, penalty, weights, limits, kv, sizes
    )  # fmt: skip
    name = None if preference is None else preference.names[len(preference.names) - 1 if tier is None else tier]
    return Compiled(
        problem, graph, request, cluster, table, tuple(stages), tuple(kept), tuple(penalty), weights, limits, kv,
        name, preference,
    )  # fmt: skip


def _table(cluster: CompiledCluster, sizes: set[int], focus: bool, until: float | None) -> SiteTable | None:
    """The sites for these gang sizes: built where there is time, else of a table at hand, else ``None``."""
    if focus:
        return cluster.focus(sizes)
    needs = 0.0 if until is None else _DEVICE_NEEDS * len(cluster.devices) * len(sizes)
    if until is None or time.perf_counter() + needs < until:
        return cluster.sites(sizes)
    return cluster.sites_at_hand(sizes) if time.perf_counter() < until else None


def can_focus(graph: GraphSpec, request: RequestSpec, cluster: CompiledCluster) -> bool:
    """Whether a plan over the promising sites means the same: nothing binds a stage to a device or prefers one."""
    return preference_for(request, cluster) is None and not graph.figures().bound


def degrees_of(stage: StageSpec, cluster: CompiledCluster) -> tuple[int, ...]:
    """Gang sizes to try: the stage's own, else every deployed one for LLM stages, else single devices."""
    if stage.parallelism is not None:
        return (stage.parallelism.degree,)
    if stage.model is not None and stage.type in LLM_KINDS:
        return (1, *cluster.gang_sizes)
    return (1,)


def precisions_of(stage: StageSpec, request: RequestSpec, preference: Preferred | None) -> frozenset[Precision] | None:
    """Precisions a stage may run in; ``None``: any.

    An LLM stage runs in the requested precision, else in the model's native one. The 16-bit ones stand for each
    other where none is requested or a fallback policy has steps; lower ones open only where it degrades.
    Encoders run in any precision of 16 bits or more, whose embeddings agree but for rounding.
    """
    asked = asked_precision(stage, request)
    if asked is None:
        return AT_LEAST_16_BIT if stage.model is not None else None
    wanted = frozenset({asked})
    native = stage.compute.precision is None and request.precision is None
    if asked in SIXTEEN_BIT and (native or (preference is not None and preference.policy.preferences)):
        wanted = SIXTEEN_BIT
    if preference is not None and preference.degrades:
        most = max(p.bytes for p in wanted)
        return wanted | {p for p in Precision if p.bytes < most}
    return wanted


def _problem(
    cluster: CompiledCluster,
    graph: GraphSpec,
    request: RequestSpec,
    table: SiteTable,
    figures: SiteFigures,
    stages: list[StageOptions],
    kept: list[Ints],
    penalty: list[npt.NDArray[np.float64]],
    weights: CostWeights,
    limits: Limits,
    kv: KvTransferConfig | None,
    sizes: list[float],
) -> Problem:
    scale = math.lcm(*(size for _, size, _ in table.kinds))
    edges = EdgeBuilder(graph, weights.lambda_)
    for edge, size in zip(graph.edges, sizes, strict=True):
        edges.add(edge, size, kv, stages, kept)
    names = [stage.id for stage in graph.stages]
    located: list[int] = []
    for v, stage in enumerate(graph.stages):
        if stage.affinity.kv_cache_location is not None:
            if f"kv:{stage.id}" in names:
                raise InputError(f"stage kv:{stage.id}: the name stands for the KV location of {stage.id}: rename it")
            located.append(_location(stage, cluster))
            edges.add_location(len(names), v, location_bytes(stage, kv))
            names.append(f"kv:{stage.id}")
    peak = request.memory_accounting is MemoryAccounting.PEAK
    options, variants = option_columns(stages, kept, penalty, located, table, figures, weights, scale, peak)
    companions = list(range(len(graph.stages), len(names)))
    problem = Problem(
        name=f"{request.id}@{cluster.spec.name}",
        stages=tuple(names),
        variants=variants,
        topology=table.topology,
        options=options,
        edges=edges.build(table.topology.slowest, handed_on(graph) if peak else None),
        affinities=affinities_of(graph),
        capacity=cluster.state.free * scale,
        memory_scale=scale,
        sla=np.array([ticks(stage.latency_sla) for stage in graph.stages] + [NO_LIMIT] * len(companions)),
        finish_by=np.array([ticks(limits.finish_by.get(name)) for name in names]),
        deadline=ticks(limits.deadline),
        budget=ticks(limits.budget),
        budget_stages=tuple(v for v, stage in enumerate(graph.stages) if stage.id in limits.budget_stages),
        order=np.array([*companions, *graph.topological_order()], dtype=np.int64),
        makespan_weight=weights.makespan,
        no_overlap=request.no_overlap,
        peak_memory=peak,
    )
    return without_slack_limits(problem)


def _location(stage: StageSpec, cluster: CompiledCluster) -> int:
    """The site of a KV location: its device alone."""
    place = stage.affinity.kv_cache_location
    assert place is not None
    if place not in cluster.state.index:
        raise InputError(
            f"stage {stage.id}: affinity.kv_cache_location: no device of cluster {cluster.spec.name} is called {place}"
        )
    return cluster.state.index[place]


def affinities_of(graph: GraphSpec) -> tuple[Affinity, ...]:
    """The affinities of a graph, its stages by their number."""
    index = {stage.id: v for v, stage in enumerate(graph.stages)}
    return tuple(
        Affinity(
            stages=tuple(index[name] for name in rule.stages),
            level=-1 if rule.level == "site" else LEVEL_NAMES.index(rule.level),
            apart=rule.apart,
            required=rule.required,
            penalty=ticks(rule.penalty),
        )
        for rule in graph.affinity
    )
