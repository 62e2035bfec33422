"""Random snapshots with a policy, for everything that is held against brute force, an oracle or the verifier.

``random_case(seed, size)`` gives the same case for the same arguments. What a case has at all (roles, reuse, tenants
with quotas, stages that run …) is drawn first, so that simple cases and crowded ones both come up.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Any, Literal

import numpy as np

from iegopt.batch.build import build_model
from iegopt.batch.model import BatchModel
from iegopt.problem.cluster import CompiledCluster
from iegopt.spec.batch_policy import BatchPolicy
from iegopt.spec.cluster import ClusterSpec
from iegopt.spec.snapshot import SnapshotSpec

__all__ = ["Case", "Size", "random_case"]

Size = Literal["tiny", "small", "large"]
"""Tiny: brute force can enumerate it. Small: some tens of requests. Large: some hundreds on some tens of instances."""

NOW = 100.0
MODELS: dict[str, tuple[str, tuple[tuple[str, int, str], ...]]] = {
    "dense": ("Llama-3.1-8B", (
        ("H100", 1, "bf16/CUDA"), ("A100-80GB", 1, "bf16/CUDA"), ("MI300X", 1, "bf16/ROCm"), ("L40S", 1, "bf16/CUDA"),
        ("H100", 1, "fp16/TensorRT"), ("L4", 1, "bf16/CUDA"),
    )),
    "low": ("Llama-3.1-8B", (("H100", 1, "fp8/TensorRT"), ("L40S", 1, "fp8/CUDA"), ("L4", 1, "fp8/CUDA"))),
    "measured": ("Llama-2-70B", (
        ("H100", 4, "fp16/TensorRT"), ("A100-80GB", 4, "fp16/TensorRT"), ("H100", 2, "fp16/TensorRT"),
    )),
    "sparse": ("Mixtral-8x7B", (("MI300X", 1, "bf16/ROCm"), ("H100", 2, "bf16/CUDA"), ("A100-80GB", 2, "bf16/CUDA"))),
}  # fmt: skip
"""Name -> the model that requests ask for, and engines: device, gang size, variant."""

SIZES = {"tiny": ((2, 3), (1, 4), 2), "small": ((2, 6), (4, 24), 8), "large": ((16, 40), (150, 400), 60)}
"""Instances, queued requests (both: least and most), and running stages at most."""


@dataclass(frozen=True)
class Case:
    """A snapshot, its cluster and a policy; ``model`` is made when first asked for."""

    seed: int
    cluster: CompiledCluster
    snapshot: SnapshotSpec
    policy: BatchPolicy

    @cached_property
    def model(self) -> BatchModel:
        return build_model(self.cluster, self.snapshot, self.policy)


def random_case(seed: int, size: Size = "small") -> Case:
    """The case of a seed."""
    maker = _Maker(np.random.default_rng([list(SIZES).index(size), seed]), size)
    return Case(seed, _cluster(maker.integer(0, 2)), maker.snapshot(), maker.policy())


@lru_cache(maxsize=4)
def _cluster(which: int) -> CompiledCluster:
    """Three clusters of the same devices: plain, with a transfer policy, with measured pairs and slower hosts."""
    devices = [
        {"id": name.lower(), "model": name, "count": 64, "spread": {"per_host": 8, "hosts_per_rack": 2},
         "memory": {"reserve": "1GB"}}
        for name in ("H100", "A100-80GB", "MI300X", "L40S", "L4")
    ]  # fmt: skip
    changes: dict[str, Any] = {}
    if which == 1:
        changes["kv_transfer_config"] = {"chunk_size": "64MB", "overlap_compute": True, "compression": "int8"}
    if which == 2:
        pairs = [("h100-0", "h100-8"), ("l40s-0", "a100-80gb-0"), ("mi300x-0", "mi300x-1")]
        changes["pairs"] = [{"devices": pair, "bandwidth": "3GB/s", "latency": "2ms"} for pair in pairs]
        changes["link_overrides"] = [{"level": "rack", "group": "rack0-0", "bandwidth": "2GB/s", "latency": "1ms"}]
    return CompiledCluster(ClusterSpec.model_validate({"devices": devices, **changes}))


class _Maker:
    def __init__(self, rng: np.random.Generator, size: Size) -> None:
        self.rng, self.tiny = rng, size == "tiny"
        instances, requests, running = SIZES[size]
        self.J, self.N, self.R = self.integer(*instances), self.integer(*requests), self.integer(0, running)
        few = 1 if self.tiny else self.integer(1, 3)
        self.models = [list(MODELS)[n] for n in rng.choice(len(MODELS), few, replace=False).tolist()]
        self.tight, self.roles, self.reuse = self.coin(0.5), self.coin(0.35), self.coin(0.6)
        self.limited, self.troubled, self.scarce = self.coin(0.4), self.coin(0.3), self.coin(0.6 if self.tiny else 0.3)
        self.tenants = [f"t{n}" for n in range(self.integer(1, 3))]
        self.window = float(rng.choice([1.0, 3.0, 10.0]))
        fast = rng.choice([0.01, 0.02, 0.03, 0.05], 1 if self.tiny else 3, replace=False)
        self.paces = [*sorted(fast.tolist()), 0.1 if self.coin(0.7) else 0.2]
        self.blocks = [self.chain(self.integer(1, 14)) for _ in range(1 if self.tiny else 3)]
        self.held: list[str] = []
        self.kind_of: list[str] = []

    def coin(self, chance: float) -> bool:
        return bool(self.rng.random() < chance)

    def integer(self, least: int, most: int) -> int:
        return int(self.rng.integers(least, most + 1))

    def between(self, low: float, high: float) -> float:
        """Uniform in the logarithm."""
        return float(np.exp(self.rng.uniform(np.log(low), np.log(high))))

    def chain(self, length: int) -> list[int]:
        return self.rng.integers(1, 2**40, length).tolist()

    def pick(self, among: list[Any]) -> Any:
        return among[self.integer(0, len(among) - 1)]

    def snapshot(self) -> SnapshotSpec:
        instances = self.instances()
        document = {
            "name": "random", "time": NOW, "block_tokens": 256, "instances": instances,
            "running": [self.running(f"r{n}", instances) for n in range(self.R)],
            "queue": [self.queued(f"q{n}", instances) for n in range(self.N)],
        }  # fmt: skip
        return SnapshotSpec.model_validate(document)

    def instances(self) -> list[dict[str, Any]]:
        taken: dict[str, int] = {}
        found = []
        for n in range(self.J):
            name = self.pick(self.models)
            model, engines = MODELS[name]
            device, size, variant = self.pick(list(engines))
            first = taken.get(device, 0)
            # A gang stands within one host of eight.
            first += (-first) % size
            if first + size > 64:
                continue
            taken[device] = first + size
            spec: dict[str, Any] = {
                "id": f"i{n}", "devices": [f"{device.lower()}-{first + d}" for d in range(size)],
                "variant": f"{model}/{variant}",
            }  # fmt: skip
            if self.roles:
                spec["role"] = self.pick(["any", "prefill", "decode"])
            if self.coin(0.8 if self.scarce else 0.2):
                spec["max_batch"] = self.integer(1, 2 if self.tiny else 6)
            if self.coin(0.3):
                spec["utilization"] = round(float(self.rng.uniform(0, 0.7)), 3)
            if self.coin(0.3):
                spec["observed"] = NOW - self.between(0.1, 40.0 if self.troubled else 2.0)
            if self.troubled and self.coin(0.3):
                spec["state"] = self.pick(["draining", "lost"])
            if self.coin(0.5 if self.scarce else 0.2):
                spec["used"] = int(self.memory(device, size) * float(self.rng.uniform(0.95, 0.99)))
            if self.reuse and self.coin(0.7):
                spec["prefix"] = [b for chain in self.blocks for b in chain[: self.integer(0, len(chain))]]
            if self.reuse and self.coin(0.4):
                blocks = [b for chain in self.blocks for b in chain if self.coin(0.6)]
                spec["tiers"] = [{"tier": self.pick(["host", "disk"]), "blocks": blocks}]
            found.append(spec)
            self.kind_of.append(name)
        return found

    @staticmethod
    def memory(device: str, size: int) -> float:
        each = {"H100": 80e9, "A100-80GB": 80e9, "MI300X": 192e9, "L40S": 48e9, "L4": 24e9}[device]
        return (each - 1e9) * size

    def worth(self) -> dict[str, Any]:
        """What a queued request and a running stage have in common."""
        worth: dict[str, Any] = {"tenant": self.pick(self.tenants), "priority": self.integer(0, 2)}
        utility: dict[str, Any] = {}
        if self.coin(0.7):
            utility["weight"] = round(self.between(0.2, 5.0), 2)
        if self.coin(0.5):
            utility["class"] = self.pick(["latency", "throughput"])
        return {**worth, "utility": utility}

    def limits(self, output: int, prompt: int) -> dict[str, float]:
        """Limits that alone are kept more often than not; ``tight`` ones leave little room beside others."""
        ease = 1.5 if self.tight else 6.0
        sla: dict[str, float] = {}
        if self.coin(0.6):
            sla["ttft"] = ease * self.between(0.2, 2.0) * (0.3 + prompt / 4000)
        if self.coin(0.4):
            sla["e2e"] = ease * (0.5 + output * self.between(0.02, 0.1))
        if self.coin(0.4):
            sla["itl"] = self.between(0.02, 0.25)
        return {name: round(value, 4) for name, value in sla.items()}

    def queued(self, name: str, instances: list[dict[str, Any]]) -> dict[str, Any]:
        model = MODELS[self.pick(self.models)]
        prompt, output = int(self.between(50, 4000)), int(self.between(1, 500))
        request: dict[str, Any] = {
            "model": model[0], "prompt_tokens": prompt, "output_tokens": output, "batch": self.pick([1, 1, 1, 2, 4]),
            "sla": self.limits(output, prompt),
        }  # fmt: skip
        if model is MODELS["low"]:
            request["precision"] = "fp8"
        if self.coin(0.1):
            request["agent"] = {"tools": [{"name": "search", "latency": self.between(0.01, 0.3)}]}
        spec = {"id": name, "request": request, "arrival": NOW - self.between(0.001, 0.5), **self.worth()}
        if self.reuse and self.coin(0.7):
            # Some leading blocks that others have too, then its own.
            whole = -(-prompt // 256)
            common = self.pick(self.blocks)
            spec["prefix"] = [*common[: min(whole, self.integer(1, 14))]]
            spec["prefix"] += self.chain(self.integer(0, whole - len(spec["prefix"])))
        if self.reuse and self.coin(0.1):
            spec |= {"held_kv": self.integer(1, prompt), "held_on": self.pick(instances)["id"], "preempted": 1}
        if self.coin(0.2):
            spec["planned"] = {"prefill": self.pick(instances)["id"], "decode": self.pick(instances)["id"]}
        return spec

    def running(self, name: str, instances: list[dict[str, Any]]) -> dict[str, Any]:
        at = self.pick(instances)
        spec: dict[str, Any] = {
            "id": name, "instance": at["id"], "context": self.integer(1, 3000), "sequences": self.pick([1, 1, 2]),
            "arrival": NOW - self.between(0.01, 3.0), **self.worth(),
        }  # fmt: skip
        output = int(self.between(1, 400))
        sla = self.limits(output, spec["context"])
        if self.coin(0.5):
            sla.pop("ttft", None)
            spec |= {"stage": "decode", "remaining": output}
        else:
            spec |= {"stage": "prefill", "remaining": self.integer(1, 2000), "output": self.pick([0, output, output])}
            if not spec["output"]:
                sla.pop("itl", None)
            elif self.coin(0.5):
                spec["decode"] = self.pick(instances)["id"]
        if self.coin(0.3):
            spec["preempted"] = self.integer(0, 4)
        return {**spec, "sla": sla}

    def policy(self) -> BatchPolicy:
        policy: dict[str, Any] = {
            "window": self.window, "period": self.pick([0.1, 0.5]), "paces": self.paces, "migration": self.coin(0.5),
            "second_value": self.pick([0.0, 0.01, 0.2]), "hysteresis": self.pick([0.0, 0.1, 1.0]),
            "preemption_config": {
                "enabled": self.coin(0.7), "min_priority_gap": self.integer(1, 2),
                "resume_policy": self.pick(["immediate", "queued"]), "max_preempt_per_request": self.integer(1, 3),
            },
        }  # fmt: skip
        if self.coin(0.3):
            policy["fairness"] = round(float(self.rng.uniform(0.0, 0.3)), 3)
        if self.coin(0.3):
            policy["kv_transfer_config"] = {
                "chunk_size": self.pick(["16MB", "256MB"]), "overlap_compute": self.coin(0.5),
                "compression": self.pick(["none", "fp8", "int4"]),
            }  # fmt: skip
        if self.limited:
            policy["tenants"] = {name: {"quota": self.quota()} for name in self.tenants}
        return BatchPolicy.model_validate(policy)

    def quota(self) -> dict[str, Any]:
        quota: dict[str, Any] = {}
        if self.coin(0.5):
            quota["requests"] = self.integer(0, max(2, self.N // 2))
        if self.coin(0.5):
            quota["memory"] = round(self.between(0.005, 0.5), 4)
        if self.coin(0.5):
            quota["time"] = round(self.between(0.02, 0.8), 4)
        return quota
