"""Edges of a compiled problem: bytes on the wire, overlap with the producer, buffers at both ends."""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

from iegopt import library
from iegopt.cost.transfer import buffer_bytes, compression_ratio, hidden_seconds
from iegopt.errors import InputError
from iegopt.problem.arrays import MOST_TICKS, TICKS_PER_SECOND, Edges
from iegopt.problem.stage_options import StageOptions
from iegopt.spec.graph import EdgeSpec, GraphSpec
from iegopt.spec.policy import KvTransferConfig
from iegopt.spec.stage import Precision, StageSpec

__all__ = ["EdgeBuilder", "buffers", "handed_on", "location_bytes", "wire_bytes"]

Ints = npt.NDArray[np.int64]


def wire_bytes(edge: EdgeSpec, source: StageSpec, kv: KvTransferConfig | None) -> float:
    """Bytes of an edge after compression."""
    precision = library.llm(source.model).kv_precision if source.model else Precision.FP16
    return edge.bytes * compression_ratio(kv, edge.kv, precision)


def buffers(graph: GraphSpec, sizes: list[float], kv: KvTransferConfig | None) -> list[int]:
    """Bytes of transfer buffers at every stage: both ends of each KV edge hold the chunks in flight."""
    held = dict.fromkeys((stage.id for stage in graph.stages), 0)
    if kv is not None:
        for edge, size in zip(graph.edges, sizes, strict=True):
            if edge.kv:
                held[edge.source] += math.ceil(buffer_bytes(kv, size))
                held[edge.target] += math.ceil(buffer_bytes(kv, size))
    return list(held.values())


def location_bytes(stage: StageSpec, kv: KvTransferConfig | None) -> float:
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


def handed_on(graph: GraphSpec) -> dict[str, str]:
    """Per stage that takes over a KV cache the one it is from: the KV edge of most bytes, of equal ones the first."""
    most: dict[str, EdgeSpec] = {}
    for edge in graph.edges:
        if edge.kv and (edge.target not in most or edge.bytes > most[edge.target].bytes):
            most[edge.target] = edge
    return {target: edge.source for target, edge in most.items()}


class EdgeBuilder:
    """Collects edges and their overlap."""

    def __init__(self, graph: GraphSpec, weight: float) -> None:
        self._index = {stage.id: v for v, stage in enumerate(graph.stages)}
        self._weight = weight
        self._rows: list[tuple[int, int, float, float, str]] = []
        self._hidden: list[npt.NDArray[np.float64] | None] = []

    def add(
        self, edge: EdgeSpec, size: float, kv: KvTransferConfig | None, stages: list[StageOptions],
        kept: list[Ints],
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

    def build(self, slowest: tuple[float, float], hands_on: dict[str, str] | None = None) -> Edges:
        """The edges.

        Parameters
        ----------
        slowest
            The largest latency and seconds per byte of any link.
        hands_on
            Per target the source whose KV cache it takes over.

        Raises
        ------
        InputError
            Naming an edge that may take, or cost, longer than ticks can count.
        """
        latency, rate = slowest
        names = [*self._index]
        for u, v, size, *_ in self._rows:
            seconds = latency + size * rate
            if not seconds * max(1.0, self._weight) * TICKS_PER_SECOND <= MOST_TICKS:
                edge = f"edge {names[u] if u < len(names) else 'its KV location'} -> {names[v]}"
                raise InputError(
                    f"{edge}: {seconds:.3g} s over the cluster's slowest link cost over 36 years of weighted time: "
                    "check the units of the request and the cluster"
                )

        def column(i: int) -> list[float]:
            return [float(row[i]) for row in self._rows]

        taken = None
        if hands_on is not None:
            ends = {(self._index[source], self._index[target]) for target, source in hands_on.items()}
            taken = np.array([(row[0], row[1]) in ends for row in self._rows], dtype=np.bool_)
        return Edges(
            source=np.array([row[0] for row in self._rows], dtype=np.int64),
            target=np.array([row[1] for row in self._rows], dtype=np.int64),
            bytes=np.array(column(2)),
            weight=np.full(len(self._rows), self._weight),
            chunk=np.array(column(3)),
            hidden=tuple(self._hidden),
            kind=tuple(row[4] for row in self._rows),
            hands_on=taken,
        )
