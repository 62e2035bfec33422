"""Fallback steps: which opens when, and that the verifier knows them (section 7.5 of the source)."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from iegopt.errors import InputError
from iegopt.planner import Planner
from iegopt.plans import NoPlan, Plan
from iegopt.spec.cluster import ClusterSpec
from iegopt.spec.policy import FallbackPolicy
from tests.planning import cluster, planned, request


def _vendor_cluster(**utilization: str) -> ClusterSpec:
    def device(model: str) -> dict[str, Any]:
        return {"id": model.lower(), "model": model, "count": 8, "location": {"host": f"h-{model}"},
                "utilization": {"memory": utilization.get(model, "0%")}}  # fmt: skip

    models = ("A100-80GB", "H100", "L40S", "MI300X", "Ascend910B")
    return cluster(*(device(model) for model in models), {"id": "cpu", "model": "cpu-generic-32c"})


FULL = "99%"
STEPS: list[tuple[str | None, dict[str, str], str]] = [
    ("A100", {}, "preferred"),
    ("A100", {"A100-80GB": FULL}, "same_vendor_same_series"),
    ("A100", {"A100-80GB": FULL, "H100": FULL}, "same_vendor_different_series"),
    ("A100", {"A100-80GB": FULL, "H100": FULL, "L40S": FULL}, "cross_vendor_same_precision"),
]
SERIES = {
    "preferred": {"A100-80GB"},
    "same_vendor_same_series": {"A100-80GB", "H100"},
    "same_vendor_different_series": {"A100-80GB", "H100", "L40S"},
    "cross_vendor_same_precision": {"MI300X", "Ascend910B"},
}


@pytest.mark.parametrize(("family", "full", "tier"), STEPS)
def test_fallback_steps(family: str, full: dict[str, str], tier: str) -> None:
    """A lower tier opens only when no feasible plan exists above it (section 7.5)."""
    asked = request(
        id="fallback", model="Llama-3.1-8B", precision="fp16", prompt_tokens=500, output_tokens=50,
        prefer={"device": family}, fallback_policy={"max_latency_increase": "900%"},
    )  # fmt: skip
    plan = planned(asked, _vendor_cluster(**full))
    assert plan.tier == tier
    assert {plan.stage(name).device_model for name in ("prefill", "decode")} <= SERIES[tier]


def test_the_verifier_refuses_a_step_that_is_not_open() -> None:
    """A plan on L40S that calls itself the preferred tier, or that stands under a policy without that step."""
    asked = request(
        model="Llama-3.1-8B", precision="fp16", prompt_tokens=500, output_tokens=50,
        prefer={"device": "A100"}, fallback_policy={"max_latency_increase": "900%"},
    )  # fmt: skip
    planner = Planner(_vendor_cluster(**{"A100-80GB": FULL, "H100": FULL}))
    plan = planner.plan(asked)
    assert isinstance(plan, Plan)
    assert planner.verify(plan, asked).ok
    broken = planner.verify(dataclasses.replace(plan, tier="preferred"), asked).violations
    assert {v.rule for v in broken} == {"fallback"}
    strict = asked.model_copy(update={"fallback_policy": FallbackPolicy(preferences=())})
    assert {v.rule for v in planner.verify(plan, strict).violations} == {"fallback"}


def test_without_a_policy_only_the_preferred_device_will_do() -> None:
    asked = request(
        model="Llama-3.1-8B", precision="fp16", prompt_tokens=500, output_tokens=50, prefer={"device": "A100"}
    )
    assert planned(asked, _vendor_cluster()).stage("prefill").device_model == "A100-80GB"
    answer = Planner(_vendor_cluster(**{"A100-80GB": FULL})).plan(asked)
    assert isinstance(answer, NoPlan)
    assert answer.tier == "preferred"


def test_precision_degrades_last_and_only_by_policy() -> None:
    ascend = cluster(
        {"id": "npu", "model": "Ascend910B", "count": 8, "location": {"host": "h"}},
        {"id": "cpu", "model": "cpu-generic-32c"},
    )
    registry = [
        {
            "model": "Llama-2-70B",
            "variants": [{"precision": "int8", "backend": "CANN", "compatible_devices": ["Ascend910B"]}],
        }
    ]
    asked = {"model": "Llama-2-70B", "precision": "fp16", "prompt_tokens": 500, "output_tokens": 50}
    only_int8 = ascend.model_copy(update={"execution_path_registry": cluster(
        {"id": "x", "model": "L4"}, execution_path_registry=registry).execution_path_registry})  # fmt: skip
    with pytest.raises(InputError, match="no variant in fp16: expected one of int8"):
        Planner(only_int8).plan(request(**asked))
    plan = planned(request(**asked, fallback_policy={}), only_int8)
    assert plan.tier == "precision_degradation"
    assert plan.stage("prefill").variant == "Llama-2-70B/int8/CANN"


def test_max_latency_increase_closes_slow_devices() -> None:
    """An L4 is far more than half slower than an A100, so the policy never opens it."""
    both = [
        {"id": "a", "model": "A100-80GB", "utilization": {"memory": FULL}},
        {"id": "l", "model": "L4"},
        {"id": "cpu", "model": "cpu-generic-32c"},
    ]
    tight = request(
        model="Llama-3.1-8B", precision="fp16", prompt_tokens=500, output_tokens=50, prefer={"device": "A100"},
        fallback_policy={"max_latency_increase": "50%"},
    )  # fmt: skip
    answer = Planner(cluster(*both)).plan(tight)
    assert isinstance(answer, NoPlan)
    assert FallbackPolicy().max_latency_increase == 0.5


def test_the_preferred_device_speaks_of_the_language_model_alone() -> None:
    on = cluster({"id": "a", "model": "A100-80GB"}, {"id": "cpu", "model": "cpu-generic-32c"})
    agent = {"retrieval": {"embedding_model": "bge-m3"}, "lookahead": 1}
    asked = request(
        model="Llama-3.1-8B",
        prompt_tokens=500,
        output_tokens=20,
        agent=agent,
        prefer={"device": "A100"},
        sla_class="offline",
    )
    plan = planned(asked, on)
    assert plan.stage("prefill").device_model == "A100-80GB"
    assert plan.stage("embedding-1").devices
