"""The shell: what the pure controller needs of the world.

::

    sockets, planner, timer ──events──▶ queue ──▶ journal ──▶ Controller.handle ──commands──▶ sockets, planner, feeds

Events are handled in batches: written to the journal in one transaction, handled one by one, and only then do the
commands leave. After a restart the journal is replayed, which makes the controller what it was; what may not have left
is asked for again, and workers that ran on report what they did meanwhile.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import Any

from iegopt import library
from iegopt.control.controller import Controller
from iegopt.control.documents import document, read
from iegopt.control.messages import (
    Acknowledged,
    Answer,
    Command,
    Configured,
    Differs,
    Discard,
    Dismiss,
    Event,
    Failed,
    Forget,
    Introduce,
    MakePlan,
    Release,
    Reserve,
    Restarted,
    Start,
    Stop,
    Stream,
    Submitted,
    Ticked,
    WakeAt,
)  # fmt: skip
from iegopt.control.policy import ControlPolicy
from iegopt.errors import InputError
from iegopt.spec.explain_error import validate
from iegopt_runtime.errors import WireError
from iegopt_runtime.net.address import Address
from iegopt_runtime.net.connection import Connection, Listener
from iegopt_runtime.net.frames import Frame
from iegopt_runtime.shell.callers import Callers
from iegopt_runtime.shell.clock import ControllerClock
from iegopt_runtime.shell.feeds import Feeds
from iegopt_runtime.shell.journal import Journal
from iegopt_runtime.shell.plan_service import PlanService
from iegopt_runtime.shell.senders import event_of_client
from iegopt_runtime.shell.submissions import Submissions, Verdict

__all__ = ["Shell"]

_BATCH = 256
_MOST_WAITING = 16 * _BATCH
"""Events that wait to be handled, beyond which sockets are not read."""

_TO_WORKER = (Start, Stop, Reserve, Release, Forget, Introduce, Dismiss)
_COMPACT_ABOVE = 4 * 2**20
"""Bytes of events after which a journal begins anew, from the state, when there are no requests."""

_SAVE_ABOVE, _SAVE_TIMES = 32 * 2**20, 4
"""Bytes of events after which it does so when there are; no fewer than so many times those of the state."""


class Shell:
    """One controller with its sockets and its journal.

    Parameters
    ----------
    policy
        What it goes by from its beginning on, whatever the journal was written under.
    tell
        Is told what an operator wants to know: refused callers, workers that come and go, another policy.
    workers
        Name -> role of those that the cluster has.
    """

    def __init__(
        self,
        policy: ControlPolicy,
        journal: Journal,
        plans: PlanService,
        secret: bytes,
        tell: Callable[[str], None] = lambda line: None,
        *,
        workers: Mapping[str, str] = MappingProxyType({}),
    ) -> None:
        self._policy, self._workers = policy, workers
        before = validate(ControlPolicy, journal.policy(_written(policy)), "journal", "policy")
        self.controller = Controller(before, library.llm)
        self.feeds = Feeds()
        self.submissions = Submissions()
        self._journal, self._plans = journal, plans
        self._callers = Callers(self, plans.check, tell)
        self._listener = Listener(secret, self._callers.serve, lambda reason: tell(f"refused a caller: {reason}"))
        self._queue: deque[tuple[Event, bytes | None]] = deque()
        self._arrived, self._room = asyncio.Event(), asyncio.Event()
        self._written_to: set[Connection] = set()
        self._planning: set[asyncio.Task[None]] = set()
        self._timer: asyncio.TimerHandle | None = None
        self._closed = False
        self._watchers: list[Callable[[Event, tuple[Command, ...]], None]] = []
        last = self._replayed()
        if other := self.controller.core.policy.differences(policy):
            tell(f"the journal was written under another policy: from here on {'; '.join(other)}")
        self.clock = ControllerClock(last)

    def _replayed(self) -> float:
        """Handle the journal's events again; returns the time of the last. What clients were told is kept for them."""
        saved = self._journal.snapshot()
        if saved is not None:
            policy = self.controller.core.policy
            if "policy" in saved:
                policy = validate(ControlPolicy, saved["policy"], "journal", "policy")
            self.controller = Controller.restored(policy, library.llm, saved.get("state", {}))
            self.feeds.restore(saved.get("said", {}))
        last = self.controller.core.now
        for number, frame in enumerate(self._journal.replay()):
            event = read(frame, f"journal, event {number}")
            if not isinstance(event, Event):
                raise InputError(f"journal, event {number}: {type(event).__name__} is a command: expected an event")
            last = max(last, event.at)
            self._to_feeds(event, self.controller.handle(event))
        return last

    def watch(self, watcher: Callable[[Event, tuple[Command, ...]], None]) -> None:
        """Have every event and what followed from it told to ``watcher``: views, traces, metrics."""
        self._watchers.append(watcher)

    async def listen(self, address: Address) -> Address:
        """Take workers and clients at this address too; returns it with its port."""
        return await self._listener.listen(address)

    async def run(self) -> None:
        """Carry on until cancelled; the journal and the planner are closed then."""
        self._begin()
        try:
            while True:
                await self._turn()
        except Exception as error:
            self.feeds.end(f"the controller has ended: {error}")
            self.submissions.end()
            raise
        finally:
            await self.close()

    def _begin(self) -> None:
        """The first events, before those of callers who were quicker."""
        goes_on = self._journal.size > 0
        since = self.controller.core.now if goes_on else self.clock()
        events: list[Event] = [Configured(since, _written(self._policy), dict(self._workers))]
        if goes_on:
            events.append(Restarted(self.clock()))
        self._queue.extendleft((event, None) for event in reversed(events))
        self._arrived.set()

    async def close(self) -> None:
        """End it, if it has not run as well."""
        if self._closed:
            return
        self._closed = True
        if self._timer is not None:
            self._timer.cancel()
        await self._listener.close()
        self.feeds.end("the controller has ended")
        self.submissions.end()
        for task in list(self._planning):
            task.cancel()
        self._plans.close()
        self._journal.close()

    def say(self, frame: Frame) -> None:
        """Hand in what a client in this process says, checked as if it came from a socket.

        Raises
        ------
        InputError
            Naming the field that is wrong.
        """
        self.put(event_of_client(frame, "here", self.clock()))

    def submit(self, frame: Frame) -> Verdict:
        """Hand in a ``Submitted``; whether it is taken is known when it is handled. Raises as ``say``."""
        event = event_of_client(frame, "here", self.clock())
        assert isinstance(event, Submitted)
        verdict = self.submissions.expect(event)
        self.put(event)
        return verdict

    def put(self, event: Event, body: bytes | None = None) -> None:
        """Hand in an event, with its document where that is packed already; it is in the journal before anything
        follows from it."""
        self._queue.append((event, body))
        self._arrived.set()

    async def take(self, event: Event, body: bytes | None = None) -> None:
        """Hand in what came from a socket, which is read on when there is room for more."""
        self.put(event, body)
        if len(self._queue) >= _MOST_WAITING:
            self._room.clear()
            await self._room.wait()

    def follow(self, request_id: str) -> AsyncIterator[Stream | Answer]:
        """What clients hear of a request, from its first token to its answer."""
        return self.feeds.follow(request_id)

    async def _turn(self) -> None:
        await self._arrived.wait()
        events = [self._queue.popleft() for _ in range(min(_BATCH, len(self._queue)))]
        if not self._queue:
            self._arrived.clear()
        self._journal.append(document(event) if body is None else body for event, body in events)
        for event, commands in self._handled([event for event, _ in events]):
            self._to_feeds(event, commands)
            if isinstance(event, Submitted):
                self.submissions.handled(event, commands)
            for command in commands:
                self._carry_out(command)
            for watcher in self._watchers:
                watcher(event, commands)
        for connection in self._written_to:
            connection.flush()
        self._written_to.clear()
        self._compact()
        if len(self._queue) < _MOST_WAITING:
            self._room.set()

    def _handled(self, events: list[Event]) -> list[tuple[Event, tuple[Command, ...]]]:
        """What follows from each. An event that ends the controller is struck from the journal with those after it, so
        that it does not end the next one as well, which hears the others again."""
        handled: list[tuple[Event, tuple[Command, ...]]] = []
        for event in events:
            try:
                handled.append((event, self.controller.handle(event)))
            except Exception:
                self._journal.take_back(len(events) - len(handled))
                raise
        return handled

    def _compact(self) -> None:
        """Begin the journal anew where it has grown long."""
        journal = self._journal
        most = max(_SAVE_ABOVE, _SAVE_TIMES * journal.saved) if self.controller.core.runs else _COMPACT_ABOVE
        if journal.size - journal.saved > most:
            policy = _written(self.controller.core.policy)
            state, said = self.controller.snapshot(), self.feeds.snapshot()
            journal.restart({"state": state, "said": said, "policy": policy})

    def _to_feeds(self, event: Event, commands: tuple[Command, ...]) -> None:
        answered = False
        for command in commands:
            if isinstance(command, Stream):
                self.feeds.stream(command)
            elif isinstance(command, Answer):
                self.feeds.answer(command)
                answered = True
            elif isinstance(command, Discard):
                self.feeds.forget_answer(command.request_id)
            elif isinstance(command, Differs):
                return
        if isinstance(event, Acknowledged) or (isinstance(event, Submitted) and not answered):
            self.feeds.forget_answer(event.request_id)

    def _carry_out(self, command: Command) -> None:
        if isinstance(command, _TO_WORKER):
            known = self._callers.connection(command.worker)
            if known is not None:  # without one it is away, and told everything when it is back
                self._written_to.add(known)
                try:
                    known.hold(document(command))
                except WireError as error:  # only a start holds what clients bring: more than a frame does
                    assert isinstance(command, Start)
                    about = (command.worker, command.request_id, command.stage, command.attempt)
                    self.put(Failed(self.clock(), *about, "error", str(error), transient=False))
        elif isinstance(command, MakePlan):
            task = asyncio.create_task(self._plan(command))
            self._planning.add(task)
            task.add_done_callback(self._planning.discard)
        elif isinstance(command, WakeAt):
            if self._timer is not None:
                self._timer.cancel()
            delay = max(0.0, command.at - self.clock())
            self._timer = asyncio.get_running_loop().call_later(delay, self._tick)

    def _tick(self) -> None:
        self.put(Ticked(self.clock()))

    async def _plan(self, command: MakePlan) -> None:
        planned = await self._plans.planned(command, self._callers.held(), self.clock())
        self.put(replace(planned, at=self.clock()))

    def state(self) -> dict[str, Any]:
        """Workers and requests, for ``iegopt`` and for tests."""
        core = self.controller.core
        return {
            "workers": {w.id: {"device": w.device, "role": w.role, "usable": w.usable} for w in core.pool.known()},
            "requests": {run.id: "answered" if run.over else "open" for run in core.runs.values()},
        }


def _written(policy: ControlPolicy) -> dict[str, Any]:
    """All of it, so that defaults of a later version change nothing in a journal."""
    return policy.model_dump(mode="json", by_alias=True)
