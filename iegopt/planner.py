"""The planner: a cluster compiled once, kept up to date in place, asked for plans.

The prices of limits that a solve has found are where the next one starts: it is sooner done, and no answer is less
proven for it. Plans of one planner thus depend, among equally good ones, on what it was asked before.

One request goes builder → compile → solve → decode → verify; a preferred device opens fallback
tiers one after the other. Whatever comes back has passed the independent verifier.
"""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable

from iegopt import library
from iegopt.batch import api as batch
from iegopt.batch_plans import BatchPlan
from iegopt.errors import InputError, InternalError
from iegopt.explain import explain
from iegopt.explain.conflict import Conflict, find_conflict
from iegopt.explain.nearby import nearby
from iegopt.explain.questions import Questions
from iegopt.graph.builder import build_graph
from iegopt.plans import NoPlan, Plan
from iegopt.problem.cluster import CompiledCluster
from iegopt.problem.columns import keep_freed_memory
from iegopt.problem.compile import Compiled, can_focus, compile_graph
from iegopt.problem.decode import decode, in_seconds
from iegopt.solvers.api import solve
from iegopt.solvers.clock import Clock, pressure, punctual
from iegopt.solvers.multipliers import Multipliers
from iegopt.solvers.part import beside, in_whole, of_part, whole_seconds
from iegopt.solvers.result import Params, Result, Status
from iegopt.spec.batch_policy import BatchPolicy
from iegopt.spec.cluster import ClusterSpec
from iegopt.spec.graph import GraphSpec
from iegopt.spec.request import RequestSpec
from iegopt.spec.snapshot import SnapshotSpec
from iegopt.verify.links import Links
from iegopt.verify.plan import check_plan
from iegopt.verify.report import Report

__all__ = ["DEFAULT_TIME_LIMIT", "Planner", "plan", "replan"]

DEFAULT_TIME_LIMIT = 30.0
"""Seconds a plan may take where the caller sets neither a deadline nor a limit."""

_PART_FIRST = 2.0
"""Multiple of what the whole cluster needs, below which the promising sites come first."""
_ANSWER, _FIRST_PACE, _QUICKEST_PACE, _SLOWEST_PACE, _FORGET = 5e-5, 3e-5, 2.5e-5, 1e-4, 0.9
"""Seconds to decode and verify a plan, more per stage before any was measured, at least and at most, and what is left
of a pace after a quicker plan."""
_SOLVE_NEEDS = 5e-4
"""Seconds from which a solve over all sites may come to something."""
_WORTH_A_TRY = 0.3
"""Part of that from which it is tried all the same, where the promising sites have no plan."""
Tokenizer = Callable[[str], int]


