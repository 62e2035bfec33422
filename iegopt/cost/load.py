"""Load: how much longer a stage takes on a device that already has work (section 2 of the model).

    T = T0 · (1 + q·w)        q·w = ρ / (1 − ρ)  where only a utilisation ρ is known

ρ/(1 − ρ) is the mean number in an M/M/1 system (Kleinrock, Queueing Systems I, section 3.2): 1 + ρ/(1 − ρ) = 1/(1 − ρ).
"""

from __future__ import annotations

import math

from iegopt.spec.device import QueueState

__all__ = ["load_factor"]


def load_factor(queue: QueueState | None, utilization: float) -> float:
    """T/T0 on a device. A reported queue, even an empty one, wins over the utilisation.

    Returns
    -------
    float
        At least 1; infinite at utilisation 1, where the device is unusable.

    Raises
    ------
    ValueError
        For a utilisation outside 0 … 1.
    """
    if not 0.0 <= utilization <= 1.0:
        raise ValueError(f"utilization {utilization}: expected a fraction from 0 to 1")
    if queue is not None:
        return 1.0 + queue.depth * queue.wait
    return 1.0 / (1.0 - utilization) if utilization < 1.0 else math.inf
