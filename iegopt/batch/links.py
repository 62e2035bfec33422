"""Transfers between instances, for whole arrays of them (section 3 of the placement model; ``iegopt.cost.transfer``).

raw = latency + bytes·rate        with overlap  max( raw − producer·(n − 1)/n , latency + min(chunk, bytes)·rate )
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from iegopt.batch.model import Instances
from iegopt.spec.policy import KvTransferConfig

__all__ = ["transfer_seconds"]

Floats = npt.NDArray[np.float64]


def transfer_seconds(
    instances: Instances,
    config: KvTransferConfig | None,
    source: npt.ArrayLike,
    target: npt.ArrayLike,
    size: npt.ArrayLike,
    producer: npt.ArrayLike = 0.0,
) -> Floats:
    """Seconds between the end of a producer and the arrival of all it made; 0 where it stays. The arguments broadcast.

    Parameters
    ----------
    source, target
        Instances.
    size
        Bytes on the wire.
    producer
        Seconds that the producer runs, which hide all but the last chunk where the policy lets them.
    """
    p, q = np.asarray(source), np.asarray(target)
    amount, made = np.asarray(size, dtype=float), np.asarray(producer, dtype=float)
    latency, rate = instances.latency[p, q], instances.seconds_per_byte[p, q]
    seconds = latency + amount * rate
    if config is not None and config.overlap_compute:
        chunks = np.maximum(1.0, np.ceil(amount / config.chunk_size))
        least = latency + np.minimum(config.chunk_size, amount) * rate
        seconds = np.maximum(seconds - made * (chunks - 1.0) / chunks, least)
    return np.where(p == q, 0.0, seconds)
