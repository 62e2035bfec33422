"""Fallback by precision: a lower one opens only when no plan in the asked one exists, whoever asked for it."""

from __future__ import annotations

from typing import Any

import pytest

from iegopt.planner import Planner
from iegopt.plans import Plan
from iegopt.problem.preference import asked_precision
from iegopt.spec.cluster import ClusterSpec
from iegopt.spec.request import RequestSpec
from iegopt.spec.stage import Precision, StageSpec


def plan_of(model: str, **more: Any) -> Plan:
    """On one H100 and a host."""
    devices = [{"id": "gpu", "model": "H100"}, {"id": "cpu", "model": "cpu-generic-32c"}]
    request = {"id": "r", "model": model, "prompt_tokens": 200, "output_tokens": 20, **more}
    answer = Planner(ClusterSpec.model_validate({"devices": devices})).plan(RequestSpec.model_validate(request))
    assert isinstance(answer, Plan)
    return answer


@pytest.mark.parametrize("asked", [{}, {"precision": "bf16"}])
def test_a_policy_does_not_lower_a_precision_that_fits(asked: dict[str, str]) -> None:
    plain, policy = plan_of("Llama-3.1-8B", **asked), plan_of("Llama-3.1-8B", **asked, fallback_policy={})
    assert policy.tier == "preferred"
    assert policy.objective == plain.objective
    assert {policy.stage(name).variant.split("/")[1] for name in ("prefill", "decode")} <= {"fp16", "bf16"}


@pytest.mark.parametrize("asked", [{}, {"precision": "bf16"}])
def test_it_is_lowered_where_it_does_not_fit(asked: dict[str, str]) -> None:
    plan = plan_of("Llama-3.1-70B", **asked, fallback_policy={"max_latency_increase": "1000%"})
    assert plan.tier == "precision_degradation"
    assert not {plan.stage(name).variant.split("/")[1] for name in ("prefill", "decode")} & {"fp16", "bf16"}


@pytest.mark.parametrize(
    ("stage", "request_precision", "precision"),
    [
        ({"type": "decode", "model": "DeepSeek-V3"}, None, Precision.FP8),
        ({"type": "decode", "model": "DeepSeek-V3"}, "int4", Precision.INT4),
        ({"type": "decode", "model": "DeepSeek-V3", "compute": {"precision": "bf16"}}, "int4", Precision.BF16),
        ({"type": "embedding", "model": "bge-m3"}, "int4", None),
        ({"type": "decode"}, None, None),
    ],
)
def test_asked_precision(stage: dict[str, Any], request_precision: str | None, precision: Precision | None) -> None:
    request = RequestSpec.model_validate(
        {"id": "r", "model": "DeepSeek-V3", "prompt_tokens": 1, "output_tokens": 1, "precision": request_precision}
    )
    assert asked_precision(StageSpec.model_validate({"id": "s", **stage}), request) is precision
