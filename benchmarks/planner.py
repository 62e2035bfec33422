"""A plan end to end against ``tree`` alone on the same compiled problem: 20 stages on 1,024 devices.

End to end is ``Planner.plan`` on a cluster that is already compiled: request object in, graph checked, problem
compiled, solved, decoded, verified plan out, without its explanation. Both run in turn in one process, by numpy and,
where the extra ``fast`` is installed, by its kernels.

    python benchmarks/planner.py
"""

from __future__ import annotations

import statistics
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from benchmarks.record import record
from iegopt.planner import Planner
from iegopt.plans import Plan
from iegopt.solvers.exact import compiled
from iegopt.solvers.exact.tree import TreeSolver
from iegopt.solvers.result import Params
from iegopt.spec.cluster import ClusterSpec
from iegopt.spec.request import RequestSpec

STAGES, RUNS = 20, 40
MODELS = {"H100": "40%", "A100-80GB": "10%", "L40S": "20%", "MI300X": "30%"}


def main() -> None:
    planner, request = Planner(_cluster()), _request()
    warm = compiled.warmup()
    figures: dict[str, Any] = {}
    for core in ("numpy", "numba") if warm.core == "numba" else ("numpy",):
        with only(core):
            figures[core] = _measured(planner, request)
        medians = figures[core]["median_ms"]
        print(core, ", ".join(f"{name} {ms:.3f} ms" for name, ms in medians.items()))
        print(f"  plan / tree {figures[core]['plan_over_tree']:.2f}")
    document = {"stages": STAGES, "devices": 1024, **figures["numpy"]}
    record("planner", document | ({"numba": figures["numba"]} if "numba" in figures else {}))


@contextmanager
def only(core: str) -> Iterator[None]:
    """By the kernels of the extra ``fast``, or by numpy where these are loaded, too."""
    ready = compiled._ready
    try:
        compiled._ready = ready if core == "numba" else None
        yield
    finally:
        compiled._ready = ready


def _measured(planner: Planner, request: RequestSpec) -> dict[str, Any]:
    """Medians of the parts in turn; every plan sees the cluster in another state."""
    first = planner.plan(request)
    assert isinstance(first, Plan)
    assert first.proof == "tree messages"
    seconds: dict[str, list[float]] = {"plan": [], "compile": [], "tree": []}
    for run in range(RUNS):
        planner.update(f"H100-{run % 256}", utilisation=0.3 + 0.005 * run)
        anew = _request()  # of the one it had last, a planner keeps the graph
        start = time.perf_counter()
        planner.plan(anew, explained=False)
        seconds["plan"].append(time.perf_counter() - start)
        start = time.perf_counter()
        problem = planner.compile(request).problem
        seconds["compile"].append(time.perf_counter() - start)
        start = time.perf_counter()
        TreeSolver().solve(problem, Params(), None)
        seconds["tree"].append(time.perf_counter() - start)
    medians = {name: statistics.median(times) * 1e3 for name, times in seconds.items()}
    return {"median_ms": medians, "plan_over_tree": medians["plan"] / medians["tree"]}


def _cluster() -> ClusterSpec:
    devices = [
        {
            "id": model,
            "model": model,
            "count": 256,
            "spread": {"per_host": 8, "hosts_per_rack": 4},
            "location": {"rack": f"rack-{model}"},
            "utilization": {"compute": load},
        }
        for model, load in MODELS.items()
    ]
    return ClusterSpec.model_validate({"devices": devices}, context={"document": True})


def _request() -> RequestSpec:
    stages: list[dict[str, Any]] = [
        {
            "id": f"stage-{i}",
            "type": "prefill" if i % 2 == 0 else "decode",
            "compute": {"flops": f"{50 + i}T", "precision": "fp16"},
            "memory": {"vram": "4GB", "traffic": f"{100 + 10 * i}GB"},
            "parallelism": {"degree": 1},
        }
        for i in range(STAGES)
    ]
    edges = [{"from": f"stage-{i - 1}", "to": f"stage-{i}", "bytes": "800MB", "kv": True} for i in range(1, STAGES)]
    document = {"graph": {"stages": stages, "edges": edges}, "dag_constraints": {"max_depth": STAGES + 1}}
    return RequestSpec.model_validate(document, context={"document": True})


if __name__ == "__main__":
    main()
