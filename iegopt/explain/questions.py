"""What can be asked of a planner beside plans: what if, where to add, what is critical, sensitivity, shadow prices.

Every answer works on copies; the planner's cluster and its state stay as they are. Time limits are in seconds and hold
for the whole question; what they leave out is said in the answer. The present plan, where it is at hand, goes in as
``before``; one of another request or cluster is refused.
"""

from __future__ import annotations

import copy
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from typing import Self

from iegopt.errors import InputError
from iegopt.explain.chosen import chosen
from iegopt.explain.criticality import Criticality, criticality
from iegopt.explain.edited import Telemetry, edited
from iegopt.explain.parametric import flips_by_replan
from iegopt.explain.places import Stock, find_place
from iegopt.explain.sensitivity import Sensitivity, flips_by_move
from iegopt.explain.shadow import ShadowPrices, shadow_prices
from iegopt.explain.suggest import Suggestion, suggest
from iegopt.explain.what_if import WhatIf
from iegopt.plans import NoPlan, Plan
from iegopt.problem.cluster import CompiledCluster
from iegopt.solvers.clock import Clock
from iegopt.solvers.result import Params
from iegopt.spec.device import DeviceSpec
from iegopt.spec.graph import GraphSpec
from iegopt.spec.request import Objective, RequestSpec

__all__ = ["Questions", "why_no_prices", "why_no_sensitivity"]


def why_no_sensitivity(request: RequestSpec) -> str:
    """Why ``sensitivity`` does not apply to a request; empty where it does."""
    if request.objective is Objective.CRITICAL_PATH:
        return "objective critical_path is not linear in its weights' terms, only sum is"
    return ""


def why_no_prices(request: RequestSpec) -> str:
    """Why ``shadow_prices`` does not apply to a request; empty where it does."""
    if request.objective is Objective.CRITICAL_PATH and request.no_overlap:
        return "with no_overlap, objective critical_path depends on start times: not priced"
    return ""


_NO_PLAN_IN_TIME = "the time limit came before there was a plan"


