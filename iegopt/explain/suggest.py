"""Where one more idle device would save most, and which device of a plan would be missed most.

All candidates of a model are bounded at once: on the cluster with every one of them added, the min-marginals of the
relaxation (``iegopt.solvers.exact.relaxation``) are lower bounds on every plan that uses a new device, the plans that
use only this one among them. A candidate whose bound is not below the present objective saves nothing, and one whose
bound is not below the best found so far need not be solved. The others are re-solved, the most promising first, within
the time limit. Equal places (``iegopt.explain.symmetry``) are looked at once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from iegopt.explain.edited import edited
from iegopt.explain.places import Place, Stock, listed_gangs
from iegopt.explain.symmetry import place_classes
from iegopt.explain.what_if import WhatIf
from iegopt.plans import NoPlan, Plan
from iegopt.problem.arrays import TICKS_PER_SECOND
from iegopt.problem.cluster import CompiledCluster
from iegopt.problem.compile import compile_graph
from iegopt.solvers.clock import Clock
from iegopt.solvers.exact.messages import UNREACHABLE
from iegopt.solvers.exact.relaxation import relaxation
from iegopt.spec.cluster import GangSpec
from iegopt.spec.device import DeviceSpec
from iegopt.spec.graph import GraphSpec
from iegopt.spec.request import RequestSpec

__all__ = ["Suggestion", "suggest"]

Replan = Callable[[CompiledCluster, float], Plan | NoPlan]
"""Plans the request on a cluster within so many seconds."""

_NEARLY = 1e-3
"""Places that save so little more than others, as a share of it, are not told apart."""
_SHARE = 0.25
"""Share of the time left that one re-solve may take."""


@dataclass(frozen=True)
class Suggestion:
    """``count`` idle devices of a model at one of ``places``, which are all equal.

    Attributes
    ----------
    saving
        Seconds of objective that they save; ``None`` where that was not worked out (``skipped`` says why), or where
        there is no plan now.
    dollars
        Dollars of the plan that they save, likewise.
    at_most
        Seconds: no plan that uses them saves more. ``None`` where there is no plan now, or no bound.
    enables
        Whether there is a plan with them and none without.
    moved
        The stages that would be placed differently.
    proven
        Whether ``saving`` is the difference of proven optima.
    devices, gangs
        The entries that a cluster's file would get, for the first of ``places``; gangs where it lists its gangs.
    """

    model: str
    count: int
    places: tuple[str, ...]
    saving: float | None
    dollars: float | None
    at_most: float | None
    enables: bool
    moved: tuple[str, ...]
    proven: bool
    skipped: str
    devices: tuple[DeviceSpec, ...]
    gangs: tuple[GangSpec, ...]

    def document(self) -> dict[str, Any]:
        """As one JSON object; of the places the first few."""
        return {
            "model": self.model, "count": self.count, "place": self.places[0], "equal_places": len(self.places),
            "saving": self.saving, "dollars": self.dollars, "at_most": self.at_most, "enables": self.enables,
            "moved": list(self.moved), "proven": self.proven, "skipped": self.skipped,
            "devices": [device.document() for device in self.devices],
            "gangs": [gang.document() for gang in self.gangs],
        }  # fmt: skip


@dataclass(frozen=True, eq=False)
class _Candidate:
    model: str
    count: int
    places: list[Place]
    devices: list[DeviceSpec]
    gangs: list[GangSpec]
    bound: float | None
    """Seconds: no plan that uses them costs less; infinite where none can."""


def suggest(
    cluster: CompiledCluster, graph: GraphSpec, request: RequestSpec, before: Plan | NoPlan, replan: Replan,
    clock: Clock, *, candidates: Sequence[str | DeviceSpec] | None = None, top: int = 3,
) -> tuple[Suggestion, ...]:  # fmt: skip
    """Every candidate: those worked out by saving, then those skipped by what they could save at most."""
    likes = candidates if candidates is not None else list(dict.fromkeys(d.kind.model for d in cluster.devices))
    classes = place_classes(cluster, graph)
    counts, stock = _counts(graph, before), Stock(cluster)
    groups = [(like, places, stock.idle(like, places[0], counts[-1])) for like in likes for places in classes]
    given = any(isinstance(like, DeviceSpec) for like in likes)
    bounds = _bounds(cluster, graph, request, [devices for *_, devices in groups], counts, clock, len(classes), given)
    found = [
        _Candidate(
            like if isinstance(like, str) else like.model,
            k,
            places,
            devices[:k],
            listed_gangs(cluster, devices[:k]),
            bound[k],
        )
        for (like, places, devices), bound in zip(groups, bounds, strict=True)
        for k in counts
    ]
    found.sort(key=lambda c: (-np.inf if c.bound is None else c.bound, c.count))
    now = None if isinstance(before, NoPlan) else before.objective
    worked: list[Suggestion] = []
    for candidate in found:
        reason = _reason(candidate, now, worked, top, clock)
        if reason:
            worked.append(_suggestion(candidate, now, None, reason))
            continue
        changed = edited(cluster, add=candidate.devices, gangs=candidate.gangs)
        after = replan(changed, max(0.0, _SHARE * clock.left, min(clock.left, 0.1)))
        worked.append(_suggestion(candidate, now, WhatIf(before, after), ""))
    return tuple(sorted(_worth_showing(worked), key=_rank))


def _counts(graph: GraphSpec, before: Plan | NoPlan) -> list[int]:
    """One device, and the gangs that stages ask for or stand on."""
    asked = {stage.parallelism.degree for stage in graph.stages if stage.parallelism is not None}
    placed = set() if isinstance(before, NoPlan) else {len(stage.devices) for stage in before.stages}
    return sorted({1} | asked | placed)


def _bounds(
    cluster: CompiledCluster, graph: GraphSpec, request: RequestSpec, groups: list[list[DeviceSpec]],
    counts: list[int], clock: Clock, per_model: int, given: bool,
) -> list[dict[int, float | None]]:  # fmt: skip
    """Per group of devices and count the least seconds of a plan that uses one of the first so many of them."""
    # Latency limits against a preferred device tighten with every device added, so those are bounded one by one.
    # Measured pairs make a dense matrix, which all candidates together would outgrow. Entries that the caller gives may
    # be of one class, and then would form gangs with each other.
    policy = request.prefer or request.fallback_policy or cluster.spec.fallback_policy
    alone = given or bool(policy) or bool(cluster.spec.pairs)
    size = 1 if alone else per_model
    parts = [list(range(g, min(g + size, len(groups)))) for g in range(0, len(groups), size)]
    bounds: list[dict[int, float | None]] = [dict.fromkeys(counts) for _ in groups]
    for part in parts:
        if clock.left <= 0:
            break
        added = [device for g in part for device in groups[g]]
        gangs = [gang for g in part for gang in listed_gangs(cluster, groups[g])]
        compiled = compile_graph(edited(cluster, add=added, gangs=gangs), graph, request)
        relaxed = relaxation(compiled.problem, clock)
        if relaxed is None:
            break
        topology, options = compiled.problem.topology, compiled.problem.options
        by_site = np.full(topology.S, UNREACHABLE, dtype=np.int64)
        if relaxed.bound is not None:
            np.minimum.at(by_site, options.site, relaxed.min_marginals)
        by_device = np.full(topology.D, UNREACHABLE, dtype=np.int64)
        # A site of several new devices needs all of them: it counts for the last.
        last = np.maximum.reduceat(topology.device_index, topology.device_ptr[:-1])
        np.minimum.at(by_device, last, by_site)
        first = len(cluster.devices)
        for g in part:
            least = np.minimum.accumulate(by_device[first : first + len(groups[g])])
            first += len(groups[g])
            bounds[g] = {
                k: float("inf") if least[k - 1] >= UNREACHABLE else int(least[k - 1]) / TICKS_PER_SECOND
                for k in counts
            }  # fmt: skip
    return bounds


def _reason(candidate: _Candidate, now: float | None, worked: Iterable[Suggestion], top: int, clock: Clock) -> str:
    """Why a candidate is not solved; empty where it is."""
    bound = candidate.bound
    if bound == float("inf"):
        return "no plan can use it"
    if bound is not None and now is not None and bound >= now:
        return "no plan that uses it is cheaper"
    like = [s for s in worked if (s.model, s.count) == (candidate.model, candidate.count)]
    savings = sorted((s.saving for s in like if s.saving is not None and s.proven), reverse=True)
    if (
        bound is not None
        and now is not None
        and len(savings) >= top
        and now - bound <= savings[top - 1] * (1 + _NEARLY)
    ):
        return f"cannot save {_NEARLY:.1%} more than the best {top} places"
    if now is None and sum(s.enables for s in like) >= top:
        return f"{top} other places give a plan already"
    return "" if clock.left > 0 else "the time limit came first"


def _suggestion(candidate: _Candidate, now: float | None, change: WhatIf | None, skipped: str) -> Suggestion:
    at_most = None
    if now is not None and candidate.bound is not None:
        at_most = max(0.0, now - candidate.bound)
    saving = dollars = None
    enables = proven = False
    moved: tuple[str, ...] = ()
    if change is not None:
        enables = isinstance(change.before, NoPlan) and isinstance(change.after, Plan)
        if isinstance(change.after, NoPlan):
            none = {"infeasible": "there is no plan with it", "unknown": "the time limit came before a plan"}
            skipped = none[change.after.status]
        proven, moved = change.proven, tuple(stage.stage for stage in change.moved)
        if change.objective_change is not None and change.dollars_change is not None:
            saving, dollars = 0.0 - change.objective_change, 0.0 - change.dollars_change
        if saving is not None and 0.0 < saving <= _slack(change.before):
            saving = dollars = None
            moved, skipped = (), "its saving cannot be told from what the present plan may be off the optimum"
    return Suggestion(
        candidate.model, candidate.count, tuple(map(str, candidate.places)), saving, dollars, at_most, enables, moved,
        proven, skipped, tuple(candidate.devices), tuple(candidate.gangs),
    )  # fmt: skip


def _slack(plan: Plan | NoPlan) -> float:
    """Seconds by which another plan on the same devices may be cheaper."""
    if isinstance(plan, NoPlan):
        return 0.0
    return float("inf") if plan.bound is None else plan.objective - plan.bound


def _worth_showing(found: list[Suggestion]) -> list[Suggestion]:
    """Without gangs that save no more than fewer devices at the same place."""
    best: dict[tuple[str, str], float] = {}
    shown = []
    for one in sorted(found, key=lambda s: s.count):
        key = (one.model, one.places[0])
        worth = one.saving if one.saving is not None else one.at_most if one.skipped else None
        if one.count > 1 and worth is not None and worth <= best.get(key, -np.inf):
            continue
        if worth is not None and not one.skipped:
            best[key] = max(worth, best.get(key, -np.inf))
        shown.append(one)
    return shown


def _rank(one: Suggestion) -> tuple[bool, bool, float, int, str, str]:
    worth = one.saving if one.saving is not None else one.at_most or 0.0
    return (bool(one.skipped), not one.enables, -worth, one.count, one.model, one.places[0])
