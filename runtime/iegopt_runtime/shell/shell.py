"""The shell: what the pure controller needs of the world.

::

    sockets, planner, timer ──events──▶ queue ──▶ journal ──▶ Controller.handle ──commands──▶ sockets, planner, feeds

Events are handled in batches: written to the journal in one transaction, handled one by one, and only then do the
commands leave. After a restart the journal is replayed, which makes the controller what it was; what may not have left
is asked for again, and workers that ran on report what they did meanwhile.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from typing import Any

from iegopt import library
from iegopt.control.controller import Controller
from iegopt.control.documents import document, read
from iegopt.control.messages import (
    Acknowledged,
    Answer,
    Command,
    Discard,
    Disconnected,
    Dismiss,
    Event,
    Forget,
    Heartbeat,
    Introduce,
    MakePlan,
    Registered,
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
from iegopt.control.registry import standing
from iegopt.errors import InputError
from iegopt_runtime.errors import WireError
from iegopt_runtime.net.address import Address
from iegopt_runtime.net.connection import Connection, Listener
from iegopt_runtime.net.frames import Frame
from iegopt_runtime.shell.clock import ControllerClock
from iegopt_runtime.shell.feeds import Feeds
from iegopt_runtime.shell.journal import Journal
from iegopt_runtime.shell.plan_service import Held, PlanService
from iegopt_runtime.shell.senders import asked_by_client, event_of_client, event_of_worker

__all__ = ["Shell"]

_BATCH = 256
_MOST_WAITING = 16 * _BATCH
"""Events that wait to be handled, beyond which sockets are not read."""

_TO_WORKER = (Start, Stop, Reserve, Release, Forget, Introduce, Dismiss)
_COMPACT_ABOVE = 20_000
"""Events after which a journal without open requests begins anew."""


class Shell:
    """One controller with its sockets and its journal.

    Parameters
    ----------
    tell
        Is told what an operator wants to know: refused callers, workers that come and go.
    """

    def __init__(
        self,
        policy: ControlPolicy,
        journal: Journal,
        plans: PlanService,
        secret: bytes,
        tell: Callable[[str], None] = lambda line: None,
    ) -> None:
        self.controller = Controller(policy, library.llm)
        self.feeds = Feeds()
        self._journal, self._plans, self._tell = journal, plans, tell
        self._listener = Listener(secret, self._serve, lambda reason: tell(f"refused a caller: {reason}"))
        self._queue: asyncio.Queue[Event] = asyncio.Queue()
        self._room = asyncio.Event()
        self._workers: dict[str, tuple[Connection, str, str]] = {}
        self._held: dict[str, tuple[str, Held]] = {}
        self._planning: set[asyncio.Task[None]] = set()
        self._timer: asyncio.TimerHandle | None = None
        self._closed = False
        self._watchers: list[Callable[[Event, tuple[Command, ...]], None]] = []
        last = self._replayed()
        self.clock = ControllerClock(last)

    def _replayed(self) -> float:
        """Handle the journal's events again; returns the time of the last. What clients were told is kept for them."""
        last = 0.0
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
        if len(self._journal):
            self.put(Restarted(self.clock()))
        try:
            while True:
                await self._turn()
        except Exception as error:
            self.feeds.end(f"the controller has ended: {error}")
            raise
        finally:
            await self.close()

    async def close(self) -> None:
        """End it, if it has not run as well."""
        if self._closed:
            return
        self._closed = True
        if self._timer is not None:
            self._timer.cancel()
        await self._listener.close()
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

    def put(self, event: Event) -> None:
        """Hand in an event; it is in the journal before anything follows from it."""
        self._queue.put_nowait(event)

    async def _take(self, event: Event) -> None:
        """Hand in what came from a socket, which is read on when there is room for more."""
        self.put(event)
        if self._queue.qsize() >= _MOST_WAITING:
            self._room.clear()
            await self._room.wait()

    def follow(self, request_id: str) -> AsyncIterator[Stream | Answer]:
        """What clients hear of a request, from its first token to its answer."""
        return self.feeds.follow(request_id)

    async def _turn(self) -> None:
        events = [await self._queue.get()]
        while len(events) < _BATCH and not self._queue.empty():
            events.append(self._queue.get_nowait())
        self._journal.append(document(event) for event in events)
        for event, commands in self._handled(events):
            self._to_feeds(event, commands)
            for command in commands:
                self._carry_out(command)
            for watcher in self._watchers:
                watcher(event, commands)
        if not self.controller.core.runs and len(self._journal) > _COMPACT_ABOVE:
            begin = standing(self.controller.core)
            if begin is not None:
                self._journal.restart(document(event) for event in begin)
        if self._queue.qsize() < _MOST_WAITING:
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

    def _to_feeds(self, event: Event, commands: tuple[Command, ...]) -> None:
        for command in commands:
            if isinstance(command, Stream):
                self.feeds.stream(command)
            elif isinstance(command, Answer):
                self.feeds.answer(command)
        answered = any(isinstance(command, Answer) for command in commands)
        if isinstance(event, Acknowledged) or (isinstance(event, Submitted) and not answered):
            self.feeds.forget_answer(event.request_id)
        elif isinstance(event, Ticked):
            for command in commands:
                if isinstance(command, Discard):
                    self.feeds.forget_answer(command.request_id)

    def _carry_out(self, command: Command) -> None:
        if isinstance(command, _TO_WORKER):
            connection = self._workers.get(command.worker)
            if connection is not None:  # without one it is away, and told everything when it is back
                connection[0].send(document(command))
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
        planned = await self._plans.planned(command, dict(self._held.values()), self.clock())
        self.put(replace(planned, at=self.clock()))

    async def _serve(self, connection: Connection) -> None:
        """One connection, until it ends."""
        serve = {"worker": self._serve_worker, "client": self._serve_client}.get(connection.purpose)
        if serve is None:
            self._tell(f"{connection.name} calls as {connection.purpose!r}: expected worker or client")
            return
        try:
            await serve(connection)
        except (WireError, InputError) as error:
            self._tell(f"{connection.purpose} {connection.name} is disconnected: {error}")
            connection.send({"type": "wrong", "reason": str(error)})
            await connection.flushed()

    async def _serve_worker(self, connection: Connection) -> None:
        name, epoch = connection.name, ""
        try:
            while (frame := await connection.receive()) is not None:
                event = event_of_worker(frame, name, self.clock())
                if isinstance(event, Registered):
                    epoch = event.epoch
                    self._plans.check(event.device, event.role)
                    self._registered(connection, event)
                elif not epoch:
                    raise InputError(f"worker {name}: {type(event).__name__} came before Registered")
                if isinstance(event, Registered | Heartbeat) and self._workers[name][2] == "lm":
                    self._held[name] = (self._workers[name][1], Held(event.kv_free, event.variants, event.weights_free))
                await self._take(event)
        finally:
            if self._workers.get(name, (None,))[0] is connection:
                del self._workers[name]
                self._held.pop(name, None)
                self._tell(f"worker {name} is disconnected")
                self.put(Disconnected(self.clock(), name, epoch))

    def _registered(self, connection: Connection, event: Registered) -> None:
        """The newest connection of a worker is the one that counts."""
        before = self._workers.get(event.worker)
        self._workers[event.worker] = (connection, event.device, event.role)
        if before is not None and before[0] is not connection:
            before[0].close()
        self._tell(f"worker {event.worker} serves {event.device} as {event.role}")

    async def _serve_client(self, connection: Connection) -> None:
        """Submissions, cancellations, and ``Follow {request_id}``, which is answered with all that is said of it."""
        following: set[asyncio.Task[None]] = set()
        try:
            while (frame := await connection.receive()) is not None:
                asked = asked_by_client(frame, connection.name)
                if asked is None:
                    await self._take(event_of_client(frame, connection.name, self.clock()))
                elif not asked:
                    connection.send({"type": "State", **self.state()})
                else:
                    task = asyncio.create_task(self._tell_client(connection, asked))
                    following.add(task)
                    task.add_done_callback(following.discard)
        finally:
            for task in following:
                task.cancel()

    async def _tell_client(self, connection: Connection, request_id: str) -> None:
        async for message in self.feeds.follow(request_id):
            connection.send(document(message))
            if connection.is_slow:
                await connection.flushed()

    def state(self) -> dict[str, Any]:
        """Workers and requests, for ``iegopt`` and for tests."""
        core = self.controller.core
        return {
            "workers": {w.id: {"device": w.device, "role": w.role, "usable": w.usable} for w in core.pool.known()},
            "requests": {run.id: "answered" if run.over else "open" for run in core.runs.values()},
        }
