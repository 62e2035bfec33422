"""Which worker processes a cluster has: one for each role of each device with ``worker``."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from iegopt.devices import Device, expand
from iegopt.errors import InputError
from iegopt.spec.cluster import ClusterSpec
from iegopt.spec.device import DeviceSpec
from iegopt.spec.worker import Role, WorkerSpec

__all__ = ["Deployed", "accelerator", "deployed", "find_worker", "preloads", "roles"]


@dataclass(frozen=True)
class Deployed:
    """One worker process. ``location`` names the groups of its device, each below those above it; ``memory`` are the
    device's bytes, less what it keeps free."""

    device: str
    role: Role
    spec: WorkerSpec
    resident: tuple[str, ...] | None
    location: dict[str, str]
    memory: int

    @property
    def name(self) -> str:
        return f"{self.device}/{self.role}"


def deployed(cluster: ClusterSpec) -> tuple[Deployed, ...]:
    """All workers of a cluster, in the order of its devices.

    Raises
    ------
    InputError
        As ``iegopt.devices.expand``; ``lm`` workers whose blocks of KV have unlike sizes.
    """
    found: list[Deployed] = []
    devices = iter(expand(cluster))
    for spec in cluster.devices:
        for _ in range(spec.count):
            found += _of_device(spec, next(devices))
    _check_blocks(cluster, [worker for worker in found if worker.role == "lm"])
    return tuple(found)


def roles(workers: Iterable[Deployed]) -> dict[str, Role]:
    """Name -> role of each."""
    return {worker.name: worker.role for worker in workers}


def _check_blocks(cluster: ClusterSpec, models: Sequence[Deployed]) -> None:
    """KV of one worker is of use to another only in blocks of the same size."""
    other = next((worker for worker in models if worker.spec.block_tokens != models[0].spec.block_tokens), None)
    if other is not None:
        raise InputError(
            f"cluster {cluster.name}: device {other.device}: worker.block_tokens {other.spec.block_tokens}: "
            f"expected {models[0].spec.block_tokens}, as device {models[0].device} has"
        )


def _of_device(spec: DeviceSpec, device: Device) -> list[Deployed]:
    if spec.worker is None:
        return []
    _, host, rack, datacenter = device.path
    location = {"datacenter": datacenter, "rack": rack, "host": host}
    memory = device.kind.vram - device.reserve
    return [Deployed(device.id, role, spec.worker, spec.resident, location, memory) for role in spec.worker.roles]


def find_worker(cluster: ClusterSpec, device: str, role: str) -> Deployed:
    """The worker of a device for a role.

    Raises
    ------
    InputError
        Where the cluster has no such device, or the device no such worker.
    """
    workers = deployed(cluster)
    for worker in workers:
        if (worker.device, worker.role) == (device, role):
            return worker
    names = ", ".join(worker.name for worker in workers) or "none"
    raise InputError(f"cluster {cluster.name}: no worker {device}/{role}: its workers are {names}")


def accelerator(cluster: ClusterSpec, worker: Deployed, gpus: int) -> str:
    """The device of torch for an lm worker: those of one host take its GPUs in the order of the cluster, one each, from
    the first again where there are more of them.

    Parameters
    ----------
    gpus
        How many the host has that torch can use.
    """
    if not gpus:
        return "cpu"
    beside = [w.name for w in deployed(cluster) if w.role == "lm" and w.location == worker.location]
    return f"cuda:{beside.index(worker.name) % gpus}"


_MODULES: dict[Role, tuple[str, ...]] = {
    # transformers imports much of itself when the first model is loaded, whatever its kind: a second for each process.
    "lm": ("iegopt_runtime.workers.lm_setup", "transformers.models.llama.modeling_llama"),
    "tool": ("iegopt_runtime.workers.tool",),
    "retrieval": ("iegopt_runtime.workers.retrieval",),
    "cpu": ("iegopt_runtime.workers.cpu",),
}


def preloads(workers: Iterable[Deployed]) -> list[str]:
    """What processes of these workers import, for whoever forks them."""
    return ["iegopt_runtime.workers.launch", *sorted({name for w in workers for name in _MODULES[w.role]})]
