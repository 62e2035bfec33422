"""The policy blocks of the source: graph limits, KV transfer, fallback, preemption,
profiling matrix and the state table (sections 5.3, 5.4, 6.4, 6.5, 6.6.2, 7.5)."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from functools import lru_cache
from typing import Any, Literal, Self

from pydantic import model_validator

from iegopt.spec.base import Name, Spec
from iegopt.spec.quantities import (
    Bytes,
    Count,
    PositiveBytes,
    PositiveInt,
    Ratio,
    Seconds,
    SmallInt,
)  # fmt: skip
from iegopt.spec.stage import Precision

__all__ = [
    "DagConstraints",
    "FallbackPolicy",
    "FallbackStep",
    "KvTransferConfig",
    "PreemptionConfig",
    "ProfilingMatrix",
    "StateTransitions",
    "TerminationPolicy",
    "rendered",
]


class TerminationPolicy(Spec):
    """What happens when a request reaches a limit (section 5.3)."""

    timeout: Seconds = 120.0
    budget_exhaustion: Literal["abort", "truncate"] = "abort"
    graceful_stop: bool = True

    @model_validator(mode="after")
    def _is_rendered(self) -> Self:
        rendered(self)
        return self


@lru_cache(maxsize=1024)
def rendered(policy: TerminationPolicy) -> Mapping[str, Any]:
    """All of a policy as plain data, found when it is read: a plan says it, within its deadline."""
    return policy.model_dump(mode="json")


class DagConstraints(Spec):
    """Limits on the graph of one request. Defaults are the source's figures (section 5.3).

    ``max_depth`` counts the stages on the longest path from the first prefill to the output.
    """

    max_depth: PositiveInt = 10
    max_nodes: PositiveInt = 50
    max_tool_calls: SmallInt = 5
    max_agent_rounds: SmallInt = 3
    max_token_budget: Count = 32768
    max_kv_cache_size: Bytes = 20 * 10**9
    max_compute_time: Seconds = 60.0
    termination_policy: TerminationPolicy = TerminationPolicy()


class KvTransferConfig(Spec):
    """How a KV cache crosses a link (section 6.5); section 3 of the model gives the formula."""

    chunk_size: PositiveBytes = 256 * 10**6
    pipeline_depth: PositiveInt = 4
    overlap_compute: bool = False
    compression: Literal["none", "fp8", "int8", "int4"] = "none"


class FallbackStep(StrEnum):
    """How far from the preferred device and precision an option lies (section 7.5)."""

    SAME_VENDOR_SAME_SERIES = "same_vendor_same_series"
    SAME_VENDOR_DIFFERENT_SERIES = "same_vendor_different_series"
    CROSS_VENDOR_SAME_PRECISION = "cross_vendor_same_precision"
    PRECISION_DEGRADATION = "precision_degradation"


class FallbackPolicy(Spec):
    """The order in which lower tiers open, and how much slower they may be."""

    strategy: Literal["ordered_preference"] = "ordered_preference"
    preferences: tuple[FallbackStep, ...] = tuple(FallbackStep)
    max_latency_increase: Ratio = 0.5

    @model_validator(mode="after")
    def _no_step_twice(self) -> Self:
        if len(set(self.preferences)) != len(self.preferences):
            raise ValueError("a step stands twice in preferences")
        return self


class PreemptionConfig(Spec):
    """When a running request may be put aside (section 5.4)."""

    enabled: bool = True
    min_priority_gap: PositiveInt = 1
    preemption_overhead: Seconds = 0.05
    resume_policy: Literal["immediate", "queued"] = "immediate"
    max_preempt_per_request: SmallInt = 3


class ProfilingDimension(Spec):
    """One axis of the profiling matrix; exactly one key is given."""

    model: tuple[Name, ...] | None = None
    device: tuple[Name, ...] | None = None
    precision: tuple[Precision, ...] | None = None
    batch_size: tuple[PositiveInt, ...] | None = None
    seq_length: tuple[PositiveInt, ...] | None = None

    @model_validator(mode="after")
    def _one_axis(self) -> Self:
        given = [name for name in type(self).model_fields if getattr(self, name) is not None]
        if len(given) != 1:
            raise ValueError(f"expected exactly one axis, got {', '.join(given) or 'none'}")
        return self


class ProfilingMetrics(Spec):
    prefill: tuple[Literal["latency_p50", "latency_p99", "throughput_tokens_per_sec", "memory_peak"], ...] = ()
    decode: tuple[Literal["time_per_token_p50", "time_per_token_p99", "memory_per_token"], ...] = ()


class ProfilingMatrix(Spec):
    """What offline profiling measures (section 6.6.2)."""

    dimensions: tuple[ProfilingDimension, ...]
    metrics: ProfilingMetrics

    @model_validator(mode="after")
    def _axes_once(self) -> Self:
        axes = [name for d in self.dimensions for name in d.model_fields_set]
        if len(set(axes)) != len(axes):
            raise ValueError("an axis stands twice in dimensions")
        return self


# The fields bear the names of the source's table.
# ruff: noqa: N815
class _Init(Spec):
    to_READY: Name


class _Ready(Spec):
    to_SCHEDULED: Name


class _Scheduled(Spec):
    to_RUNNING: Name


class _Running(Spec):
    to_BLOCKED: Name
    to_COMPLETED: Name
    to_FAILED: Name
    to_PREEMPTED: Name


class _Blocked(Spec):
    to_RUNNING: Name
    timeout: Seconds


class _Preempted(Spec):
    to_READY: Name


class _Failed(Spec):
    to_READY: Name
    to_TERMINAL: Name


class StateTransitions(Spec):
    """The table of the execution state machine (section 6.4): state -> successor -> condition."""

    INIT: _Init
    READY: _Ready
    SCHEDULED: _Scheduled
    RUNNING: _Running
    BLOCKED: _Blocked
    PREEMPTED: _Preempted
    FAILED: _Failed
