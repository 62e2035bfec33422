"""Seeded families of large problems, for benchmarks and tests.

Clusters: devices in nested groups (NVLink domain of 4, host of 8, rack of 32, datacenter of 256), four device types
in blocks of a host, 1 to 5.5 times the slowest one's speed, 24 to 80 GB. Graphs: ``family_graphs.py``.

Every stage has an option on every site: work / speed with 10 % lognormal noise. 15 % of the stages have an SLA at
the 30 % quantile of their times. A placement is planted that keeps every SLA, memory and affinity, so every problem
has a feasible plan. Memory is one of

============  =====================================================================================
``slack``     all stages fit on one device together: memory never binds
``tight``     on every device the planted stages take 1/1.1 of it; at least a stage a device fills one
``part_full`` a third of the devices are too full for the largest stage, others cannot take two of it
============  =====================================================================================

``part_full`` is the everyday case: a third of the stages have an SLA there, and two neighbours have an affinity: to
different hosts, required, or preferred to one rack.
"""

from __future__ import annotations

from typing import Literal, get_args

import numpy as np
import numpy.typing as npt

from iegopt.errors import InputError
from iegopt.problem.arrays import NO_LIMIT, Affinity, Edges, Options, Problem
from iegopt.problem.family_graphs import GRAPHS, Family
from iegopt.problem.topology import LEVEL_NAMES, Topology
from iegopt.problem.transfer import time_ticks

__all__ = ["FAMILIES", "MAX_OPTIONS", "Family", "Memory", "generate"]

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]
Memory = Literal["slack", "tight", "part_full"]

FAMILIES: tuple[Family, ...] = get_args(Family)

MAX_OPTIONS = 5_000_000
"""Stages · sites up to which a problem is generated; this many take some 1.5 GB."""

_GROUP_SIZE = (4, 8, 32, 256)
_LATENCY = (2e-6, 1e-5, 2e-5, 1e-4, 5e-3)
_SECONDS_PER_BYTE = (2e-12, 31e-12, 80e-12, 200e-12, 2000e-12)
_SPEED = np.array([5.5, 3.0, 1.8, 1.0])
_CAPACITY = np.array([80, 80, 48, 24]) * 10**9
_PRICE = np.array([2.2, 1.4, 0.7, 0.3])
"""Per second, over the mean price; a stage costs 0.6 · time + 0.4 · price · time."""
_GANG_EFFICIENCY = {1: 1.0, 2: 0.92, 4: 0.85}
_SLACK = 1.1
_LIMITED = {"slack": 0.15, "tight": 0.15, "part_full": 1 / 3}
"""Share of the stages that have an SLA."""
_PENALTY = 0.02
"""Of a broken preferred affinity, in parts of what the stages cost where they are planted."""
# Seconds at speed 1 and bytes of the output, medians of a lognormal: prefill, decode, tool.
_WORK = {"prefill": 1.0, "decode": 4.0, "tool": 0.2}
_BYTES = {"prefill": 1.3e9, "decode": 3e8, "tool": 1e5}


