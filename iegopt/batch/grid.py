"""The few deadlines at which the work due on every instance is summed up."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from iegopt.batch.model import BatchModel

__all__ = ["deadline_grid"]

Floats = npt.NDArray[np.float64]

GRID = 15
"""Deadlines of all levels together."""


def deadline_grid(model: BatchModel) -> Floats:
    """Quantiles of the prefills' deadlines, level by level; those that lie in the past let no work in."""
    queue, wanted = model.queue, model.queue.prefill_by > 0.0
    if not wanted.any():
        return np.array([model.policy.window])
    late = queue.e2e - queue.output * model.paces[min(2, len(model.paces) - 1)]
    by = np.minimum(queue.prefill_by, np.maximum(late, 1e-3))
    levels = np.unique(queue.priority[wanted])
    parts = np.linspace(0.0, 1.0, max(3, GRID // len(levels)))
    found = [np.quantile(by[wanted & (queue.priority == level)], parts) for level in levels]
    return np.unique(np.append(np.concatenate(found), queue.prefill_by[wanted].max()))