class Planner(Questions):
    """Plans requests on one cluster, and answers questions about them (``iegopt.explain.questions``).

    Parameters
    ----------
    cluster
        As loaded by ``iegopt.load_cluster``, or built in Python.
    tokenizer
        Counts the tokens of a prompt given as text; without one they are estimated.

    Raises
    ------
    InputError
        Naming the entry of the cluster that is wrong.
    """

    def __init__(self, cluster: ClusterSpec, *, tokenizer: Tokenizer | None = None) -> None:
        self._cluster = CompiledCluster(cluster)
        self._tokenizer = tokenizer
        self._replanned: BatchPlan | None = None
        # Prices of the last solve that had any: what memory is worth hardly changes from one request to the next.
        self._multipliers: Multipliers | None = None
        self._pace = _FIRST_PACE
        self._links: tuple[CompiledCluster, Links] | None = None
        keep_freed_memory()

    def update(
        self,
        device: str,
        *,
        queue: tuple[int, float] | None = None,
        utilisation: float | None = None,
        used: int | None = None,
    ) -> None:
        """Set a device's queue (depth, wait in service times), compute utilisation (0–1) or used bytes.

        Raises
        ------
        InputError
            Unknown device, or a figure out of range.
        """
        self._cluster.update(device, queue=queue, utilisation=utilisation, used=used)

    def graph(self, request: RequestSpec) -> GraphSpec:
        """The execution graph of a request: the one it gives, or the builder's.

        Raises
        ------
        InputError
            Unknown model, or a graph over its ``dag_constraints``.
        """
        card = library.llm(request.model) if request.model is not None else None
        return build_graph(request, card, tokenizer=self._tokenizer, cards=library.llm).spec

    def load(self, request: RequestSpec) -> None:
        """Read the cards that a request names from their files now, which its first plan would do within its deadline.

        Raises
        ------
        InputError
            As ``plan``.
        """
        graph = self.graph(request)
        names = {stage.model for stage in graph.stages if stage.model is not None}
        for card in map(library.llm, sorted(names)):
            library.path(card.name)

    def compile(self, request: RequestSpec, *, tier: int | None = None) -> Compiled:
        """The placement problem of a request in the cluster's present state; all fallback tiers open by default."""
        return compile_graph(self._cluster, self.graph(request), request, tier=tier)

    def verify(self, plan: Plan, request: RequestSpec, graph: GraphSpec | None = None) -> Report:
        """Recompute a plan from the documents and the present state; every violation is in the report."""
        return check_plan(
            plan,
            graph or self.graph(request),
            request,
            self._cluster.spec,
            self._cluster.by_id,
            self._cluster.state.snapshot(device for stage in plan.stages for device in stage.devices),
            self._cluster.cost_model,
            self._cluster.reference_price,
            self._links_of(self._cluster),
        )

    def _links_of(self, cluster: CompiledCluster) -> Links:
        """The verifier's links of a cluster, kept while the planner has it."""
        if self._links is None or self._links[0] is not cluster:
            self._links = cluster, Links(cluster.spec, cluster.by_id)
        return self._links[1]

    def plan(
        self,
        request: RequestSpec,
        *,
        deadline_ms: float | None = None,
        solver: str = "auto",
        params: Params | None = None,
        explained: bool = True,
        near: Plan | None = None,
    ) -> Plan | NoPlan:
        """Place every stage of a request.

        Parameters
        ----------
        deadline_ms
            Milliseconds until the best verified plan so far is wanted; explanation comes on top. Where they do not
            suffice for the whole cluster, the plan is one over some promising sites, without a bound; the note says
            so. While at most 250 ms run, Python's switch interval is shorter and full garbage collections wait
            (``iegopt.solvers.clock.punctual``).
        solver
            A name of ``iegopt.solvers.api.SOLVERS``.
        explained
            Whether to work out alternatives and binding constraints as well.
        near
            A plan of this request to start from, such as the one before devices went or came: where time suffices for
            the whole cluster, the answer is never worse than the plan that moves only stages which lost their place.

        Returns
        -------
        Plan or NoPlan
            ``NoPlan`` where none exists, with the constraints that conflict, or none was found in time.

        Raises
        ------
        InputError
            The request does not fit the cluster's vocabulary (unknown device, model, precision).
        UnsupportedProblem
            The named solver cannot state the problem.
        InternalError
            The verifier refused an answer.
        """
        started = time.perf_counter()
        params = params or Params()
        if deadline_ms is not None and not deadline_ms >= 0:
            raise InputError(f"deadline_ms {deadline_ms}: expected a number of milliseconds, at least 0")
        limit = deadline_ms / 1000 if deadline_ms is not None else params.time_limit
        clock = Clock(DEFAULT_TIME_LIMIT if limit is None else limit, started)
        with punctual(limit):
            graph = self.graph(request)
            compiled, result = self._solve(request, graph, solver, params, clock, near)
            if compiled is None or result is None or result.choice is None:
                answer = None
                self._learn_pace(0.0)
            else:
                begun = time.thread_time()
                answer = _decoded(compiled, result, clock.seconds)
                report = self.verify(answer, request, graph)
                self._learn_pace((time.thread_time() - begun - _ANSWER) / len(graph.stages))
                if not report.ok:
                    raise InternalError(f"the plan breaks {'; '.join(map(str, report.violations))}")
            seconds = clock.seconds
        if answer is None or compiled is None or result is None or result.choice is None:
            return self._no_plan(request, compiled, result, seconds, explained)
        if not explained:
            return answer
        choice = result.choice
        if compiled.table.whole is not None:
            whole = compile_graph(self._cluster, graph, request, tier=0)
            compiled, choice = whole, in_whole(compiled, choice, whole)
        return dataclasses.replace(answer, explanation=explain(compiled, choice, answer, result.start))

    def _learn_pace(self, seconds: float) -> None:
        """Take the seconds that decoding and verifying took per stage for what they will take; forget slow ones."""
        self._pace = min(_SLOWEST_PACE, max(seconds, _QUICKEST_PACE, _FORGET * self._pace))

    def _solve(
        self, request: RequestSpec, graph: GraphSpec, solver: str, params: Params, clock: Clock, near: Plan | None
    ) -> tuple[Compiled | None, Result | None]:
        """The best result before the clock ends, less what is needed to decode and verify it, and what it is of.

        Short deadlines begin with the promising sites. ``None`` where the time did not suffice to compile.
        """
        ready = Clock(clock.limit - pressure() * (_ANSWER + self._pace * len(graph.stages)), clock.start)
        needs = whole_seconds(graph, self._cluster.sites(self._cluster.gang_sizes).topology)
        part: tuple[Compiled, Result] | None = None
        first = needs if near is not None else _PART_FIRST * needs
        if solver == "auto" and ready.left < first and can_focus(graph, request, self._cluster):
            part = self._over(request, graph, solver, params, ready, focus=True)
            if part is None or part[0].table.whole is None:
                return part or (None, None)
            if ready.left < (needs if part[1].choice is not None else _WORTH_A_TRY * needs):
                return part[0], of_part(part[1], part[0].table)
        whole = self._over(request, graph, solver, params, ready, focus=False, near=near)
        if part is None or part[1].objective is None:
            return whole or (None, None)
        if whole is None or whole[1].objective is None:
            return part[0], of_part(part[1], part[0].table)
        return whole if whole[1].objective <= part[1].objective else (part[0], beside(part[1], whole[1]))

    def _over(
        self, request: RequestSpec, graph: GraphSpec, solver: str, params: Params, clock: Clock, *, focus: bool,
        near: Plan | None = None,
    ) -> tuple[Compiled, Result] | None:  # fmt: skip
        """Compile and solve, over one fallback tier after the other; ``None`` where there was no time to compile."""
        until = clock.start + clock.limit
        tier = 0
        while True:
            compiled = compile_graph(self._cluster, graph, request, tier=tier, focus=focus, until=until)
            if compiled is None or clock.left <= (0.0 if focus else _SOLVE_NEEDS):
                return None
            hint = None if near is None else nearby(compiled.problem, near, clock)
            known = params.multipliers or self._multipliers
            limited = dataclasses.replace(params, time_limit=max(clock.left, 0.0), multipliers=known)
            result = solve(compiled.problem, solver, limited, hint)
            self._multipliers = result.multipliers or self._multipliers
            tier += 1
            if result.status is not Status.INFEASIBLE or tier >= len(compiled.tiers):
                return compiled, result

    def _no_plan(
        self, request: RequestSpec, compiled: Compiled | None, result: Result | None, seconds: float, explained: bool
    ) -> NoPlan:
        if compiled is None or result is None:
            note = "the deadline came before the request was compiled"
            return NoPlan(
                request=request.id, cluster=self._cluster.spec.name, status=str(Status.UNKNOWN), bound=None,
                solver="none", seconds=seconds, note=note, tier=None, conflicts=(),
            )  # fmt: skip
        return _no_plan(compiled, result, seconds, explained)

    def replan(
        self,
        snapshot: SnapshotSpec,
        policy: BatchPolicy | None = None,
        *,
        deadline_ms: float | None = None,
    ) -> BatchPlan:
        """Plan a whole queue at once (docs/replanning.md); what the last replan of this planner placed and still
        waits keeps its place unless another is better.

        Parameters
        ----------
        deadline_ms
            Milliseconds until the best plan so far is wanted.

        Raises
        ------
        InputError
            The snapshot does not fit the cluster, or is older than the one before.
        """
        answer = batch.replan(snapshot, self._cluster, policy, deadline_ms=deadline_ms, previous=self._replanned)
        self._replanned = answer
        return answer


