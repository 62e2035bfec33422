"""The answer to a snapshot: what happens to every queued request and every running stage, and what that is worth."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from math import isfinite
from typing import Any, Literal

__all__ = [
    "SAME_INSTANCE", "BatchPlan", "InstanceUse", "LevelResult", "QueuedDecision", "Reason", "RunningDecision",
    "TenantUse",
]  # fmt: skip

SAME_INSTANCE = "same"
"""The path of a KV cache that stays where it was made."""


@dataclass(frozen=True)
class Reason:
    """Why a request is not placed.

    ``rule`` is ``ttft``, ``e2e`` or ``itl`` (``have`` seconds are left, ``need`` are the least that any instance
    takes), ``memory`` (bytes that the least filled instance has, and that it needs), ``no instance`` of its model,
    ``context`` (tokens), ``batch`` (sequences), ``quota`` or ``fairness`` of its tenant, ``capacity`` of ``where``
    (shares of its time), ``priority`` (what it needs went to requests before it), or ``search`` (it would fit on
    ``where``: time was up).
    """

    rule: str
    where: str | None
    need: float | None
    have: float | None
    sentence: str


@dataclass(frozen=True)
class QueuedDecision:
    """What happens to one queued request; times are seconds after the snapshot, ``None`` where it is not placed.

    Attributes
    ----------
    prefill, decode
        Instance ids.
    reused, reused_from
        Tokens of the prompt not prefilled again, and whose they are: an instance id (``prefill`` itself, or a holder
        from which ``fetched`` bytes travel first), or ``plan`` where an earlier prefill of this plan leaves them.
    start, first_token, finish
        Start and end of the prefill, and the end of the decode at ``pace``.
    path
        Level of the topology that the KV cache crosses, ``same`` where it stays.
    work, memory
        Seconds of the prefill at full speed, and bytes on the decode's instance at the end.
    utility
        What it is worth; 0 where it is not placed.
    """

    id: str
    tenant: str
    priority: int
    status: Literal["placed", "held", "refused"]
    reason: Reason | None = None
    prefill: str | None = None
    decode: str | None = None
    pace: float | None = None
    reused: int = 0
    reused_from: str | None = None
    fetched: int = 0
    work: float | None = None
    start: float | None = None
    first_token: float | None = None
    transfer: float | None = None
    transferred: int = 0
    path: str | None = None
    finish: float | None = None
    memory: int = 0
    utility: float = 0.0


@dataclass(frozen=True)
class RunningDecision:
    """What happens to a running stage; ``seconds`` and ``bytes`` are what moving it or putting it aside costs.

    ``by`` is the request in whose favour it is preempted, ``how`` whether its KV cache goes to the host (``swap``)
    or is computed again (``recompute``); ``misses`` whether a limit is then lost. ``requeue``: its
    instance is lost and its KV cache with it, so that it stands among the queued requests and prefills again.
    """

    id: str
    action: Literal["keep", "preempt", "migrate", "requeue"]
    instance: str
    to: str | None = None
    by: str | None = None
    how: Literal["swap", "recompute"] | None = None
    bytes: int = 0
    seconds: float = 0.0
    misses: bool = False
    loss: float = 0.0


@dataclass(frozen=True)
class InstanceUse:
    """An instance under the plan: its pace, shares of its time, memory in bytes, sequences."""

    id: str
    pace: float | None
    decode_share: float
    other_share: float
    prefill_seconds: float
    memory: int
    free: int
    sequences: int


@dataclass(frozen=True)
class TenantUse:
    """A tenant at a priority: requests (running and placed), its shares of all instances' memory and time and the
    larger of them, how many are held, and what those placed are worth. A quota counts the shares of all priorities."""

    id: str
    priority: int
    requests: int
    memory_share: float
    time_share: float
    dominant_share: float
    waiting: int
    utility: float


@dataclass(frozen=True)
class LevelResult:
    """One priority: ``objective`` = utility − loss ≤ ``bound``, which holds for all plans that leave the levels above
    with no less than here."""

    priority: int
    utility: float
    loss: float
    objective: float
    bound: float | None
    gap: float | None
    proof: str | None


@dataclass(frozen=True)
class BatchPlan:
    """The answer of ``iegopt.replan``; ``verify.batch.check_batch`` recomputes all of it."""

    snapshot: str
    time: float
    status: Literal["optimal", "feasible"]
    solver: str
    seconds: float
    note: str
    levels: tuple[LevelResult, ...]
    queue: tuple[QueuedDecision, ...]
    running: tuple[RunningDecision, ...]
    instances: tuple[InstanceUse, ...]
    tenants: tuple[TenantUse, ...]
    warnings: tuple[str, ...] = ()

    def document(self) -> dict[str, Any]:
        """The plan as one JSON object; the gap of a level whose bound is 0 and whose objective is less is null."""
        found = asdict(self)
        for level in found["levels"]:
            level["gap"] = level["gap"] if level["gap"] is not None and isfinite(level["gap"]) else None
        return found
