"""A worker process: stages in, results out, whether a controller is there or not.

::

    controller ── Start, Stop, Reserve, Release, Forget, … ──▶ worker ──▶ executor of its role
               ◀─ Registered, Heartbeat, Accepted, Progress, … ────

A connection that breaks ends nothing: stages run on, and when the controller is back it hears what runs, what has
ended, and every token streamed. Only a refusal (wrong secret, another protocol, a message that the controller finds
wrong) and an executor that has broken down end the process.
"""

from __future__ import annotations

import asyncio
import contextlib
import secrets
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from iegopt.control.documents import read
from iegopt.control.messages import (
    AttemptKey,
    Dismiss,
    Forget,
    Introduce,
    Message,
    Release,
    Reserve,
    Start,
    Stop,
)
from iegopt.errors import IegoptError, InputError
from iegopt_runtime.errors import KvLost, NoRoom, Refused, RuntimeFault, WireError, is_out_of_memory
from iegopt_runtime.net.address import Address
from iegopt_runtime.net.connection import Connection, connect
from iegopt_runtime.net.frames import Frame, decode, fitting
from iegopt_runtime.workers.attempts import EndedAttempts, RunningAttempt
from iegopt_runtime.workers.executor import Executor, StageFailed, StagePreempted

__all__ = ["Identity", "Worker"]

_FIRST_PAUSE, _LONGEST_PAUSE = 0.02, 1.0
"""Seconds between two attempts to reach the controller."""


@dataclass(frozen=True)
class Identity:
    """Who a worker is: its name, the device and role that it serves, where it stands, and how much it runs at once."""

    worker: str
    device: str
    role: str
    location: dict[str, str]
    slots: int


