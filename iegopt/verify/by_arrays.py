"""A check by arrays, for plans of plain stages on known sites: a tenth of the time of ``verify.plan``.

It recomputes what that one does from the request's figures and the cluster's documents: where stages may run, their
times, SLAs, memory, links, starts, limits and the objective. It only says whether all of it holds. Where anything does
not, or is more than it can tell (affinities, no-overlap, a critical path, overlapping transfers), ``verify.plan`` has
the word.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from iegopt.cost.weights import weights_for
from iegopt.devices import Device, DeviceClass
from iegopt.spec.cluster import ClusterSpec
from iegopt.spec.figures import AMOUNTS, Shape
from iegopt.spec.graph import GraphSpec
from iegopt.spec.request import Objective, RequestSpec
from iegopt.spec.stage import ParallelStrategy
from iegopt.verify.links import Gang, Links
from iegopt.verify.plain import WidestPrecision, plain_rates
from iegopt.verify.plan_stage import RELATIVE, ROUNDING
from iegopt.verify.plan_time import last_end

__all__ = ["ArrayCheck", "Claimed", "can_tell"]

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]

_Class = tuple[DeviceClass, int, Gang | None]
"""Device class, number of devices, and what they are to each other."""
_MOST_SHAPES = 64
"""Shapes whose rates are kept, and looked up anew for other sites ahead of a plan."""
_NOWHERE = (np.nan, np.nan, np.nan)
_BYTES = 1e-3
"""Bytes that a sum of shares may be off."""


class Claimed(NamedTuple):
    """What a plan of V stages says.

    Attributes
    ----------
    place (V,), time, start (V,)
        Index of every stage's site; seconds under load, and from when on.
    objective, makespan
        Seconds.
    """

    place: Ints
    time: Floats
    start: Floats
    objective: float
    makespan: float


def can_tell(graph: GraphSpec, request: RequestSpec, cluster: ClusterSpec) -> bool:
    """Whether the check knows all that such plans have to keep."""
    figures = graph.figures()
    overlaps = request.kv_transfer_config is not None or cluster.kv_transfer_config is not None
    ordinary = request.objective is Objective.SUM and not request.no_overlap and not overlaps
    return ordinary and figures.plain is not None and not figures.bound and not graph.affinity


class ArrayCheck:
    """Of plans over m sites of a cluster; threads may share one.

    Parameters
    ----------
    sites, members
        Per site its name and the ids of its devices.
    devices, index
        The cluster's devices by id, and the place of each in the arrays of its state.
    links, precisions
        Those of the cluster.
    before
        The check of other sites of the cluster: what it has looked up is not looked up again within a deadline.
    """

    def __init__(
        self, sites: Sequence[str], members: Sequence[tuple[str, ...]], cluster: ClusterSpec,
        devices: Mapping[str, Device], index: Mapping[str, int], links: Links, precisions: WidestPrecision,
        before: ArrayCheck | None = None,
    ) -> None:  # fmt: skip
        self._cluster, self._links, self._precisions, self._members = cluster, links, precisions, members
        of = [self._class(name, each, devices) for name, each in zip(sites, members, strict=True)]
        keys = [None if each is None else (id(each[0]), *each[1:]) for each in of]
        classes = dict(zip(keys, of, strict=True))
        number = {key: n for n, key in enumerate(classes)}
        self._class_of = np.array([number[key] for key in keys], dtype=np.int64)
        self._classes = tuple(classes.values())
        self._rates: dict[Shape, Floats] = {}
        self._link = np.full((len(members), len(members), 2), np.nan)
        self._price = np.array([sum(devices[name].price for name in each) for each in members])
        self._width = np.array([len(each) for each in members])
        self._ptr = np.concatenate([[0], np.cumsum(self._width)])[:-1]
        names = {name: n for n, name in enumerate(dict.fromkeys(name for each in members for name in each))}
        self._device = np.array([index[name] for name in names], dtype=np.int64)
        self._local = np.array([names[name] for each in members for name in each], dtype=np.int64)
        if before is not None:
            for shape in [*before._rates]:
                self._rates_of(shape)
            at = {each: n for n, each in enumerate(before._members)}
            kept = [(n, at[each]) for n, each in enumerate(members) if each in at]
            new, old = np.array(kept, dtype=np.int64).reshape(-1, 2).T
            self._link[np.ix_(new, new)] = before._link[np.ix_(old, old)]

    def holds(
        self, claimed: Claimed, graph: GraphSpec, request: RequestSpec, load: Floats, free: Ints, reference_price: float
    ) -> bool:
        """Whether the plan keeps what its request asks and is what it says it is.

        Parameters
        ----------
        load, free
            T/T0 and free bytes of the cluster's devices now.
        reference_price
            $/h that money is measured in.
        """
        figures, wiring, at = graph.figures(), graph.wiring(), claimed.place
        assert figures.plain is not None
        amounts = np.asarray(figures.plain.amounts).reshape(-1, AMOUNTS)
        shapes = np.stack([self._rates_of(shape) for shape in figures.plain.shapes])
        rates = shapes[np.asarray(figures.plain.shape), self._class_of[at]]
        with np.errstate(divide="ignore", invalid="ignore"):
            seconds = np.where(amounts[:, :3] > 0.0, amounts[:, :3] / rates, rates * 0.0)  # not a number: not there
        t0 = seconds.max(axis=1) + amounts[:, 3]
        device_load = load[self._device]
        time = t0 * np.maximum.reduceat(device_load[self._local], self._ptr)[at]
        terms = len(time) + len(wiring.sizes)
        in_time = _close(time, claimed.time, 1) & (time <= np.asarray(figures.slas) + ROUNDING)
        if not in_time.all() or not self._fits(at, amounts[:, 4], free):
            return False
        moved = self._moved(at[np.asarray(wiring.source)], at[np.asarray(wiring.target)], np.asarray(wiring.sizes))
        start, lasts = np.array(_starts(time.tolist(), moved.tolist(), wiring.forward)), claimed.start + claimed.time
        finish = start + time
        if not (_close(start, claimed.start, terms) & _close(finish, lasts, terms)).all():
            return False
        w = weights_for(request.sla_class, request.weights, request.objective)
        own = w.alpha * t0 + w.beta * time + w.gamma / reference_price * self._price[at] * t0
        objective, makespan = float(own.sum()) + w.lambda_ * float(moved.sum()), float(finish.max())
        said = np.array([claimed.objective, claimed.makespan])
        if not _close(np.array([objective, makespan]), said, terms).all():
            return False
        compute = float(np.asarray(figures.computes) @ time)
        return _within_limits(graph, request, finish, makespan, compute, ROUNDING * terms)

    def _fits(self, at: Ints, held: Floats, free: Ints) -> bool:
        """Whether every device has room for its share of all that it holds."""
        share = np.bincount(at, weights=np.ceil(held), minlength=len(self._width)) / self._width
        used = np.bincount(self._local, weights=np.repeat(share, self._width), minlength=len(self._device))
        return bool((used <= free[self._device] + _BYTES).all())

    def _moved(self, source: Ints, target: Ints, size: Floats) -> Floats:
        """(E,) seconds of every transfer."""
        link = self._link[source, target]
        missing = np.isnan(link[:, 0])
        if missing.any():
            for a, b in zip(source[missing].tolist(), target[missing].tolist(), strict=True):
                found = self._links.between(self._members[a], self._members[b])
                self._link[a, b] = (0.0, 0.0) if found is None else (found[1], 1.0 / (found[2] * found[3]))
            link = self._link[source, target]
        return np.asarray(link[:, 0] + size * link[:, 1])

    def _class(self, site: str, members: tuple[str, ...], devices: Mapping[str, Device]) -> _Class | None:
        """``None``: no gang that a plan may name."""
        gang = None if len(members) == 1 else self._links.gang(members)
        allowed = gang is None or (gang.alike and (gang.host or bool(self._cluster.gangs)))
        return (devices[members[0]].kind, len(members), gang) if allowed and site == "+".join(members) else None

    def _rates_of(self, shape: Shape) -> Floats:
        """(C, 3) FLOP/s, byte/s of memory and of IO that every class of sites has for stages of a shape; not numbers
        where none may run."""
        known = self._rates.get(shape)
        if known is None:
            if len(self._rates) >= _MOST_SHAPES:
                self._rates = {}
            known = self._rates[shape] = np.array([self._offer(shape, each) for each in self._classes])
        return known

    def _offer(self, shape: Shape, each: _Class | None) -> tuple[float, float, float]:
        if each is None:
            return _NOWHERE
        kind, k, gang = each
        found = self._precisions.on(kind, shape.precision)
        served = kind.roles is None or (shape.role in kind.roles and k == 1)
        if found is None or shape.degree != k or kind.type not in shape.types or not served:
            return _NOWHERE
        if gang is None:
            return plain_rates(kind, found[1], 1.0)
        if shape.strategy is not ParallelStrategy.TENSOR:
            return _NOWHERE
        own = self._cluster.parallel_efficiency if gang.domain else self._cluster.host_parallel_efficiency
        return plain_rates(kind, found[1], k * (own if shape.efficiency is None else shape.efficiency))


def _starts(time: Sequence[float], moved: Sequence[float], forward: Sequence[tuple[int, int, int]]) -> list[float]:
    """The earliest start of every stage."""
    start = [0.0] * len(time)
    for e, u, v in forward:
        arrival = start[u] + time[u] + moved[e]
        if arrival > start[v]:
            start[v] = arrival
    return start


def _within_limits(
    graph: GraphSpec, request: RequestSpec, finish: Floats, makespan: float, compute: float, slack: float
) -> bool:
    """First token, end to end, and compute budget."""
    limits, prefills = request.dag_constraints, graph.figures().prefills
    if request.sla.ttft is not None and prefills:
        first = next(v for v in graph.topological_order() if v in prefills)
        if finish[first] > request.sla.ttft + slack:
            return False
    return makespan <= last_end(request) + slack and compute <= limits.max_compute_time + slack


def _close(a: Floats, b: Floats, terms: int) -> npt.NDArray[np.bool_]:
    """Whether figures agree but for the rounding of so many terms; what is no number does not."""
    return np.abs(a - b) <= RELATIVE * np.maximum(np.abs(a), np.abs(b)) + ROUNDING * terms
