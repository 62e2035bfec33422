"""Compile a graph on a cluster into a ``Problem``: the user's words become arrays.

A stage bound to a KV location gets a companion stage ``kv:<stage>`` that can only stand on that
device, costs nothing, and has a data edge to it: data affinity is an edge from that place.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from iegopt import library
from iegopt.cost.transfer import buffer_bytes, compression_ratio, hidden_seconds
from iegopt.cost.weights import CostWeights, weights_for
from iegopt.errors import InputError
from iegopt.problem.arrays import NO_LIMIT, TICKS_PER_SECOND, Affinity, Edges, Options, Problem
from iegopt.problem.cluster import CompiledCluster
from iegopt.problem.limits import Limits, binding_limits
from iegopt.problem.preference import preference_for, within_latency
from iegopt.problem.sites import SiteTable
from iegopt.problem.stage_options import SiteFigures, StageOptions, stage_options
from iegopt.problem.tiers import Preferred
from iegopt.problem.topology import LEVEL_NAMES
from iegopt.spec.graph import EdgeSpec, GraphSpec
from iegopt.spec.kinds import LLM_KINDS
from iegopt.spec.policy import KvTransferConfig
from iegopt.spec.request import RequestSpec
from iegopt.spec.stage import Precision, StageSpec

__all__ = ["Compiled", "compile_graph"]

Ints = npt.NDArray[np.int64]


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


def compile_graph(
    cluster: CompiledCluster, graph: GraphSpec, request: RequestSpec, *, tier: int | None = None
) -> Compiled:
    """Compile; ``tier`` is the lowest fallback tier that is open (``None``: all of them).

    Raises
    ------
    InputError
        Naming the stage and the field: unknown model, device or precision, KV location without bytes.
    """
    kv = request.kv_transfer_config or cluster.spec.kv_transfer_config
    degrees = [_degrees(stage, cluster) for stage in graph.stages]
    table = cluster.sites({k for ks in degrees for k in ks})
    figures = SiteFigures(
        load=cluster.state.site_load(table.topology),
        price=cluster.state.site_price(table.topology),
        reference_price=cluster.reference_price,
    )
    preference = preference_for(request, cluster)
    sizes = [_wire_bytes(edge, graph, kv) for edge in graph.edges]
    buffers = _buffers(graph, sizes, kv)
    weights = weights_for(request.sla_class, request.weights)
    stages = [
        stage_options(
            stage,
            cluster.registry.candidates(stage, _precisions(stage, request, preference)),
            table,
            figures,
            cluster.cost_model,
            cluster.spec.parallel_efficiency,
            ks,
            preference,
            buffer,
        )
        for stage, ks, buffer in zip(graph.stages, degrees, buffers, strict=True)
    ]
    kept = []
    penalty = []
    for stage, options in zip(graph.stages, stages, strict=True):
        mask = _tier_mask(stage, options, tier, preference, cluster)
        extra = np.zeros(len(options.site))
        if stage.affinity.device is not None:
            there = _on_device(stage.affinity.device, f"stage {stage.id}: affinity.device", options, cluster, table)
            if stage.affinity.required:
                if not there.any():
                    options.refused[f"affinity binds it to {stage.affinity.device}, which cannot run it"] += 1
                mask &= there
            extra = np.where(there, 0.0, stage.affinity.penalty)
        kept.append(np.flatnonzero(mask))
        penalty.append(extra)
    limits = binding_limits(graph, request)
    problem = _problem(
        cluster, graph, request, table, stages, kept, penalty, weights, limits, kv, sizes
    )  # fmt: skip
    name = None if preference is None else preference.names[len(preference.names) - 1 if tier is None else tier]
    return Compiled(
        problem, graph, request, cluster, table, tuple(stages), tuple(kept), tuple(penalty), weights, limits, kv,
        name, preference,
    )  # fmt: skip


def _degrees(stage: StageSpec, cluster: CompiledCluster) -> tuple[int, ...]:
    """Gang sizes to try: the stage's own, else every deployed one for LLM stages, else single devices."""
    if stage.parallelism is not None:
        return (stage.parallelism.degree,)
    if stage.model is not None and stage.type in LLM_KINDS:
        return (1, *cluster.gang_sizes)
    return (1,)


def _precisions(
    stage: StageSpec, request: RequestSpec, preference: Preferred | None
) -> frozenset[Precision] | None:
    """Precisions a stage may run in: the requested one, lower ones too where the policy degrades; ``None``: any."""
    wanted = stage.compute.precision or (request.precision if stage.type in LLM_KINDS else None)
    if wanted is None:
        return None
    if preference is not None and preference.degrades:
        return frozenset(p for p in Precision if p is wanted or p.bytes < wanted.bytes)
    return frozenset({wanted})


def _wire_bytes(edge: EdgeSpec, graph: GraphSpec, kv: KvTransferConfig | None) -> float:
    source = next(stage for stage in graph.stages if stage.id == edge.source)
    precision = library.llm(source.model).kv_precision if source.model else Precision.FP16
    return edge.bytes * compression_ratio(kv, edge.kv, precision)


