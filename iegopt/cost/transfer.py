"""Transfer over one link (section 3 of the model; the source's section 6.5).

    raw      = latency + bytes/(k·bandwidth)
    exposed  = max( raw − hidden , latency + min(chunk, bytes)/(k·bandwidth) )
    hidden   = t_u·(n − 1)/n        n = ⌈bytes/chunk⌉

A producer that runs for t_u streams its chunks while it computes; the last chunk exists only when it ends, so at least
one chunk is exposed. k shards of equal gangs move in parallel: bandwidth and chunk count per
shard divide alike. ``bytes`` is what crosses the wire, after compression.
"""

from __future__ import annotations

from iegopt.spec.policy import KvTransferConfig
from iegopt.spec.stage import Precision

__all__ = ["buffer_bytes", "chunk_count", "compression_ratio", "exposed_seconds", "hidden_seconds", "raw_seconds"]


def compression_ratio(config: KvTransferConfig | None, kv: bool, kv_precision: Precision) -> float:
    """Bytes on the wire per byte of δ(e): the compressed number's size over the KV cache's own, for KV edges only.

    Never above 1: a cache that is already as small travels as it is.
    """
    if config is None or not kv or config.compression == "none":
        return 1.0
    return min(1.0, Precision(config.compression).bytes / kv_precision.bytes)


def chunk_count(config: KvTransferConfig, size: float) -> int:
    """n = ⌈bytes/chunk⌉, and 1 for nothing."""
    return max(1, int(-(-size // config.chunk_size)))


def raw_seconds(size: float, latency: float, bandwidth: float, shards: int = 1) -> float:
    """Seconds of a transfer that nothing hides; ``shards`` is min(k_a, k_b) of equal gangs."""
    return latency + size / (shards * bandwidth)


def hidden_seconds(config: KvTransferConfig | None, size: float, producer: float) -> float:
    """Seconds of transfer that a producer of ``producer`` seconds hides: 0 without overlap or in one chunk."""
    if config is None or not config.overlap_compute:
        return 0.0
    n = chunk_count(config, size)
    return producer * (n - 1) / n


def exposed_seconds(
    size: float, latency: float, bandwidth: float, producer: float, config: KvTransferConfig | None, shards: int = 1
) -> float:
    """Seconds between the end of the producer and the start of its consumer."""
    raw = raw_seconds(size, latency, bandwidth, shards)
    if config is None or not config.overlap_compute:
        return raw
    least = raw_seconds(min(config.chunk_size, size), latency, bandwidth, shards)
    return max(raw - hidden_seconds(config, size, producer), least)


def buffer_bytes(config: KvTransferConfig, size: float) -> float:
    """Buffer that each end of a transfer holds: ``pipeline_depth`` chunks in flight, never more than there is."""
    return min(float(config.pipeline_depth * config.chunk_size), size)
