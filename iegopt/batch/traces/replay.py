"""What runs at a moment of a trace: a replay under the rule that most routers have, least loaded first.

Every request goes, as it arrives, to the instance with the fewest requests in flight. There prefills run one after the
other, as soon as memory and batch have room, at the speed that decode leaves; then it decodes at a fixed pace, the
reference pace or twice the time that a step takes alone, whichever is slower. An instance keeps the blocks that it
prefilled as long as its memory holds them, the least recently used going first. Who would wait longer than the patience
of users gives up then.
"""

from __future__ import annotations

from bisect import insort
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass, field
from heapq import heappop, heappush

import numpy as np

from iegopt.batch.build_instances import BuiltInstances
from iegopt.batch.prefill import PrefillCost
from iegopt.batch.steps import mean_kv_tokens, step_parts
from iegopt.batch.traces.read import Arrival

__all__ = ["Replay", "Served", "replay"]

MOST_DECODE = 0.9
"""Share of its time that decode takes of an instance at most."""


@dataclass(frozen=True, slots=True)
class Served:
    """A request on an instance: its prefill from ``start`` to ``first_token``, its last token at ``end`` (seconds)."""

    instance: int
    start: float
    first_token: float
    end: float
    reused: int
    pace: float


@dataclass(frozen=True)
class Replay:
    """``served[i]`` of arrival i, ``None`` where it gave up; ``blocks[j]`` is how many an instance can hold."""

    arrivals: Sequence[Arrival]
    served: list[Served | None]
    patience: float
    block_tokens: int
    blocks: tuple[int, ...]

    def held(self, at: float) -> list[OrderedDict[int, None]]:
        """Per instance the blocks it holds at a moment, the least recently used first."""
        found: list[OrderedDict[int, None]] = [OrderedDict() for _ in self.blocks]
        done = [
            (served.first_token, i)
            for i, served in enumerate(self.served)
            if served is not None and served.first_token <= at
        ]
        for _, i in sorted(done):
            served = self.served[i]
            assert served is not None
            _touch(found[served.instance], self.arrivals[i].blocks, self.blocks[served.instance])
        return found


@dataclass
class _Engine:
    """An instance on the way: until when its prefills take, what decodes (end, bytes, rows of a step), its blocks."""

    free: int
    pace: float
    rows: tuple[float, float]
    until: float = 0.0
    active: list[tuple[float, float, float, float]] = field(default_factory=list)
    held: OrderedDict[int, None] = field(default_factory=OrderedDict)


def replay(
    built: BuiltInstances, arrivals: Sequence[Arrival], *, until: float, reference_pace: float, patience: float,
    block_tokens: int,
) -> Replay:  # fmt: skip
    """Serve the requests that arrive by ``until`` (seconds).

    Parameters
    ----------
    built
        Instances of one model.
    patience
        Seconds that a user waits for the prefill to start.
    block_tokens
        Tokens of a block of the arrivals' prefixes.
    """
    here = [arrival for arrival in arrivals if arrival.at <= until]
    kinds, at = built.kinds, built.instances
    card = kinds.kinds[0].card
    per_token = card.kv_bytes_per_token()
    prompt = np.array([a.prompt for a in here], dtype=np.int64)
    output = np.array([a.output for a in here], dtype=np.int64)
    ones = np.ones(len(here), dtype=np.int64)
    cost = PrefillCost.of(kinds.kinds, prompt, ones, np.ones((len(here), len(kinds.kinds)), dtype=bool))
    step_compute, step_read = step_parts(kinds.kinds, ones, mean_kv_tokens(prompt, output))
    kind = at.kind.tolist()
    capacity = tuple(int(free / (per_token * block_tokens)) for free in at.free.tolist())
    engines = [
        _Engine(free, max(reference_pace, 2.0 * max(a, b)), (a, b))
        for free, a, b in zip(
            at.free.tolist(), kinds.base_compute[at.kind].tolist(), kinds.base_read[at.kind].tolist(), strict=True
        )
    ]
    served: list[Served | None] = []
    flying, until_of = [0] * len(engines), [0.0] * len(engines)
    ends: list[tuple[float, int]] = []
    for i, arrival in enumerate(here):
        while ends and ends[0][0] <= arrival.at:
            flying[heappop(ends)[1]] -= 1
        j = min(zip(flying, until_of, range(len(engines)), strict=True))[2]
        engine, memory = engines[j], per_token * (arrival.prompt + arrival.output)
        engine.active = [job for job in engine.active if job[0] > arrival.at]
        start = _start(engine, max(arrival.at, engine.until), memory, int(at.max_batch[j]))
        fits = arrival.prompt + arrival.output <= card.max_context and start - arrival.at <= patience
        if not fits:
            served.append(None)
            continue
        run = next((n for n, block in enumerate(arrival.blocks) if block not in engine.held), len(arrival.blocks))
        reused = min(run * block_tokens, arrival.prompt - 1)
        a, b = float(step_compute[i, kind[j]]), float(step_read[i, kind[j]])
        batch = [job for job in engine.active if job[0] > start]
        step = max(engine.rows[0] + a + sum(job[2] for job in batch), engine.rows[1] + b + sum(job[3] for job in batch))
        speed = 1.0 - min(MOST_DECODE, step / engine.pace)
        engine.until = start + cost.one(i, kind[j], reused) / speed
        end = engine.until + arrival.output * engine.pace
        insort(engine.active, (end, memory, a, b))
        heappush(ends, (end, j))
        flying[j], until_of[j] = flying[j] + 1, engine.until
        _touch(engine.held, arrival.blocks, capacity[j])
        served.append(Served(j, start, engine.until, end, reused, engine.pace))
    return Replay(here, served, patience, block_tokens, capacity)


def _start(engine: _Engine, earliest: float, memory: float, most: int) -> float:
    """When memory and batch have room; infinite where they never do."""
    if memory > engine.free:
        return float("inf")
    left = [job for job in engine.active if job[0] > earliest]
    used = sum(job[1] for job in left)
    start = earliest
    for gone, job in enumerate(left):
        if used + memory <= engine.free and len(left) - gone < most:
            break
        start, used = job[0], used - job[1]
    return start


def _touch(held: OrderedDict[int, None], blocks: Sequence[int], most: int) -> None:
    """Use blocks: they are the last to go when there are more than ``most``."""
    for block in reversed(blocks):  # a prefix outlives what follows it
        held[block] = None
        held.move_to_end(block)
    while len(held) > most:
        held.popitem(last=False)
