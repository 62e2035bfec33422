"""What follows when a stage has finished: its result is kept, tokens are streamed, the graph grows, others begin."""

from __future__ import annotations

from iegopt.control import ending, planning
from iegopt.control.admission import begin_ready
from iegopt.control.core import Core
from iegopt.control.failing import fails
from iegopt.control.growth import Growth, grow, initial_graph, recounted
from iegopt.control.kv_book import Holding
from iegopt.control.messages import Finished, Release
from iegopt.control.progress import emit, has_run
from iegopt.control.request_run import RequestRun
from iegopt.control.results import Decoded, HeldKv, Moved, Prefilled, Result, Tokenized, read_result
from iegopt.control.stage_run import Sequence, StageRun
from iegopt.control.states import State
from iegopt.control.work import kv_id, sequence_before, speaker_before
from iegopt.errors import InputError, LimitError, SpecError
from iegopt.spec.stage import StageKind

__all__ = ["finished"]

_MOVES_KV = (StageKind.KV_STORE, StageKind.KV_LOAD, StageKind.KV_MIGRATE)


def finished(core: Core, event: Finished) -> None:
    """A worker has finished a stage."""
    found = core.attempt(event, event.worker)
    if found is None:
        return
    run, stage = found
    graph = run.graph
    has_run(core, run, stage)
    stage.measured(event.seconds, core.now)
    try:
        result = read_result(stage.kind, event.result, f"result of {stage.id} from {event.worker}")
        _check(run, stage, result)
    except SpecError as error:
        fails(core, run, stage, "error", str(error), transient=True)
        return
    stage.result, stage.speaker = result, speaker_before(run, stage)
    kv = _kv_of(result)
    if kv is not None:
        _book_kv(core, run, stage, kv)
    stage.step(State.COMPLETED, core.now)
    _learn_pace(core, run, stage)
    core.release_slot(run, stage)
    if isinstance(result, Tokenized):
        _tokenized(core, run, result)
    elif isinstance(result, Prefilled):
        _prefilled(core, run, stage, result)
    elif isinstance(result, Decoded):
        _decoded(core, run, stage, result)
    elif kv is not None:
        stage.sequence = sequence_before(run, stage)
    _release_input(core, run, stage)
    begin_ready(core, run, after=stage if run.graph is graph else None)
    ending.finish_if_done(core, run)


def _check(run: RequestRun, stage: StageRun, result: Result) -> None:
    """Refuse a result that contradicts what is known: tokens once streamed are final."""
    if isinstance(result, Decoded) and result.tokens[: len(stage.emitted)] != stage.emitted:
        raise SpecError(f"result of {stage.id}", "tokens", "they do not begin with those that were streamed")
    if isinstance(result, Decoded) and not result.text.startswith(stage.text):
        raise SpecError(f"result of {stage.id}", "text", "it does not begin with what was streamed")
    if isinstance(result, Tokenized) and not result.tokens:
        raise SpecError(f"result of {stage.id}", "tokens", "there are none: expected at least 1")


def _kv_of(result: Result) -> HeldKv | None:
    return result.kv if isinstance(result, (Prefilled, Decoded, Moved)) else None


def _book_kv(core: Core, run: RequestRun, stage: StageRun, kv: HeldKv) -> None:
    stage.moved += kv.moved
    worker = core.worker_of(stage)
    if worker is None:
        return
    target = next((s.target for s in run.kv_targets(stage.id) if s.target is not None), None)
    there = core.pool.workers.get(target) if target is not None else None
    pushed = (
        Holding(there.id, "L0", kv.tokens, there.addresses) if there is not None and there.lost_at is None else None
    )
    for old in run.kv.write(stage.id, worker.id, worker.addresses, kv, pushed):
        core.send(Release(old, kv_id(run, stage.id)))


def _learn_pace(core: Core, run: RequestRun, stage: StageRun) -> None:
    """A device that is in time again is slow no longer."""
    place = run.plan.get(stage.id)
    if (
        place is not None
        and stage.device == place.device
        and stage.attempt_time(core.now) <= core.policy.slow_factor * place.time
    ):
        core.pool.slow.pop(place.device, None)


