"""Measured profiles in the roofline's place: lookup, interpolation, fitted coefficients.

A table is interpolated multilinearly in the logarithms of batch, tokens and seconds. Outside the measured range the
roofline is scaled by measured/roofline at the nearest measured point. Fitted coefficients hold everywhere.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from iegopt.cost.demand import Demand
from iegopt.spec.profile import DecodeFit, Measurement, PrefillFit, Profile
from iegopt.spec.stage import SIXTEEN_BIT, Precision, StageKind, TokenWork

__all__ = ["Measured", "Profiles", "Roofline", "decode_fit_seconds", "interpolate", "prefill_fit_seconds"]

Roofline = Callable[[float, float], float]
"""Roofline seconds at (batch, tokens), in the meaning of ``ProfilePoint``."""


@dataclass(frozen=True)
class Measured:
    """A measurement, with the profile it stands in."""

    profile: Profile
    measurement: Measurement

    def seconds(self, tokens: TokenWork, demand: Demand, degree: int, roofline: Roofline, own: float) -> float:
        """Seconds of a stage, its fixed time left out.

        Parameters
        ----------
        tokens
            Of the stage; a decode's are read from ``demand.decode``, which knows whom it shares a batch with.
        degree
            Devices of the gang.
        roofline
            Scales a table outside its range.
        own
            Roofline seconds of the demand itself: scales a prefill table for a context held already.
        """
        fit = self.measurement
        if fit.prefill is not None:
            return prefill_fit_seconds(fit.prefill, demand, tokens.new * tokens.batch, degree, self.profile)
        work = demand.decode
        if fit.decode is not None:
            return decode_fit_seconds(fit.decode, demand, degree, self.profile)
        if work is None:
            measured = self.at(tokens.batch, max(1, tokens.new), roofline)
            return measured * own / roofline(tokens.batch, max(1, tokens.new)) if tokens.context else measured
        # A step is all but affine in the KV length, so the middle one stands for the mean.
        middle = work.kv_start / work.kv_growth + (work.steps - 1) / 2
        return work.steps * self.at(work.batch, max(1.0, middle), roofline)

    def at(self, batch: float, tokens: float, roofline: Roofline) -> float:
        """The table at one point: interpolated inside, the scaled roofline outside."""
        grid = {(float(p.batch), float(p.tokens)): p.seconds for p in self.measurement.points}
        batches, lengths = sorted({b for b, _ in grid}), sorted({n for _, n in grid})
        nearest = _clamp(batch, batches), _clamp(tokens, lengths)
        measured = interpolate(grid, batches, lengths, *nearest)
        if nearest == (batch, tokens):
            return measured
        return roofline(batch, tokens) * measured / roofline(*nearest)


class Profiles:
    """Profiles by stage kind, model, precision, device model and tensor-parallel degree.

    Raises
    ------
    ValueError
        Where two measurements claim the same key.
    """

    def __init__(self, profiles: Iterable[Profile] = ()) -> None:
        self._by_key: dict[tuple[StageKind, str, Precision, str, int], Measured] = {}
        for profile in profiles:
            for measurement in profile.measurements:
                for degree in measurement.degrees:
                    key = (measurement.kind, profile.model, profile.precision, profile.device, degree)
                    if key in self._by_key:
                        other = self._by_key[key].profile.name
                        raise ValueError(f"profiles {other} and {profile.name} both measure {', '.join(map(str, key))}")
                    self._by_key[key] = Measured(profile, measurement)

    def lookup(self, kind: StageKind, model: str, precision: Precision, device: str, degree: int) -> Measured | None:
        """The measurement of a key (card names), else ``None``.

        fp16 and bf16 stand for each other (same bytes, same rate on every card), and a prefill's measurement
        for a re-prefill without its own.
        """
        like = (precision, *sorted(SIXTEEN_BIT - {precision})) if precision in SIXTEEN_BIT else (precision,)
        keys = ((kind, model, p, device, degree) for p in like)
        found = next((self._by_key[key] for key in keys if key in self._by_key), None)
        if found is None and kind is StageKind.RE_PREFILL:
            return self.lookup(StageKind.PREFILL, model, precision, device, degree)
        return found


def prefill_fit_seconds(fit: PrefillFit, demand: Demand, tokens: int, degree: int, peaks: Profile) -> float:
    """``PrefillFit`` for so many new tokens over the batch, on k = ``degree`` devices."""
    return (
        fit.fixed
        + fit.compute * demand.flops / (degree * peaks.peak_flops)
        + fit.per_token * tokens
        + fit.excess_token * max(0, tokens - fit.excess_from)
    )


def decode_fit_seconds(fit: DecodeFit, demand: Demand, degree: int, peaks: Profile) -> float:
    """``DecodeFit`` summed over the steps of a decode, whose KV cache grows."""
    work = demand.decode
    if work is None:
        raise ValueError("decode coefficients are for a demand with decode steps")
    each = fit.fixed + fit.sync * math.log2(degree) + fit.per_sequence * work.batch
    moved = fit.weights * work.weights + fit.kv * work.kv
    return work.steps * each + moved / (degree * peaks.peak_bandwidth)


def interpolate(grid: dict[tuple[float, float], float], xs: list[float], ys: list[float], x: float, y: float) -> float:
    """Bilinear in (log x, log y, log value) on a full grid over sorted ``xs`` and ``ys``, for a point inside it."""
    (x0, x1, u), (y0, y1, v) = _cell(x, xs), _cell(y, ys)
    logs = (
        (1 - u) * (1 - v) * math.log(grid[x0, y0])
        + u * (1 - v) * math.log(grid[x1, y0])
        + (1 - u) * v * math.log(grid[x0, y1])
        + u * v * math.log(grid[x1, y1])
    )
    return math.exp(logs)


def _cell(x: float, xs: list[float]) -> tuple[float, float, float]:
    """The two grid values around x, and x's place between them on the logarithmic axis."""
    right = bisect_right(xs, x)
    low, high = xs[right - 1], xs[min(right, len(xs) - 1)]
    return low, high, 0.0 if low == high else math.log(x / low) / math.log(high / low)


def _clamp(x: float, xs: list[float]) -> float:
    return min(max(x, xs[0]), xs[-1])
