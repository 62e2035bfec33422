"""The controller of running requests: events in, commands out, nothing else (sans-IO).

::

    event ──▶ its handler ──▶ settle: admit, plan, start, preempt ──▶ commands

It reads no clock and opens no socket: the time comes with the events, and the same events make the same commands and
the same state. So a journal of events is all that a controller needs to go on where another ended, and a simulated
world can drive the very code that the real one does.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from iegopt.control import (
    admission,
    completion,
    deviation,
    failing,
    faults,
    messages,
    planning,
    preemption,
    progress,
    registry,
    restart,
    snapshot,
)
from iegopt.control.core import Core
from iegopt.control.dispatch import settle
from iegopt.control.messages import Command, Event, WakeAt
from iegopt.control.policy import ControlPolicy
from iegopt.control.request_run import RequestRun
from iegopt.control.stage_run import StageRun
from iegopt.control.story import tell
from iegopt.control.timers import Key
from iegopt.graph.limits import Cards

__all__ = ["Controller"]


class Controller:
    """Carries requests out by what it is told and what it asks for.

    Parameters
    ----------
    policy
        The first one, which ``Configured`` replaces: a journal is replayed under the policies it was written under.
    cards
        Finds the card of a model by name (``iegopt.library.llm``).
    """

    def __init__(self, policy: ControlPolicy, cards: Cards) -> None:
        self.core = Core(policy, cards)

    @classmethod
    def restored(cls, policy: ControlPolicy, cards: Cards, document: dict[str, Any]) -> Controller:
        """One that goes on from a ``snapshot``, written under the same policy.

        Raises
        ------
        InputError
            Where it was written by another version, or is damaged.
        """
        controller = cls(policy, cards)
        controller.core = snapshot.restored(policy, cards, document)
        return controller

    def snapshot(self) -> dict[str, Any]:
        """All that the events so far have led to, as plain data; to be written down before the next event."""
        return snapshot.written(self.core)

    def handle(self, event: Event) -> tuple[Command, ...]:
        """Deal with an event: the commands that follow, in their order.

        Events are to be handed in as they came; a journal must have an event before its commands leave.
        """
        core = self.core
        core.before, core.now = core.now, max(core.now, event.at)
        _HANDLERS[type(event)](core, event)
        while core.inbox:
            inner = core.inbox.pop(0)
            _HANDLERS[type(inner)](core, inner)
        settle(core)
        _wake(core)
        commands, core.out = tuple(core.out), []
        return commands

    def story(self, request_id: str, stage: str | None = None) -> list[str]:
        """What befell a request or one of its stages, in sentences with the seconds since its submission.

        Raises
        ------
        KeyError
            There is no such request or stage.
        """
        return tell(self.core.runs[request_id], stage)


def _tick(core: Core, event: Event) -> None:
    """Whatever is due happens, in the order of its time."""
    while (key := core.timers.pop(core.now)) is not None:
        _due(core, key)


def _due(core: Core, key: Key) -> None:
    kind, name = key[0], key[1]
    if kind in _BY_NAME:
        _BY_NAME[kind](core, name)
        return
    run = core.runs.get(name)
    if run is None or run.over:
        return
    if kind in _OF_REQUEST:
        _OF_REQUEST[kind](core, run)
    else:
        _OF_STAGE[kind](core, run, run.stages[key[2]])


def _wake(core: Core) -> None:
    """Ask to be woken for the next timer, unless that is arranged."""
    at = core.timers.next()
    if at is not None and (core.woken is None or at < core.woken or core.woken <= core.now):
        core.woken = at
        core.send(WakeAt(at))


def _retry(core: Core, run: RequestRun, stage: StageRun) -> None:
    core.look_at(run, stage)


_HANDLERS: dict[type[Event], Callable[[Core, Any], None]] = {
    messages.Submitted: admission.submit,
    messages.Cancelled: admission.cancel,
    messages.Acknowledged: admission.acknowledge,
    messages.Planned: planning.receive,
    messages.Registered: registry.registered,
    messages.Heartbeat: registry.heartbeat,
    messages.Disconnected: registry.disconnected,
    messages.Draining: registry.draining,
    messages.Accepted: progress.accepted,
    messages.Waiting: progress.waits,
    messages.Resumed: progress.resumed,
    messages.Progress: progress.progress,
    messages.Reserved: progress.reserved,
    messages.ReservationRefused: progress.refused,
    messages.Finished: completion.finished,
    messages.Failed: failing.failed,
    messages.Preempted: preemption.preempted,
    messages.Ticked: _tick,
    messages.Configured: restart.configured,
    messages.Restarted: restart.restarted,
}

_BY_NAME: dict[str, Callable[[Core, str], None]] = {
    "worker": registry.expired,
    "forgotten": faults.forget_old,
    "answered": admission.not_acknowledged,
}
_OF_REQUEST: dict[str, Callable[[Core, RequestRun], None]] = {
    "timeout": deviation.timed_out,
    "compute": deviation.compute_time_used,
    "grace": deviation.grace_over,
    "patience": planning.out_of_patience,
}
_OF_STAGE: dict[str, Callable[[Core, RequestRun, StageRun], None]] = {
    "slow": deviation.slow,
    "block": deviation.blocked_too_long,
    "stop": deviation.will_not_stop,
    "retry": _retry,
}
