"""The story of a request or of one of its stages, as sentences with times."""

from __future__ import annotations

from iegopt.control.request_run import RequestRun
from iegopt.control.stage_run import Note

__all__ = ["tell"]


def tell(run: RequestRun, stage: str | None) -> list[str]:
    """``0.013 s: prefill: SCHEDULED (scheduler_assigned_device): on w1, device gpu-0``, times after the submission.

    Without a stage, what befell the request as a whole.

    Raises
    ------
    KeyError
        The request has no such stage.
    """
    notes, who = (run.history, run.id) if stage is None else (run.stages[stage].history, stage)
    return [_sentence(run, who, note) for note in notes]


def _sentence(run: RequestRun, who: str, note: Note) -> str:
    return f"{note.at - run.submitted:.3f} s: {who}: {note.text}"