def plan(
    request: RequestSpec,
    cluster: ClusterSpec,
    *,
    deadline_ms: float | None = None,
    solver: str = "auto",
    params: Params | None = None,
    tokenizer: Tokenizer | None = None,
) -> Plan | NoPlan:
    """Place one request on a cluster; for many requests keep a ``Planner``. See ``Planner.plan``."""
    return Planner(cluster, tokenizer=tokenizer).plan(request, deadline_ms=deadline_ms, solver=solver, params=params)


def replan(
    snapshot: SnapshotSpec,
    cluster: ClusterSpec,
    policy: BatchPolicy | None = None,
    *,
    deadline_ms: float | None = None,
    previous: BatchPlan | None = None,
) -> BatchPlan:
    """Plan a queue once; again and again with a ``Planner``, which keeps the cluster. See ``Planner.replan``.

    Parameters
    ----------
    previous
        The plan before, whose placements are kept unless others are better.
    """
    return batch.replan(snapshot, CompiledCluster(cluster), policy, deadline_ms=deadline_ms, previous=previous)


def _decoded(compiled: Compiled, result: Result, seconds: float) -> Plan:
    assert result.choice is not None
    assert result.objective is not None
    return decode(
        compiled, result.choice, status=str(result.status), objective=result.objective, bound=result.bound,
        gap=result.gap, proof=result.proof, solver=result.solver, seconds=seconds, note=result.note,
        start=result.start,
    )  # fmt: skip