def generate(
    family: Family, stages: int, sites: int, memory: Memory = "slack", seed: int = 0, *, gangs: bool = False
) -> Problem:
    """A problem of a family; the same arguments give the same problem.

    Parameters
    ----------
    stages, sites
        How many; with ``gangs`` (tensor-parallel pairs and fours in every domain, 7 sites for 4 devices) there
        may be up to 6 sites less.

    Raises
    ------
    InputError
        An unknown family or memory, no stage or site (with gangs: fewer than 7 sites), or over ``MAX_OPTIONS``.
    """
    if family not in FAMILIES or memory not in get_args(Memory):
        known = f"{', '.join(FAMILIES)}, and {', '.join(get_args(Memory))}"
        raise InputError(f"family {family!r}, memory {memory!r}: expected one of {known}")
    if stages < 1 or sites < (7 if gangs else 1):
        raise InputError(f"{stages} stages on {sites} sites: expected 1 stage and {7 if gangs else 1} sites at least")
    if stages * sites > MAX_OPTIONS:
        raise InputError(f"{stages} stages on {sites} sites are {stages * sites:,} options: at most {MAX_OPTIONS:,}")
    rng = np.random.default_rng([FAMILIES.index(family), stages, sites, get_args(Memory).index(memory), seed, gangs])
    topology = _topology(sites, gangs)
    kinds, pairs = GRAPHS[family](stages, rng)
    kind = rng.integers(len(_SPEED), size=-(-topology.D // _GROUP_SIZE[1]))[np.arange(topology.D) // _GROUP_SIZE[1]]
    lead = topology.device_index[topology.device_ptr[:-1]]
    time = _times(kinds, kind[lead], topology.width, rng)
    planted, need, capacity = _MEMORY[memory](stages, _CAPACITY[kind], rng)
    if memory == "slack":
        planted = time.argmin(axis=1)
    cost = time * (0.6 + 0.4 * _PRICE[kind[lead]] * topology.width)
    options = _options(time_ticks(time), time_ticks(cost), need, topology)
    scale = int(topology.width.max())
    edges = _edges(kinds, pairs, rng)
    sla = _slas(time_ticks(time), planted, _LIMITED[memory], rng)
    affinities = _affinity(pairs, topology, planted, time_ticks(cost), rng) if memory == "part_full" else ()
    return Problem(
        name=f"{family}-{stages}x{sites}-{memory}-s{seed}{'-gangs' if gangs else ''}",
        stages=tuple(f"{kinds[v]}{v}" for v in range(stages)),
        variants=("fp16",),
        topology=topology,
        options=options,
        edges=edges,
        affinities=affinities,
        capacity=capacity * scale,
        memory_scale=scale,
        sla=sla,
        finish_by=np.full(stages, NO_LIMIT),
        deadline=NO_LIMIT,
        budget=NO_LIMIT,
        budget_stages=(),
        order=np.arange(stages),
    )


def _topology(sites: int, gangs: bool) -> Topology:
    """Single devices first, so that site d is device d; a gang lies inside one domain."""
    members = [[d] for d in range(sites // 7 * 4 if gangs else sites)]
    if gangs:
        for first in range(0, len(members), 4):
            members += [[first, first + 1], [first + 2, first + 3], list(range(first, first + 4))]
    lead = np.array([m[0] for m in members])
    D = int(lead.max()) + 1
    group = np.array([lead // size for size in _GROUP_SIZE])
    counts = [int(g.max()) + 1 for g in group] + [1]
    ids = [f"n{d // 8}g{d % 8}" for d in range(D)]
    return Topology(
        sites=tuple("+".join(ids[d] for d in m) for m in members),
        devices=tuple(ids),
        device_ptr=np.cumsum([0, *map(len, members)]),
        device_index=np.concatenate([np.array(m) for m in members]) if gangs else np.arange(D),
        group=group,
        latency=tuple(np.full(n, x) for n, x in zip(counts, _LATENCY, strict=True)),
        seconds_per_byte=tuple(np.full(n, x) for n, x in zip(counts, _SECONDS_PER_BYTE, strict=True)),
        parallel_shards=gangs,
    )


def _times(kinds: list[str], kind: Ints, width: Ints, rng: np.random.Generator) -> Floats:
    """(V, S) seconds: work / (speed · gang), 10 % noise."""
    work = np.array([_WORK[k] for k in kinds]) * rng.lognormal(0.0, 0.5, len(kinds))
    speed = _SPEED[kind] * width * np.array([_GANG_EFFICIENCY[k] for k in width.tolist()])
    noise: Floats = np.exp(0.1 * rng.standard_normal((len(kinds), len(kind))))
    noise *= work[:, None] / speed
    return noise


def _options(time: Ints, cost: Ints, need: Ints, topology: Topology) -> Options:
    V, S = time.shape
    share = need[:, None] * int(topology.width.max()) // topology.width
    none = np.zeros(V * S, dtype=np.int64)
    return Options(
        ptr=np.arange(V + 1) * S,
        site=np.tile(np.arange(S), V),
        variant=none,
        cost=cost.ravel(),
        time=time.ravel(),
        share=share.ravel(),
        weight_key=none - 1,
        weight_share=none,
    )


def _slas(time: Ints, planted: Ints, limited: float, rng: np.random.Generator) -> Ints:
    """(V,) ticks: for a share of the stages the 30 % quantile of their times, or the planted time if that is later."""
    stages = np.arange(len(time))
    cut = np.partition(time, time.shape[1] * 3 // 10, axis=1)[:, time.shape[1] * 3 // 10]
    sla = np.maximum(cut, time[stages, planted])
    return np.where(rng.random(len(time)) < limited, sla, NO_LIMIT)


def _affinity(
    pairs: list[tuple[int, int]], topology: Topology, planted: Ints, cost: Ints, rng: np.random.Generator
) -> tuple[Affinity, ...]:
    """Of the ends of an edge: apart by host where they are planted so and a coin says so, else preferably in a rack."""
    if not pairs:
        return ()
    u, v = pairs[int(rng.integers(len(pairs)))]
    host, rack = LEVEL_NAMES.index("host"), LEVEL_NAMES.index("rack")
    apart = topology.group[host, planted[u]] != topology.group[host, planted[v]] and rng.random() < 0.5
    if apart:
        return (Affinity((u, v), host, True, True, 0),)
    penalty = int(_PENALTY * cost[np.arange(len(planted)), planted].sum())
    return (Affinity((u, v), rack, False, False, penalty),)


def _edges(kinds: list[str], pairs: list[tuple[int, int]], rng: np.random.Generator) -> Edges:
    size = np.array([_BYTES[kinds[u]] for u, _ in pairs]) * rng.lognormal(0.0, 0.7, len(pairs))
    return Edges(
        source=np.array([u for u, _ in pairs], dtype=np.int64),
        target=np.array([v for _, v in pairs], dtype=np.int64),
        bytes=np.rint(size),
        weight=np.ones(len(pairs)),
        chunk=np.zeros(len(pairs)),
        hidden=(None,) * len(pairs),
        kind=("data",) * len(pairs),
    )


def _slack(stages: int, capacity: Ints, rng: np.random.Generator) -> tuple[Ints, Ints, Ints]:
    """Wherever a stage is planted, there is room."""
    share = rng.uniform(0.2, 1.0, stages)
    need = (share / share.sum() * 0.99 * capacity.min()).astype(np.int64)
    return np.zeros(stages, dtype=np.int64), need, capacity


def _tight(stages: int, capacity: Ints, rng: np.random.Generator) -> tuple[Ints, Ints, Ints]:
    """Stages dealt over shuffled devices; those of a device share 1/1.1 of its memory at random."""
    planted = np.resize(rng.permutation(len(capacity)), stages)
    share = rng.uniform(0.5, 1.5, stages)
    total = np.bincount(planted, share, len(capacity))
    need = (share / total[planted] * capacity[planted] / _SLACK).astype(np.int64)
    return planted, need, capacity


def _part_full(stages: int, capacity: Ints, rng: np.random.Generator) -> tuple[Ints, Ints, Ints]:
    """A third of the devices (rounded down) is full; the stages are dealt over the others."""
    shuffled = rng.permutation(len(capacity))
    full, free = np.split(shuffled, [len(capacity) // 3])
    each = -(-stages // len(free))
    need = (rng.uniform(0.4, 1.0, stages) * _CAPACITY.min() / (_SLACK * each)).astype(np.int64)
    left = capacity.copy()
    left[full] = (rng.random(len(full)) * need.max()).astype(np.int64)
    return np.resize(free, stages), need, left


_MEMORY = {"slack": _slack, "tight": _tight, "part_full": _part_full}
