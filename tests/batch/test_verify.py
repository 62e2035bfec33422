"""The verifier of batch plans: it agrees with the evaluation on any feasible placement, to the last figure."""

from __future__ import annotations

import numpy as np
import pytest

from iegopt.batch.answer import to_plan
from iegopt.batch.confirm import verified
from iegopt.batch.placement import MIGRATE, Placement
from iegopt.batch.schedule import evaluate
from iegopt.graph.templates import TOOL_CALL_TOKENS
from iegopt.verify.engine import Engine
from iegopt.verify.waiting import CALL_TOKENS, Waiting

from .checked import check, random_plan
from .random_snapshots import Size, random_case
from .small import build, cluster, decodes, instance, prefills, queued


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


def test_a_prefill_without_an_end_goes_after_one_with_a_deadline() -> None:
    """What runs where no time is left never ends; once something moves away, what has a deadline is first."""
    rows = [decodes("away", context=4000, sequences=8), decodes("stays"), prefills("endless")]
    on = cluster()
    model = build(
        [instance(0, utilization=0.9), instance(1)], [queued("q")], rows, policy={"paces": [0.01, 0.05]}, on=on
    )
    assert model.running.prefill_by[2] == np.inf
    plan = Placement.empty(model)
    plan.prefill[0], plan.decode[0] = 0, 1
    plan.action[0], plan.to[0] = MIGRATE, 1
    plan.pace[:] = [2, 1]
    answer = to_plan(model, plan, evaluate(model, plan), solver="test", seconds=0.0)
    assert answer.queue[0].start == 0.0
    assert [str(v) for v in verified(answer, model.snapshot, model.policy, on).violations] == []
