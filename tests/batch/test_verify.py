"""The verifier of batch plans: it agrees with the evaluation on any feasible placement, to the last figure."""

from __future__ import annotations

import pytest

from iegopt.graph.templates import TOOL_CALL_TOKENS
from iegopt.verify.engine import Engine
from iegopt.verify.waiting import CALL_TOKENS, Waiting

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


def test_refused_requests_are_tried_on_kinds_and_not_on_all_instances(monkeypatch: pytest.MonkeyPatch) -> None:
    case = random_case(0, "large")
    plan = random_plan(case)
    tried: list[str] = []
    runs_on = Waiting.runs_on

    def counted(request: Waiting, engine: Engine) -> bool:
        tried.append(request.id)
        return runs_on(request, engine)

    monkeypatch.setattr(Waiting, "runs_on", counted)
    assert check(case, plan).ok
    refused = [decision.id for decision in plan.queue if decision.status == "refused"]
    kinds = len({(i.variant, len(i.devices)) for i in case.snapshot.instances})
    assert len(case.snapshot.instances) > 3 * kinds
    assert refused
    assert max(tried.count(name) for name in refused) <= 3 * kinds
