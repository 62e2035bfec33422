"""The stage kinds: node type, priority, latency expectation, devices and default resource shape.

Priorities and latencies are the table of section 2.3 of the source. The shapes stand in where a
stage gives no demand of its own and names no model; they are orders of magnitude, chosen so that
an unspecified stage costs about its latency expectation on one CPU host.
"""

from __future__ import annotations

from iegopt.spec.stage import DeviceType, KindDefaults, NodeType, Priority, StageKind
from iegopt.spec.worker import Role

__all__ = ["KINDS", "LLM_KINDS", "role_of"]

_ACCELERATORS = (DeviceType.GPU, DeviceType.NPU)
_ANY_COMPUTE = (*_ACCELERATORS, DeviceType.CPU)
_HOSTS = (DeviceType.CPU,)
_RETRIEVAL = (DeviceType.RETRIEVAL, DeviceType.CPU)
_STORES = (*_ANY_COMPUTE, DeviceType.STORAGE)

LLM_KINDS = frozenset({StageKind.PREFILL, StageKind.RE_PREFILL, StageKind.DECODE})
"""Kinds whose demand comes from an LLM card and token counts."""


def _compute(devices: tuple[DeviceType, ...], latency: float | None) -> KindDefaults:
    return KindDefaults(
        node_type=NodeType.COMPUTE, priority=Priority.HIGH, latency_expectation=latency, device_types=devices
    )


def _memory() -> KindDefaults:
    return KindDefaults(
        node_type=NodeType.MEMORY, priority=Priority.HIGH, latency_expectation=0.010, device_types=_STORES
    )


def _control(flops: float, vram: int) -> KindDefaults:
    return KindDefaults(
        node_type=NodeType.CONTROL,
        priority=Priority.LOW,
        latency_expectation=0.001,
        device_types=_HOSTS,
        flops=flops,
        vram=vram,
        traffic=10**6,
    )


KINDS: dict[StageKind, KindDefaults] = {
    StageKind.TOKENIZE: _control(flops=1e7, vram=64 * 10**6),
    StageKind.PREFILL: _compute(_ANY_COMPUTE, 0.200),
    StageKind.DECODE: _compute(_ANY_COMPUTE, None),
    StageKind.RE_PREFILL: _compute(_ANY_COMPUTE, 0.200),
    StageKind.KV_STORE: _memory(),
    StageKind.KV_LOAD: _memory(),
    StageKind.KV_MIGRATE: _memory(),
    StageKind.EMBEDDING: _compute(_ANY_COMPUTE, 0.100),
    StageKind.RERANK: _compute(_ANY_COMPUTE, 0.100),
    StageKind.RETRIEVAL: KindDefaults(
        node_type=NodeType.IO, priority=Priority.MEDIUM, latency_expectation=0.100,
        device_types=_RETRIEVAL, flops=1e9, vram=10**9, traffic=10**8, io=5 * 10**7,
    ),
    StageKind.TOOL: KindDefaults(
        node_type=NodeType.TOOL, priority=Priority.MEDIUM, latency_expectation=None,
        device_types=_HOSTS, flops=1e9, vram=256 * 10**6, traffic=10**8, io=10**6,
    ),
    StageKind.ROUTER: _control(flops=1e6, vram=16 * 10**6),
    StageKind.AGENT_DECISION: _control(flops=1e6, vram=16 * 10**6),
    StageKind.OUTPUT: _control(flops=1e6, vram=16 * 10**6),
}  # fmt: skip


_CONTROLS = frozenset({StageKind.TOKENIZE, StageKind.ROUTER, StageKind.AGENT_DECISION, StageKind.OUTPUT})


def role_of(kind: StageKind) -> Role:
    """The role of the workers that run such a stage."""
    if kind in _CONTROLS:
        return "cpu"
    if kind is StageKind.TOOL:
        return "tool"
    return "retrieval" if kind is StageKind.RETRIEVAL else "lm"
