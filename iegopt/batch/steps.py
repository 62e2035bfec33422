"""A decode step of a batch B on a kind of instance: max( A₀ + Σ a_i , B₀ + Σ b_i ) seconds (continuous batching).

=========  =================================  =======================================
roofline   A₀ = 0                             a = 2·active·sequences / Cap_C
           B₀ = weights / Cap_B               b = KV bytes of its sequences / Cap_B
fit        both rows are the fit's            fixed + sync·log₂k + weights; per sequence and KV
table      the roofline's rows, both scaled by measured / roofline at batch 1 and the middle of the measured lengths
=========  =================================  =======================================

The KV bytes are the mean over the decode's life. A mixture of experts is taken to read all its weights: a batch of
more than a few sequences does, and a sum cannot say how many fewer a smaller one reads, so that a small batch errs on
the slow side.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from iegopt.batch.kinds import InstanceKind
from iegopt.cost.demand import weights_read
from iegopt.cost.profile import Measured

__all__ = ["mean_kv_tokens", "step_base", "step_parts"]

Floats = npt.NDArray[np.float64]


def mean_kv_tokens(held: npt.ArrayLike, output: npt.ArrayLike) -> Floats:
    """Tokens of KV cache of a sequence that holds ``held`` and decodes ``output``, on average over its steps."""
    return np.asarray(held, dtype=float) + np.maximum(0.0, np.asarray(output, dtype=float) - 1.0) / 2


def step_base(kinds: Sequence[InstanceKind]) -> tuple[Floats, Floats]:
    """A₀ and B₀, (K,) seconds."""
    rows = [_coefficients(kind) for kind in kinds]
    return np.array([row[0] for row in rows]), np.array([row[1] for row in rows])


def step_parts(kinds: Sequence[InstanceKind], sequences: npt.ArrayLike, kv_tokens: Floats) -> tuple[Floats, Floats]:
    """a and b, (N, K) seconds that each decode adds to a step of each kind.

    Parameters
    ----------
    sequences, kv_tokens (N,)
        Of every decode; the tokens per sequence, ``mean_kv_tokens``.
    """
    rows = np.array([_coefficients(kind)[2:] for kind in kinds]).reshape(len(kinds), 4)
    count = np.asarray(sequences, dtype=float)
    held = count * kv_tokens
    a = count[:, None] * rows[None, :, 0] + held[:, None] * rows[None, :, 1]
    b = count[:, None] * rows[None, :, 2] + held[:, None] * rows[None, :, 3]
    return a, b


def _coefficients(kind: InstanceKind) -> tuple[float, float, float, float, float, float]:
    """A₀, B₀; of the compute row, then of the reading row: seconds per sequence, and per token of KV cache."""
    per_token = kind.card.kv_bytes_per_token()
    weights = kind.card.parameters * kind.precision.bytes
    measured = kind.decode
    fit = measured.measurement.decode if measured is not None else None
    if measured is not None and fit is not None:
        read = kind.size * measured.profile.peak_bandwidth
        base = fit.fixed + fit.sync * math.log2(kind.size) + fit.weights * weights / read
        sequence, token = fit.per_sequence, fit.kv * per_token / read
        return base, base, sequence, token, sequence, token
    flop, byte = 1.0 / kind.gang.flops, 1.0 / kind.gang.bandwidth
    scale = 1.0 / kind.efficiency if measured is None else _scale(kind, measured)
    return 0.0, weights * byte * scale, 2.0 * kind.card.active * flop * scale, 0.0, 0.0, per_token * byte * scale


def _scale(kind: InstanceKind, measured: Measured) -> float:
    """Measured over roofline at batch 1."""
    lengths = sorted({point.tokens for point in measured.measurement.points})
    length = lengths[len(lengths) // 2]

    def roofline(batch: float, tokens: float) -> float:
        moved = weights_read(kind.card, kind.precision, round(batch)) + kind.card.kv_bytes_per_token() * batch * tokens
        return max(2.0 * kind.card.active * batch / kind.gang.flops, moved / kind.gang.bandwidth)

    return measured.at(1, length, roofline) / roofline(1, length)
