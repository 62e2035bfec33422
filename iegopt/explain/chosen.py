"""A plan back in indices: the problem it answers, and the option of every stage."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from iegopt.cost.weights import dollars
from iegopt.errors import InputError
from iegopt.plans import Plan
from iegopt.problem.arrays import TICKS_PER_SECOND, Problem
from iegopt.problem.cluster import CompiledCluster
from iegopt.problem.compile import Compiled, compile_graph
from iegopt.problem.transfer import edge_ticks
from iegopt.spec.graph import GraphSpec
from iegopt.spec.request import RequestSpec

__all__ = ["chosen", "options_of", "spent_dollars", "starts_of", "term_sums"]

Ints = npt.NDArray[np.int64]


def chosen(
    cluster: CompiledCluster, graph: GraphSpec, request: RequestSpec, plan: Plan
) -> tuple[Compiled, Ints]:  # fmt: skip
    """The problem of a request at the plan's fallback tier, and the plan's choice (V,) in it.

    Raises
    ------
    InputError
        The plan is of another request or cluster: a stage or an option of it does not exist.
    """
    compiled = compile_graph(cluster, graph, request, tier=0)
    if plan.tier in compiled.tiers[1:]:
        compiled = compile_graph(cluster, graph, request, tier=compiled.tiers.index(plan.tier))
    choice = np.empty(compiled.problem.V, dtype=np.int64)
    for v, option in enumerate(options_of(compiled.problem, plan)):
        if option is None:
            stage = compiled.problem.stages[v]
            site = plan.placement.get(stage, {"site": ""})["site"]
            raise InputError(f"the plan is not of this request and cluster: no option of {stage} is {site!r}")
        choice[v] = option
    return compiled, choice


def options_of(problem: Problem, plan: Plan) -> list[int | None]:
    """The option of every stage that stands where the plan has it; ``None`` where there is none."""
    options = problem.options
    sites = {name: s for s, name in enumerate(problem.topology.sites)}
    variants = {name: m for m, name in enumerate(problem.variants)}
    placement = plan.placement
    found: list[int | None] = []
    for v, stage in enumerate(problem.stages):
        place = placement.get(stage, {"site": "", "variant": ""})
        own = options.of(v)
        at = (options.site[own] == sites.get(place["site"], -1)) & (
            options.variant[own] == variants.get(place["variant"], -1)
        )
        found.append(own.start + int(np.argmax(at)) if at.any() else None)
    return found


def starts_of(problem: Problem, plan: Plan) -> Ints | None:
    """(V,) ticks at which the stages of a plan start, where they are part of it: where stages must not overlap."""
    if not problem.no_overlap:
        return None
    start = {stage.id: stage.start for stage in plan.stages}
    return np.array([round(start[stage] * TICKS_PER_SECOND) for stage in problem.stages], dtype=np.int64)


def term_sums(compiled: Compiled, choice: Ints) -> dict[str, float]:
    """The unweighted terms L, T, M and D of a choice (V,), in seconds."""
    problem = compiled.problem
    sums = {"L": 0.0, "T": 0.0, "M": 0.0}
    for v, options in enumerate(compiled.stages):
        i = int(compiled.kept[v][choice[v] - int(problem.options.ptr[v])])
        for term, figures in (("L", options.t0), ("T", options.time), ("M", options.money)):
            sums[term] += float(figures[i])
    ends = zip(problem.edges.source.tolist(), problem.edges.target.tolist(), strict=True)
    moved = sum(int(edge_ticks(problem, e, choice[u], choice[v])[0]) for e, (u, v) in enumerate(ends))
    return {**sums, "D": moved / TICKS_PER_SECOND}


def spent_dollars(compiled: Compiled, choice: Ints) -> float:
    """What the sites of a choice (V,) cost while its stages run."""
    return dollars(compiled.cluster.reference_price, term_sums(compiled, choice)["M"])
