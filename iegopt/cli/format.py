"""Quantities as a person reads them: three digits and a fitting unit.

These lose digits on purpose; ``iegopt.units.render`` is the exact one, for documents.
"""

from __future__ import annotations

from collections.abc import Iterable

__all__ = ["NONE", "count", "data", "dollars", "percent", "plain", "quantity", "rate", "seconds", "sentence_list"]

NONE = "–"
"""Stands where there is no value."""

_SECONDS = ((3600.0, "h"), (120.0, "min"), (1.0, "s"), (1e-3, "ms"), (1e-6, "µs"), (1e-9, "ns"))
_DIVISOR = {"min": 60.0}
_PREFIXES = ((1e18, "E"), (1e15, "P"), (1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k"), (1.0, ""))


def seconds(value: float | None) -> str:
    """A time or a cost in seconds: ``1.23 s``, ``45 ms``, ``12 µs``; two minutes and more as ``2.5 min``."""
    if value is None:
        return NONE
    rounded = _round(value)
    if rounded == 0:
        return "0 s"
    for least, unit in _SECONDS:
        if abs(rounded) >= least:
            return f"{_digits(rounded / _DIVISOR.get(unit, least))} {unit}"
    return f"{rounded / 1e-9:.2g} ns"


def data(value: float | None) -> str:
    """An amount of memory in SI units: ``1.34 GB``."""
    return NONE if value is None else _prefixed(value, "B")


def rate(value: float | None, unit: str = "B/s") -> str:
    """A rate in SI units: ``900 GB/s``, ``312 TFLOP/s``."""
    return NONE if value is None else _prefixed(value, unit)


def count(value: float | None) -> str:
    """A large count: ``70.6 B`` parameters, ``131,072`` tokens below a million."""
    if value is None:
        return NONE
    if abs(value) < 1e6:
        return f"{value:,.0f}"
    factor, letter = next((f, u) for f, u in ((1e12, "T"), (1e9, "B"), (1e6, "M")) if abs(_round(value)) >= f)
    return f"{_digits(_round(value) / factor)} {letter}"


def dollars(value: float | None) -> str:
    """Money: cents from a dollar on, three digits below, ``$1.2e-08`` far below."""
    if value is None:
        return NONE
    if value == 0:
        return "$0"
    if abs(value) >= 1:
        return f"${value:,.2f}"
    if abs(value) < 1e-6:
        return f"${value:.2g}"
    return f"${value:.{_places(value)}f}"


def percent(fraction: float | None) -> str:
    """A share or a gap: ``0 %``, ``2.31 %``, and ``< 0.0001 %`` where it is not quite nothing."""
    if fraction is None:
        return NONE
    if fraction != 0 and abs(fraction) < 1e-6:
        return "< 0.0001 %"
    return "∞" if fraction == float("inf") else f"{_digits(_round(100 * fraction))} %"


def quantity(value: object, unit: str | None) -> str:
    """A number of an explanation in the unit it names, ``B`` or ``s``; words as they are."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return NONE if value is None else plain(str(value))
    if unit == "s":
        return seconds(value)
    return data(value) if unit == "B" else f"{value:.6g}{f' {unit}' if unit else ''}"


def plain(text: str) -> str:
    """A text from a document, in one printable line: no escape sequence ever reaches a terminal."""
    return text if text.isprintable() else text.encode("unicode_escape").decode("ascii")


def sentence_list(words: Iterable[str], limit: int = 4) -> str:
    """``a, b and c``; beyond the limit ``a, b, c and 5 more``."""
    items = list(words)
    if len(items) > limit:
        items = [*items[: limit - 1], f"{len(items) - limit + 1} more"]
    return " and ".join(filter(None, (", ".join(items[:-1]), *items[-1:])))


def _round(value: float) -> float:
    return float(f"{value:.3g}")


def _digits(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.3g}"


def _prefixed(value: float, unit: str) -> str:
    rounded = _round(value)
    if rounded == 0:
        return f"0 {unit}"
    for factor, prefix in _PREFIXES:
        if abs(rounded) >= factor:
            return f"{_digits(rounded / factor)} {prefix}{unit}"
    return f"{rounded:.3g} {unit}"


def _places(value: float) -> int:
    """Decimal places that show three digits of a number below 1."""
    return 2 - int(f"{value:.2e}".partition("e")[2])
