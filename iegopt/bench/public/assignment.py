"""What the generalised assignment sets share: numbers from text, and dense arrays as a ``Problem``."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from iegopt.errors import SpecError
from iegopt.problem.arrays import NO_LIMIT, TICKS_PER_SECOND, Edges, Options, Problem
from iegopt.problem.topology import WAN, Topology
from iegopt.spec.text import file_name, read_text

__all__ = ["Published", "assemble", "numbers", "separate_sites", "take"]

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Published:
    """The value that a set's authors or later work give, in ticks, and whether it is proven optimal."""

    ticks: int
    optimal: bool


def numbers(path: Path) -> Iterator[float]:
    """The numbers of a file in reading order (raises ``SpecError`` at what is none)."""
    for word in read_text(path).split():
        try:
            yield float(word)
        except ValueError:
            raise SpecError(file_name(path), "", f"{word!r}: expected numbers alone") from None


def take(source: Iterator[float], *shape: int, path: Path) -> Ints:
    """The next numbers as whole numbers of a shape (raises ``SpecError`` where they end or are not whole)."""
    found = [value for _, value in zip(range(int(np.prod(shape))), source, strict=False)]
    array = np.array(found, dtype=np.float64)
    if len(found) < np.prod(shape) or not np.array_equal(array, np.rint(array)):
        raise SpecError(file_name(path), "", f"expected {' x '.join(map(str, shape))} whole numbers, got {len(found)}")
    return array.astype(np.int64).reshape(shape)


def separate_sites(count: int, *, pair_seconds_per_byte: Floats | None = None) -> Topology:
    """Sites of one device each that meet nowhere below WAN, where a byte costs a second; or a dense matrix."""
    own = np.arange(count)
    return Topology(
        sites=tuple(f"p{s}" for s in range(count)),
        devices=tuple(f"p{s}" for s in range(count)),
        device_ptr=np.arange(count + 1),
        device_index=own,
        group=np.tile(own, (WAN, 1)),
        latency=(*(np.zeros(count) for _ in range(WAN)), np.zeros(1)),
        seconds_per_byte=(*(np.zeros(count) for _ in range(WAN)), np.ones(1)),
        pair_latency=None if pair_seconds_per_byte is None else np.zeros((count, count)),
        pair_seconds_per_byte=pair_seconds_per_byte,
    )


def assemble(name: str, topology: Topology, cost: Ints, need: Ints, capacity: Ints, flow: Ints | None) -> Problem:
    """A problem without times.

    Parameters
    ----------
    cost, need (V, S)
        Units of cost (seconds) and of capacity of every stage on every site.
    capacity (S,)
    flow (V, V)
        Bytes, of which the upper triangle is read; ``None`` for no edges.
    """
    V, S = cost.shape
    none = np.zeros(V * S, dtype=np.int64)
    source, target = np.nonzero(np.triu(flow, 1)) if flow is not None else (none[:0], none[:0])
    size = flow[source, target] if flow is not None else none[:0]
    return Problem(
        name=name,
        stages=tuple(f"t{v}" for v in range(V)),
        variants=("-",),
        topology=topology,
        options=Options(
            ptr=np.arange(V + 1) * S,
            site=np.tile(np.arange(S), V),
            variant=none,
            cost=cost.ravel() * TICKS_PER_SECOND,
            time=none,
            share=need.ravel(),
            weight_key=none - 1,
            weight_share=none,
        ),
        edges=Edges(
            source=source.astype(np.int64),
            target=target.astype(np.int64),
            bytes=size.astype(np.float64),
            weight=np.ones(len(source)),
            chunk=np.zeros(len(source)),
            hidden=(None,) * len(source),
            kind=("data",) * len(source),
        ),
        affinities=(),
        capacity=capacity,
        memory_scale=1,
        sla=np.full(V, NO_LIMIT),
        finish_by=np.full(V, NO_LIMIT),
        deadline=NO_LIMIT,
        budget=NO_LIMIT,
        budget_stages=(),
        order=np.arange(V),
    )
