"""The planner: a cluster compiled once, kept up to date in place, asked for plans.

The prices of limits that a solve has found are where the next one starts: it is sooner done, and no answer is less
proven for it. Plans of one planner thus depend, among equally good ones, on what it was asked before.

One request goes builder → compile → solve → decode → verify; a preferred device opens fallback
tiers one after the other. Whatever comes back has passed the independent verifier.
"""

from __future__ import annotations

import dataclasses
import time
import weakref
from collections.abc import Callable
from typing import Self, overload

from iegopt import library
from iegopt.batch import api as batch
from iegopt.batch.arguments import check_milliseconds, check_type
from iegopt.batch.tail import Tail
from iegopt.batch_plans import BatchPlan
from iegopt.errors import InputError, InternalError
from iegopt.explain import explain
from iegopt.explain.chosen import chosen, starts_of
from iegopt.explain.questions import Questions
from iegopt.graph.builder import build_graph
from iegopt.planner.answer import barely_in_time, beside_first, conflicts_of, decoded, no_plan, no_time
from iegopt.planner.first_check import FirstChecks
from iegopt.planner.in_time import InTime
from iegopt.plans import NoPlan, Plan
from iegopt.problem.cluster import CompiledCluster
from iegopt.problem.columns import keep_freed_memory
from iegopt.problem.compile import Compiled, compile_graph
from iegopt.problem.decode import in_seconds
from iegopt.solvers.clock import Clock, punctual
from iegopt.solvers.result import Params, Result, Status
from iegopt.spec.batch_policy import BatchPolicy
from iegopt.spec.cluster import ClusterSpec
from iegopt.spec.graph import GraphSpec
from iegopt.spec.request import RequestSpec
from iegopt.spec.snapshot import SnapshotSpec
from iegopt.verify.links import Links
from iegopt.verify.plain import WidestPrecision
from iegopt.verify.plan import check_plan
from iegopt.verify.report import Report

__all__ = ["DEFAULT_TIME_LIMIT", "Planner", "plan", "replan"]

