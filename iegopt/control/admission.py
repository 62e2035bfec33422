"""From a submission to a running request: refused with a reason, queued, or begun."""

from __future__ import annotations

import heapq
from collections.abc import Callable
from typing import Any

from iegopt.control import ending, planning
from iegopt.control.core import Core
from iegopt.control.growth import initial_graph, prompt_tokens
from iegopt.control.messages import Acknowledged, Answer, Cancelled, Differs, Discard, Submitted
from iegopt.control.request_run import RequestRun
from iegopt.control.stage_run import StageRun
from iegopt.control.states import State
from iegopt.errors import InputError, SpecError
from iegopt.spec.explain_error import nearest, validate
from iegopt.spec.request import RequestSpec
from iegopt.spec.snapshot import DEFAULT_PRIORITY
from iegopt.spec.stage import StageKind
from iegopt.units import shown

__all__ = ["acknowledge", "admit", "begin_ready", "cancel", "not_acknowledged", "submit"]

_INPUTS = ("text", "messages", "tokens")
_KINDS: dict[str, type | tuple[type, ...]] = {
    "text": str, "messages": list, "tokens": list, "documents": (list, type(None)), "sampling": dict, "stop": list,
    "script": (dict, type(None)), "context": object, "arguments": dict, "k": int,
}  # fmt: skip
"""What a submission may bring, and as what."""
_SAMPLING: dict[str, tuple[tuple[type, ...], Callable[[Any], bool], str]] = {
    "temperature": ((int, float), lambda value: 0 <= value <= 100, "a number from 0 to 100"),
    "top_k": ((int,), lambda value: value >= 0, "a whole number of at least 0"),
    "top_p": ((int, float), lambda value: 0 < value <= 1, "a number above 0 and up to 1"),
    "seed": ((int,), lambda value: True, "a whole number"),
}
"""Classes of the values of ``sampling``, whether one is in its range, and in words."""
_LONGEST_TEXT = 4_000_000
"""Characters, as of a request's prompt."""


def submit(core: Core, event: Submitted) -> None:
    """Take a request on, queue it, or refuse it with the reason."""
    known = core.runs.get(event.request_id)
    if known is not None:
        if (other := _difference(known, event)) is not None:
            core.send(Differs(known.id, f"request {known.id}: {other}: expected an id of its own, or the same request"))
        elif known.answer is not None:
            core.send(Answer(known.id, known.answer))
        return
    if len(core.queued) >= core.policy.max_queued and len(core.flying) >= core.policy.max_in_flight:
        reason = f"{core.policy.max_in_flight} requests are in flight and {len(core.queued)} wait: try again later"
        ending.refuse(core, event.request_id, reason)
        return
    try:
        run = _read(core, event)
    except InputError as error:
        ending.refuse(core, event.request_id, str(error))
        return
    core.runs[run.id], core.queued[run.id] = run, None
    heapq.heappush(core.next_up, (run.priority, run.number, run.id))
    run.note(core.now, "is submitted")
    core.timers.set(("timeout", run.id), core.now + run.request.dag_constraints.termination_policy.timeout)
    core.settle = True


def _difference(known: RequestRun, event: Submitted) -> str | None:
    """In what a submission is another request than the one that bears its id; ``None`` where it is the same again."""
    try:
        request = validate(RequestSpec, event.request, f"request {known.id}")
    except InputError as error:
        return f"another request bears this id, and this one is wrong: {error}"
    asked = (("request", request, known.request), ("inputs", event.inputs, known.inputs),
             ("priority", _priority(request, event), known.priority))  # fmt: skip
    parts = " and ".join(name for name, ours, theirs in asked if ours != theirs)
    return f"another request bears this id, with other {parts}" if parts else None


def _priority(request: RequestSpec, event: Submitted) -> int:
    return DEFAULT_PRIORITY[request.sla_class] if event.priority is None else event.priority


def _read(core: Core, event: Submitted) -> RequestRun:
    """The run of a submission (raises ``InputError``)."""
    source = f"request {event.request_id}"
    request = validate(RequestSpec, event.request, source)
    _check_inputs(request, event.inputs, source)
    graph = initial_graph(request, core.cards, prompt_tokens(event.inputs))
    core.arrivals += 1
    return RequestRun(
        id=event.request_id, number=core.arrivals, request=request, inputs=event.inputs, submitted=core.now,
        priority=_priority(request, event), graph=graph.spec, template=graph.growth[0] if graph.growth else None,
        lookahead=request.agent.lookahead if request.agent is not None else 0,
    )  # fmt: skip


