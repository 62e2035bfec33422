"""Plans made by hand, of the size a person would look at, and a way to run a command in this process."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from iegopt.cli.main import main
from iegopt.plans import CostSplit, Plan, StagePlan, TransferPlan, WeightsUsed
from iegopt.spec.cluster import ClusterSpec

GOLDEN = Path(__file__).parent / "golden"


@dataclass(frozen=True)
class Ran:
    code: int
    out: str
    err: str

    @property
    def error_line(self) -> str:
        """The one line on stderr; fails where there are none or several."""
        lines = self.err.splitlines()
        assert len(lines) == 1, self.err
        assert "Traceback" not in self.err
        assert lines[0].isprintable()
        return lines[0]


@pytest.fixture
def iegopt(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Callable[..., Ran]:
    """Runs the command with these arguments: ``iegopt("plan", path, …).out``."""
    monkeypatch.delenv("COLUMNS", raising=False)
    monkeypatch.delenv("IEGOPT_DEBUG", raising=False)

    def run(*argv: object) -> Ran:
        capsys.readouterr()
        code = main([str(word) for word in argv])
        captured = capsys.readouterr()
        return Ran(code, captured.out, captured.err)

    return run


def same_as_golden(name: str, text: str) -> None:
    """Compare with a file of ``golden``; ``IEGOPT_UPDATE_GOLDEN=1`` writes it instead."""
    file = GOLDEN / name
    if os.environ.get("IEGOPT_UPDATE_GOLDEN") == "1":
        file.write_text(text, encoding="utf-8")
    assert text == file.read_text(encoding="utf-8"), f"{file.name} differs; IEGOPT_UPDATE_GOLDEN=1 writes it anew"


def normal(text: str) -> str:
    """A JSON answer with its wall-clock time set to 0."""
    document = json.loads(text)
    document["seconds"] = 0.0
    return json.dumps(document, indent=2, ensure_ascii=False) + "\n"


@pytest.fixture
def golden() -> Callable[[str, str], None]:
    return same_as_golden


@pytest.fixture
def normalised() -> Callable[[str], str]:
    return normal


def cluster_of(hosts: int, cpus: int) -> ClusterSpec:
    """``hosts`` hosts of 8 H100, four a rack, and CPU hosts beside them."""
    pool = {"id": "gpu", "model": "H100", "count": 8 * hosts, "spread": {"per_host": 8, "hosts_per_rack": 4}}
    host = {"id": "cpu", "model": "cpu-epyc-9654-2s", "count": cpus, "location": {"rack": "cpus"}}
    return ClusterSpec.model_validate({"name": "lab", "devices": [pool, host]})


def make_plan(rounds: int = 1, tools: int = 2) -> Plan:
    """An agent: tokenize, then rounds of prefill, decode and parallel tools, an answer at the end."""
    stages: list[StagePlan] = []
    transfers: list[TransferPlan] = []
    finish: dict[str, float] = {}

    def stage(name: str, kind: str, devices: tuple[str, ...], time: float, after: dict[str, float]) -> str:
        start = 0.0
        for source, size in after.items():
            exposed = 2e-5 + size / 6e10 if size else 0.0
            start = max(start, finish[source] + exposed)
            way = "rack" if size else "none"
            kind_of = "data" if size else "control"
            transfers.append(TransferPlan(source, name, kind_of, way, size, exposed * 1.2, exposed, exposed * 0.5))
        finish[name] = start + time
        gpu = devices[0].startswith("gpu")
        model, variant = ("H100", "Llama-3.1-70B/fp8/TensorRT") if gpu else ("cpu-epyc-9654-2s", "-")
        incoming = sum(t.exposed for t in transfers if t.target == name)
        stages.append(
            StagePlan(
                id=name,
                kind=kind,
                site="+".join(devices),
                devices=devices,
                device_model=model,
                variant=variant,
                artifact="s3://models/llama-70b-fp8" if gpu else None,
                t0=time,
                time=time,
                load_time=0.0,
                bottleneck="bandwidth" if kind == "decode" else "compute",
                time_source="roofline",
                start=start,
                finish=finish[name],
                memory=75_000_000_000 if gpu else 64_000_000,
                capacity_ratio=0.47 if gpu else 0.0001,
                sla=0.5 if kind == "prefill" else None,
                cost=CostSplit(L=time, T=time, M=time * 1.7, D=incoming, dollars=time * 0.0022),
            )
        )
        return name

    last = stage("tokenize", "tokenize", ("cpu-0",), 0.0012, {})
    prefill = stage("prefill", "prefill", ("gpu-0", "gpu-1"), 0.31, {last: 16384.0})
    last = stage("decode", "decode", ("gpu-8", "gpu-9"), 1.9, {prefill: 1.34e9})
    for number in range(1, rounds + 1):
        calls = {
            stage(f"tool-{number}-{i}", "tool", (f"cpu-{i}",), 0.2 * i + 0.1, {last: 2048.0}): 4096.0
            for i in range(tools)
        }
        found = stage(f"retrieval-{number}", "retrieval", ("cpu-2",), 0.045, calls)
        again = stage(f"re-prefill-{number}", "re_prefill", ("gpu-0", "gpu-1"), 0.09, {found: 9000.0, last: 1.4e9})
        last = stage(f"decode-{number}", "decode", ("gpu-8", "gpu-9"), 1.2, {again: 1.5e9})
    stage("output", "output", ("cpu-0",), 2e-6, {last: 0.0})
    total = CostSplit(*(sum(getattr(s.cost, f) for s in stages) for f in ("L", "T", "M", "D", "dollars")))
    weights = WeightsUsed(alpha=0.4, beta=0.1, gamma=0.4, lambda_=0.5)
    objective = 0.4 * total.L + 0.1 * total.T + 0.4 * total.M + 0.5 * total.D
    alternative = {
        "site": "gpu-2+gpu-3", "variant": "Llama-3.1-70B/bf16/CUDA", "objective_increase": 0.0213,
        "by_term": {"L": 0.0, "T": 0.0, "M": 0.0, "D": 0.0213},
        "why": "the KV cache would cross the rack: 21 ms more transfer",
    }  # fmt: skip
    about = {
        s.id: {
            "bottleneck": s.bottleneck,
            "terms": {"compute": s.t0, "bandwidth": s.t0 / 2, "io": 0.0, "fixed": 0.0},
            "forbidden": None,
            "alternative": alternative if s.kind in ("prefill", "decode") else None,
            "refused": [{"options": 3, "reason": "140 GB of weights do not fit 80 GB"}],
        }
        for s in stages
    }
    return Plan(
        request="agent-1", cluster="lab", status="optimal", objective=objective, bound=objective, gap=0.0,
        proof="tree messages", solver="auto", seconds=0.0123, note="", makespan=max(finish.values()), deadline=12.0,
        termination={"graceful_stop": True},
        tier=None, stages=tuple(stages), transfers=tuple(transfers), cost=total, penalties=0.0, weights=weights,
        reference_price=2.5,
        explanation={
            "summary": ["Prefill and decode run apart, because it pays 40 ms.", "Nothing binds."],
            "binding": [
                {"rule": "sla", "where": "prefill", "used": 0.31, "allowed": 0.5, "slack": 0.19, "unit": "s"},
                {"rule": "memory", "where": "gpu-0", "used": 37.5e9, "allowed": 80e9, "slack": 42.5e9, "unit": "B"},
            ],
            "stages": about,
        },
    )  # fmt: skip


@pytest.fixture
def plan_of() -> Callable[..., Plan]:
    return make_plan


@pytest.fixture
def cluster_with() -> Callable[[int, int], ClusterSpec]:
    return cluster_of