class Questions(ABC):
    """The questions of a ``Planner``."""

    _cluster: CompiledCluster

    @abstractmethod
    def graph(self, request: RequestSpec) -> GraphSpec: ...

    @abstractmethod
    def _asked(self, request: RequestSpec) -> None:
        """Refuse what is no request (``TypeError``)."""

    @abstractmethod
    def plan(
        self,
        request: RequestSpec,
        *,
        deadline_ms: float | None = None,
        solver: str = "auto",
        params: Params | None = None,
        explained: bool | None = None,
        near: Plan | None = None,
    ) -> Plan | NoPlan: ...

    def what_if(
        self,
        request: RequestSpec,
        *,
        remove: str | Iterable[str] = (),
        add: Sequence[DeviceSpec] = (),
        update: Mapping[str, Telemetry] | None = None,
        before: Plan | NoPlan | None = None,
        time_limit: float = 30.0,
    ) -> WhatIf:
        """Plan a request now and on an edited copy of the cluster, see ``iegopt.explain.edited``.

        Objectives are compared at the present reference price. ``update`` is by device id, with the words of
        ``Planner.update``.

        Raises
        ------
        InputError
            Unknown devices, a device that stands twice, or nothing left.
        """
        changed = self.changed(remove=remove, add=add, update=update)
        clock, before = self._begin(request, before, time_limit)
        return WhatIf(before, changed._from(before, request, max(clock.left, 0.0)))

    def changed(
        self,
        *,
        remove: str | Iterable[str] = (),
        add: Sequence[DeviceSpec] = (),
        update: Mapping[str, Telemetry] | None = None,
    ) -> Self:
        """A planner like this one on an edited copy of the cluster; arguments and what it raises as for ``what_if``."""
        return self._on(edited(self._cluster, remove=remove, add=add, update=update))

    def idle_devices(self, model: str, place: str, count: int = 1) -> list[DeviceSpec]:
        """``count`` idle devices of a model for ``what_if``: on a new host of the rack ``place``, or on the host.

        Raises
        ------
        InputError
            Unknown model or place, or a name that several racks or hosts have; a ``count`` below 1.
        """
        if not (isinstance(count, int) and count >= 1):
            raise InputError(f"idle_devices: count {count!r}: expected a whole number, at least 1")
        return Stock(self._cluster).idle(model, find_place(self._cluster, place), count)

    def suggest(
        self,
        request: RequestSpec,
        candidates: str | DeviceSpec | Sequence[str | DeviceSpec] | None = None,
        *,
        before: Plan | NoPlan | None = None,
        top: int = 3,
        time_limit: float = 30.0,
    ) -> tuple[Suggestion, ...]:
        """Where one more idle device, or a gang of the size that stages use, saves most.

        Parameters
        ----------
        candidates
            Device models, or entries of a cluster's file, or one of them alone; left out, every model of the cluster.
        before
            The present plan, where it is at hand.
        top
            The places per model and number that are worked out at least, as far as they save anything and time allows;
            what was skipped, and why, comes after them.

        Raises
        ------
        InputError
            A model that neither the cluster nor the library has; a ``top`` below 1.
        """
        if not (isinstance(top, int) and top >= 1):
            raise InputError(f"suggest: top {top!r}: expected a whole number, at least 1")
        if isinstance(candidates, str | DeviceSpec):
            candidates = [candidates]
        clock, before = self._begin(request, before, time_limit)

        def replan(cluster: CompiledCluster, seconds: float) -> Plan | NoPlan:
            return self._on(cluster)._from(before, request, seconds)

        graph = self.graph(request)
        return suggest(self._cluster, graph, request, before, replan, clock, candidates=candidates, top=top)

    def criticality(
        self, request: RequestSpec, *, before: Plan | NoPlan | None = None, time_limit: float = 30.0
    ) -> tuple[Criticality, ...]:
        """Every device of the plan (``before``, where it is at hand), the one whose removal costs most first.

        Empty where there is no plan, or was none in time.
        """
        clock, before = self._begin(request, before, time_limit)
        if isinstance(before, NoPlan):
            return ()

        def replan(cluster: CompiledCluster, seconds: float) -> Plan | NoPlan:
            return self._on(cluster)._from(before, request, seconds)

        return criticality(self._cluster, self.graph(request), before, replan, clock)

    def sensitivity(
        self,
        request: RequestSpec,
        *,
        before: Plan | NoPlan | None = None,
        exact: bool = False,
        time_limit: float = 30.0,
    ) -> Sensitivity | None:
        """The change of every weight at which a stage leaves its devices; ``None`` where it is proven there is no plan.

        Where no plan was found in time, there are no flips and the note says so.

        Flips of the best single move always; with ``exact``, those of the re-solved optimum too.

        Raises
        ------
        InputError
            The objective is the critical path.
        """
        self._asked(request)
        reason = why_no_sensitivity(request)
        if reason:
            raise InputError(f"sensitivity: {reason}")
        clock, before = self._begin(request, before, time_limit)
        if isinstance(before, NoPlan):
            return None if before.status == "infeasible" else Sensitivity((), False, _NO_PLAN_IN_TIME)
        compiled, choice = chosen(self._cluster, self.graph(request), request, before)
        moves = flips_by_move(compiled, choice, clock)
        if not exact:
            return moves
        solved = flips_by_replan(compiled, choice, clock, optimal=before.status == "optimal")
        note = "; ".join(filter(None, (moves.note, solved.note)))
        return Sensitivity(moves.flips + solved.flips, moves.complete and solved.complete, note, solved.searched)

    def shadow_prices(
        self, request: RequestSpec, *, before: Plan | NoPlan | None = None, time_limit: float = 30.0
    ) -> ShadowPrices | None:
        """What a little more of every limit that forbids a cheaper move would save.

        ``None`` where it is proven that there is no plan. Where none was found in time, there are no prices and the
        note says so.

        Raises
        ------
        InputError
            The objective is the critical path, and stages must not overlap.
        """
        self._asked(request)
        reason = why_no_prices(request)
        if reason:
            raise InputError(f"shadow_prices: {reason}")
        clock, before = self._begin(request, before, time_limit)
        if isinstance(before, NoPlan):
            return None if before.status == "infeasible" else ShadowPrices((), False, _NO_PLAN_IN_TIME)
        compiled, choice = chosen(self._cluster, self.graph(request), request, before)
        return shadow_prices(compiled, choice, clock, optimal=before.status == "optimal")

    def _begin(
        self, request: RequestSpec, before: Plan | NoPlan | None, time_limit: float
    ) -> tuple[Clock, Plan | NoPlan]:
        self._asked(request)
        if not (isinstance(time_limit, int | float) and time_limit >= 0):
            raise InputError(f"time_limit {time_limit!r}: expected a number of seconds, at least 0")
        clock = Clock(time_limit)
        if before is None:
            return clock, self.plan(request, deadline_ms=500 * time_limit, explained=False)
        of, asked = (before.request, before.cluster), (request.id, self._cluster.spec.name)
        if of != asked:
            raise InputError("before: a plan of {} on {}, asked about {} on {}".format(*of, *asked))
        if isinstance(before, Plan) and {s.id for s in before.stages} != {s.id for s in self.graph(request).stages}:
            raise InputError(f"before: a plan of another request {request.id}, of other stages")
        return clock, before

    def _from(self, before: Plan | NoPlan, request: RequestSpec, seconds: float) -> Plan | NoPlan:
        """The plan of a request within so many seconds, started from the plan before a change."""
        near = before if isinstance(before, Plan) else None
        return self.plan(request, deadline_ms=1000 * seconds, explained=False, near=near)

    def _on(self, cluster: CompiledCluster) -> Self:
        """This planner on another cluster."""
        other = copy.copy(self)
        other._cluster = cluster
        return other
