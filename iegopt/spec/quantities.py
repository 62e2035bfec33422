"""Pydantic types of the quantities in ``iegopt.units``; values are kept in base units.

===============  ==========  =======================
type             kept in     written as
===============  ==========  =======================
``Bytes``        byte        ``40GB``, ``16GiB``
``Bandwidth``    byte/s      ``2TB/s``, ``100Gbps``
``Seconds``      s           ``200ms``
``Flop``         FLOP        ``120T``
``FlopRate``     FLOP/s      ``312T``
``Count``        1           ``70B``, ``4096``
``Fraction``     1           ``45%``, ``0.45``
``Ratio``        1           ``150%``
``DollarsPerHour``  $/h      ``2.50$/h``
===============  ==========  =======================

A document must write the unit; Python code may pass a number in base units.
"""

from __future__ import annotations

from functools import partial
from typing import Annotated, Any

from pydantic import BeforeValidator, Field, PlainSerializer, ValidationInfo, WithJsonSchema

from iegopt import units

__all__ = [
    "Bandwidth",
    "Bytes",
    "Count",
    "DollarsPerHour",
    "Flop",
    "FlopRate",
    "Fraction",
    "PositiveBandwidth",
    "PositiveBytes",
    "PositiveFraction",
    "PositiveInt",
    "Ratio",
    "Seconds",
    "SmallInt",
]


def _schema(dimension: units.Dimension) -> dict[str, Any]:
    return {
        "anyOf": [{"type": "string"}, {"type": "number", "minimum": 0}],
        "description": f"{dimension.name}, such as {dimension.example}",
    }


def _read(value: object, info: ValidationInfo, *, dimension: units.Dimension) -> float | int:
    """Text is read by ``units.parse``. A bare number is in base units where Python code wrote it,
    and needs a unit where a document did (validation context ``{"document": True}``)."""
    from_document = bool(info.context and info.context.get("document"))
    if isinstance(value, str) or from_document:
        return units.parse(value, dimension)
    return units.check(value, dimension)


def _write(value: float, *, dimension: units.Dimension) -> str | int:
    text = units.render(value, dimension)
    return int(text) if text.isdigit() else text


def _annotations(dimension: units.Dimension) -> tuple[Any, ...]:
    return (
        BeforeValidator(partial(_read, dimension=dimension)),
        PlainSerializer(partial(_write, dimension=dimension), return_type=str | int, when_used="json"),
        WithJsonSchema(_schema(dimension)),
    )


Bytes = Annotated[int, *_annotations(units.BYTES)]
Bandwidth = Annotated[float, *_annotations(units.BANDWIDTH)]
Seconds = Annotated[float, *_annotations(units.SECONDS)]
Flop = Annotated[float, *_annotations(units.FLOP)]
FlopRate = Annotated[float, *_annotations(units.FLOP_RATE)]
Count = Annotated[int, *_annotations(units.COUNT)]
Fraction = Annotated[float, *_annotations(units.FRACTION)]
Ratio = Annotated[float, *_annotations(units.RATIO)]
DollarsPerHour = Annotated[float, *_annotations(units.DOLLARS_PER_HOUR)]

PositiveBytes = Annotated[int, Field(gt=0), *_annotations(units.BYTES)]
PositiveBandwidth = Annotated[float, Field(gt=0), *_annotations(units.BANDWIDTH)]
PositiveFraction = Annotated[float, Field(gt=0), *_annotations(units.FRACTION)]
PositiveInt = Annotated[int, Field(strict=True, ge=1, le=10**9)]
SmallInt = Annotated[int, Field(strict=True, ge=0, le=10**9)]
