"""Answers by their deadline: 1, 5, 20 and 100 ms on mixed instances of up to 50 stages on 1,024 sites.

Three of four instances are problems of the generated families (every memory, with and without gangs) for
``iegopt.solve``; every fourth is a request for ``Planner.plan`` on a cluster whose devices are loaded anew each time:
another graph, another size, its verified plan or reason out; "again" is the same request once more. All count from the
call to its return. An answer is late by more than 10 % of the deadline or 0.5 ms, whichever is larger. Where processes
compete for the processors, what the system made the thread wait for one is told apart (/proc/thread-self/schedstat),
and what is late by the time that the thread had one alone (its CPU time). A real-time class (``chrt -f 1``) avoids it.
What late answers did, and those without a plan, is told step by step (``steps.py``).

    python benchmarks/deadlines.py                    # 2,000 instances
    python benchmarks/deadlines.py --count 300 --seed 1 --rows rows.json  # in pieces, of other seeds
    python benchmarks/deadlines.py --deadlines 1 --count 800 --no-record  # the shortest alone, a look
    python benchmarks/deadlines.py --count 200 --load  # beside a thread of pure Python and one of numpy
"""

from __future__ import annotations

import argparse
import dataclasses
import gc
import json
import os
import random
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, get_args

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from benchmarks.record import record
from benchmarks.steps import Spent, Watch
from iegopt.planner import Planner, in_time
from iegopt.planner import api as planner
from iegopt.planner.in_time import InTime
from iegopt.plans import NoPlan, Plan
from iegopt.problem.families import FAMILIES, Memory, generate
from iegopt.solvers import api, auto
from iegopt.solvers.api import solve
from iegopt.solvers.auto import AutoSolver
from iegopt.solvers.exact.compiled import warmup
from iegopt.solvers.result import Params, Result
from iegopt.spec.cluster import ClusterSpec
from iegopt.spec.request import RequestSpec

DEADLINES = (1, 5, 20, 100)
STAGES, SITES = (5, 10, 20, 35, 50), (64, 128, 256, 512, 1024)
MODELS = ("H100", "A100-80GB", "L40S", "MI300X")
REST = 0.08
"""Pause after an instance, as part of its time: a real-time class is stopped where it takes over 95 % of a second."""
STEPS = (
    (Planner, "graph"), (InTime, "first"), (Planner, "verify"), (InTime, "_over"), (in_time, "compile_graph"),
    (planner, "decoded"), (auto, "quick_start"), (auto, "relaxation"), (auto, "fold"), (AutoSolver, "_search"),
    (api, "_verify"),
)  # fmt: skip

