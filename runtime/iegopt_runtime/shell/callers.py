"""Who calls the controller: workers, each of which counts by its newest connection, and clients."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from typing import Any, NamedTuple, Protocol

from iegopt.control.answer import undelivered
from iegopt.control.documents import document
from iegopt.control.messages import Answer, Disconnected, Event, Heartbeat, Registered, Stream, Submitted
from iegopt.errors import InputError
from iegopt_runtime.errors import RuntimeFault, WireError
from iegopt_runtime.net.connection import Connection
from iegopt_runtime.net.frames import decode, fitting, stamped
from iegopt_runtime.shell.clock import ControllerClock
from iegopt_runtime.shell.feeds import Feeds
from iegopt_runtime.shell.plan_service import Held
from iegopt_runtime.shell.senders import asked_by_client, event_of_client, event_of_worker
from iegopt_runtime.shell.submissions import Submissions, Verdict

__all__ = ["Callers", "Listening"]


class Listening(Protocol):
    """What callers need of the shell."""

    feeds: Feeds
    submissions: Submissions
    clock: ControllerClock

    def put(self, event: Event, body: bytes | None = None) -> None:
        """Hand in an event."""

    async def take(self, event: Event, body: bytes | None = None) -> None:
        """Hand in what came from a socket, and wait where there is too much of it."""

    def state(self) -> dict[str, Any]:
        """Workers and requests."""


class _Worker(NamedTuple):
    connection: Connection
    device: str
    role: str
    epoch: str


class Callers:
    """Connections to one shell.

    Parameters
    ----------
    check
        Refuses a worker by its device and role (raises ``InputError``).
    tell
        Is told who comes and goes.
    """

    def __init__(self, shell: Listening, check: Callable[[str, str], None], tell: Callable[[str], None]) -> None:
        self._shell, self._check, self._tell = shell, check, tell
        self._workers: dict[str, _Worker] = {}
        self._held: dict[str, tuple[str, Held]] = {}

    def connection(self, worker: str) -> Connection | None:
        """Where a worker is to be told something; ``None`` where it is away."""
        known = self._workers.get(worker)
        return known.connection if known is not None else None

    def held(self) -> dict[str, Held]:
        """By device, what its worker for models said last."""
        return dict(self._held.values())

    async def serve(self, connection: Connection) -> None:
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
        shell, name, epoch = self._shell, connection.name, ""
        try:
            while bodies := await connection.receive_all():
                for body in bodies:
                    at = shell.clock()
                    event = event_of_worker(decode(body), name, at)
                    if isinstance(event, Registered):
                        epoch = event.epoch
                        self._check(event.device, event.role)
                        self._registered(connection, event)
                    elif not epoch:
                        raise InputError(f"worker {name}: {type(event).__name__} came before Registered")
                    elif self.connection(name) is not connection:
                        return  # another one counts, on which everything is said again
                    if isinstance(event, (Registered, Heartbeat)) and self._workers[name].role == "lm":
                        held = Held(event.kv_free, event.variants, event.weights_free, event.load_times)
                        self._held[name] = (self._workers[name].device, held)
                    await shell.take(event, stamped(body, at))
        finally:
            if self.connection(name) is connection:
                del self._workers[name]
                self._held.pop(name, None)
                self._tell(f"worker {name} is disconnected")
                shell.put(Disconnected(shell.clock(), name, epoch))

    def _registered(self, connection: Connection, event: Registered) -> None:
        """The newest connection of a worker is the one that counts."""
        before = self._workers.get(event.worker)
        self._workers[event.worker] = _Worker(connection, event.device, event.role, event.epoch)
        if before is not None and before.connection is not connection:
            if before.epoch != event.epoch:  # two processes, which would take turns at displacing each other for ever
                before.connection.send({"type": "wrong", "reason": f"another process serves {event.worker} now"})
            before.connection.close()
        self._tell(f"worker {event.worker} serves {event.device} as {event.role}")

    async def _serve_client(self, connection: Connection) -> None:
        """Submissions, cancellations, and ``Follow {request_id}``, which is answered with all that is said of it."""
        following: set[asyncio.Task[None]] = set()
        verdicts: dict[str, Verdict] = {}
        try:
            while (frame := await connection.receive()) is not None:
                asked = asked_by_client(frame, connection.name)
                if asked is None:
                    event = event_of_client(frame, connection.name, self._shell.clock())
                    if isinstance(event, Submitted):
                        self._expect(connection, event, verdicts)
                    await self._shell.take(event)
                elif not asked:
                    connection.send(_told(self._shell.state()))
                else:
                    task = asyncio.create_task(self._tell_client(connection, asked, verdicts.get(asked)))
                    following.add(task)
                    task.add_done_callback(following.discard)
        finally:
            for task in following:
                task.cancel()

    def _expect(self, connection: Connection, event: Submitted, verdicts: dict[str, Verdict]) -> None:
        """Have the client told where its submission is not taken, after which it hears nothing of that id."""
        name = event.request_id

        def tell(verdict: Verdict) -> None:
            if verdict.cancelled():
                return
            reason = verdict.result()
            if reason is not None:
                connection.send({"type": "wrong", "request_id": name, "reason": reason})
            elif verdicts.get(name) is verdict:
                del verdicts[name]

        verdicts[name] = self._shell.submissions.expect(event)
        verdicts[name].add_done_callback(tell)

    async def _tell_client(self, connection: Connection, request_id: str, verdict: Verdict | None) -> None:
        if verdict is not None and await asyncio.shield(verdict) is not None:
            return
        with contextlib.suppress(RuntimeFault):  # the controller ends, and its connections with it
            async for message in self._shell.feeds.follow(request_id):
                _tell_message(connection, message)
                if connection.is_slow:
                    await connection.flushed()


def _told(state: dict[str, Any]) -> dict[str, Any]:
    """A state as one frame holds it: of the requests the newest."""
    requests = fitting(reversed(state["requests"].items()))
    left_out = len(state["requests"]) - len(requests)
    return {"type": "State", **state, "requests": dict(reversed(requests)), "left_out": left_out}


def _tell_message(connection: Connection, message: Stream | Answer) -> None:
    """Have a client hear a message, or that no frame holds it."""
    try:
        connection.send(document(message))
    except WireError as error:
        about = message.request_id
        if isinstance(message, Answer):
            connection.send(document(Answer(about, undelivered(message.answer, str(error)))))
        else:
            connection.send({"type": "wrong", "request_id": about, "reason": str(error)})