class Worker:
    """Serves one device in one role.

    Parameters
    ----------
    heartbeat
        Seconds between two signs of life.
    tell
        Is told why it leaves a controller.
    """

    def __init__(
        self, identity: Identity, executor: Executor, controller: Address, secret: bytes, heartbeat: float = 1.0,
        tell: Callable[[str], None] = lambda line: None,
    ) -> None:  # fmt: skip
        self.identity, self.epoch = identity, secrets.token_hex(8)
        self._executor, self._controller, self._secret, self._heartbeat = executor, controller, secret, heartbeat
        self._tell = tell
        self._running: dict[AttemptKey, RunningAttempt] = {}
        self._ended = EndedAttempts()
        self._connection: Connection | None = None
        self._dismissed = asyncio.Event()
        self._draining = False

    async def run(self) -> None:
        """Serve until dismissed or cancelled.

        Raises
        ------
        Refused
            Where the controller does not take this worker.
        """
        serving = asyncio.create_task(self._serve())
        dismissed = asyncio.create_task(self._dismissed.wait())
        try:
            await asyncio.wait([serving, dismissed], return_when=asyncio.FIRST_COMPLETED)
            if serving.done():
                serving.result()
        finally:
            for task in [serving, dismissed, *(a.task for a in self._running.values() if a.task is not None)]:
                task.cancel()
                with contextlib.suppress(asyncio.CancelledError, Refused):
                    await task
            if self._connection is not None:
                await self._connection.closed()
            await self._executor.close()

    def drain(self) -> None:
        """Ask the controller for no more work; it dismisses this worker when nothing needs it."""
        self._draining = True
        self._send({"type": "Draining", "worker": self.identity.worker})

    async def _serve(self) -> None:
        pause, again, clock = _FIRST_PAUSE, 0.0, asyncio.get_running_loop().time
        while True:
            try:
                connection = await connect(self._controller, self._secret, self.identity.worker, "worker")
            except OSError:
                await asyncio.sleep(pause)
                pause = min(2 * pause, _LONGEST_PAUSE)
                continue
            pause, begun = _FIRST_PAUSE, clock()
            self._connection = connection
            beats = asyncio.create_task(self._beat())
            hearing = asyncio.create_task(self._listen(connection))
            try:
                self._introduce()
                await asyncio.wait([beats, hearing], return_when=asyncio.FIRST_COMPLETED)
                if beats.done():  # it only ends where the executor cannot say how it is
                    beats.result()
                hearing.result()
            finally:
                self._connection = None
                for task in (beats, hearing):
                    task.cancel()
                await connection.closed()
            # Without a pause, two that do not understand each other would do nothing but meet.
            again = min(max(_FIRST_PAUSE, 2 * again), _LONGEST_PAUSE) if clock() - begun < _LONGEST_PAUSE else 0.0
            await asyncio.sleep(again)

    def _introduce(self) -> None:
        """Say who is there, what runs and what has ended, each with all that was said of it before."""
        who, now = self.identity, self._executor.state()
        self._send({
            "type": "Registered", "worker": who.worker, "device": who.device, "role": who.role,
            "location": who.location, "epoch": self.epoch, "addresses": self._executor.addresses(),
            "slots": who.slots, "variants": list(now.variants), "kv_free": now.kv_free,
            "weights_free": now.weights_free, "load_times": dict(now.load_times),
            "running": [list(key) for key in self._running], "finished": self._ended.newest(),
            "holds": self._holds(), "kv": fitting(sorted(self._executor.kv())),
        })  # fmt: skip
        for attempt in self._running.values():
            for frame in attempt.so_far():
                self._send(frame)
        if self._draining:
            self.drain()

    def _holds(self) -> list[str]:
        """Those that a frame has no room for are told when it has, after others were forgotten."""
        return fitting(sorted(self._ended.requests() | self._executor.holds()))

    async def _beat(self) -> None:
        while True:
            await asyncio.sleep(self._heartbeat)
            now = self._executor.state()
            self._send({
                "type": "Heartbeat", "worker": self.identity.worker, "epoch": self.epoch,
                "running": [list(key) for key in self._running], "kv_free": now.kv_free,
                "variants": list(now.variants), "load": now.load, "holds": self._holds(),
                "weights_free": now.weights_free, "load_times": dict(now.load_times),
            })  # fmt: skip

    async def _listen(self, connection: Connection) -> None:
        while True:
            try:
                bodies = await connection.receive_all()
                commands = [_command(decode(body)) for body in bodies]
            except (WireError, InputError) as error:  # not our controller's doing: begin anew
                self._tell(f"{self.identity.worker} calls its controller anew: {error}")
                return
            if not commands:
                return
            for command in commands:
                handler = _HANDLERS.get(type(command))
                if handler is not None:
                    handler(self, command)

    def _send(self, frame: Frame) -> None:
        """What is lost while nobody listens is said again by ``_introduce``."""
        if self._connection is not None:
            try:
                self._connection.send(frame)
            except MemoryError:  # there will be another connection, on which it is said again
                self._connection.close()

    def _start(self, command: Start) -> None:
        key = AttemptKey(command.request_id, command.stage, command.attempt)
        if (ended := self._ended.get(key)) is not None:
            self._send(ended)
            return
        if key in self._running:
            for frame in self._running[key].so_far():
                self._send(frame)
            return
        attempt = RunningAttempt(key, self.identity.worker, self._send)
        self._running[key] = attempt
        attempt.task = asyncio.create_task(self._executed(command, attempt))
        attempt.task.add_done_callback(lambda task: self._ended_with(attempt, task))
        asyncio.get_running_loop().call_soon(self._accept, attempt)

    def _accept(self, attempt: RunningAttempt) -> None:
        """Say that a stage runs, unless it is done already: its end, which is about to be said, implies it."""
        assert attempt.task is not None
        if not attempt.task.done():
            self._send(attempt.frame("Accepted"))

    async def _executed(self, command: Start, attempt: RunningAttempt) -> Frame:
        """The last message about an attempt."""
        limit = command.limits.get("timeout")
        try:
            run = self._executor.run(command.kind, command.work, attempt)
            if limit is None:
                result = await run
            else:
                async with asyncio.timeout(limit):
                    result = await run
            return attempt.last("Finished", result=result)
        except TimeoutError:
            message = f"it took longer than {limit:g} s"
            return attempt.last("Failed", cause="timeout", message=message, transient=True)
        except StagePreempted as stopped:
            return attempt.last("Preempted", kv=stopped.kv)
        except StageFailed as failure:
            return attempt.last("Failed", cause=failure.cause, message=str(failure), transient=failure.transient)
        except Exception as failure:  # noqa: BLE001 - a bug in one stage must not end the others
            short = isinstance(failure, NoRoom) or is_out_of_memory(failure)
            cause = "oom" if short else "kv_lost" if isinstance(failure, KvLost) else "error"
            message = str(failure) if isinstance(failure, IegoptError) else f"{type(failure).__name__}: {failure}"
            transient = short or isinstance(failure, RuntimeFault)
            return attempt.last("Failed", cause=cause, message=message[:1000], transient=transient)

    def _ended_with(self, attempt: RunningAttempt, task: asyncio.Task[Frame]) -> None:
        if task.cancelled():
            last = attempt.last("Failed", cause="cancelled", message="it was cancelled", transient=False)
        else:
            last = task.result()
        del self._running[attempt.key]
        self._send(self._ended.keep(attempt, last))

    def _stop(self, command: Stop) -> None:
        attempt = self._running.get(AttemptKey(command.request_id, command.stage, command.attempt))
        if attempt is None:
            return
        if command.how == "cancel":
            assert attempt.task is not None
            attempt.task.cancel()
        else:
            attempt.stop_wanted.set()

    def _reserve(self, command: Reserve) -> None:
        about = {"worker": self.identity.worker, "request_id": command.request_id, "stage": command.stage}
        try:
            self._executor.reserve(command.request_id, command.stage, command.bytes)
        except StageFailed as failure:
            self._send({"type": "ReservationRefused", **about, "reason": str(failure)})
        else:
            self._send({"type": "Reserved", **about, "bytes": command.bytes})

    def _release(self, command: Release) -> None:
        self._executor.release(command.kv_id)

    def _forget(self, command: Forget) -> None:
        self._ended.forget(command.request_id)
        self._executor.forget(command.request_id)

    def _introduce_again(self, command: Introduce) -> None:
        self._introduce()

    def _dismiss(self, command: Dismiss) -> None:
        self._dismissed.set()


def _command(frame: Frame) -> Message:
    """What the controller says (raises ``Refused`` where it says that this worker is wrong)."""
    if frame.get("type") == "wrong":
        raise Refused(str(frame.get("reason")))
    return read(frame, "a command")


_HANDLERS: dict[type[Message], Callable[[Worker, Any], None]] = {
    Start: Worker._start,
    Stop: Worker._stop,
    Reserve: Worker._reserve,
    Release: Worker._release,
    Forget: Worker._forget,
    Introduce: Worker._introduce_again,
    Dismiss: Worker._dismiss,
}