def _buffers(graph: GraphSpec, sizes: list[float], kv: KvTransferConfig | None) -> list[int]:
    """Bytes of transfer buffers at every stage: both ends of each KV edge hold the chunks in flight."""
    held = dict.fromkeys((stage.id for stage in graph.stages), 0)
    if kv is not None:
        for edge, size in zip(graph.edges, sizes, strict=True):
            if edge.kv:
                held[edge.source] += math.ceil(buffer_bytes(kv, size))
                held[edge.target] += math.ceil(buffer_bytes(kv, size))
    return list(held.values())


def _tier_mask(
    stage: StageSpec, options: StageOptions, tier: int | None, preference: Preferred | None, cluster: CompiledCluster
) -> npt.NDArray[np.bool_]:
    if preference is None or stage.model is None:
        return np.ones(len(options.site), dtype=np.bool_)
    tiers = np.array([block.tier for block in options.blocks], dtype=np.int64)[options.block] if options.blocks else (
        np.empty(0, dtype=np.int64)
    )  # fmt: skip
    opened = tiers <= (len(preference.names) if tier is None else tier)
    return opened & within_latency(stage, options, tiers, preference, cluster)


def _on_device(
    device: str, where: str, options: StageOptions, cluster: CompiledCluster, table: SiteTable
) -> npt.NDArray[np.bool_]:
    """Which options stand on a device, alone or in a gang."""
    if device not in cluster.state.index:
        raise InputError(f"{where}: no device of cluster {cluster.spec.name} is called {device}")
    d = cluster.state.index[device]
    holds = np.logical_or.reduceat(table.topology.device_index == d, table.topology.device_ptr[:-1])
    return np.asarray(holds[options.site])


def _problem(
    cluster: CompiledCluster,
    graph: GraphSpec,
    request: RequestSpec,
    table: SiteTable,
    stages: list[StageOptions],
    kept: list[Ints],
    penalty: list[npt.NDArray[np.float64]],
    weights: CostWeights,
    limits: Limits,
    kv: KvTransferConfig | None,
    sizes: list[float],
) -> Problem:
    scale = math.lcm(*(size for _, size in table.kinds))
    variants: dict[str, int] = {}
    columns = [
        _columns(options, keep, extra, table, weights, scale, variants)
        for options, keep, extra in zip(stages, kept, penalty, strict=True)
    ]
    edges = _Edges(graph, weights.lambda_)
    for number, (edge, size) in enumerate(zip(graph.edges, sizes, strict=True)):
        edges.add(edge, size, kv, stages, kept, number)
    names = [stage.id for stage in graph.stages]
    for v, stage in enumerate(graph.stages):
        if stage.affinity.kv_cache_location is not None:
            columns.append(_companion(stage, cluster, variants))
            edges.add_location(len(names), v, _location_bytes(stage, kv))
            names.append(f"kv:{stage.id}")
    options = Options(
        ptr=np.concatenate([[0], np.cumsum([len(column["site"]) for column in columns])]).astype(np.int64),
        **{key: np.concatenate([column[key] for column in columns]) for key in columns[0]},
    )
    companions = list(range(len(graph.stages), len(names)))
    problem = Problem(
        name=f"{request.id}@{cluster.spec.name}",
        stages=tuple(names),
        variants=tuple(variants),
        topology=table.topology,
        options=options,
        edges=edges.build(),
        affinities=_affinities(graph),
        capacity=cluster.state.free * scale,
        memory_scale=scale,
        sla=np.array([_ticks(stage.latency_sla) for stage in graph.stages] + [NO_LIMIT] * len(companions)),
        finish_by=np.array([_ticks(limits.finish_by.get(name)) for name in names]),
        deadline=_ticks(limits.deadline),
        budget=_ticks(limits.budget),
        budget_stages=tuple(v for v, stage in enumerate(graph.stages) if stage.id in limits.budget_stages),
        order=np.array([*companions, *graph.topological_order()], dtype=np.int64),
    )
    return _without_slack_limits(problem)


def _columns(
    options: StageOptions, keep: Ints, extra: npt.NDArray[np.float64], table: SiteTable, weights: CostWeights,
    scale: int, variants: dict[str, int],
) -> dict[str, Ints]:  # fmt: skip
    site, block = options.site[keep], options.block[keep]
    width = table.topology.width[site]
    names = np.array([variants.setdefault(b.candidate.name, len(variants)) for b in options.blocks], dtype=np.int64)
    held = np.array([math.ceil(b.weight_bytes) for b in options.blocks], dtype=np.int64)
    variant = names[block] if len(names) else block
    weight = held[block] if len(held) else block
    return {
        "site": site,
        "variant": variant,
        "cost": _rounded(options.cost(weights)[keep] + extra[keep]),
        "time": _rounded(options.time[keep]),
        "share": options.memory[keep] * scale // width,
        "weight_key": np.where(weight > 0, variant * table.topology.S + site, -1),
        "weight_share": weight * scale // width,
    }