def _no_plan(compiled: Compiled, result: Result, seconds: float, explained: bool) -> NoPlan:
    wanted = explained and result.status is Status.INFEASIBLE
    conflicts = [_with_reasons(compiled, c) for c in find_conflict(compiled.problem)] if wanted else []
    return NoPlan(
        request=compiled.request.id,
        cluster=compiled.cluster.spec.name,
        status=str(result.status),
        bound=in_seconds(result.bound),
        solver=result.solver,
        seconds=seconds,
        note=result.note,
        tier=compiled.tier,
        conflicts=tuple(dataclasses.asdict(conflict) for conflict in conflicts),
    )


def _with_reasons(compiled: Compiled, conflict: Conflict) -> Conflict:
    """A stage without any option says why every kind of site refused it."""
    if conflict.rule != "options":
        return conflict
    stages = [stage.id for stage in compiled.graph.stages]
    if conflict.where not in stages:
        return conflict
    v = stages.index(conflict.where)
    refused = compiled.stages[v].refused.most_common()
    reasons = "; ".join(f"{reason} ({count} site{'s' * (count > 1)})" for reason, count in refused)
    return dataclasses.replace(conflict, sentence=f"{conflict.sentence}: {reasons or _no_gang(compiled, v)}")


def _no_gang(compiled: Compiled, v: int) -> str:
    """Where no site was even refused, none has the size that the stage asks for."""
    parallelism = compiled.graph.stages[v].parallelism
    size = parallelism.degree if parallelism else 1
    listed = "the cluster lists none" if compiled.cluster.spec.gangs else "no host has as many of one model"
    return f"it asks for a gang of {size} devices, and {listed}"
