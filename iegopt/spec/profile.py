"""Measured profiles: what a stage kind of one model takes on one device model (section 6.6.2 of the source)."""

from __future__ import annotations

from itertools import product
from typing import Self

from pydantic import Field, model_validator

from iegopt.spec.base import Name, Spec
from iegopt.spec.quantities import FlopRate, Fraction, PositiveBandwidth, PositiveInt, Seconds, SmallInt
from iegopt.spec.stage import Precision, StageKind

__all__ = ["DecodeFit", "HeldOut", "Measurement", "PrefillFit", "Profile", "ProfilePoint"]

_MEASURED = frozenset(
    {StageKind.PREFILL, StageKind.RE_PREFILL, StageKind.DECODE, StageKind.EMBEDDING, StageKind.RERANK}
)


class ProfilePoint(Spec):
    """One measurement. ``tokens`` per sequence are prefilled, or for a decode held as KV cache; ``seconds`` are of the
    whole pass, or for a decode of one step."""

    batch: PositiveInt
    tokens: PositiveInt
    seconds: Seconds = Field(gt=0)


class PrefillFit(Spec):
    """seconds = fixed + compute·FLOP/(k·peak) + per_token·t + excess_token·max(0, t − excess_from), t tokens in all.

    ``compute`` is 1 at the data sheet's rate; ``per_token`` is what k devices do not share (communication); beyond
    ``excess_from`` tokens in one pass each further one costs ``excess_token`` more.
    """

    fixed: Seconds
    compute: float = Field(ge=0)
    per_token: Seconds = 0.0
    excess_from: SmallInt = 0
    excess_token: Seconds = 0.0


class DecodeFit(Spec):
    """seconds of a step = fixed + sync·log₂k + weights·W/(k·bandwidth) + kv·KV/(k·bandwidth) + per_sequence·batch.

    ``weights`` and ``kv`` are 1 at the data sheet's bandwidth; ``sync`` is a step's collectives, per doubling of k.
    """

    fixed: Seconds
    sync: Seconds = 0.0
    weights: float = Field(ge=0)
    kv: float = Field(default=0.0, ge=0)
    per_sequence: Seconds = 0.0


class HeldOut(Spec):
    """Relative error on configurations that the fit has not seen."""

    configurations: PositiveInt
    median: Fraction
    p90: Fraction


class Measurement(Spec):
    """One stage kind at some tensor-parallel degrees: a full grid of points (of one degree), or fitted coefficients.

    A prefill serves re-prefills too, where those have no measurement of their own.
    """

    kind: StageKind
    degrees: tuple[PositiveInt, ...] = Field(min_length=1)
    points: tuple[ProfilePoint, ...] = ()
    prefill: PrefillFit | None = None
    decode: DecodeFit | None = None
    held_out: HeldOut | None = None

    @model_validator(mode="after")
    def _one_form(self) -> Self:
        if self.kind not in _MEASURED:
            raise ValueError(f"kind {self.kind}: expected one of {', '.join(sorted(_MEASURED))}")
        if [bool(self.points), self.prefill is not None, self.decode is not None].count(True) != 1:
            raise ValueError("expected exactly one of points, prefill and decode")
        if self.prefill is not None and self.kind is StageKind.DECODE:
            raise ValueError("kind decode goes with decode coefficients, not prefill")
        if self.decode is not None and self.kind is not StageKind.DECODE:
            raise ValueError(f"kind {self.kind} goes with prefill coefficients, not decode")
        return self

    @model_validator(mode="after")
    def _full_grid(self) -> Self:
        if self.points and len(self.degrees) != 1:
            raise ValueError("points are measured at one degree: one measurement for each")
        measured = [(p.batch, p.tokens) for p in self.points]
        missing = set(product({b for b, _ in measured}, {n for _, n in measured})) - set(measured)
        if missing:
            batch, tokens = min(missing)
            raise ValueError(f"points leave out batch {batch}, tokens {tokens}: expected a full grid")
        if len(set(measured)) != len(measured):
            raise ValueError("a point (batch, tokens) stands twice")
        return self


class Profile(Spec):
    """All measurements of a model, precision and device model (card names).

    ``peak_flops`` and ``peak_bandwidth`` are the rates of one device that fitted coefficients refer to.
    """

    name: Name
    model: Name
    precision: Precision
    device: Name
    peak_flops: FlopRate = Field(gt=0)
    peak_bandwidth: PositiveBandwidth
    measurements: tuple[Measurement, ...] = Field(min_length=1)
    notes: str = ""
    sources: dict[Name, str] = Field(min_length=1)
