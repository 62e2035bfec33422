"""Kill workers and the controller at random, round after round, and see what becomes of the requests.

``python benchmarks/chaos.py [--rounds N] [--seed S] [--minutes M]`` keeps one deployment up on this machine: a
controller, two workers with the tiny model (prefill on one, decode on the other) and one for all else. In each round
eight requests are submitted at once and three processes get SIGKILL, whom and when drawn by the round's seed; whoever
was killed is started again. What must hold: every request answered once, complete, with the tokens that an undisturbed
engine gives for its prompt, streamed as answered; at the end no process and no file left behind.

Prints and records, by level of recovery, how many there were and how long they took beside what the source allows.
Exit 1 where anything was wrong; the seed of a round repeats whom it kills and when, not how the processes raced.
"""

from __future__ import annotations

import argparse
import asyncio
import queue
import random
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "runtime"))
sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from benchmarks.record import record
from iegopt.control.recovery import WITHIN
from iegopt_runtime.chaos import Chaos, Request
from iegopt_runtime.kv.memory import DeviceMemory
from iegopt_runtime.kv.store import KvStore
from iegopt_runtime.kv.tiers import Tier, TierPolicy
from iegopt_runtime.lm.engine import LmEngine
from iegopt_runtime.lm.jobs import Done, Event, Failed, Generate, Stop
from iegopt_runtime.lm.model_host import ModelHost
from iegopt_runtime.models.registry import Registry
from tests.runtime.local import local_cluster, tiny_request

REQUESTS, KILLS, SPAN = 8, 3, 0.8
OUTPUTS = (40, 160)

Undisturbed = Callable[[list[int], int], list[int]]
"""Prompt and number of tokens -> the tokens that one uninterrupted run gives."""


@dataclass
class Rounds:
    """What rounds came to. ``recoveries`` as answers have them, ``wrong`` in words."""

    count: int = 0
    seconds: float = 0.0
    kills: Counter[str] = field(default_factory=Counter)
    recoveries: list[dict[str, Any]] = field(default_factory=list)
    wrong: list[str] = field(default_factory=list)

    def figures(self) -> dict[str, Any]:
        """Counts and, by level, the seconds from fault to running again."""
        return {
            "rounds": self.count, "requests": self.count * REQUESTS, "seconds": round(self.seconds, 1),
            "kills": dict(sorted(self.kills.items())), "levels": by_level(self.recoveries), "wrong": self.wrong,
        }  # fmt: skip


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=300)
    parser.add_argument("--seed", type=int, default=0, help="of the first round; each further one has the next")
    parser.add_argument("--minutes", type=float, default=60.0, help="no round begins after so many")
    arguments = parser.parse_args()
    with uninterrupted() as undisturbed:
        rounds = asyncio.run(play(arguments.rounds, arguments.seed, undisturbed, arguments.minutes * 60, told=True))
    figures = rounds.figures()
    record("chaos", figures)
    for level, row in figures["levels"].items():
        print(f"{level}: " + ", ".join(f"{name} {value}" for name, value in row.items()))
    print(f"{figures['rounds']} rounds, {sum(rounds.kills.values())} kills, {len(rounds.wrong)} things wrong")
    return 1 if rounds.wrong else 0


async def play(
    rounds: int, seed: int, undisturbed: Undisturbed, longest: float = float("inf"), *, told: bool = False
) -> Rounds:
    """Rounds on one deployment; ``longest`` in seconds ends them early."""
    played, begun = Rounds(), time.monotonic()
    async with Chaos(local_cluster()) as chaos:
        for number in range(seed, seed + rounds):
            if time.monotonic() - begun > longest:
                break
            outcome = await chaos.round(requests_of(number, REQUESTS, undisturbed), number, KILLS, SPAN)
            played.count += 1
            played.seconds += outcome.seconds
            played.kills.update(name for _, name in outcome.kills)
            played.recoveries += outcome.recoveries
            played.wrong += [f"seed {number}: {words}" for words in outcome.wrong]
            if told:
                print(f"round {number}: {outcome.seconds:.2f} s {'; '.join(outcome.wrong)}", flush=True)
    played.wrong += [f"left behind: {words}" for words in chaos.left]
    return played


def requests_of(seed: int, count: int, undisturbed: Undisturbed) -> list[Request]:
    """So many requests with random prompts, drawn by seed."""
    draw = random.Random(seed)
    made = []
    for number in range(count):
        prompt = draw.choices(range(256), k=draw.randint(5, 150))
        output = draw.randint(*OUTPUTS)
        request: dict[str, Any] = tiny_request(f"q{number}", output).document()
        made.append(Request(f"s{seed}-q{number}", request, {"tokens": prompt}, tuple(undisturbed(prompt, output))))
    return made


def by_level(recoveries: list[dict[str, Any]]) -> dict[str, dict[str, Any]]:
    """Level -> count, seconds (median, 90 %, most), what the source allows, the share within, where KV came from.

    A recovery whose stage was struck again by another fault counts from the first.
    """
    found: dict[str, dict[str, Any]] = {}
    for level, within in enumerate(WITHIN):
        own = [r for r in recoveries if r["level"] == f"L{level}"]
        took = sorted(r["ended"] - r["began"] for r in own if r["ended"] is not None)
        if took:
            found[f"L{level}"] = {
                "count": len(own), "median_s": round(took[len(took) // 2], 3),
                "p90_s": round(took[len(took) * 9 // 10], 3), "most_s": round(took[-1], 3), "allowed_s": within,
                "within": round(sum(t <= within for t in took) / len(took), 3),
                "causes": dict(Counter(r["cause"] for r in own)), "kv": dict(Counter(r["kv"] for r in own)),
            }  # fmt: skip
    return found


@contextmanager
def uninterrupted() -> Iterator[Undisturbed]:
    """An engine of its own in this process, which nobody disturbs."""
    memory = DeviceMemory("cpu")
    with tempfile.TemporaryDirectory() as folder:
        budgets = TierPolicy(dict(zip(Tier, (8 * 10**6, 8 * 10**6, 0), strict=True)))
        engine = LmEngine(ModelHost(Registry.of(), memory, None), KvStore(memory, budgets, Path(folder))).start()
        try:
            yield lambda prompt, output: _generated(engine, prompt, output)
        finally:
            engine.close()


def _generated(engine: LmEngine, prompt: list[int], output: int) -> list[int]:
    events: queue.Queue[Event] = queue.Queue()
    engine.submit(Generate("whole", "tiny", tuple(prompt), "fp32", max_tokens=output, stop=Stop()), events.put)
    while True:
        event = events.get(timeout=60)
        if isinstance(event, Failed):
            raise RuntimeError(f"the undisturbed engine fails: {event}")
        if isinstance(event, Done):
            return list(event.result.tokens)


if __name__ == "__main__":
    raise SystemExit(main())
