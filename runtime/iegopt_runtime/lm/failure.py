"""What a job is told of an error that ended it."""

from __future__ import annotations

from iegopt_runtime.errors import KvLost, ModelError, NoRoom, is_out_of_memory
from iegopt_runtime.lm.jobs import Failed

__all__ = ["failure"]


def failure(job_id: str, error: Exception) -> Failed:
    """What a job is told that raised ``error``."""
    causes: tuple[tuple[type[Exception], str], ...] = (
        (ModelError, "refused"), (NoRoom, "no_room"), (KvLost, "kv_lost"),
    )  # fmt: skip
    other = "oom" if is_out_of_memory(error) else "error"
    cause = next((name for kind, name in causes if isinstance(error, kind)), other)
    return Failed(job_id, cause, str(error) if cause != "error" else f"{type(error).__name__}: {error}")
