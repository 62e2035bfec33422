"""The verifier of batch plans: it agrees with the evaluation on any feasible placement, to the last figure."""

from __future__ import annotations

import pytest

from iegopt.graph.templates import TOOL_CALL_TOKENS
from iegopt.verify.waiting import CALL_TOKENS

from .checked import check, random_plan
from .random_snapshots import Size, random_case


def test_a_tool_call_is_as_long_for_both() -> None:
    assert CALL_TOKENS == TOOL_CALL_TOKENS


@pytest.mark.slow
@pytest.mark.parametrize(("size", "seeds"), [("tiny", 60), ("small", 60), ("large", 2)])
def test_random_placements_are_confirmed(size: Size, seeds: int) -> None:
    seen: set[str] = set()
    for seed in range(seeds):
        case = random_case(seed, size)
        plan = random_plan(case)
        report = check(case, plan)
        assert report.ok, (seed, [str(v) for v in report.violations])
        seen |= {decision.status for decision in plan.queue} | {decision.action for decision in plan.running}
        seen |= {"reuse" for decision in plan.queue if decision.reused_from}
        seen |= {"apart" for decision in plan.queue if decision.path not in (None, "same")}
    if size == "small":
        assert seen >= {"placed", "held", "refused", "keep", "preempt", "migrate", "requeue", "reuse", "apart"}