def _check_inputs(request: RequestSpec, inputs: dict[str, Any], source: str) -> None:
    """Refuse inputs that a worker could make nothing of."""
    given = [name for name in _INPUTS if name in inputs]
    if len(given) > 1:
        raise SpecError(source, "inputs", f"{' and '.join(given)} are given: expected one of them")
    if request.batch != 1:
        raise SpecError(source, "batch", f"{request.batch}: expected 1, one sequence is run per request")
    if not given and request.prompt is None and _needs_prompt(request):
        expected = f"one of {', '.join(_INPUTS)}, or the request's prompt"
        raise SpecError(source, "inputs", f"without a prompt: expected {expected}")
    for name, value in inputs.items():
        if name not in _KINDS:
            guess = nearest(name, _KINDS)
            hint = f"Maybe {guess}?" if guess else f"Known are {', '.join(_KINDS)}"
            raise SpecError(source, f"inputs.{shown(name)}", f"unknown. {hint}")
        if name not in _INPUTS and not isinstance(value, _KINDS[name]):
            kind = _KINDS[name]
            words = {dict: "a mapping", list: "a list", int: "a whole number"}
            expected = words[kind if isinstance(kind, type) else kind[0]]
            raise SpecError(source, f"inputs.{name}", f"{shown(value)}: expected {expected}")
    _check_values(inputs, source)
    tokens = inputs.get("tokens")
    for name in given:
        if name == "text" and isinstance(inputs[name], str) and len(inputs[name]) > _LONGEST_TEXT:
            raise SpecError(source, "inputs.text", f"{len(inputs[name])} characters: expected at most {_LONGEST_TEXT}")
        if not isinstance(inputs[name], _KINDS[name]) or not inputs[name]:
            expected = "text" if name == "text" else f"a list of {name}"
            raise SpecError(source, f"inputs.{name}", f"{shown(inputs[name])}: expected {expected}, not empty")
    for i, token in enumerate(tokens or ()):
        if type(token) is not int or token < 0:
            raise SpecError(source, f"inputs.tokens.{i}", f"{shown(token)}: expected a token, 0 or more")


def _check_values(inputs: dict[str, Any], source: str) -> None:
    for i, text in enumerate(inputs.get("stop", ())):
        if not isinstance(text, str) or not text:
            raise SpecError(source, f"inputs.stop.{i}", f"{shown(text)}: expected text, not empty")
    for name, value in inputs.get("sampling", {}).items():
        if name not in _SAMPLING:
            guess = nearest(name, _SAMPLING)
            hint = f"Maybe {guess}?" if guess else f"Known are {', '.join(_SAMPLING)}"
            raise SpecError(source, f"inputs.sampling.{shown(name)}", f"unknown. {hint}")
        kinds, is_in_range, words = _SAMPLING[name]
        if type(value) not in kinds or not is_in_range(value):
            raise SpecError(source, f"inputs.sampling.{name}", f"{shown(value)}: expected {words}")
    k = inputs.get("k", 1)
    if isinstance(k, bool) or k < 1:
        raise SpecError(source, "inputs.k", f"{shown(k)}: expected a whole number of at least 1")


def _needs_prompt(request: RequestSpec) -> bool:
    """Whether anything in the graph reads a prompt."""
    read_by = (StageKind.TOKENIZE, StageKind.PREFILL, StageKind.EMBEDDING)
    return request.graph is None or any(stage.type in read_by for stage in request.graph.stages)


def admit(core: Core) -> None:
    """Begin requests that wait, as long as there is room: by priority, then as they came."""
    while core.queued and len(core.flying) < core.policy.max_in_flight:
        _, number, name = heapq.heappop(core.next_up)
        run = core.runs.get(name)
        if run is None or run.number != number or name not in core.queued:
            continue
        del core.queued[run.id]
        core.flying[run.id], run.admitted = None, True
        planning.want_plan(core, run, "the request begins")
        begin_ready(core, run)


def begin_ready(core: Core, run: RequestRun, after: StageRun | None = None) -> None:
    """Stages all of whose predecessors have completed become ready, where one is given those after it."""
    if run.ending is not None or not run.admitted:
        return
    for stage in run.stages.values() if after is None else run.following(after.id):
        if stage.state is State.INIT and run.is_ready(stage):
            stage.step(State.READY, core.now)
            core.wait(run, stage)


def cancel(core: Core, event: Cancelled) -> None:
    """The client does not want it any more."""
    run = core.runs.get(event.request_id)
    if run is not None:
        ending.end(core, run, "cancelled", event.reason or "cancelled by the client", stop=True)


def acknowledge(core: Core, event: Acknowledged) -> None:
    """The client has the answer."""
    run = core.runs.get(event.request_id)
    if run is None or run.over:
        core.runs.pop(event.request_id, None)
        core.timers.clear(("answered", event.request_id))


def not_acknowledged(core: Core, request_id: str) -> None:
    """Nobody wants the answer, as far as can be told."""
    run = core.runs.get(request_id)
    if run is None or run.over:
        core.runs.pop(request_id, None)
        core.send(Discard(request_id))
