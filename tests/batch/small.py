"""A small cluster, and snapshots of it whose figures can be worked out by hand.

Devices x-0 … x-7, two hosts of four in one rack: 80 GB, 100 TFLOP/s, 1 TB/s, IO 10 GB/s. Model Llama-2-7B in fp16,
whose weights take 13.48 GB; a token's KV cache takes 2·32·32·128·2 = 524,288 bytes.
"""

from __future__ import annotations

from typing import Any

from iegopt.batch.build import build_model
from iegopt.batch.model import BatchModel
from iegopt.problem.cluster import CompiledCluster
from iegopt.spec.batch_policy import BatchPolicy
from iegopt.spec.cluster import ClusterSpec
from iegopt.spec.snapshot import SnapshotSpec

__all__ = [
    "KV",
    "STEP_BASE",
    "VARIANT",
    "WEIGHTS",
    "build",
    "cluster",
    "decodes",
    "instance",
    "prefill_seconds",
    "prefills",
    "queued",
]

VARIANT = "Llama-2-7B/fp16/CUDA"
KV = 524_288
PARAMETERS = 6_738_415_616
WEIGHTS = 2 * PARAMETERS
STEP_BASE = WEIGHTS / 1e12
"""B₀: weights over 1 TB/s."""

LINKS = {
    "host": {"latency": 1e-5, "bandwidth": 20e9},
    "rack": {"latency": 1e-4, "bandwidth": 10e9},
}


def cluster(**changes: Any) -> CompiledCluster:
    device = {
        "id": "x", "model": "X", "type": "GPU", "vendor": "v", "count": 8, "price": 2.0,
        "compute": {"fp16_flops": 100e12, "precision_support": ["fp16"]},
        "memory": {"vram": 80 * 10**9, "bandwidth": 1e12}, "io": {"bandwidth": 10e9}, "spread": {"per_host": 4},
    }  # fmt: skip
    path = {"model": "Llama-2-7B", "variants": [{"precision": "fp16", "backend": "CUDA", "compatible_devices": ["X"]}]}
    spec = {"devices": [device], "links": LINKS, "execution_path_registry": [path], **changes}
    return CompiledCluster(ClusterSpec.model_validate(spec))


def instance(number: int, **changes: Any) -> dict[str, Any]:
    """Instance i0, i1, … on device x-0, x-1, …"""
    return {"id": f"i{number}", "devices": [f"x-{number}"], "variant": VARIANT, **changes}


def queued(name: str, prompt: int = 1000, output: int = 100, **changes: Any) -> dict[str, Any]:
    """A request that arrived at the snapshot's time; keys of its ``request`` may be given too."""
    inner = {k: changes.pop(k) for k in ("sla", "sla_class", "batch", "agent", "precision", "model") if k in changes}
    request = {"model": "Llama-2-7B", "prompt_tokens": prompt, "output_tokens": output, **inner}
    return {"id": name, "arrival": 10.0, "request": request, **changes}


def decodes(name: str, on: str = "i0", context: int = 500, remaining: int = 10, **changes: Any) -> dict[str, Any]:
    """A running decode."""
    return {"id": name, "instance": on, "stage": "decode", "context": context, "remaining": remaining, **changes}


def prefills(name: str, on: str = "i0", context: int = 300, remaining: int = 700, **changes: Any) -> dict[str, Any]:
    """A running prefill, of 1,000 tokens and 11 to decode."""
    stage = {"id": name, "instance": on, "stage": "prefill", "context": context, "remaining": remaining}
    return {"output": 11, **stage, **changes}


def build(
    instances: list[dict[str, Any]], queue: list[dict[str, Any]] = (), running: list[dict[str, Any]] = (),  # type: ignore[assignment]
    *, policy: dict[str, Any] | None = None, snapshot: dict[str, Any] | None = None, on: CompiledCluster | None = None,
) -> BatchModel:  # fmt: skip
    """The model of a snapshot at 10 s."""
    spec = {"time": 10.0, "instances": instances, "queue": queue, "running": running, **(snapshot or {})}
    return build_model(on or cluster(), SnapshotSpec.model_validate(spec), BatchPolicy.model_validate(policy or {}))


def prefill_seconds(tokens: int, held: int = 0) -> float:
    """Compute decides above some 70 tokens: 2·parameters FLOP each over 100 TFLOP/s."""
    return max(2 * PARAMETERS * tokens / 100e12, (WEIGHTS + KV * (held + tokens)) / 1e12)
