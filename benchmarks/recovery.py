"""How long it takes to notice a fault of each level and to recover from it, beside what the source allows.

``python benchmarks/recovery.py [--rounds N]`` starts the workers of two data centres on this machine (the tiny model;
in the east a rack of two devices and one of a single device, in the west one device and the host), under the
controller's default policy. In each round and for each fault a request is answered whose decode is struck:

=================  ==============================================================================================
out of memory  L0  the process gets no memory for a sequence when a decode begins, and does at the next try
slow           L1  the process runs a tenth of the time
hangs          L1  the process is stopped (SIGSTOP) until the answer is there
device         L2  the process is killed and not started again
rack           L3  both processes of the rack are killed
data centre    L4  all three processes of the data centre are killed
=================  ==============================================================================================

All but the first strike while tokens stream. Every answer must be complete, its tokens those of an undisturbed engine,
its recovery of the fault's level, the tool called once.

Prints and records, in seconds from the fault: until the controller had ``noticed`` it; until the stage was ``running``
again, which is when another worker (or the same) had taken it; until the client heard the next ``token``. Only the last
one holds the wait for the KV cache or its computation, which takes milliseconds with the tiny model. Most of the time
is that of noticing, by time-outs of the policy: a stage is slow that takes longer than planned and than a second, a
process hangs that gave no sign of life for 1.5 s, one whose connection closed has half a second to come back. All
processes are on one machine: nothing crosses a network, and plans are made for four devices.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import sys
import tempfile
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "runtime"))
sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from benchmarks.chaos import Undisturbed, uninterrupted
from benchmarks.record import record
from iegopt.control.policy import ControlPolicy
from iegopt.control.recovery import WITHIN
from iegopt_runtime.runtime import Runtime
from tests.runtime.faulty import (
    CENTRE,
    DOCUMENTS,
    HEARD,
    LONG,
    OUTPUT,
    RACK,
    TOOLS,
    Fault,
    Struck,
    Watch,
    hanging,
    killed,
    short_of_memory,
    slowed,
    struck,
    two_centres,
)  # fmt: skip

PROMPT = 100
"""Tokens; what the tool and the retrieval find comes after them."""
BRIEF = (HEARD, OUTPUT // 2)
"""Least and most tokens of an output that ends long before the length for which its memory is taken."""

FAULTS: dict[str, tuple[str, Fault | None]] = {
    "out of memory": ("L0", None),  # strikes before the decode begins
    "slow": ("L1", slowed),
    "hangs": ("L1", hanging),
    "device": ("L2", killed),
    "rack": ("L3", lambda runtime, worker: killed(runtime, *RACK)),
    "data centre": ("L4", lambda runtime, worker: killed(runtime, *CENTRE)),
}


@dataclass
class Times:
    """Seconds from a fault, one of each for every round that went as it should."""

    noticed: list[float] = field(default_factory=list)
    running: list[float] = field(default_factory=list)
    token: list[float] = field(default_factory=list)

    def figures(self, level: str) -> dict[str, Any]:
        """Median and most of each, and what the source allows."""
        rows = {"noticed": self.noticed, "running": self.running, "token": self.token}
        spread = {
            name: {"median_s": round(median(row), 4), "most_s": round(max(row), 4)} for name, row in rows.items() if row
        }
        return {"level": level, "count": len(self.running), "allowed_s": WITHIN[int(level[1:])], **spread}


async def play(rounds: int, undisturbed: Undisturbed, folder: Path) -> tuple[dict[str, Times], list[str]]:
    """Every fault so many times; its times, and in words what was wrong."""
    tools, counter = folder / "tools.json", folder / "counter"
    tools.write_text(json.dumps({"tools": TOOLS}))
    times = {fault: Times() for fault in FAULTS}
    wrong: list[str] = []
    async with Runtime(two_centres(), policy=ControlPolicy(), tools=tools) as runtime:
        watch = Watch(runtime)
        first = await struck(
            runtime, watch, "first", inputs_of(random.Random(3).choices(range(256), k=PROMPT), counter), None
        )
        for number in range(rounds):
            for fault, (level, strike) in FAULTS.items():
                counter.unlink(missing_ok=True)
                draw, lengths = random.Random(f"{number} {fault}"), BRIEF if strike is None else (OUTPUT, OUTPUT)
                prompt = await asyncio.to_thread(a_prompt, draw, first.prompt[PROMPT:], lengths, undisturbed)
                name = f"{fault.replace(' ', '-')}-{number}"
                found = await one(runtime, watch, name, inputs_of(prompt, counter), strike)
                said = await asyncio.to_thread(amiss, found, level, undisturbed)
                said += [] if counter.read_text() == "1" else ["the tool ran twice"]
                wrong += [f"{fault}, round {number}: {words}" for words in said]
                if not said:
                    enter(times[fault], found)
                print(f"round {number}, {fault}: {'; '.join(said) or 'recovered'}", flush=True)
                runtime.shell.controller.core.pool.slow.clear()  # the next fault finds the devices as this one did
    return times, wrong


def a_prompt(
    draw: random.Random, suffix: list[int], lengths: tuple[int, int], undisturbed: Undisturbed
) -> list[int]:  # fmt: skip
    """A prompt that has an output of such a length, at least and at most, once what was found is added to it."""
    while True:
        prompt = draw.choices(range(256), k=PROMPT)
        if lengths[0] <= len(undisturbed(prompt + suffix, OUTPUT)) <= lengths[1]:
            return prompt


def inputs_of(prompt: list[int], counter: Path) -> dict[str, Any]:
    return {"tokens": prompt, "arguments": {"file": str(counter)}, "documents": DOCUMENTS}


async def one(runtime: Runtime, watch: Watch, name: str, inputs: dict[str, Any], strike: Fault | None) -> Struck:
    if strike is not None:
        return await struck(runtime, watch, name, inputs, strike)
    async with killed(runtime, "decoder/lm"):
        pass  # a process that has just begun holds no memory in reserve
    with short_of_memory(runtime, watch, "decoder/lm"):
        return await struck(runtime, watch, name, inputs, None, LONG)


def amiss(found: Struck, level: str, undisturbed: Undisturbed) -> list[str]:
    """What is wrong with a request that was struck."""
    answer, levels = found.answer, [recovery["level"] for recovery in found.answer["recoveries"]]
    said = []
    if answer["status"] != "complete" or found.answers != 1:
        said.append(f"{answer['status']} ({answer['reason']}), answered {found.answers} times")
    elif not answer["tokens"] == found.streamed == undisturbed(found.prompt, len(found.streamed)):
        said.append("other tokens than an undisturbed run")
    if levels[:1] != [level]:
        said.append(f"recovered at {', '.join(levels) or 'no level'}, expected {level}")
    return said


def enter(times: Times, found: Struck) -> None:
    """The times of the first recovery: on a busy machine the stage may be slow afterwards, and be recovered of that.

    A fault at the begin of a decode is known by its failure alone.
    """
    recovery = found.answer["recoveries"][0]
    begun = found.at if found.at < recovery["noticed"] else recovery["began"]
    times.noticed.append(recovery["noticed"] - begun)
    times.running.append(recovery["ended"] - begun)
    if found.resumed is not None:
        times.token.append(found.resumed - begun)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=10)
    arguments = parser.parse_args()
    with uninterrupted() as undisturbed, tempfile.TemporaryDirectory() as folder:
        times, wrong = asyncio.run(play(arguments.rounds, undisturbed, Path(folder)))
    faults = {fault: times[fault].figures(level) for fault, (level, _) in FAULTS.items()}
    record("recovery", {"rounds": arguments.rounds, "faults": faults, "wrong": wrong})
    for fault, row in faults.items():
        shown = (
            f"{name} {row[name]['median_s']:.3f} ({row[name]['most_s']:.3f})"
            for name in ("noticed", "running", "token")
            if name in row
        )
        print(f"{row['level']} {fault}: {', '.join(shown)} s; the source allows {row['allowed_s']:g} s")
    print(f"median (most) of {arguments.rounds} rounds; {len(wrong)} things wrong")
    return 1 if wrong else 0


if __name__ == "__main__":
    raise SystemExit(main())
