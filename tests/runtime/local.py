"""A small cluster on this machine for the tests of the runtime: the tiny model on two workers, all else on a third."""

from __future__ import annotations

from typing import Any

from iegopt.spec.cluster import ClusterSpec
from iegopt.spec.explain_error import validate
from iegopt.spec.request import RequestSpec

__all__ = ["local_cluster", "tiny_request"]

_KV = {"device": "100MB", "host": "100MB", "disk": "100MB"}


def local_cluster(lm: tuple[str, ...] = ("prefiller", "decoder"), **more: Any) -> ClusterSpec:
    """Devices for models, the first good at computing and the last at reading memory, and a host.

    ``more``: device -> fields of its spec.
    """
    devices: list[dict[str, Any]] = []
    for number, name in enumerate(lm):
        share = number / max(1, len(lm) - 1)
        devices.append({
            "id": name, "model": "cpu-generic-32c", "price": "0.02$/h", "resident": ["tiny/fp32/CPU"],
            "compute": {"fp32_flops": f"{160 - 140 * share:g}G", "precision_support": ["fp32"]},
            "memory": {"vram": "4GB", "bandwidth": f"{8 + 8 * share:g}GB/s"},
            "worker": {"roles": ["lm"], "kv": _KV}, "location": {"host": "here"},
        } | more.get(name, {}))  # fmt: skip
    devices.append({
        "id": "host", "model": "cpu-generic-32c", "price": "0.01$/h", "resident": [], "location": {"host": "here"},
        "worker": {"roles": ["cpu", "tool", "retrieval"]},
    } | more.get("host", {}))  # fmt: skip
    return validate(ClusterSpec, {"name": "here", "devices": devices}, "cluster")


def tiny_request(name: str = "r", output: int = 16, **more: Any) -> RequestSpec:
    """A request to the tiny model; its prompt as in ``more``, else a short text."""
    own = (
        {}
        if "graph" in more
        else {"model": "tiny", "output_tokens": output, "prompt": "What is the capital of France?"}
    )
    return validate(RequestSpec, {"id": name, **own, **more}, "request")
