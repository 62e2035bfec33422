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

import numpy as np

from iegopt import library
from iegopt.errors import InputError, InternalError
from iegopt.explain import explain
from iegopt.explain.conflict import Conflict, find_conflict
from iegopt.explain.questions import Questions
from iegopt.graph.builder import build_graph
from iegopt.plans import NoPlan, Plan
from iegopt.problem.cluster import CompiledCluster
from iegopt.problem.compile import Compiled, compile_graph
from iegopt.problem.decode import decode, in_seconds
from iegopt.solvers.api import solve
from iegopt.solvers.multipliers import Multipliers
from iegopt.solvers.result import Params, Result, Status
from iegopt.spec.cluster import ClusterSpec
from iegopt.spec.graph import GraphSpec
from iegopt.spec.request import RequestSpec
from iegopt.verify.plan import check_plan
from iegopt.verify.report import Report

__all__ = ["DEFAULT_TIME_LIMIT", "Planner", "plan"]

DEFAULT_TIME_LIMIT = 30.0
"""Seconds a plan may take where the caller sets neither a deadline nor a limit."""

_LARGE_BLOCK = 30 * 2**20
"""Bytes: just below the largest that glibc adapts to."""

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
        _keep_freed_memory()
        # Prices of the last solve that had any: what memory is worth hardly changes from one request to the next.
        self._multipliers: Multipliers | None = None

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
        self._cluster.state.update(device, queue=queue, utilisation=utilisation, used=used)

    def graph(self, request: RequestSpec) -> GraphSpec:
        """The execution graph of a request: the one it gives, or the builder's.

        Raises
        ------
        InputError
            Unknown model, or a graph over its ``dag_constraints``.
        """
        card = library.llm(request.model) if request.model is not None else None
        return build_graph(request, card, tokenizer=self._tokenizer, cards=library.llm).spec

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
        )

    def plan(
        self,
        request: RequestSpec,
        *,
        deadline_ms: float | None = None,
        solver: str = "auto",
        params: Params | None = None,
        explained: bool = True,
    ) -> Plan | NoPlan:
        """Place every stage of a request.

        Parameters
        ----------
        deadline_ms
            Milliseconds until the best verified plan so far is wanted; explanation comes on top.
        solver
            A name of ``iegopt.solvers.api.SOLVERS``.
        explained
            Whether to work out alternatives and binding constraints as well.

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
        deadline = started + (DEFAULT_TIME_LIMIT if limit is None else limit)
        graph = self.graph(request)
        tier = 0
        while True:
            compiled = compile_graph(self._cluster, graph, request, tier=tier)
            left = max(deadline - time.perf_counter(), 0.0)
            known = params.multipliers or self._multipliers
            result = solve(compiled.problem, solver, dataclasses.replace(params, time_limit=left, multipliers=known))
            self._multipliers = result.multipliers or self._multipliers
            tier += 1
            if result.status is not Status.INFEASIBLE or tier >= len(compiled.tiers):
                break
        seconds = time.perf_counter() - started
        if result.choice is None:
            return _no_plan(compiled, result, seconds, explained)
        answer = _decoded(compiled, result, seconds)
        report = self.verify(answer, request, graph)
        if not report.ok:
            raise InternalError(f"the plan breaks {'; '.join(map(str, report.violations))}")
        if not explained:
            return answer
        return dataclasses.replace(answer, explanation=explain(compiled, result.choice, answer, result.start))


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


def _keep_freed_memory() -> None:
    """Let glibc keep the arrays of one plan for the next, in place of returning them to the system.

    Its ``malloc`` maps blocks of over 128 kB one by one, and returns the top of the heap, until a block of 32 MB at
    most was freed: from then on blocks of that size come from a heap of which it keeps twice as much (mallopt(3),
    M_MMAP_THRESHOLD). The block is never touched. Without it, a plan on 1,024 devices spends a third of its time on
    500 page faults. Where memory comes from elsewhere, nothing changes.
    """
    np.empty(_LARGE_BLOCK, dtype=np.uint8)


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
