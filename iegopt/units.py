"""Quantities as people write them: ``40GB``, ``200ms``, ``2TB/s``, ``100Gbps``, ``45%``, ``120T``.

SI and binary prefixes are kept apart (GB is 10**9 bytes, GiB is 2**30), and so are bits and
bytes (Gb is 10**9 bits). A number without a unit is refused wherever a unit decides its size,
because a silent guess of a factor of 10**9 is the worst kind of default.

``parse`` and ``render`` are inverse: ``parse(render(x, d), d) == x`` for every value in range.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Mapping
from dataclasses import dataclass
from decimal import Decimal

__all__ = [
    "BANDWIDTH",
    "BYTES",
    "COUNT",
    "DOLLARS_PER_HOUR",
    "FLOP",
    "FLOP_RATE",
    "FRACTION",
    "RATIO",
    "SECONDS",
    "Dimension",
    "a_kind",
    "check",
    "parse",
    "render",
    "shown",
]

_NUMBER = re.compile(r"\s*([-+]?(?:\d[\d_]*\.?\d*|\.\d+)(?:[eE][-+]?\d+)?)\s*(.*?)\s*\Z", re.DOTALL)
_SI = {"": 0, "K": 3, "M": 6, "G": 9, "T": 12, "P": 15, "E": 18}
_SHOWN = 60
_LONGEST = 200


@dataclass(frozen=True)
class Dimension:
    """A physical dimension: its units, the unit it is kept in, and the range that makes sense.

    ``units`` maps a spelling to its factor in base units; the first spelling of a factor is the
    one that ``render`` writes. ``bare`` says whether a number without a unit is accepted.
    """

    name: str
    example: str
    units: Mapping[str, Decimal]
    largest: Decimal
    whole: bool = False
    bare: bool = False


def _powers(spellings: list[tuple[str, int]], base: int = 10) -> dict[str, Decimal]:
    return {unit: Decimal(base) ** power for unit, power in spellings}


def _byte_units(suffix: str = "") -> dict[str, Decimal]:
    # Largest first: render keeps the first of two equally short ones, 3.35TB/s before 3350GB/s.
    si = [("PB", 15), ("TB", 12), ("GB", 9), ("MB", 6), ("KB", 3), ("kB", 3), ("B", 0)]
    binary = [("PiB", 50), ("TiB", 40), ("GiB", 30), ("MiB", 20), ("KiB", 10)]
    both = {**_powers(si), **_powers(binary, 2)}
    return {unit + suffix: factor for unit, factor in both.items()}


def _bit_rates() -> dict[str, Decimal]:
    rates = {}
    for prefix, power in (("K", 3), ("k", 3), ("M", 6), ("G", 9), ("T", 12)):
        for tail in ("bps", "bit/s", "b/s"):
            rates[prefix + tail] = Decimal(10) ** power / 8
    return rates


def _si_units(*tails: str) -> dict[str, Decimal]:
    return {p + tail: Decimal(10) ** power for tail in ("", *tails) for p, power in _SI.items()}


BYTES = Dimension("an amount of memory", "40GB", _byte_units(), Decimal(10) ** 18, whole=True)
BANDWIDTH = Dimension("a bandwidth", "2TB/s or 100Gbps", {**_byte_units("/s"), **_bit_rates()}, Decimal(10) ** 18)
SECONDS = Dimension(
    "a time",
    "200ms",
    {
        **_powers([("s", 0), ("ms", -3), ("us", -6), ("µs", -6), ("μs", -6), ("ns", -9)]),
        "min": Decimal(60),
        "h": Decimal(3600),
    },
    Decimal(10) ** 8,
)
FLOP = Dimension("a number of operations", "120T", _si_units("FLOP", "FLOPs"), Decimal(10) ** 27, bare=True)
FLOP_RATE = Dimension(
    "operations per second",
    "312T",
    _si_units("FLOPS", "FLOP/s", "OPS", "OP/s"),
    Decimal(10) ** 21,
    bare=True,
)
COUNT = Dimension(
    "a count", "70B", _powers([("", 0), ("K", 3), ("M", 6), ("B", 9), ("T", 12)]),
    Decimal(10) ** 15, whole=True, bare=True,
)  # fmt: skip
FRACTION = Dimension("a fraction from 0 to 1", "45%", {"": Decimal(1), "%": Decimal("0.01")}, Decimal(1), bare=True)
RATIO = Dimension("a ratio", "50%", {"%": Decimal("0.01")}, Decimal(1000))
DOLLARS_PER_HOUR = Dimension(
    "a price per hour",
    "2.50$/h",
    {"$/h": Decimal(1), "": Decimal(1), "USD/h": Decimal(1)},
    Decimal(10) ** 6,
    bare=True,
)


def parse(value: object, dimension: Dimension) -> float | int:
    """Read a quantity; the result is in base units (byte, byte/s, s, FLOP, 1, $/h).

    Raises
    ------
    ValueError
        With the value, what was expected and, where one suggests itself, a guess.
    """
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        raise ValueError(f"{shown(value)}: expected {dimension.name} such as {dimension.example}")
    text = str(value)
    if len(text) > _LONGEST:
        raise ValueError(f"{shown(text)}: expected {dimension.name} such as {dimension.example}")
    match = _NUMBER.match(text.replace("$", "", 1) if text.lstrip().startswith("$") else text)
    if match is None:
        raise ValueError(f"{shown(value)}: expected {dimension.name} such as {dimension.example}")
    digits, unit = match.groups()
    if dimension is DOLLARS_PER_HOUR and unit == "/h":
        unit = "$/h"
    try:
        number = Decimal(digits.replace("_", ""))
        if unit == "" and number == 0:
            return 0 if dimension.whole else 0.0
        if unit not in dimension.units or (unit == "" and not dimension.bare):
            raise ValueError(_wrong_unit(shown(value), digits, unit, dimension))
        number *= dimension.units[unit]
    except ArithmeticError:
        raise ValueError(f"{shown(value)}: the number is out of range") from None
    return _in_range(shown(value), digits, unit, number, dimension)


def check(value: object, dimension: Dimension) -> float | int:
    """A number that is already in base units, checked for range.

    Raises
    ------
    ValueError
        As ``parse``.
    """
    if isinstance(value, bool) or not isinstance(value, int | float) or value != value:
        raise ValueError(f"{shown(value)}: expected {dimension.name} such as {dimension.example}")
    if value in (float("inf"), float("-inf")):
        raise ValueError(f"{shown(value)}: the number is out of range")
    number = Decimal(value) if isinstance(value, int) else Decimal(repr(float(value)))
    return _in_range(shown(value), repr(value), "", number, dimension)


def render(value: float, dimension: Dimension) -> str:
    """Write a quantity exactly, in the unit that needs the fewest digits without going below 1.

    >>> render(40_000_000_000, BYTES), render(0.2, SECONDS), render(1.25e10, BANDWIDTH)
    ('40GB', '200ms', '100Gbps')
    """
    exact = Decimal(value) if isinstance(value, int) else Decimal(repr(float(value)))
    best, rank = repr(value), (True, 10**6)
    for unit, factor in dimension.units.items():
        number = exact / factor
        digits = _plain(number)
        below_one = number < 1 and (number > 0 or factor != 1)
        if (below_one, len(digits)) < rank and _reads_back(digits + unit, value, dimension):
            best, rank = digits + unit, (below_one, len(digits))
    return best


def _reads_back(text: str, value: float, dimension: Dimension) -> bool:
    try:
        return parse(text, dimension) == value
    except ValueError:
        return False


def _plain(number: Decimal) -> str:
    text = format(number.normalize(), "f")
    return text if len(text) <= 24 else format(number.normalize(), "e")


def _in_range(text: str, digits: str, unit: str, number: Decimal, dimension: Dimension) -> float | int:
    if number < 0:
        raise ValueError(f"{text}: expected {dimension.name}, and it cannot be negative")
    if number > dimension.largest:
        if dimension is FRACTION and unit == "" and number <= 100:
            raise ValueError(f"{text}: expected a fraction from 0 to 1. Maybe {digits}%?")
        limit = _plain(dimension.largest)
        raise ValueError(f"{text}: absurdly large, {dimension.name} ends at {limit} {_base(dimension)}".rstrip())
    if not dimension.whole:
        return float(number)
    if number != number.to_integral_value():
        raise ValueError(f"{text}: expected a whole number of {_base(dimension) or 'things'}")
    return int(number)


def _base(dimension: Dimension) -> str:
    return next((unit for unit, f in dimension.units.items() if f == 1 and unit), "").strip()


def _wrong_unit(text: str, digits: str, unit: str, dimension: Dimension) -> str:
    guess = _guess(unit, dimension)
    tail = f" Maybe {digits}{guess}?" if guess else f" Expected {dimension.name} such as {dimension.example}."
    if unit == "" or unit in _SI:
        return f"{text}: no unit.{tail}"
    return f"{text}: unknown unit {shown(unit)} for {dimension.name}.{tail}"


_DEFAULT_UNIT = {BYTES.name: "GB", BANDWIDTH.name: "GB/s", SECONDS.name: "ms", RATIO.name: "%"}


def _guess(unit: str, dimension: Dimension) -> str:
    """The unit the writer probably meant; empty where nothing suggests itself."""
    known = [u for u in dimension.units if u]
    if unit == "":
        return _DEFAULT_UNIT.get(dimension.name, "")
    for tail in ("B", "B/s", "/s", "s"):
        if unit + tail in known:
            return unit + tail
    folded = [u for u in known if u.lower() == unit.lower()]
    if folded:
        return folded[0]
    close = difflib.get_close_matches(unit, known, n=1, cutoff=0.5)
    return close[0] if close else ""


def a_kind(kind: type) -> str:
    """A type's name with its article."""
    return f"{'an' if kind.__name__[0].lower() in 'aeio' else 'a'} {kind.__name__}"


def shown(value: object) -> str:
    """A value as a message shows it: in the words of a document, one printable line, at most 60 characters."""
    if isinstance(value, Mapping):
        return "a mapping"
    if isinstance(value, list | tuple | set):
        return "a list"
    if value is None or value == "":
        return "nothing"
    text = value if isinstance(value, str) else str(value).lower() if isinstance(value, bool) else repr(value)
    text = text[: _SHOWN + 1]
    text = text if text.isprintable() else text.encode("unicode_escape").decode("ascii")
    return text if len(text) <= _SHOWN else text[: _SHOWN - 1] + "…"