DEFAULT_TIME_LIMIT = 30.0
"""Seconds a plan may take where the caller sets neither a deadline nor a limit."""

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
    TypeError
        Here and in every method: an argument that is of no type of its own, such as a file's name for what is in it.
    """

    def __init__(self, cluster: ClusterSpec, *, tokenizer: Tokenizer | None = None) -> None:
        check_type("cluster", cluster, ClusterSpec, made_by="iegopt.load_cluster reads one")
        self._cluster = CompiledCluster(cluster)
        self._tokenizer = tokenizer
        self._replanned: BatchPlan | None = None
        self._tail = Tail()
        self._in_time = InTime()
        # Of the last request: requests do not change, and who loads one plans it next. Gone when that is, so that
        # nobody's deadline pays for letting go of a graph.
        self._graph: list[tuple[weakref.ref[RequestSpec], GraphSpec]] = []
        self._known: tuple[CompiledCluster, tuple[Links, WidestPrecision]] | None = None
        self._checks = FirstChecks(*self._known_of(self._cluster))
        self._prepare()
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
        self._prepare()

    def _prepare(self) -> None:
        """What the next deadline need not wait for."""
        self._checks.prepare(self._in_time.prepare(self._cluster))

    def graph(self, request: RequestSpec) -> GraphSpec:
        """The execution graph of a request: the one it gives, or the builder's.

        Raises
        ------
        InputError
            Unknown model, or a graph over its ``dag_constraints``.
        """
        self._asked(request)
        for known, graph in self._graph:
            if known() is request:
                return graph
        card = library.llm(request.model) if request.model is not None else None
        graph = build_graph(request, card, tokenizer=self._tokenizer, cards=library.llm).spec
        kept = self._graph = []
        kept.append((weakref.ref(request, lambda _: kept.clear()), graph))
        return graph

    def load(self, request: RequestSpec) -> None:
        """Read the cards that a request names from their files, build its graph and work out what its stages take now,
        which its first plan would do within its deadline.

        Raises
        ------
        InputError
            As ``plan``.
        """
        graph = self.graph(request)
        names = {stage.model for stage in graph.stages if stage.model is not None}
        for card in map(library.llm, sorted(names)):
            library.path(card.name)
        self._in_time.load(self._cluster, request, graph)

    def compile(self, request: RequestSpec, *, tier: int | None = None) -> Compiled:
        """The placement problem of a request in the cluster's present state; all fallback tiers open by default."""
        return compile_graph(self._cluster, self.graph(request), request, tier=tier)

    def verify(self, plan: Plan, request: RequestSpec, graph: GraphSpec | None = None) -> Report:
        """Recompute a plan from the documents and the present state; every violation is in the report."""
        check_type("plan", plan, Plan)
        return check_plan(
            plan,
            graph or self.graph(request),
            request,
            self._cluster.spec,
            self._cluster.by_id,
            self._cluster.state.snapshot(device for stage in plan.stages for device in stage.devices),
            self._cluster.cost_model,
            self._cluster.reference_price,
            *self._known_of(self._cluster),
        )

    def _known_of(self, cluster: CompiledCluster) -> tuple[Links, WidestPrecision]:
        """What the verifier has looked up of a cluster, kept while the planner has it."""
        if self._known is None or self._known[0] is not cluster:
            self._known = cluster, (Links(cluster.spec, cluster.by_id), WidestPrecision())
        return self._known[1]

    def plan(
        self,
        request: RequestSpec,
        *,
        deadline_ms: float | None = None,
        solver: str = "auto",
        params: Params | None = None,
        explained: bool | None = None,
        near: Plan | None = None,
    ) -> Plan | NoPlan:
        """Place every stage of a request.

        Parameters
        ----------
        deadline_ms
            Milliseconds until the best verified plan so far is wanted. Where they do not
            suffice for the whole cluster, the plan is one over some promising sites, without a bound; the note says
            so. While at most 250 ms run, Python's switch interval is shorter and garbage collections wait
            (``iegopt.solvers.clock.punctual``).
        solver
            A name of ``iegopt.solvers.api.SOLVERS``.
        explained
            Whether to work out alternatives and binding constraints, or those that conflict, as well. By default that
            is done where no deadline is set: it comes on top of one. ``Planner.explained`` does it afterwards.
        near
            A plan of this request to start from, such as the one before devices went or came: where time suffices for
            the whole cluster, the answer is never worse than the plan that moves only stages which lost their place.

        Returns
        -------
        Plan or NoPlan
            ``NoPlan`` where none exists, or none was found in time: its status, proof and note say which and why.

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
        check_type("params", params, Params, optional=True)
        check_type("near", near, Plan, optional=True)
        check_milliseconds("deadline_ms", deadline_ms)
        params = params or Params()
        if deadline_ms is not None and not deadline_ms >= 0:
            raise InputError(f"deadline_ms {deadline_ms}: expected a number of milliseconds, at least 0")
        wanted = deadline_ms is None if explained is None else explained
        limit = deadline_ms / 1000 if deadline_ms is not None else params.time_limit
        clock = Clock(DEFAULT_TIME_LIMIT if limit is None else limit, started)
        with punctual(limit):
            graph = self.graph(request)
            first = self._first(request, graph, solver, clock) if near is None else None
            compiled, result = self._in_time.solve(
                self._cluster, request, graph, solver, params, clock, near, planned=first is not None
            )
            answer = self._better(compiled, result, first, request, graph, clock)
            seconds = clock.seconds
        if answer is None:
            if compiled is None or result is None:
                return no_time(request.id, self._cluster.spec.name, seconds)
            return no_plan(compiled, result, seconds, wanted)
        return self._explained(answer, compiled, result, request, graph) if wanted else answer

    @overload
    def explained(self, answer: Plan, request: RequestSpec) -> Plan: ...
    @overload
    def explained(self, answer: NoPlan, request: RequestSpec) -> NoPlan: ...
    def explained(self, answer: Plan | NoPlan, request: RequestSpec) -> Plan | NoPlan:
        """An answer to a request with its explanation, or the constraints that conflict, in the cluster's present
        state: what ``plan`` leaves out where a deadline is set.

        Raises
        ------
        InputError
            The plan is of another request or cluster.
        """
        graph = self.graph(request)
        if isinstance(answer, Plan):
            return self._explained(answer, None, None, request, graph)
        if answer.status != Status.INFEASIBLE:
            return answer
        compiled = compile_graph(self._cluster, graph, request, tier=0)
        if answer.tier in compiled.tiers[1:]:
            compiled = compile_graph(self._cluster, graph, request, tier=compiled.tiers.index(answer.tier))
        return dataclasses.replace(answer, conflicts=conflicts_of(compiled))

    def _first(self, request: RequestSpec, graph: GraphSpec, solver: str, clock: Clock) -> Plan | None:
        """A verified first plan, where the deadline is short; ``None`` where there is none, or it breaks a limit of the
        whole request, which its making does not look at."""
        plan = self._in_time.first(self._cluster, request, graph, solver, clock)
        if plan is None:
            return None
        begun = time.thread_time()
        holds = self._checks.hold(plan, request, graph)
        violations = () if holds else self.verify(plan, request, graph).violations
        self._in_time.learn_check(time.thread_time() - begun, len(graph.stages), by_arrays=holds)
        wrong = [each for each in violations if each.rule not in ("deadline", "finish_by", "budget")]
        if wrong:
            raise InternalError(f"the plan breaks {'; '.join(map(str, wrong))}")
        return None if violations else plan

    def _better(
        self, compiled: Compiled | None, result: Result | None, first: Plan | None, request: RequestSpec,
        graph: GraphSpec, clock: Clock,
    ) -> Plan | None:  # fmt: skip
        """The verified plan of a result, or the first plan where that is better or the only one."""
        if compiled is None or result is None or result.choice is None:
            if first is None:
                self._in_time.learn(0.0, len(graph.stages))
            elif result is not None and result.status is Status.INFEASIBLE and not barely_in_time(first, request):
                raise InternalError(f"{result.solver} calls infeasible what has a plan of {first.objective} s")
            return first
        value = in_seconds(result.objective)
        if first is not None and value is not None and first.objective < value:
            return beside_first(first, result)
        begun = time.thread_time()
        answer = decoded(compiled, result, clock.seconds)
        report = self.verify(answer, request, graph)
        self._in_time.learn(time.thread_time() - begun, len(graph.stages))
        if not report.ok:
            raise InternalError(f"the plan breaks {'; '.join(map(str, report.violations))}")
        return answer

    def _explained(
        self, answer: Plan, compiled: Compiled | None, result: Result | None, request: RequestSpec, graph: GraphSpec
    ) -> Plan:
        """With its explanation; where it is not the plan of this result, by the plan itself."""
        told = result is not None and result.choice is not None and in_seconds(result.objective) == answer.objective
        if told and compiled is not None and compiled.table.whole is None:
            assert result is not None
            assert result.choice is not None
            return dataclasses.replace(answer, explanation=explain(compiled, result.choice, answer, result.start))
        compiled, choice = chosen(self._cluster, graph, request, answer)
        start = starts_of(compiled.problem, answer)
        return dataclasses.replace(answer, explanation=explain(compiled, choice, answer, start))

    def _asked(self, request: RequestSpec) -> None:
        check_type("request", request, RequestSpec, made_by="iegopt.load_request reads one")

    def _on(self, cluster: CompiledCluster) -> Self:
        other = super()._on(cluster)
        other._in_time = self._in_time.for_another()
        other._checks = FirstChecks(*other._known_of(other._cluster))
        return other

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
            Milliseconds until the best plan so far is wanted; without, five seconds.

        Raises
        ------
        InputError
            The snapshot does not fit the cluster, or is older than the one before.
        """
        answer = batch.replan(
            snapshot, self._cluster, policy, deadline_ms=deadline_ms, previous=self._replanned, tail=self._tail
        )
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
    explained: bool | None = None,
) -> Plan | NoPlan:
    """Place one request on a cluster; for many requests keep a ``Planner``. See ``Planner.plan``."""
    planner = Planner(cluster, tokenizer=tokenizer)
    return planner.plan(request, deadline_ms=deadline_ms, solver=solver, params=params, explained=explained)


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
    check_type("cluster", cluster, ClusterSpec, made_by="iegopt.load_cluster reads one")
    return batch.replan(snapshot, CompiledCluster(cluster), policy, deadline_ms=deadline_ms, previous=previous)
