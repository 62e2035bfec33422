"""The execution state machine of a stage (section 6.4 of the source): eight states, and the end after the last retry.

::

    INIT ─▶ READY ─▶ SCHEDULED ─▶ RUNNING ─▶ COMPLETED
              ▲                   │ ▲ │ │
              │                   ▼ │ │ └──▶ PREEMPTED ─▶ READY
              │               BLOCKED │
              │                   │   ▼
              └───────────────────┴▶ FAILED ─▶ TERMINAL

A stage that is scheduled on a device which goes before it runs stays SCHEDULED, and gets another device. What a device
says of a stage out of turn is taken in turn: who finishes has been running.
"""

from __future__ import annotations

from enum import StrEnum

from iegopt.errors import InternalError

__all__ = ["BLOCK_TIMEOUT", "LIVE", "TIMEOUT", "TRANSITIONS", "State", "check_step"]


class State(StrEnum):
    INIT = "INIT"
    READY = "READY"
    SCHEDULED = "SCHEDULED"
    RUNNING = "RUNNING"
    BLOCKED = "BLOCKED"
    COMPLETED = "COMPLETED"
    FAILED = "FAILED"
    PREEMPTED = "PREEMPTED"
    TERMINAL = "TERMINAL"
    """No state of the eight: where FAILED ends."""


LIVE = frozenset({State.SCHEDULED, State.RUNNING, State.BLOCKED})
"""States in which a stage may have an attempt on a worker."""

TIMEOUT = "timeout"
BLOCK_TIMEOUT = 30.0
"""Seconds in BLOCKED after which a stage has failed."""

TRANSITIONS: dict[State, dict[State, str]] = {
    State.INIT: {State.READY: "all_predecessors_completed"},
    State.READY: {State.SCHEDULED: "scheduler_assigned_device"},
    State.SCHEDULED: {State.RUNNING: "device_ready_to_execute"},
    State.RUNNING: {
        State.BLOCKED: "waiting_for_resource",
        State.COMPLETED: "execution_finished_success",
        State.FAILED: "execution_error",
        State.PREEMPTED: "preemption_triggered",
    },
    State.BLOCKED: {State.RUNNING: "resource_available", State.FAILED: TIMEOUT},
    State.PREEMPTED: {State.READY: "preemption_complete_kv_saved"},
    State.FAILED: {State.READY: "retry_count < max_retries", State.TERMINAL: "retry_count >= max_retries"},
    State.COMPLETED: {},
    State.TERMINAL: {},
}
"""State -> successor -> condition, as the source writes it."""


_SENTENCES = {
    (old, new): f"{new} ({condition})" for old, steps in TRANSITIONS.items() for new, condition in steps.items()
}


def check_step(stage: str, old: State, new: State) -> str:
    """A transition with its condition, as a story tells it: ``READY (all_predecessors_completed)``.

    Raises
    ------
    InternalError
        The table has no such transition.
    """
    sentence = _SENTENCES.get((old, new))
    if sentence is None:
        raise InternalError(f"stage {stage}: no transition from {old} to {new}")
    return sentence