def _companion(stage: StageSpec, cluster: CompiledCluster, variants: dict[str, int]) -> dict[str, Ints]:
    """The only option of a KV location: on its device, at no cost."""
    place = stage.affinity.kv_cache_location
    assert place is not None
    if place not in cluster.state.index:
        raise InputError(
            f"stage {stage.id}: affinity.kv_cache_location: no device of cluster {cluster.spec.name} is called {place}"
        )
    zero = np.zeros(1, dtype=np.int64)
    return {
        "site": zero + cluster.state.index[place],
        "variant": zero + variants.setdefault("resident", len(variants)),
        "cost": zero,
        "time": zero,
        "share": zero,
        "weight_key": zero - 1,
        "weight_share": zero,
    }


def _location_bytes(stage: StageSpec, kv: KvTransferConfig | None) -> float:
    """Bytes of KV cache that a stage fetches from its location."""
    card = library.llm(stage.model) if stage.model else None
    size = stage.memory.kv_cache_size
    if size is None and card is not None and stage.tokens is not None:
        size = math.ceil(card.kv_bytes_per_token() * stage.tokens.context * stage.tokens.batch)
    if size is None:
        raise InputError(
            f"stage {stage.id}: affinity.kv_cache_location is given, but neither memory.kv_cache_size nor "
            "tokens.context says how many bytes lie there"
        )
    return size * compression_ratio(kv, True, card.kv_precision if card else Precision.FP16)


class _Edges:
    """Collects edges and their overlap."""

    def __init__(self, graph: GraphSpec, weight: float) -> None:
        self._index = {stage.id: v for v, stage in enumerate(graph.stages)}
        self._weight = weight
        self._rows: list[tuple[int, int, float, float, str]] = []
        self._hidden: list[npt.NDArray[np.float64] | None] = []

    def add(
        self, edge: EdgeSpec, size: float, kv: KvTransferConfig | None, stages: list[StageOptions],
        kept: list[Ints], number: int,
    ) -> None:  # fmt: skip
        u, v = self._index[edge.source], self._index[edge.target]
        overlaps = edge.kv and kv is not None and kv.overlap_compute and size > kv.chunk_size
        self._rows.append((u, v, size, float(kv.chunk_size) if overlaps and kv else 0.0, str(edge.kind)))
        if not overlaps:
            self._hidden.append(None)
            return
        compute = np.array([block.cost.t0 for block in stages[u].blocks])
        self._hidden.append(compute[stages[u].block[kept[u]]] * hidden_seconds(kv, size, 1.0))

    def add_location(self, companion: int, stage: int, size: float) -> None:
        self._rows.append((companion, stage, size, 0.0, "data"))
        self._hidden.append(None)

    def build(self) -> Edges:
        def column(i: int) -> list[float]:
            return [float(row[i]) for row in self._rows]

        return Edges(
            source=np.array([row[0] for row in self._rows], dtype=np.int64),
            target=np.array([row[1] for row in self._rows], dtype=np.int64),
            bytes=np.array(column(2)),
            weight=np.full(len(self._rows), self._weight),
            chunk=np.array(column(3)),
            hidden=tuple(self._hidden),
            kind=tuple(row[4] for row in self._rows),
        )


def _affinities(graph: GraphSpec) -> tuple[Affinity, ...]:
    index = {stage.id: v for v, stage in enumerate(graph.stages)}
    return tuple(
        Affinity(
            stages=tuple(index[name] for name in rule.stages),
            level=-1 if rule.level == "site" else LEVEL_NAMES.index(rule.level),
            apart=rule.apart,
            required=rule.required,
            penalty=_ticks(rule.penalty),
        )
        for rule in graph.affinity
    )


def _without_slack_limits(problem: Problem) -> Problem:
    """Drop limits that no choice of allowed options can reach, so that solvers need not carry them."""
    slowest = [
        int(problem.options.time[problem.options.of(v)][problem.allowed[problem.options.of(v)]].max(initial=0))
        for v in range(problem.V)
    ]
    budget = sum(slowest[v] for v in problem.budget_stages)
    topology = problem.topology
    if topology.pair_latency is not None and topology.pair_seconds_per_byte is not None:
        latency, rate = topology.pair_latency.max(), topology.pair_seconds_per_byte.max()
    else:
        latency = max(level.max() for level in topology.latency)
        rate = max(level.max() for level in topology.seconds_per_byte)
    transfers = _ticks(float((latency + problem.edges.bytes * rate).sum())) + problem.E
    longest = sum(slowest) + transfers
    return replace(
        problem,
        budget=problem.budget if budget > problem.budget else NO_LIMIT,
        deadline=problem.deadline if longest > problem.deadline else NO_LIMIT,
        finish_by=np.where(longest > problem.finish_by, problem.finish_by, NO_LIMIT),
    )


def _ticks(seconds: float | None) -> int:
    return NO_LIMIT if seconds is None else round(seconds * TICKS_PER_SECOND)


def _rounded(seconds: Iterable[float]) -> Ints:
    ticks = np.asarray(seconds) * TICKS_PER_SECOND
    if (np.abs(ticks) > 2.0**60).any():
        raise InputError("a cost is over 36 years of weighted time: check the units of the request and the cluster")
    rounded: Ints = np.rint(ticks).astype(np.int64)
    return rounded
