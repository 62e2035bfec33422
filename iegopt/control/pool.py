"""The workers that the controller knows: who serves which device in which role, who is away, who is lost."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

from iegopt.control.messages import Registered
from iegopt.spec.kinds import role_of

__all__ = ["Expected", "Place", "Pool", "Worker", "role_of"]

Place = tuple[str, str]
"""A device, and a role of workers on it."""


@dataclass
class Worker:
    """A process that serves a device in one role.

    Attributes
    ----------
    place
        (datacenter, rack, host).
    heard
        When it last gave a sign.
    away_since
        When its connection ended, ``None`` while it has one.
    lost_at
        When it was given up; it is kept for a while to tell a rack's end from a device's.
    gone_at
        When, to the best of our knowledge, it ended.
    """

    id: str
    device: str
    role: str
    place: tuple[str, str, str]
    epoch: str
    addresses: dict[str, Any]
    slots: int
    heard: float
    variants: tuple[str, ...] = ()
    kv_free: int = 0
    load: float = 0.0
    away_since: float | None = None
    lost_at: float | None = None
    gone_at: float | None = None
    draining: bool = False
    attempts: dict[tuple[str, str], int] = field(default_factory=dict)

    @property
    def usable(self) -> bool:
        """Whether it may get work now."""
        return self.lost_at is None and self.away_since is None and not self.draining

    def overdue_at(self, heartbeat: float) -> float:
        """When a sign of life will be overdue."""
        return self.heard + 1.5 * heartbeat

    def is_silent(self, now: float, heartbeat: float) -> bool:
        """Whether it is connected and a sign of life is overdue."""
        return self.away_since is None and now >= self.overdue_at(heartbeat)

    @property
    def serves(self) -> Place:
        return self.device, self.role

    @property
    def has_slot(self) -> bool:
        return len(self.attempts) < self.slots


@dataclass
class Expected:
    """A worker that the cluster has: since when it is waited for, ``None`` where it is not, and when it came last."""

    role: str
    since: float | None
    came: float = 0.0


@dataclass
class Pool:
    """Workers by id, lost ones included.

    ``expected``: those that the cluster has.
    ``slow``: device -> how many times longer than planned a stage took there, until one is in time again.
    ``leaving``: those that drain. ``_serving`` holds the workers by what they serve; ``workers`` is changed by
    ``register`` and ``remove`` only.
    """

    workers: dict[str, Worker] = field(default_factory=dict)
    expected: dict[str, Expected] = field(default_factory=dict)
    slow: dict[str, float] = field(default_factory=dict)
    leaving: dict[str, None] = field(default_factory=dict)
    _serving: dict[Place, list[Worker]] = field(default_factory=dict, compare=False)

    def __post_init__(self) -> None:
        for worker in self.workers.values():
            self._serving.setdefault(worker.serves, []).append(worker)

    def register(self, event: Registered, now: float) -> Worker:
        """Enter a worker, anew where it was known by another epoch."""
        where = event.location
        place = tuple(str(where.get(level, "")) for level in ("datacenter", "rack", "host"))
        worker = Worker(
            id=event.worker, device=event.device, role=event.role, place=(place[0], place[1], place[2]),
            epoch=event.epoch, addresses=event.addresses, slots=event.slots, heard=now,
            variants=event.variants, kv_free=event.kv_free,
        )  # fmt: skip
        self.remove(event.worker)
        self.workers[event.worker] = worker
        self._serving.setdefault(worker.serves, []).append(worker)
        return worker

    def remove(self, name: str) -> None:
        """Know a worker no longer."""
        worker = self.workers.pop(name, None)
        if worker is not None:
            self._serving[worker.serves].remove(worker)
            self.leaving.pop(name, None)

    def expect(self, workers: dict[str, str], now: float) -> None:
        """Those that the cluster has, with their roles; who is not there is waited for from now on, or still."""
        there, before = {worker.id for worker in self.known()}, self.expected
        self.expected = {name: Expected(role, None if name in there else now) for name, role in workers.items()}
        for name, worker in self.expected.items():
            old = before.get(name)
            if old is not None and old.role == worker.role and (name in there or old.since is not None):
                self.expected[name] = old

    def is_there(self, name: str, now: float) -> None:
        """A worker need not be waited for any more."""
        found = self.expected.get(name)
        if found is not None and found.since is not None:
            found.since, found.came = None, now

    def is_missed(self, name: str, now: float) -> None:
        """A worker is lost, and may come up again."""
        found = self.expected.get(name)
        if found is not None:
            found.since = now

    def shift(self, away: float) -> None:
        """Nobody could come up in the seconds that the controller was away."""
        for found in self.expected.values():
            found.since = None if found.since is None else found.since + away
            found.came += away

    def drain(self, worker: Worker) -> None:
        """It gets no more work."""
        worker.draining = True
        self.leaving[worker.id] = None

    def known(self) -> Iterator[Worker]:
        """Those that are not lost."""
        return (worker for worker in self.workers.values() if worker.lost_at is None)

    def silent(self, now: float, heartbeat: float) -> frozenset[str]:
        """Those of whom a sign of life is overdue."""
        return frozenset(worker.id for worker in self.known() if worker.is_silent(now, heartbeat))

    def usable(self, device: str, role: str) -> list[Worker]:
        return [worker for worker in self._serving.get((device, role), ()) if worker.usable]

    def serves(self, device: str, role: str) -> bool:
        """Whether the device has a worker of this role, if only one that is away for the moment."""
        return any(w.lost_at is None and not w.draining for w in self._serving.get((device, role), ()))

    def best(self, device: str, role: str, preferred: str | None = None) -> Worker | None:
        """The worker with a free slot that has the least to do, the preferred one before all."""
        free = [worker for worker in self.usable(device, role) if worker.has_slot]
        if len(free) == 1:
            return free[0]
        return min(free, key=lambda w: (w.id != preferred, len(w.attempts) / w.slots, w.id), default=None)

    def devices(self, without: Iterable[str] = ()) -> dict[str, list[str]]:
        """Device -> roles of the workers that may get work, if only after a moment away."""
        avoided, roles = set(without), dict[str, list[str]]()
        for worker in sorted(self.known(), key=lambda w: w.id):
            if not worker.draining and worker.device not in avoided and worker.role not in roles.get(worker.device, ()):
                roles.setdefault(worker.device, []).append(worker.role)
        return roles