Call = Callable[[float], Plan | NoPlan | Result]
"""Milliseconds in; the answer out."""
Asked = Callable[[], Call]
"""Asks anew: a request is read again, as a planner keeps the graph of the one it had last."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=2000, help="instances")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--rows", type=Path, help="answers of earlier pieces (other seeds), counted too and added to")
    parser.add_argument("--deadlines", type=int, nargs="+", default=DEADLINES, metavar="MS")
    parser.add_argument("--no-record", action="store_true", help="only show the figures")
    parser.add_argument("--load", action="store_true", help="beside a busy thread of pure Python and one of numpy")
    arguments = parser.parse_args()
    core = warmup(compile=False).core
    planners = {sites: Planner(_cluster(sites)) for sites in SITES}
    watch = Watch(STEPS)
    gc.freeze()  # as a server does once it is up
    rows: list[dict[str, Any]] = []
    for number in range(arguments.count):
        begun = time.perf_counter()
        rng = random.Random(f"{arguments.seed}-{number}")
        name, asked = _request(rng, planners) if number % 4 == 3 else _problem(rng, number)
        with _load(arguments.load):
            rows += [_timed(watch, name, asked(), deadline) for deadline in arguments.deadlines]
            if name.startswith("plan"):
                rows += [_timed(watch, f"again: {name}", asked(), deadline) for deadline in arguments.deadlines]
        _rest(REST * (time.perf_counter() - begun))
        if number % 100 == 99:
            print(f"{number + 1} of {arguments.count}", file=sys.stderr, flush=True)
    if arguments.rows:
        known = json.loads(arguments.rows.read_text(encoding="utf-8")) if arguments.rows.exists() else []
        rows = [*known, *rows]
        arguments.rows.write_text(json.dumps(rows), encoding="utf-8")
    figures = {f"{how} {ms} ms": _figures(rows, how, ms) for how in ("solve", "plan", "again")
               for ms in arguments.deadlines}  # fmt: skip
    for title, row in figures.items():
        print(f"{title:12s} {' '.join(f'{key} {value}' for key, value in row.items())}")
    asked = len([row for row in rows if not row["name"].startswith("again")])
    late = [row for row in rows if row["late"]]
    own = [row for row in late if row["late_beyond_waiting"]]
    worked = [row for row in late if row["late_by_work"]]
    print(f"late: {len(late)} of {len(rows)}; {len(own)} not because the thread waited for a processor, "
          f"{len(worked)} by their work on one alone")  # fmt: skip
    latest = sorted(own, key=lambda row: -row["ms"])[:10]
    for row in latest:
        print(f"  {row['name']} at {row['deadline']} ms: {row['ms']:.2f} ms; {row['spent']}")
    for row in [row for row in rows if not row["plan"] and not row["late"]][:10]:
        print(f"  {row['name']} at {row['deadline']} ms: no plan after {row['ms']:.2f} ms; {row['spent']}")
    if arguments.no_record:
        return
    record(
        "deadlines_load" if arguments.load else "deadlines",
        {
            "instances": asked // len(arguments.deadlines), "answers": len(rows), "core": core,
            "late": len(late), "late_beyond_waiting": len(own), "late_by_work": len(worked),
            "by_deadline": figures,
            "latest": [f"{row['name']}, {row['deadline']} ms: {row['ms']:.2f}; {row['spent']}" for row in latest],
        },
    )  # fmt: skip


def _rest(seconds: float) -> None:
    policy, param = os.sched_getscheduler(0), os.sched_getparam(0)
    os.sched_setscheduler(0, os.SCHED_OTHER, os.sched_param(0))
    end = time.perf_counter() + seconds
    while time.perf_counter() < end:
        pass
    os.sched_setscheduler(0, policy, param)


def _problem(rng: random.Random, seed: int) -> tuple[str, Asked]:
    """A generated problem; every call gets its own copy, so that nothing cached in it helps the next."""
    family, memory = rng.choice(FAMILIES), rng.choice(get_args(Memory))
    problem = generate(family, rng.choice(STAGES), rng.choice(SITES), memory, seed, gangs=rng.random() < 0.3)

    def asked() -> Call:
        fresh = dataclasses.replace(problem, topology=dataclasses.replace(problem.topology))
        return lambda milliseconds: solve(fresh, "auto", Params(time_limit=milliseconds / 1000))

    return f"solve {problem.name}", asked


def _request(rng: random.Random, planners: dict[int, Planner]) -> tuple[str, Asked]:
    stages, sites = rng.choice(STAGES), rng.choice(SITES)
    planner, drawn = planners[sites], rng.random()
    for _ in range(20):
        device = f"{rng.choice(MODELS)}-{rng.randrange(sites // len(MODELS))}"
        planner.update(device, utilisation=rng.random(), used=rng.randrange(40) * 10**9)

    def asked() -> Call:
        request = _graph(random.Random(drawn), stages)
        return lambda milliseconds: planner.plan(request, deadline_ms=milliseconds, explained=False)

    return f"plan {stages}x{sites}", asked


def _graph(rng: random.Random, count: int) -> RequestSpec:
    """A chain with side branches: figures of its own, gangs on some stages, SLAs on others."""
    stages: list[dict[str, Any]] = []
    edges: list[dict[str, Any]] = []
    for i in range(count):
        stage: dict[str, Any] = {
            "id": f"stage-{i}",
            "type": rng.choice(["prefill", "decode"]),
            "compute": {"flops": f"{rng.randrange(20, 200)}T", "precision": "fp16"},
            "memory": {"vram": f"{rng.randrange(2, 30)}GB", "traffic": f"{rng.randrange(50, 400)}GB"},
            "parallelism": {"degree": 1},
        }
        if rng.random() < 0.15:
            stage["parallelism"] = {"degree": 2, "strategy": "tensor_parallel"}
        if rng.random() < 0.15:
            stage["latency_sla"] = "20s"
        stages.append(stage)
        if i:
            edges.append(
                {"from": f"stage-{max(0, i - rng.choice([1, 1, 1, 2]))}", "to": f"stage-{i}", "bytes": "400MB"}
            )
    limits = {
        "max_depth": count + 1,
        "max_nodes": count,
        "max_compute_time": "1h",
        "termination_policy": {"timeout": "1h"},
    }
    document = {"id": f"request-{count}", "graph": {"stages": stages, "edges": edges}, "dag_constraints": limits}
    return RequestSpec.model_validate(document, context={"document": True})


def _cluster(sites: int) -> ClusterSpec:
    devices = [
        {
            "id": model, "model": model, "count": sites // len(MODELS), "spread": {"per_host": 8, "hosts_per_rack": 4},
            "location": {"rack": f"rack-{model}"},
        }
        for model in MODELS
    ]  # fmt: skip
    return ClusterSpec.model_validate({"devices": devices}, context={"document": True})


def _timed(watch: Watch, name: str, call: Call, deadline: int) -> dict[str, Any]:
    answer, spent = watch.call(lambda: call(deadline))
    planned = isinstance(answer, Plan) or (isinstance(answer, Result) and answer.choice is not None)
    allowed = deadline + max(0.5, 0.1 * deadline)
    late = spent.ms > allowed
    return {
        "name": name, "deadline": deadline, "ms": spent.ms, "plan": planned, "late": late,
        "late_beyond_waiting": spent.ms - spent.waited > allowed, "late_by_work": spent.worked > allowed,
        "spent": "" if planned and not late else _told(spent),
    }  # fmt: skip


def _told(spent: Spent) -> str:
    """What a late answer did."""
    system = f"waited {spent.waited:.2f}, interrupted {spent.interrupted}, page faults {spent.faults}"
    steps = ", ".join(f"{name} {ms:.2f}" for name, ms in spent.steps.items())
    return f"on a processor {spent.worked:.2f}, {system}, garbage {spent.collected:.2f}; {steps}"


def _figures(rows: list[dict[str, Any]], how: str, deadline: int) -> dict[str, Any]:
    chosen = [row for row in rows if row["deadline"] == deadline and row["name"].startswith(how)]
    times = np.array([row["ms"] for row in chosen])
    count = Counter(plan=sum(row["plan"] for row in chosen), late=sum(row["late"] for row in chosen))
    return {
        "answers": len(chosen),
        "plans": round(count["plan"] / len(chosen), 4),
        "late": count["late"],
        "late_beyond_waiting": sum(row["late_beyond_waiting"] for row in chosen),
        **{f"p{q}_ms": round(float(np.percentile(times, q)), 2) for q in (50, 99, 100)},
    }


@contextmanager
def _load(wanted: bool) -> Iterator[None]:
    """A thread that never lets go of the interpreter by itself, and one that does so inside numpy.

    Both are of the ordinary class and, where the thread that is timed is bound to one, on other processors. On its own
    they would never let it ask for the interpreter where they are of its real-time class, and never have it where not.
    """
    stop = threading.Event()

    def elsewhere() -> None:
        if hasattr(os, "sched_setscheduler"):
            own = os.sched_getaffinity(0)
            os.sched_setscheduler(0, os.SCHED_OTHER, os.sched_param(0))
            if len(own) == 1:
                with suppress(OSError):  # there may be no others
                    os.sched_setaffinity(0, set(range(os.cpu_count() or 1)) - own)

    def count() -> None:
        elsewhere()
        n = 0
        while not stop.is_set():
            n += 1

    def multiply() -> None:
        elsewhere()
        a = np.random.default_rng(0).random((200, 200))
        while not stop.is_set():
            np.sort(a @ a, axis=None)

    threads = [threading.Thread(target=work) for work in (count, multiply)] if wanted else []
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        stop.set()
        for thread in threads:
            thread.join()


if __name__ == "__main__":
    main()
