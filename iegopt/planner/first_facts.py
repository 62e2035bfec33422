"""What a request's stages take on kinds of promising sites: seconds, bytes, and the fallback tier they have to open.

A stage that may run on a preferred device does so. Where no site is of one, the first tier is open that has any site
in the whole cluster which is quick enough, so that no tier is opened without need.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import numpy.typing as npt

from iegopt.planner.promising import Promising
from iegopt.problem.compile import degrees_of, precisions_of
from iegopt.problem.compile_edges import buffers, wire_bytes
from iegopt.problem.preference import seconds_on_card, stage_preference
from iegopt.problem.stage_options import Block, StageBlocks
from iegopt.problem.tiers import Preferred
from iegopt.solvers.clock import Clock
from iegopt.spec.figures import is_plain, plain_figures
from iegopt.spec.graph import GraphSpec
from iegopt.spec.request import RequestSpec
from iegopt.spec.stage import StageSpec

__all__ = ["Facts", "facts_of"]

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Facts:
    """Stages on kinds of sites, and edges.

    Attributes
    ----------
    seconds (V, K), terms (V, 4, K), held (V, K)
        As in ``cost.rows``; load times of weights are part of the seconds, and weights and transfer buffers of what is
        held.
    weights
        (stage, kind) -> the variant and the bytes of its weights over the whole site, as far as they count.
    blocks
        (stage, kind) -> what a stage with a model is there.
    slas (V,)
        Most seconds of every stage under load.
    tier
        Name of the fallback tier that is open, ``None`` without a preference.
    ends (E, 2), sizes (E,)
        Stages of every edge, and its bytes on the wire.
    """

    seconds: Floats
    terms: Floats
    held: Floats
    weights: Mapping[tuple[int, int], tuple[str, int]]
    blocks: Mapping[tuple[int, int], Block]
    slas: Sequence[float]
    tier: str | None
    ends: Sequence[tuple[int, int]]
    sizes: Sequence[float]


def facts_of(
    sites: Promising, graph: GraphSpec, request: RequestSpec, preference: Preferred | None, clock: Clock
) -> Facts | None:
    """``None`` where a stage runs on no kind of site, or not in time in any tier, or the clock ends first."""
    stages, kinds = graph.stages, len(sites.table.kinds)
    figures, slas, tier = graph.figures().plain, [*graph.figures().slas], 0
    blocks: dict[tuple[int, int], Block] = {}
    weights: dict[tuple[int, int], tuple[str, int]] = {}
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
            opened = _opened(sites, stages[v], request, preference)
            if opened is None or clock.left <= 0.0:  # a stage that was never seen takes half a millisecond
                return None
            tier, slas[v] = max(tier, opened.tier), min(slas[v], opened.limit)
            seconds[v], held[v] = opened.seconds, opened.held
            for kind, block in opened.blocks.items():
                blocks[v, kind] = block
            for kind, weight in opened.weights.items():
                weights[v, kind] = weight
    kv = request.kv_transfer_config or sites.cluster.spec.kv_transfer_config
    if kv is None:
        sizes = [float(edge.bytes) for edge in graph.edges]
    else:
        sizes = [wire_bytes(edge, stages[u], kv) for edge, (u, _) in zip(graph.edges, graph.ends(), strict=True)]
        held += np.array(buffers(graph, sizes, kv))[:, None]
    name = None if preference is None else preference.names[tier]
    return Facts(seconds, terms, held, weights, blocks, slas, name, graph.ends(), sizes)


@dataclass(frozen=True, eq=False)
class _Opened:
    """Per kind the block of a stage that takes least time there with what it takes, the tier of them all, and most
    seconds under load."""

    blocks: Mapping[int, Block]
    seconds: Floats
    held: Floats
    weights: Mapping[int, tuple[str, int]]
    tier: int
    limit: float

    @classmethod
    def of(cls, pairs: Iterable[tuple[int, Block]], kinds: int, tier: int = 0, limit: float = math.inf) -> _Opened:
        """Of blocks with their kinds."""
        best: dict[int, Block] = {}
        for kind, block in pairs:
            if kind not in best or _seconds(block) < _seconds(best[kind]):
                best[kind] = block
        seconds, held, weights = np.full(kinds, math.inf), np.zeros(kinds), {}
        for kind, block in best.items():
            size = math.ceil(block.weight_bytes)
            seconds[kind], held[kind] = _seconds(block), math.ceil(block.cost.memory_bytes + block.cost.kv_bytes) + size
            if size:
                weights[kind] = block.candidate.name, size
        return cls(best, seconds, held, weights, tier, limit)


@lru_cache(maxsize=1024)
def _all_open(found: StageBlocks, kinds: int) -> _Opened:
    """Without a preference: kept for the blocks, which a cluster keeps for stages of the same demand."""
    return _Opened.of(zip(found.kinds, found.blocks, strict=True), kinds)


def _opened(
    sites: Promising, stage: StageSpec, request: RequestSpec, preference: Preferred | None
) -> _Opened | None:  # fmt: skip
    degrees, precisions = degrees_of(stage, sites.cluster), precisions_of(stage, request, preference)
    own = stage_preference(preference, stage, request)
    found = sites.cluster.blocks(stage, precisions, sites.table, degrees, own)
    kinds = len(sites.table.kinds)
    if own is None:
        return _all_open(found, kinds) if found.blocks else None
    pairs = list(zip(found.kinds, found.blocks, strict=True))
    tier, limit = 0, math.inf
    if not any(block.tier == 0 for _, block in pairs):
        limit = seconds_on_card(stage, own, sites.cluster) * (1.0 + own.policy.max_latency_increase)
        load = _least_load(sites)
        pairs = [(kind, block) for kind, block in pairs if _seconds(block) * load[kind] <= limit]
        tier = min([block.tier for _, block in pairs], default=0)
    pairs = [(kind, block) for kind, block in pairs if block.tier <= tier]
    return _Opened.of(pairs, kinds, tier, limit) if pairs else None


def _least_load(sites: Promising) -> Sequence[float]:
    """T/T0 of the least loaded site of every kind in the whole cluster."""
    table = sites.cluster.sites_at_hand({size for _, size, _ in sites.table.kinds})
    if table is None or table.kinds is not sites.table.kinds:
        return [1.0] * len(sites.table.kinds)  # no site is quicker than an idle one
    load = sites.cluster.state.site_load(table.topology)
    return [float(load[own].min(initial=math.inf)) for own in table.of_kind]


def _seconds(block: Block) -> float:
    return block.cost.t0 + block.load_time