def _tokenized(core: Core, run: RequestRun, result: Tokenized) -> None:
    """The prompt's tokens are counted: the graph is that of their number, unless it was given whole."""
    if run.request.graph is not None:
        return
    try:
        run.take_graph(initial_graph(run.request, core.cards, len(result.tokens)).spec)
    except LimitError as error:
        ending.reach_limit(core, run, error.limit, str(error))
    except InputError as error:
        ending.end(core, run, "failed", str(error))


def _prefilled(core: Core, run: RequestRun, stage: StageRun, result: Prefilled) -> None:
    """The first token of what follows is there."""
    before, first = sequence_before(run, stage), run.kv_source(stage.id) is None
    if first:  # all of it in one
        stage.sequence = Sequence((), ()).then("prefill", before.tokens + result.appended)
    else:
        stage.sequence = before.then("prefill", result.appended)
    new = len(result.appended) + (len(before.tokens) if first else 0)
    run.tokens += new
    run.prefilled += result.computed
    run.reused += result.reused
    if stage.kind is StageKind.RE_PREFILL:
        run.graph = recounted(run, stage, len(result.appended))
        run.take_graph(run.graph)
    for decode in _decodes_after(run, stage):
        if not decode.emitted:
            emit(core, run, decode, (result.first,), result.text)
    budget = run.request.dag_constraints.max_token_budget
    if run.tokens > budget:
        ending.reach_limit(core, run, "max_token_budget", f"{run.tokens} tokens are used, allowed {budget}")


def _decodes_after(run: RequestRun, stage: StageRun) -> list[StageRun]:
    """The decodes that continue from a KV cache, however often it is stored, loaded or moved before."""
    found: list[StageRun] = []
    for target in run.kv_targets(stage.id):
        if target.kind is StageKind.DECODE:
            found.append(target)
        elif target.kind in _MOVES_KV:
            found += _decodes_after(run, target)
    return found


def _decoded(core: Core, run: RequestRun, stage: StageRun, result: Decoded) -> None:
    """Stream what was not, and let the graph grow where tools were called."""
    emit(core, run, stage, result.tokens[len(stage.emitted) :], result.text[len(stage.text) :])
    stage.sequence = sequence_before(run, stage).then("decode", result.tokens)
    run.prefilled += result.computed
    if run.ending is not None:
        return
    tokens = run.spec(stage.id).tokens
    if result.stop == "length" and tokens is not None and len(result.tokens) < tokens.output:
        budget = run.request.dag_constraints.max_token_budget
        ending.reach_limit(core, run, "max_token_budget", f"{run.tokens} tokens are used, allowed {budget}")
    elif result.stop == "context":
        held = len(stage.sequence.tokens)
        ending.end(
            core,
            run,
            "partial",
            f"stage {stage.id}: the context of {run.spec(stage.id).model} ends after {held} tokens",
        )
    elif result.calls and run.template is not None:
        _grow(core, run, stage, result)


def _grow(core: Core, run: RequestRun, decode: StageRun, result: Decoded) -> None:
    growth = grow(run, decode, result.calls, core.cards)
    if not isinstance(growth, Growth):
        if growth.limit is not None:
            ending.reach_limit(core, run, growth.limit, growth.reason)
        else:
            ending.end(core, run, growth.status, growth.reason)
        return
    run.rounds += 1
    new = run.take_graph(growth.graph)
    for stage in new:
        stage.call = growth.calls.get(stage.id)
    names = ", ".join(stage.id for stage in new)
    run.note(core.now, f"grows by round {run.rounds}: {names}")
    if any(stage.id not in run.plan for stage in new):
        planning.want_plan(core, run, f"round {run.rounds} has no places")
    else:
        run.note(core.now, f"round {run.rounds} has its places in plan {run.planned}")


def _release_input(core: Core, run: RequestRun, stage: StageRun) -> None:
    """A KV cache that all who continue it have taken over may go."""
    source = run.kv_source(stage.id)
    if source is None or run.over:
        return
    if all(s.state is State.COMPLETED for s in run.kv_targets(source.id)):
        for worker in run.kv.holders(source.id):
            core.send(Release(worker, kv_id(run, source.id)))
        run.kv.drop(source.id)
