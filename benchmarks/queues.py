"""Snapshots for the benchmarks of replanning: generated ones of any size, and seconds of public traces.

A trace is replayed on a mixed fleet (``iegopt.batch.traces``), faster than it was recorded. Tenants, priorities and
limits are not in it: they are drawn by a seed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from iegopt.batch.build import build_model
from iegopt.batch.model import BatchModel
from iegopt.batch.traces.make import make_snapshots
from iegopt.batch.traces.read import read_trace
from iegopt.batch.traces.snapshots import Mix
from iegopt.problem.cluster import CompiledCluster
from iegopt.spec.batch_policy import BatchPolicy
from iegopt.spec.cluster import ClusterSpec
from iegopt.spec.snapshot import SnapshotSpec

__all__ = [
    "FLEET",
    "Ask",
    "Case",
    "common_prompt",
    "generated",
    "of_trace",
    "pressure",
]

NOW, BLOCK = 1000.0, 512
MODEL = "Llama-3.1-8B"
VARIANT = {
    "H100": f"{MODEL}/bf16/CUDA", "A100-80GB": f"{MODEL}/bf16/CUDA", "MI300X": f"{MODEL}/bf16/ROCm",
    "L40S": f"{MODEL}/bf16/CUDA",
}  # fmt: skip
FLEET = ("H100", "A100-80GB", "L40S", "MI300X")
CLASSES: tuple[tuple[str, int, float, dict[str, float]], ...] = (
    ("realtime", 0, 0.2, {"ttft": 1.5, "itl": 0.05}),
    ("agent", 1, 0.5, {"ttft": 4.0, "e2e": 60.0, "itl": 0.1}),
    ("batch", 2, 0.3, {}),
)
"""SLA class, priority, share of the requests, and limits in seconds."""
TENANTS = ("north", "east", "south", "west")


@dataclass(frozen=True)
class Ask:
    """A request before it has a tenant or a limit: when it came, its tokens, and the blocks of its prompt."""

    arrival: float
    prompt: int
    output: int
    blocks: tuple[int, ...] = ()


@dataclass(frozen=True)
class Case:
    """What ``replan`` is called with."""

    name: str
    cluster: CompiledCluster
    snapshot: SnapshotSpec
    policy: BatchPolicy

    def model(self) -> BatchModel:
        return build_model(self.cluster, self.snapshot, self.policy)


def generated(
    requests: int, instances: int, load: float, seed: int, *, shared: float = 0.5, fleet: Sequence[str] = FLEET
) -> Case:
    """A queue whose prefills are about ``load`` times what the instances can do in the time the limits leave.

    Parameters
    ----------
    shared
        Part of the requests whose prompt begins with one of eight prefixes.
    """
    rng, scale = np.random.default_rng([seed, requests, instances]), 1.0
    sizes, outputs = rng.lognormal(0.0, 0.9, requests), rng.lognormal(5.0, 0.8, requests)
    group = np.where(rng.random(requests) < shared, rng.integers(0, 8, requests), -1)
    came, state = NOW - rng.random(requests), rng.bit_generator.state
    for _ in range(3):
        rng.bit_generator.state = state
        asks = []
        for n in range(requests):
            prompt, output = max(16, min(100_000, int(1000 * scale * sizes[n]))), 1 + int(outputs[n])
            common = [] if group[n] < 0 else [100 * int(group[n]) + b for b in range(1, 5)]
            blocks = [*common, *range(10**6 + 1000 * n, 10**6 + 1000 * n + 999)][: -(-prompt // BLOCK)]
            asks.append(Ask(float(came[n]), prompt, output, tuple(blocks)))
        case = _case(f"{requests}x{instances}, load {load:g}, seed {seed}", asks, _warm(rng), instances, fleet, rng)
        scale *= load / pressure(case.model())
    return case


def common_prompt(requests: int, instances: int, seed: int = 0) -> Case:
    """Short requests of one common prompt of two blocks on equal idle instances, one of which holds it."""
    rng = np.random.default_rng([seed, requests, instances])
    asks = [Ask(NOW, 1536, 256, (1, 2, 1000 + n)) for n in range(requests)]
    case = _case(f"{requests} requests of one prompt", asks, [], instances, ("H100",), rng)
    engines = [engine.model_copy(update={"utilization": 0.0}) for engine in case.snapshot.instances]
    engines[0] = engines[0].model_copy(update={"prefix": (1, 2)})
    return replace(case, snapshot=case.snapshot.model_copy(update={"instances": tuple(engines)}))


def pressure(model: BatchModel) -> float:
    """Seconds of all prefills on the mean instance, over the seconds that all instances have for them by their
    limits: above 1 not all can be in time. Requests that are refused do not count."""
    queue, kind, rows = model.queue, model.instances.kind, np.flatnonzero(~model.alone.refused)
    if not len(rows):
        return 0.0
    work = model.prefill.seconds(rows[:, None], np.arange(model.K))[:, kind].mean(axis=1)
    room = float((1.0 - model.instances.other).mean()) * model.J * float(queue.prefill_by[rows].mean())
    return float(work.sum()) / room


def of_trace(file: Path, moments: Sequence[float], speed: float, each: int, seed: int) -> list[Case]:
    """Moments (seconds after the first arrival, so many times as fast) of a trace on ``each`` devices of every kind."""
    spec = _cluster((*FLEET, "L4"), each)
    made = make_snapshots(
        read_trace(file), spec, MODEL, [round(m, 3) for m in moments], speedup=speed, mix=Mix(seed=seed)
    )  # fmt: skip
    return [Case(snapshot.name, CompiledCluster(spec), snapshot, BatchPolicy(window=5.0)) for snapshot in made]


def _cluster(fleet: Sequence[str], each: int) -> ClusterSpec:
    devices = [
        {"id": model, "model": model, "count": each, "spread": {"per_host": 8, "hosts_per_rack": 4}}
        for model in fleet
    ]  # fmt: skip
    return ClusterSpec.model_validate({"devices": devices})


def _warm(rng: np.random.Generator) -> list[Ask]:
    """Requests of before: half have one of the eight prefixes."""
    found = []
    for n in range(400):
        common = [100 * int(rng.integers(0, 8)) + b for b in range(1, 5)] if n % 2 else []
        found.append(Ask(0.0, int(rng.integers(500, 6000)), int(rng.integers(50, 500)), tuple(common)))
    return found


def _case(
    name: str, asks: Sequence[Ask], before: Sequence[Ask], instances: int, fleet: Sequence[str],
    rng: np.random.Generator,
) -> Case:  # fmt: skip
    """The requests with tenants, priorities, limits and weights, on instances where some of those before decode."""
    each = -(-instances // len(fleet))
    names = [(model, f"{model}-{n}") for n in range(each) for model in fleet][:instances]
    engines: list[dict[str, Any]] = []
    running: list[dict[str, Any]] = []
    for model, device in names:
        held: dict[int, None] = {}
        engines.append(
            {
                "id": device, "devices": [device], "variant": VARIANT[model], "max_batch": 64,
                "utilization": round(float(rng.uniform(0.0, 0.3)), 3),
            }
        )  # fmt: skip
        for n in range(int(rng.integers(2, 9)) if before else 0):
            ask = before[int(rng.integers(0, len(before)))]
            held |= dict.fromkeys(ask.blocks)
            kind, priority, _, _ = CLASSES[int(rng.integers(0, 3))]
            running.append(
                {
                    "id": f"r-{device}-{n}", "instance": device, "stage": "decode", "priority": priority,
                    "context": min(ask.prompt, 8000), "remaining": max(1, int(ask.output * rng.random())),
                    "tenant": str(rng.choice(TENANTS)), "sla": {"itl": 0.1} if kind != "batch" else {},
                }
            )  # fmt: skip
        engines[-1]["prefix"] = list(held)
    queue = [_queued(f"q{n}", ask, rng) for n, ask in enumerate(asks)]
    snapshot = {
        "name": name, "time": NOW, "block_tokens": BLOCK, "instances": engines, "running": running, "queue": queue,
    }  # fmt: skip
    policy = {"window": 5.0, "tenants": {"west": {"quota": {"time": 0.3}}}}
    return Case(
        name,
        CompiledCluster(_cluster(fleet, each)),
        SnapshotSpec.model_validate(snapshot),
        BatchPolicy.model_validate(policy),
    )


def _queued(name: str, ask: Ask, rng: np.random.Generator) -> dict[str, Any]:
    kind, priority, _, limits = CLASSES[int(rng.choice(len(CLASSES), p=[share for _, _, share, _ in CLASSES]))]
    request: dict[str, Any] = {
        "model": MODEL, "prompt_tokens": ask.prompt, "output_tokens": max(1, ask.output), "sla_class": kind,
        "sla": limits,
    }  # fmt: skip
    return {
        "id": name, "arrival": min(NOW, ask.arrival), "tenant": str(rng.choice(TENANTS)), "priority": priority,
        "utility": {"weight": round(float(np.exp(rng.uniform(-0.7, 0.7))), 2)}, "prefix": list(ask.blocks),
        "request": request,
    }  # fmt: skip
