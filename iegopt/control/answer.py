"""The answer to a request: what it yielded, how it ended, and the plan against what happened.

==============  ====================================================================================
request_id
status          ``complete``; ``partial`` (a limit was reached, or the model went astray); ``failed``;
                ``cancelled``; ``refused`` (it was not begun)
reason          in words, empty where complete
limit           name of the limit of ``dag_constraints`` that was reached, or null
text, tokens    text of the output, else of the last decode; tokens of all decodes in order, as streamed
decision        what the agent's decision said, or null
stages          id -> ``{kind, state, device, variant, attempts, ready, began, ended, ran, planned, failures, moved,
                computed, reused, decision}``: seconds after the submission; ``ran`` is measured, ``planned`` from the
                last plan; of a prefill or decode that completed, the known tokens whose KV it computed, and of which it
                had it;
                of a router or agent_decision that completed, what it said
recoveries      ``recovery.Recovery.document``, times after the submission
usage           ``{tokens, prefilled, reused, generated, tool_calls, rounds, compute_time, preemptions, plans}``
seconds         from submission to answer
==============  ====================================================================================
"""

from __future__ import annotations

from typing import Any

from iegopt.control.request_run import RequestRun
from iegopt.control.results import Decoded, Prefilled, Read
from iegopt.control.stage_run import StageRun
from iegopt.control.states import State
from iegopt.spec.stage import StageKind

__all__ = ["STATUSES", "refusal", "undelivered", "write_answer"]

USAGE = (
    "tokens", "prefilled", "reused", "generated", "tool_calls", "rounds", "compute_time", "preemptions", "plans",
)  # fmt: skip
"""What is counted of a request; of one that is not begun, it is all 0."""
STATUSES = ("complete", "partial", "failed", "cancelled", "refused")


def write_answer(run: RequestRun, at: float) -> dict[str, Any]:
    """The answer to a request that ends now."""
    ended = run.ending
    decodes = run.decodes()
    return {
        "request_id": run.id,
        "status": ended.status if ended is not None else "complete",
        "reason": ended.reason if ended is not None else "",
        "limit": ended.limit if ended is not None else None,
        "text": _text(run),
        "tokens": [token for stage in decodes for token in stage.emitted],
        "decision": _said(run, StageKind.AGENT_DECISION, "decision"),
        "stages": {stage.id: _stage(run, stage, at) for stage in run.stages.values()},
        "recoveries": [
            found | {name: _after(run, found[name]) for name in ("began", "noticed", "ended")}
            for found in (recovery.document() for recovery in run.recoveries)
        ],
        "usage": {
            "tokens": run.tokens,
            "prefilled": run.prefilled,
            "reused": run.reused,
            "generated": sum(len(stage.emitted) for stage in decodes),
            "tool_calls": sum(_done(stage) for stage in run.stages.values() if stage.kind is StageKind.TOOL),
            "rounds": run.rounds,
            "compute_time": run.compute_time(at),
            "preemptions": run.preemptions,
            "plans": run.generation,
        },
        "seconds": at - run.submitted,
    }


def refusal(request_id: str, reason: str) -> dict[str, Any]:
    """The answer to a request that is not begun."""
    return {
        "request_id": request_id, "status": "refused", "reason": reason, "limit": None, "text": "", "tokens": [],
        "decision": None, "stages": {}, "recoveries": [], "usage": dict.fromkeys(USAGE, 0), "seconds": 0.0,
    }  # fmt: skip


def undelivered(answer: dict[str, Any], reason: str) -> dict[str, Any]:
    """In place of an answer that cannot be told: that it is there, why it is not told, and what it took."""
    kept = {name: answer[name] for name in ("usage", "seconds")}
    told = f"it ended as {answer['status']}, but its answer cannot be sent: {reason}"
    return refusal(answer["request_id"], told) | {"status": "failed"} | kept


def _text(run: RequestRun) -> str:
    """Of the output; where there is none, of the last decode that said anything."""
    output = _said(run, StageKind.OUTPUT, "text")
    if output is not None:
        return output
    return next((stage.text for stage in reversed(run.decodes()) if stage.text), "")


def _said(run: RequestRun, kind: StageKind, name: str) -> str | None:
    results = [s.result for s in run.stages.values() if s.kind is kind]
    return next((str(result.fields[name]) for result in results if isinstance(result, Read)), None)


def _stage(run: RequestRun, stage: StageRun, at: float) -> dict[str, Any]:
    place = run.plan.get(stage.id)
    return {
        "kind": str(stage.kind), "state": str(stage.state), "device": stage.device, "variant": stage.variant,
        "attempts": stage.attempt, "ready": _after(run, stage.ready_at or None), "began": _after(run, stage.began),
        "ended": _after(run, stage.ended), "ran": stage.run_time(at),
        "planned": place.time if place is not None else None, "failures": stage.failures,
        "moved": stage.moved, **_counts(stage), "decision": _decision(stage),
    }  # fmt: skip


def _counts(stage: StageRun) -> dict[str, int | None]:
    found = stage.result if isinstance(stage.result, Prefilled | Decoded) else None
    return {"computed": found.computed if found else None, "reused": found.reused if found else None}


def _decision(stage: StageRun) -> str | None:
    said = stage.result.fields.get("decision") if isinstance(stage.result, Read) else None
    return str(said) if said is not None else None


def _done(stage: StageRun) -> bool:
    return stage.state is State.COMPLETED


def _after(run: RequestRun, at: float | None) -> float | None:
    return at - run.submitted if at is not None else None
