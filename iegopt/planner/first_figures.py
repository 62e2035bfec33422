"""The figures of a first plan: where best fit over the promising sites places the stages, and what that takes.

Costs are those of kinds of sites, for all stages at once (``cost.rows``; stages with a model, one by one); a site adds
its load and its price. Where the kernels are loaded, no stage has a model and no transfer overlaps, one of them does it
all (``solvers.search.first_kernel``).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from iegopt.cost.transfer import exposed_seconds
from iegopt.cost.weights import CostWeights
from iegopt.planner.promising import Facts, Promising
from iegopt.problem.compile import degrees_of, precisions_of
from iegopt.problem.compile_edges import buffers, wire_bytes
from iegopt.problem.stage_options import Block
from iegopt.solvers.clock import Clock
from iegopt.solvers.exact.compiled import kernels
from iegopt.solvers.search.best_fit import best_fit, neighbours, offers
from iegopt.spec.figures import AMOUNTS, PlainFigures, is_plain, plain_figures
from iegopt.spec.graph import GraphSpec
from iegopt.spec.policy import KvTransferConfig
from iegopt.spec.request import RequestSpec
from iegopt.spec.stage import StageSpec

__all__ = ["Figured", "figured"]

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]


class Figured(NamedTuple):
    """A placement of V stages with its figures.

    Attributes
    ----------
    place, t0, time, start, term, held, share, money (V,)
        Site of every stage among the promising ones; seconds idle, under load, and of the start as soon as it can be;
        what bounds it, by ``BOTTLENECKS``; bytes held over the whole site, and their share of its free memory; money in
        seconds.
    sizes, raw, exposed (E,)
        Bytes on the wire of every edge, seconds of its transfer, and those that no producer hides.
    blocks
        (stage, kind of site) -> what a stage with a model is there.
    """

    place: list[int]
    t0: list[float]
    time: list[float]
    start: list[float]
    term: list[int]
    held: list[float]
    share: list[float]
    money: list[float]
    sizes: Sequence[float]
    raw: list[float]
    exposed: list[float]
    blocks: Mapping[tuple[int, int], Block]


def figured(
    sites: Promising, graph: GraphSpec, request: RequestSpec, weights: CostWeights, clock: Clock
) -> Figured | None:
    """``None`` where a stage fits nowhere, or the clock ends first."""
    plain, kv = graph.figures().plain, request.kv_transfer_config or sites.cluster.spec.kv_transfer_config
    if kernels() is not None and plain is not None and kv is None:
        return _compiled(sites, graph, plain, weights)
    facts = _facts(sites, graph, request)
    load = sites.cluster.state.site_load(sites.table.topology)
    place = _placed(sites, load, graph, facts, weights, clock)
    return None if place is None else _of_place(sites, load, graph, facts, np.array(place), kv)


def _compiled(sites: Promising, graph: GraphSpec, plain: PlainFigures, weights: CostWeights) -> Figured | None:
    core, state, ends, V = kernels(), sites.cluster.state, graph.ends(), len(plain.shape)
    assert core is not None
    number, rates = sites.rates.known(plain)
    amounts = np.frombuffer(plain.amounts, dtype=np.float64).reshape(-1, AMOUNTS)
    source, target = np.array(ends, dtype=np.int64).reshape(-1, 2).T.copy()
    sizes = [float(edge.bytes) for edge in graph.edges]
    place, figures, raw = np.empty(V, dtype=np.int64), np.empty((7, V)), np.empty(len(ends))
    prices = np.array([weights.alpha, weights.beta, weights.gamma, weights.lambda_])
    done = core.first_plan(
        amounts, number, rates, np.array(graph.figures().slas), np.array(graph.topological_order()), source, target,
        np.array(sizes), sites.layout, sites.worth, sites.links, state.load, state.free, prices, place, figures, raw,
    )  # fmt: skip
    if not done:
        return None
    t0, time, start, term, held, share, money = figures.tolist()
    moved = raw.tolist()
    terms = [int(each) for each in term]
    return Figured(place.tolist(), t0, time, start, terms, held, share, money, sizes, moved, moved, {})


def _facts(sites: Promising, graph: GraphSpec, request: RequestSpec) -> Facts:
    """Seconds and bytes of every stage on every kind of site."""
    stages, kinds = graph.stages, len(sites.table.kinds)
    figures = graph.figures().plain
    blocks: dict[tuple[int, int], Block] = {}
    if figures is not None:
        rows = sites.rates.rows(figures)
        seconds, terms, held = rows.seconds, rows.terms, np.repeat(rows.held[:, None], kinds, axis=1)
    else:
        plain = [v for v, stage in enumerate(stages) if is_plain(stage)]
        rows = sites.rates.rows(plain_figures([stages[v] for v in plain]))
        seconds, terms = np.full((len(stages), kinds), math.inf), np.zeros((len(stages), 4, kinds))
        held = np.zeros((len(stages), kinds))
        seconds[plain], terms[plain], held[plain] = rows.seconds, rows.terms, rows.held[:, None]
        for v in sorted(set(range(len(stages))) - set(plain)):
            for kind, block in _quickest(sites, stages[v], request).items():
                blocks[v, kind] = block
                seconds[v, kind] = block.cost.t0 + block.load_time
                held[v, kind] = math.ceil(block.cost.memory_bytes + block.cost.kv_bytes) + math.ceil(block.weight_bytes)
    ends = graph.ends()
    kv = request.kv_transfer_config or sites.cluster.spec.kv_transfer_config
    if kv is None:
        sizes = [float(edge.bytes) for edge in graph.edges]
    else:
        sizes = [wire_bytes(edge, stages[u], kv) for edge, (u, _) in zip(graph.edges, ends, strict=True)]
        held += np.array(buffers(graph, sizes, kv))[:, None]
    return Facts(seconds, terms, held, blocks, ends, sizes)


def _quickest(sites: Promising, stage: StageSpec, request: RequestSpec) -> dict[int, Block]:
    """Per kind the block of a stage with a model that takes least time there."""
    degrees, precisions = degrees_of(stage, sites.cluster), precisions_of(stage, request, None)
    found = sites.cluster.blocks(stage, precisions, sites.table, degrees)
    best: dict[int, Block] = {}
    for kind, block in zip(found.kinds, found.blocks, strict=True):
        if kind not in best or block.cost.t0 + block.load_time < best[kind].cost.t0 + best[kind].load_time:
            best[kind] = block
    return best


def _placed(
    sites: Promising, load: Floats, graph: GraphSpec, facts: Facts, weights: CostWeights, clock: Clock
) -> list[int] | None:
    """The place of every stage: in the order of the graph, else the largest first."""
    each = np.ceil(facts.held / sites.degree).astype(np.int64)
    board = sites.board(load, weights.alpha + weights.beta * load + weights.gamma * sites.worth)
    offered = offers(board, facts.seconds, each)
    slas, order = graph.figures().slas, graph.topological_order()
    edges = neighbours(len(slas), facts.ends, facts.sizes, weights.lambda_)
    place = best_fit(board, offered, slas, edges, sites.free(), order, clock)
    if place is not None or clock.left <= 0.0:
        return place
    least = np.where(np.isfinite(facts.seconds), each, math.inf).min(axis=1)
    return best_fit(board, offered, slas, edges, sites.free(), np.argsort(-least, kind="stable").tolist(), clock)


def _of_place(
    sites: Promising, load: Floats, graph: GraphSpec, facts: Facts, at: Ints, kv: KvTransferConfig | None
) -> Figured:
    every, kinds = np.arange(len(at)), sites.kind[at]
    t0, held, room = facts.seconds[every, kinds], facts.held[every, kinds], sites.room()[at]
    time, own = (t0 * load[at]).tolist(), t0.tolist()
    source, target = at[np.array(facts.ends, dtype=np.int64).reshape(-1, 2).T]
    latency, rate = sites.links[source, :, target].T
    raw: list[float] = (latency + np.array(facts.sizes) * rate).tolist()
    left = raw if kv is None else _exposed(sites, graph, facts, raw, at.tolist(), own, kv)
    return Figured(
        place=at.tolist(),
        t0=own,
        time=time,
        start=_starts(graph, facts, time, left),
        term=facts.terms[every, :, kinds].argmax(axis=1).tolist(),
        held=held.tolist(),
        share=np.divide(held, room, out=np.zeros(len(at)), where=room > 0).tolist(),
        money=(t0 * sites.worth[at]).tolist(),
        sizes=facts.sizes,
        raw=raw,
        exposed=left,
        blocks=facts.blocks,
    )


def _exposed(
    sites: Promising, graph: GraphSpec, facts: Facts, raw: Sequence[float], place: Sequence[int], t0: Sequence[float],
    kv: KvTransferConfig,
) -> list[float]:  # fmt: skip
    """(E,) seconds that producers do not hide: of edges that carry KV; all of the others."""
    left = [*raw]
    for e, (edge, (u, v)) in enumerate(zip(graph.edges, facts.ends, strict=True)):
        latency, rate = sites.latency[place[u]][place[v]], sites.rate[place[u]][place[v]]
        if edge.kv and rate > 0.0:
            block = facts.blocks.get((u, int(sites.kind[place[u]])))
            producer = t0[u] if block is None else block.cost.t0
            left[e] = exposed_seconds(facts.sizes[e], latency, 1.0 / rate, producer, kv)
    return left


def _starts(graph: GraphSpec, facts: Facts, times: Sequence[float], exposed: Sequence[float]) -> list[float]:
    """The earliest start of every stage along the graph."""
    into: list[list[tuple[int, float]]] = [[] for _ in times]
    for (u, v), moved in zip(facts.ends, exposed, strict=True):
        into[v].append((u, moved))
    start = [0.0] * len(times)
    for v in graph.topological_order():
        for u, moved in into[v]:
            arrival = start[u] + times[u] + moved
            if arrival > start[v]:
                start[v] = arrival
    return start
