"""P(i, k, r): seconds of a prefill on a kind of instance, r tokens of its prompt reused, for whole arrays of them.

The same figures as ``CostModel.stage_cost`` gives of a prefill, or of a re-prefill where r > 0: the roofline with
attention's own FLOP above ``ATTENTION_FROM`` tokens, fitted coefficients, or a table interpolated in logarithms.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from iegopt.batch.kinds import InstanceKind
from iegopt.cost.demand import ATTENTION_FROM
from iegopt.cost.profile import Measured

__all__ = ["PrefillCost"]

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]
Bools = npt.NDArray[np.bool_]


@dataclass(frozen=True, eq=False)
class _Table:
    """A full grid of measured seconds, as logarithms over sorted batches and tokens."""

    batches: Floats
    tokens: Floats
    logs: Floats

    @classmethod
    def of(cls, measured: Measured) -> _Table:
        points = measured.measurement.points
        batches, tokens = sorted({p.batch for p in points}), sorted({p.tokens for p in points})
        value = {(p.batch, p.tokens): p.seconds for p in points}
        logs = np.log([[value[b, n] for n in tokens] for b in batches])
        return cls(np.array(batches, dtype=float), np.array(tokens, dtype=float), logs)

    def nearest(self, batch: Floats, tokens: Floats) -> tuple[Floats, Floats]:
        return (
            np.clip(batch, self.batches[0], self.batches[-1]),
            np.clip(tokens, self.tokens[0], self.tokens[-1]),
        )

    def inside(self, batch: Floats, tokens: Floats) -> Floats:
        """Bilinear in the logarithms of all three, for points of the measured range."""
        (x0, x1, u), (y0, y1, v) = _cells(batch, self.batches), _cells(tokens, self.tokens)
        low = (1 - u) * self.logs[x0, y0] + u * self.logs[x1, y0]
        high = (1 - u) * self.logs[x0, y1] + u * self.logs[x1, y1]
        return np.asarray(np.exp((1 - v) * low + v * high))


@dataclass(frozen=True, eq=False)
class PrefillCost:
    """P of these requests on these kinds.

    Attributes
    ----------
    prompt, sequences (N,)
        Tokens of every sequence's prompt, and sequences.
    runs (N, K)
        Whether a request may run on a kind; its P is ∞ where not.
    rows
        Per kind, coefficients of the roofline (K,).
    fits
        The same of fitted coefficients, (2, K): prefill, re-prefill; ``fitted`` says where they hold.
    tables
        (0 prefill or 1 re-prefill, kind) -> the table in the roofline's place.
    """

    prompt: Ints
    sequences: Ints
    runs: Bools
    rows: dict[str, Floats]
    fits: dict[str, Floats]
    tables: dict[tuple[int, int], _Table]

    @classmethod
    def of(cls, kinds: Sequence[InstanceKind], prompt: Ints, sequences: Ints, runs: Bools) -> PrefillCost:
        """P for requests of ``prompt`` tokens; the arrays are kept, not copied."""
        rows = np.array([_roofline_row(kind) for kind in kinds]).reshape(len(kinds), len(_ROWS)).T
        measured = [[kind.prefill for kind in kinds], [kind.re_prefill for kind in kinds]]
        fits = np.array(
            [[_fit_row(m, kind) for m, kind in zip(row, kinds, strict=True)] for row in measured]
        ).reshape(2, len(kinds), len(_FITS))  # fmt: skip
        tables = {
            (kept, k): _Table.of(m)
            for kept, row in enumerate(measured)
            for k, m in enumerate(row)
            if m is not None and m.measurement.points
        }
        return cls(
            prompt, sequences, runs,
            dict(zip(_ROWS, rows, strict=True)), dict(zip(_FITS, np.moveaxis(fits, 2, 0), strict=True)), tables,
        )  # fmt: skip

    def seconds(self, request: npt.ArrayLike, kind: npt.ArrayLike, reused: npt.ArrayLike = 0) -> Floats:
        """Seconds of prefills, the arguments broadcast against each other.

        Parameters
        ----------
        request, kind
            Indices.
        reused
            Tokens of the prompt whose KV cache is there, less than the prompt.
        """
        i, k, held = np.broadcast_arrays(request, kind, reused)
        b, c = self.sequences[i].astype(float), held.astype(float)
        n, kept = self.prompt[i] - c, (held > 0).astype(np.int64)
        flops = self._flops(k, b, n, c)
        fits = {name: values[kept, k] for name, values in self.fits.items()}
        fitted = fits["fixed"] + fits["compute"] * flops + fits["token"] * n * b
        fitted += fits["excess"] * np.maximum(0.0, n * b - fits["excess_from"])
        rooflines = self._roofline(k, b, n, c, flops) / self.rows["efficiency"][k]
        found = np.where(fits["fitted"] > 0, fitted, rooflines)
        for (stage, at), table in self.tables.items():
            here = (k == at) & (kept == stage)
            if here.any():
                found[here] = self._tabled(table, at, b[here], n[here], c[here])
        return np.where(self.runs[i, k], found, np.inf)

    def one(self, request: int, kind: int, reused: int = 0) -> float:
        """Seconds of one prefill, as ``seconds`` gives them, in a microsecond: for trials one at a time."""
        kept = 1 if reused else 0
        if not self.runs[request, kind] or (kept, kind) in self.tables:
            return float(self.seconds(request, kind, reused))
        (prompt, sequences), row, fit = self._plain[0], self._plain[1][kind], self._plain[2][kept][kind]
        b, c = sequences[request], float(reused)
        n = prompt[request] - c
        flop, attention, weights, idle, kv, per_flop, per_byte, efficiency = row
        flops = flop * n * b
        if n + c > ATTENTION_FROM:
            flops += attention * (n * c + n * n / 2) * b
        fitted, fixed, compute, token, excess_from, excess = fit
        if fitted:
            return float(fixed + compute * flops + token * n * b + excess * max(0.0, n * b - excess_from))
        moved = weights * (1.0 - idle ** (n * b)) + kv * (c + n) * b
        return float(max(flops * per_flop, moved * per_byte) / efficiency)

    @cached_property
    def _plain(self) -> tuple[Any, Any, Any]:
        """Prompts and sequences, rows by kind, and fits by stage and kind, as lists of floats."""
        figures = self.prompt.astype(float).tolist(), self.sequences.astype(float).tolist()
        rows = np.array([self.rows[name] for name in _ROWS]).T.tolist()
        fits = np.moveaxis(np.array([self.fits[name] for name in _FITS]), 0, 2).tolist()
        return figures, rows, fits

    def _flops(self, k: Ints, b: Floats, n: Floats, c: Floats) -> Floats:
        attention = self.rows["attention"][k] * (n * c + n * n / 2) * b
        return np.asarray(self.rows["flop"][k] * n * b + np.where(n + c > ATTENTION_FROM, attention, 0.0))

    def _roofline(self, k: Ints, b: Floats, n: Floats, c: Floats, flops: Floats | None = None) -> Floats:
        """max(C/Cap_C, B/Cap_B) at efficiency 1."""
        compute = (self._flops(k, b, n, c) if flops is None else flops) * self.rows["per_flop"][k]
        read = self.rows["weights"][k] * (1.0 - self.rows["idle"][k] ** (n * b))
        moved = read + self.rows["kv"][k] * (c + n) * b
        return np.asarray(np.maximum(compute, moved * self.rows["per_byte"][k]))

    def _tabled(self, table: _Table, kind: int, b: Floats, n: Floats, c: Floats) -> Floats:
        """The table's seconds; outside its range, and for tokens held, the roofline scales them."""
        k, none = np.full(b.shape, kind), np.zeros_like(c)
        near_b, near_n = table.nearest(b, n)
        outside = (near_b != b) | (near_n != n)
        scale = self._roofline(k, b, n, none) / self._roofline(k, near_b, near_n, none)
        held = self._roofline(k, b, n, c) / self._roofline(k, b, n, none)
        return table.inside(near_b, near_n) * np.where(outside, scale, 1.0) * np.where(c > 0, held, 1.0)


