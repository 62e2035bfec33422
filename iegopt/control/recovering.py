"""The book of recoveries of a request: opened at a fault, closed when the stage runs again."""

from __future__ import annotations

from iegopt.control.core import Core
from iegopt.control.kv_book import FILE_TIER
from iegopt.control.recovery import LEVELS, Recovery
from iegopt.control.request_run import RequestRun
from iegopt.control.stage_run import StageRun
from iegopt.control.work import kv_id, sequence_before
from iegopt.spec.stage import StageKind

__all__ = ["begin", "closed", "left_in_files", "resumed_on"]

_WRITES = (StageKind.PREFILL, StageKind.RE_PREFILL, StageKind.DECODE)
_CONTINUES = (StageKind.RE_PREFILL, StageKind.DECODE, StageKind.KV_STORE, StageKind.KV_LOAD, StageKind.KV_MIGRATE)


def begin(core: Core, run: RequestRun, stage: StageRun, cause: str, since: float, worker: str | None) -> None:
    """A fault has struck a stage; one that is being recovered already may turn out to be wider."""
    opened = _open(run, stage)
    if opened:
        opened[0].widen(cause)
        return
    recovery = Recovery(stage.id, cause, since, core.now, worker)
    run.recoveries.append(recovery)
    stage.note(core.now, f"is to be recovered at L{recovery.level} ({cause})")


def resumed_on(core: Core, run: RequestRun, stage: StageRun, worker: str) -> None:
    """A stage is started anew: where its KV cache comes from."""
    for recovery in _open(run, stage):
        recovery.to, recovery.kv = worker, _kv_from(core, run, stage, worker)


def left_in_files(core: Core, run: RequestRun, stage: StageRun, cause: str) -> None:
    """A fault takes a stage from its worker: copies of what it had computed may lie in files that outlive it."""
    worker = core.worker_of(stage)
    file = worker.addresses.get("file") if worker is not None and core.policy.keep_copy == FILE_TIER else None
    if worker is None or file is None or stage.kind not in _WRITES or LEVELS[cause] >= LEVELS["rack"]:
        return
    tokens = len(sequence_before(run, stage).tokens) + max(0, len(stage.emitted) - 1)
    run.kv.leave(stage.id, worker.id, tokens, file)


def _kv_from(core: Core, run: RequestRun, stage: StageRun, worker: str) -> str:
    if stage.kind not in _CONTINUES:
        return "none"
    source, silent = run.kv_source(stage.id), core.pool.silent(core.now, core.policy.heartbeat) - {worker}
    sources = run.kv.sources(stage.id, worker, kv_id(run, stage.id), silent)
    sources += run.kv.sources(source.id, worker, kv_id(run, source.id), silent) if source is not None else []
    if not sources:
        return "recomputed"
    return "kept" if any(found["worker"] == worker for found in sources) else "copy"


def closed(core: Core, run: RequestRun, stage: StageRun) -> None:
    """The stage runs again."""
    for recovery in _open(run, stage):
        recovery.ended = core.now
        seconds = recovery.ended - recovery.began
        stage.note(core.now, f"is recovered at L{recovery.level} after {seconds:.3f} s, KV {recovery.kv}")


def _open(run: RequestRun, stage: StageRun) -> list[Recovery]:
    return [r for r in run.recoveries if r.stage == stage.id and r.ended is None]
