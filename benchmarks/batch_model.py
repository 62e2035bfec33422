"""What it takes to read a large snapshot into arrays, to evaluate a placement, and to try one request on an instance.

``python benchmarks/batch_model.py [--requests N] [--instances J] [--runs R] [--seed S]`` makes a queue of Llama-3.1-8B
requests with a prefix that half of them share, and instances of four device models that each decode eight sequences.
It reports the least wall time of the runs: a machine that does other things beside it only adds to that.
"""

from __future__ import annotations

import argparse
import resource
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from iegopt.batch.build import build_model
from iegopt.batch.instance_load import InstanceLoad
from iegopt.batch.model import BatchModel
from iegopt.batch.placement import Placement
from iegopt.batch.schedule import evaluate
from iegopt.problem.cluster import CompiledCluster
from iegopt.spec.batch_policy import BatchPolicy
from iegopt.spec.cluster import ClusterSpec
from iegopt.spec.snapshot import SnapshotSpec

VARIANTS = {
    "H100": "Llama-3.1-8B/fp8/TensorRT", "A100-80GB": "Llama-3.1-8B/bf16/CUDA", "MI300X": "Llama-3.1-8B/bf16/ROCm",
    "L40S": "Llama-3.1-8B/bf16/CUDA",
}  # fmt: skip
PACE = 4
"""Of what is placed: 100 ms in the policy's ladder."""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--requests", type=int, default=10_000, help="queued (default %(default)s)")
    parser.add_argument("--instances", type=int, default=1024, help="engines, four at least (default %(default)s)")
    parser.add_argument("--runs", type=int, default=5, help="repetitions (default %(default)s)")
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    if min(arguments.requests, arguments.runs) < 1 or arguments.instances < 4:
        parser.error("expected a request, a run and four instances at least")
    cluster, snapshot = snapshot_of(arguments.requests, arguments.instances, arguments.seed)
    built, model = least(lambda: build_model(cluster, snapshot, BatchPolicy()), arguments.runs)
    plan = spread(model, np.random.default_rng(arguments.seed))
    evaluated, _ = least(lambda: evaluate(model, plan), arguments.runs)
    tried, count = least(lambda: trials(model), arguments.runs)
    print(f"build_model  {built:.3f} s  {model.N} requests, {model.J} instances, {model.R} running stages")
    print(f"evaluate     {evaluated:.3f} s  {int((plan.prefill >= 0).sum())} placed")
    print(f"trial        {tried / count * 1e6:.1f} µs  mean of {count}, deadline and reuse of the request included")
    print(f"peak memory  {resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024:.0f} MiB")
    return 0


def least(work: Callable[[], Any], runs: int) -> tuple[float, Any]:
    """Least seconds of some runs, and the last result."""
    best, result = float("inf"), None
    for _ in range(runs):
        start = time.perf_counter()
        result = work()
        best = min(best, time.perf_counter() - start)
    return best, result


def snapshot_of(requests: int, instances: int, seed: int) -> tuple[CompiledCluster, SnapshotSpec]:
    rng = np.random.default_rng(seed)
    each = instances // len(VARIANTS)
    devices = [
        {"id": model, "model": model, "count": each, "spread": {"per_host": 8, "hosts_per_rack": 4}}
        for model in VARIANTS
    ]
    names = [(model, f"{model}-{n}" if each > 1 else model) for model in VARIANTS for n in range(each)]
    engines = [
        {
            "id": name,
            "devices": [name],
            "variant": VARIANTS[model],
            "prefix": [1, 2, 3],
            "utilization": rng.random() / 2,
        }
        for model, name in names
    ]
    running = [
        {
            "id": f"r{name}-{n}", "instance": name, "stage": "decode", "priority": int(rng.integers(3)),
            "context": int(rng.integers(100, 4000)), "remaining": int(rng.integers(1, 500)),
        }
        for _, name in names
        for n in range(8)
    ]  # fmt: skip
    queue = []
    for n in range(requests):
        prompt = int(rng.lognormal(7.0, 1.0)) + 1
        blocks = -(-prompt // 512)
        own = [10**6 + 1000 * n + b for b in range(blocks)]
        request = {
            "model": "Llama-3.1-8B", "prompt_tokens": prompt, "output_tokens": int(rng.lognormal(5.0, 1.0)) + 1,
            "sla_class": str(rng.choice(["realtime", "agent", "batch"])), "sla": {"ttft": 3.0},
            "precision": str(rng.choice(["fp8", "bf16"])),
        }  # fmt: skip
        prefix = [1, 2, 3, *own][:blocks] if n % 2 else own
        queue.append({"id": f"q{n}", "arrival": 100.0 - 2 * rng.random(), "prefix": prefix, "request": request})
    spec = {"time": 100.0, "instances": engines, "running": running, "queue": queue}
    return CompiledCluster(ClusterSpec.model_validate({"devices": devices})), SnapshotSpec.model_validate(spec)


def spread(model: BatchModel, rng: np.random.Generator) -> Placement:
    """Every request on a random instance that runs its model."""
    plan = Placement.empty(model)
    for i in range(model.N):
        there = np.flatnonzero(model.prefill.runs[i][model.instances.kind])
        if len(there):
            plan.prefill[i] = plan.decode[i] = j = int(rng.choice(there))
            plan.pace[j] = PACE
    return plan


def trials(model: BatchModel) -> int:
    """Try the first thousand requests on each of eight instances, each place taken where it fits."""
    loads = [InstanceLoad(model, j) for j in range(0, model.J, max(1, model.J // 8))]
    for load in loads:
        load.add(pace=PACE)
    count = 0
    for i in range(min(1000, model.N)):
        for load in loads:
            if not model.prefill.runs[i, model.instances.kind[load.j]]:
                continue
            count += 1
            job = load.job(i, load.j, float(model.paces[PACE]))
            if load.fits(job, i):
                load.add(job, i)
                break
    return max(1, count)


if __name__ == "__main__":
    sys.exit(main())
