"""Prefills on one instance, one at a time: what ``InstanceLoad`` keeps in order."""

from __future__ import annotations

from dataclasses import dataclass, field
from math import inf

from iegopt.batch.violations import TOLERANCE

__all__ = ["Job", "eased", "keep_rows"]


@dataclass(slots=True)
class Job:
    """A prefill on an instance.

    Attributes
    ----------
    request, decode
        Index into the queue (a running stage r: r − R), and the instance where it decodes.
    key
        Deadline, then what breaks ties.
    by, end, tail
        Seconds by which the prefill ends, by which all ends, and that decoding takes: 0 where nothing decodes.
    size
        Bytes on the wire to another instance, 0 where it stays.
    own, own_ready, fetched, fetch_ready
        Tokens held here and when they have been read; tokens that a fetch would make of it and when it ends.
    held, lead, gain
        Leading blocks on the device, the blocks after them, and the first of those (−1 without), which an earlier
        prefill may have left.
    work
        Tokens reused -> seconds; of a running stage, 0 alone.
    row
        Seconds, when it may start, and when it must end, unless an earlier prefill leaves it something.
    """

    request: int
    decode: int
    key: tuple[float, int]
    by: float
    end: float
    tail: float
    size: float
    prompt: int
    own: int
    own_ready: float
    fetched: int
    fetch_ready: float
    held: int = 0
    lead: tuple[int, ...] = ()
    gain: int = -1
    row: tuple[float, float, float] = (0.0, 0.0, 0.0)
    work: dict[int, float] = field(default_factory=dict)


def keep_rows(jobs: list[Job], speed: float) -> bool:
    """Whether prefills that leave each other nothing all end in time."""
    now = 0.0
    if speed <= 0.0:
        return all(job.row[2] == inf for job in jobs)
    for job in jobs:
        work, ready, latest = job.row
        now = (now if now > ready else ready) + work / speed
        if now > latest:
            return False
    return True


def eased(limit: float) -> float:
    """A limit with the rounding that is allowed it."""
    return limit if limit == inf else limit + TOLERANCE * max(1.0, abs(limit))
