"""The preferred device and precision of a request on this cluster, and the latency that lower tiers may cost."""

from __future__ import annotations

import dataclasses
import math

import numpy as np
import numpy.typing as npt

from iegopt import library
from iegopt.cost.roofline import device_capacity
from iegopt.problem.cluster import CompiledCluster
from iegopt.problem.stage_options import StageOptions
from iegopt.problem.tiers import Preferred, preferred
from iegopt.spec.kinds import LLM_KINDS
from iegopt.spec.request import RequestSpec
from iegopt.spec.stage import Parallelism, ParallelStrategy, Precision, StageSpec

__all__ = ["asked_precision", "preference_for", "seconds_on_card", "stage_preference", "within_latency"]


def preference_for(request: RequestSpec, cluster: CompiledCluster) -> Preferred | None:
    """The preference of a request; ``None`` where it names no device and no policy ranks precisions."""
    policy = request.fallback_policy or cluster.spec.fallback_policy
    family = request.prefer.device if request.prefer else None
    if family is None and policy is None:
        return None
    return preferred(family, request.precision, policy, cluster.classes)


def asked_precision(stage: StageSpec, request: RequestSpec) -> Precision | None:
    """The precision of a stage's top tier: its own; without one, for an LLM stage, the request's or else the native."""
    if stage.compute.precision is not None or stage.type not in LLM_KINDS:
        return stage.compute.precision
    return request.precision or (library.llm(stage.model).native_precision if stage.model is not None else None)


def stage_preference(preference: Preferred | None, stage: StageSpec, request: RequestSpec) -> Preferred | None:
    """The preference as it holds for one stage, whose precision is its own; it speaks of prefills and decodes alone."""
    if stage.type not in LLM_KINDS or stage.model is None:
        return None
    return preference and dataclasses.replace(preference, precision=asked_precision(stage, request))


def within_latency(
    stage: StageSpec,
    options: StageOptions,
    tiers: npt.NDArray[np.int64],
    preference: Preferred,
    cluster: CompiledCluster,
) -> npt.NDArray[np.bool_]:
    """Options of lower tiers that are at most ``max_latency_increase`` slower than the best preferred one."""
    best = options.time[tiers == 0].min(initial=math.inf)
    if math.isinf(best):
        best = seconds_on_card(stage, preference, cluster)
    limit = best * (1.0 + preference.policy.max_latency_increase)
    slow = (tiers > 0) & (options.time > limit)
    if slow.any():
        options.refused["over max_latency_increase slower than the preferred device"] += int(slow.sum())
    return np.asarray(~slow)


def seconds_on_card(stage: StageSpec, preference: Preferred, cluster: CompiledCluster) -> float:
    """Idle seconds on the library's card of the preferred device, which the cluster lacks; infinite without one."""
    best = math.inf
    degrees = (stage.parallelism.degree,) if stage.parallelism else (1, *cluster.gang_sizes)
    for card in library.all_cards("device"):
        if preference.family is None or not library.compatible((preference.family,), card.name):
            continue
        precision = preference.precision or (library.llm(stage.model).native_precision if stage.model else None)
        capacity = device_capacity(card, precision) if precision else None
        if precision is None or capacity is None:
            continue
        for k in degrees:
            gang = stage.parallelism or Parallelism(
                strategy=ParallelStrategy.TENSOR if k > 1 else ParallelStrategy.NONE, degree=k
            )
            cost = cluster.cost_model.stage_cost(
                stage, library.llm(stage.model) if stage.model else None, precision, card.name, capacity, gang,
                efficiency=card.efficiency or 1.0, parallel_efficiency=cluster.spec.parallel_efficiency,
            )  # fmt: skip
            best = min(best, cost.t0)
    return best
