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
from iegopt.planner.first_facts import Facts, facts_of
from iegopt.planner.promising import Promising
from iegopt.problem.arrays import TICKS_PER_SECOND, Affinity
from iegopt.problem.compile import affinities_of
from iegopt.problem.preference import preference_for
from iegopt.problem.stage_options import Block
from iegopt.problem.tiers import Preferred
from iegopt.solvers.clock import Clock
from iegopt.solvers.exact.compiled import kernels
from iegopt.solvers.search.best_fit import Rules, best_fit, neighbours, offers, tied_first
from iegopt.spec.figures import AMOUNTS, PlainFigures
from iegopt.spec.graph import GraphSpec
from iegopt.spec.policy import KvTransferConfig
from iegopt.spec.request import RequestSpec

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
    tier
        The fallback tier that has to be open, ``None`` without a preference.
    penalties
        Seconds for affinities that would be kept where possible.
    """

    place: Ints
    t0: Floats
    time: Floats
    start: Floats
    term: Ints
    held: Floats
    share: Floats
    money: Floats
    sizes: Floats
    raw: Floats
    exposed: Floats
    blocks: Mapping[tuple[int, int], Block]
    tier: str | None
    penalties: float

    @property
    def of_stages(self) -> tuple[Ints | Floats, ...]:
        """The columns of stages, in the order of the fields."""
        return self[:8]

    @property
    def of_edges(self) -> tuple[Ints | Floats, ...]:
        """The places of stages, and the columns of edges."""
        return self.place, self.sizes, self.raw, self.exposed


def figured(
    sites: Promising, graph: GraphSpec, request: RequestSpec, weights: CostWeights, clock: Clock
) -> Figured | None:
    """``None`` where a stage fits nowhere, or the clock ends first."""
    plain, kv = graph.figures().plain, request.kv_transfer_config or sites.cluster.spec.kv_transfer_config
    preference = preference_for(request, sites.cluster)
    simple = not graph.affinity and not request.no_overlap and weights.makespan == 0.0
    if kernels() is not None and plain is not None and kv is None and simple:
        return _compiled(sites, graph, plain, weights, preference)
    facts = facts_of(sites, graph, request, preference, clock)
    if facts is None or clock.left <= 0.0:
        return None
    load = sites.cluster.state.site_load(sites.table.topology)
    affinities = affinities_of(graph) if graph.affinity else ()
    place = _placed(sites, load, graph, facts, weights, affinities, clock)
    if place is None:
        return None
    found = _of_place(sites, load, graph, facts, np.array(place), kv, in_turn=request.no_overlap)
    missed = sum(rule.penalty for rule in affinities if not rule.required and not _holds(sites, rule, place))
    return found._replace(penalties=missed / TICKS_PER_SECOND)


def _compiled(
    sites: Promising, graph: GraphSpec, plain: PlainFigures, weights: CostWeights, preference: Preferred | None
) -> Figured | None:
    core, state, wiring, V = kernels(), sites.cluster.state, graph.wiring(), len(plain.shape)
    assert core is not None
    number, rates = sites.rates.known(plain)
    amounts, slas = np.asarray(plain.amounts).reshape(-1, AMOUNTS), np.asarray(graph.figures().slas)
    order, source, target, sizes = (np.asarray(each) for each in wiring[:4])
    place, figures, raw = np.empty(V, dtype=np.int64), np.empty((7, V)), np.empty(len(sizes))
    prices = np.array([weights.alpha, weights.beta, weights.gamma, weights.lambda_])
    done = core.first_plan(
        amounts, number, rates, slas, order, source, target, sizes, sites.layout, sites.worth, sites.links, state.load,
        state.free, prices, place, figures, raw,
    )  # fmt: skip
    if not done:
        return None
    t0, time, start, term, held, share, money = figures
    tier = None if preference is None else preference.names[0]
    return Figured(place, t0, time, start, term.astype(np.int64), held, share, money, sizes, raw, raw, {}, tier, 0.0)


def _placed(
    sites: Promising, load: Floats, graph: GraphSpec, facts: Facts, weights: CostWeights,
    affinities: Sequence[Affinity], clock: Clock,
) -> list[int] | None:  # fmt: skip
    """The place of every stage: in the order of the graph, else those first that have to be apart or together, else the
    largest. On a critical path the time of every stage and transfer counts as if it lay there.
    """
    own, shared = facts.held.copy(), {}
    for (v, k), (name, size) in facts.weights.items():
        own[v, k] -= size
        shared[v, k] = name, -(-size // int(sites.degree[k]))
    each = np.ceil(own / sites.degree).astype(np.int64)
    under_load, move = weights.beta + weights.makespan, weights.lambda_ + weights.makespan
    loaded = under_load * load if under_load else 0.0  # a device in full use has an infinite one
    board = sites.board(load, weights.alpha + loaded + weights.gamma * sites.worth)
    offered = offers(board, facts.seconds, each)
    order = graph.topological_order()
    edges, rules = neighbours(len(facts.slas), facts.ends, facts.sizes, move), _rules(sites, affinities, len(each))

    def fitted(order: Sequence[int]) -> list[int] | None:
        return best_fit(board, offered, facts.slas, edges, sites.free(), order, clock, shared or None, rules)

    place = fitted(order)
    if place is None and rules is not None and clock.left > 0.0:
        place = fitted(tied_first(affinities, order))
    if place is None and clock.left > 0.0:
        least = np.where(np.isfinite(facts.seconds), facts.held / sites.degree, math.inf).min(axis=1)
        place = fitted(np.argsort(-least, kind="stable").tolist())
    return place


def _rules(sites: Promising, affinities: Sequence[Affinity], count: int) -> Rules | None:
    """Required affinities by stage; ``None`` where there are none."""
    required = [rule for rule in affinities if rule.required]
    if not required:
        return None
    found: list[list[tuple[tuple[int, ...], Sequence[int], bool]]] = [[] for _ in range(count)]
    for rule in required:
        label = sites.cells(rule.level)
        for v in rule.stages:
            found[v].append((rule.stages, label, rule.apart))
    return found


def _of_place(
    sites: Promising, load: Floats, graph: GraphSpec, facts: Facts, at: Ints, kv: KvTransferConfig | None,
    *, in_turn: bool,
) -> Figured:  # fmt: skip
    every, kinds = np.arange(len(at)), sites.kind[at]
    t0, held, room = facts.seconds[every, kinds], facts.held[every, kinds], sites.room()[at]
    time, sizes = t0 * load[at], np.array(facts.sizes)
    source, target = at[np.array(facts.ends, dtype=np.int64).reshape(-1, 2).T]
    latency, rate = sites.links[source, :, target].T
    raw = latency + sizes * rate
    left = raw if kv is None else _exposed(sites, graph, facts, raw.tolist(), at.tolist(), t0.tolist(), kv)
    devices = [sites.devices[p] for p in at.tolist()] if in_turn else None
    return Figured(
        place=at,
        t0=t0,
        time=time,
        start=np.array(_starts(graph, facts, time.tolist(), left.tolist(), devices)),
        term=facts.terms[every, :, kinds].argmax(axis=1),
        held=held,
        share=np.divide(held, room, out=np.zeros(len(at)), where=room > 0),
        money=t0 * sites.worth[at],
        sizes=sizes,
        raw=raw,
        exposed=left,
        blocks=facts.blocks,
        tier=facts.tier,
        penalties=0.0,
    )


def _holds(sites: Promising, rule: Affinity, place: Sequence[int]) -> bool:
    label = sites.cells(rule.level)
    met = {label[place[v]] for v in rule.stages}
    return len(met) == len(rule.stages) if rule.apart else len(met) == 1


def _exposed(
    sites: Promising, graph: GraphSpec, facts: Facts, raw: Sequence[float], place: Sequence[int], t0: Sequence[float],
    kv: KvTransferConfig,
) -> Floats:  # fmt: skip
    """(E,) seconds that producers do not hide: of edges that carry KV; all of the others."""
    left = [*raw]
    for e, (edge, (u, v)) in enumerate(zip(graph.edges, facts.ends, strict=True)):
        latency, rate = sites.latency[place[u]][place[v]], sites.rate[place[u]][place[v]]
        if edge.kv and rate > 0.0:
            block = facts.blocks.get((u, int(sites.kind[place[u]])))
            producer = t0[u] if block is None else block.cost.t0
            left[e] = exposed_seconds(facts.sizes[e], latency, 1.0 / rate, producer, kv)
    return np.array(left)


def _starts(
    graph: GraphSpec, facts: Facts, times: Sequence[float], exposed: Sequence[float],
    devices: Sequence[Sequence[int]] | None,
) -> list[float]:  # fmt: skip
    """The earliest start of every stage along the graph; with the ``devices`` of every stage, no two at once on one, in
    the order of the graph."""
    into: list[list[tuple[int, float]]] = [[] for _ in times]
    for (u, v), moved in zip(facts.ends, exposed, strict=True):
        into[v].append((u, moved))
    start, until = [0.0] * len(times), dict[int, float]()
    for v in graph.topological_order():
        for u, moved in into[v]:
            arrival = start[u] + times[u] + moved
            if arrival > start[v]:
                start[v] = arrival
        if devices is not None and times[v] > 0.0:
            start[v] = max([start[v], *(until.get(d, 0.0) for d in devices[v])])
            until.update(dict.fromkeys(devices[v], start[v] + times[v]))
    return start