_ROWS = ("flop", "attention", "weights", "idle", "kv", "per_flop", "per_byte", "efficiency")
_FITS = ("fitted", "fixed", "compute", "token", "excess_from", "excess")


def _roofline_row(kind: InstanceKind) -> tuple[float, ...]:
    card, gang = kind.card, kind.gang
    return (
        2.0 * card.active,
        4.0 * card.layers * card.hidden_size,
        card.parameters * kind.precision.bytes,
        1.0 - card.active / card.parameters,
        card.kv_bytes_per_token(),
        1.0 / gang.flops,
        1.0 / gang.bandwidth,
        kind.efficiency,
    )


def _fit_row(measured: Measured | None, kind: InstanceKind) -> tuple[float, ...]:
    fit = measured.measurement.prefill if measured is not None else None
    if measured is None or fit is None:
        return (0.0,) * len(_FITS)
    compute = fit.compute / (kind.size * measured.profile.peak_flops)
    return (1.0, fit.fixed, compute, fit.per_token, float(fit.excess_from), fit.excess_token)


def _cells(x: Floats, axis: Floats) -> tuple[Ints, Ints, Floats]:
    """The grid cells around x, and x's place in them on the logarithmic axis."""
    low = np.searchsorted(axis, x, side="right") - 1
    high = np.minimum(low + 1, len(axis) - 1)
    width = np.where(low == high, 1.0, np.log(axis[high] / axis[low]))
    return low, high, np.where(low == high, 0.0, np.log(x / axis[low]) / width)
