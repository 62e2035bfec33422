"""Quantities: reading, writing, and what is said of the wrong ones."""

from __future__ import annotations

import re
from decimal import Decimal

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from iegopt import units
from iegopt.units import (
    BANDWIDTH,
    BYTES,
    COUNT,
    DOLLARS_PER_HOUR,
    FLOP,
    FLOP_RATE,
    FRACTION,
    SECONDS,
    Dimension,
    check,
    parse,
    render,
)

DIMENSIONS = [BYTES, BANDWIDTH, SECONDS, FLOP, FLOP_RATE, COUNT, FRACTION, DOLLARS_PER_HOUR]
by_name = pytest.mark.parametrize("dimension", DIMENSIONS, ids=lambda d: d.name)


def values(dimension: Dimension) -> st.SearchStrategy[float]:
    if dimension.whole:
        return st.integers(0, int(dimension.largest))
    return st.floats(0, float(dimension.largest), allow_nan=False)


@by_name
@given(data=st.data())
def test_what_is_written_reads_back_exactly(dimension: Dimension, data: st.DataObject) -> None:
    value = data.draw(values(dimension))
    assert parse(render(value, dimension), dimension) == value


@by_name
@given(data=st.data())
def test_a_short_number_in_a_unit_is_written_no_longer(dimension: Dimension, data: st.DataObject) -> None:
    # Above 2^53 a float's own shortest decimal need not be short in any other unit.
    limit = dimension.largest if dimension.whole else min(dimension.largest, Decimal(2**53))
    unit = data.draw(st.sampled_from([unit for unit, factor in dimension.units.items() if factor <= limit]))
    digits = data.draw(st.integers(1, min(999, int(limit / dimension.units[unit]))))
    written = render(parse(f"{digits}{unit}", dimension) if unit or dimension.bare else digits, dimension)
    number = re.match(r"[0-9.]+", written)
    assert number is not None
    assert len(number.group()) <= len(str(digits))


@by_name
@given(text=st.text() | st.from_regex(r"\A[-+]?[0-9_.]{1,30}([eE][-+]?[0-9]{1,25})?[ A-Za-z/%$]{0,6}\Z"))
def test_any_text_is_read_in_range_or_refused_in_one_line(dimension: Dimension, text: str) -> None:
    message = ""
    value: float = 0 if dimension.whole else 0.0
    try:
        value = parse(text, dimension)
    except ValueError as error:
        message = str(error)
    assert not message or message.isprintable()
    assert len(message) < 250
    assert 0 <= value <= dimension.largest
    assert isinstance(value, int) == dimension.whole


@given(st.integers(0, 10**5))
def test_si_and_binary_are_kept_apart(n: int) -> None:
    assert parse(f"{n}GB", BYTES) == n * 10**9
    assert parse(f"{n}GiB", BYTES) == n * 2**30
    assert parse(f"{n}KB", BYTES) == parse(f"{n}kB", BYTES) == n * 1000
    assert parse(f"{n}KiB", BYTES) == n * 1024


@given(st.integers(0, 10**5))
def test_a_byte_has_eight_bits(n: int) -> None:
    assert parse(f"{8 * n}Gbps", BANDWIDTH) == parse(f"{n}GB/s", BANDWIDTH) == n * 1e9
    assert parse(f"{n}Gbps", BANDWIDTH) == parse(f"{n}Gbit/s", BANDWIDTH) == parse(f"{n}Gb/s", BANDWIDTH)


@pytest.mark.parametrize(
    ("text", "dimension", "value"),
    [
        ("120T", FLOP, 1.2e14), ("312TFLOPS", FLOP_RATE, 3.12e14), ("40 GB", BYTES, 40 * 10**9),
        ("200ms", SECONDS, 0.2), ("2TB/s", BANDWIDTH, 2e12), ("100Gbps", BANDWIDTH, 1.25e10), ("45%", FRACTION, 0.45),
        (0.45, FRACTION, 0.45), ("70B", COUNT, 70 * 10**9), (32768, COUNT, 32768), ("1.5KB", BYTES, 1500),
        ("2.50$/h", DOLLARS_PER_HOUR, 2.5), ("$2.50/h", DOLLARS_PER_HOUR, 2.5), (2.5, DOLLARS_PER_HOUR, 2.5),
        ("1_000MB", BYTES, 10**9), ("5us", SECONDS, 5e-6), ("5µs", SECONDS, 5e-6), ("1h", SECONDS, 3600.0),
        (0, BYTES, 0), ("0", SECONDS, 0.0), ("1e3MB", BYTES, 10**9),
    ],
)  # fmt: skip
def test_parse(text: object, dimension: Dimension, value: float) -> None:
    read = parse(text, dimension)
    assert read == value
    assert isinstance(read, int) == dimension.whole


@pytest.mark.parametrize(
    ("value", "dimension", "text"),
    [
        (0.2, SECONDS, "200ms"), (0.05, SECONDS, "50ms"), (1.5, SECONDS, "1.5s"), (30.0, SECONDS, "30s"),
        (120.0, SECONDS, "2min"), (5e-7, SECONDS, "500ns"), (0.0, SECONDS, "0s"), (1e-10, SECONDS, "0.1ns"),
        (40 * 10**9, BYTES, "40GB"), (16 * 2**30, BYTES, "16GiB"), (0, BYTES, "0B"), (999, BYTES, "999B"),
        (2e12, BANDWIDTH, "2TB/s"), (3.35e12, BANDWIDTH, "3.35TB/s"), (6e11, BANDWIDTH, "600GB/s"),
        (1.25e10, BANDWIDTH, "100Gbps"), (0.45, FRACTION, "45%"), (0.001, FRACTION, "0.1%"), (0.0, FRACTION, "0"),
        (1.2e14, FLOP, "120T"), (3.12e14, FLOP_RATE, "312T"), (70 * 10**9, COUNT, "70B"), (32768, COUNT, "32768"),
        (2.5, DOLLARS_PER_HOUR, "2.5$/h"),
    ],
)  # fmt: skip
def test_render(value: float, dimension: Dimension, text: str) -> None:
    assert render(value, dimension) == text


@pytest.mark.parametrize(
    ("text", "dimension", "message"),
    [
        ("40G", BYTES, "40G: no unit. Maybe 40GB?"),
        (40, BYTES, "40: no unit. Maybe 40GB?"),
        ("40gb", BYTES, "40gb: unknown unit gb for an amount of memory. Maybe 40GB?"),
        ("40GB/s", BYTES, "40GB/s: unknown unit GB/s for an amount of memory. Maybe 40GB?"),
        ("2TB", BANDWIDTH, "2TB: unknown unit TB for a bandwidth. Maybe 2TB/s?"),
        ("100gbps", BANDWIDTH, "100gbps: unknown unit gbps for a bandwidth. Maybe 100Gbps?"),
        (200, SECONDS, "200: no unit. Maybe 200ms?"),
        ("5 sec", SECONDS, "5 sec: unknown unit sec for a time. Maybe 5s?"),
        (45, FRACTION, "45: expected a fraction from 0 to 1. Maybe 45%?"),
        ("120%", FRACTION, "120%: absurdly large, a fraction from 0 to 1 ends at 1"),
        ("-1s", SECONDS, "-1s: expected a time, and it cannot be negative"),
        ("1.5B", BYTES, "1.5B: expected a whole number of B"),
        ("1e99999999999999999999GB", BYTES, "1e99999999999999999999GB: the number is out of range"),
        (True, BYTES, "true: expected an amount of memory such as 40GB"),
        (None, BYTES, "nothing: expected an amount of memory such as 40GB"),
        (float("nan"), SECONDS, "nan: expected a time such as 200ms"),
        ([1], SECONDS, "a list: expected a time such as 200ms"),
    ],
)
def test_a_wrong_quantity_is_refused_with_a_guess(text: object, dimension: Dimension, message: str) -> None:
    with pytest.raises(ValueError) as refusal:
        parse(text, dimension)
    assert str(refusal.value) == message


@by_name
def test_check_takes_base_units_and_nothing_absurd(dimension: Dimension) -> None:
    assert check(1, dimension) == 1
    assert check(np.float64(1.0), dimension) == 1
    for wrong in (-1, float("nan"), float("inf"), True, "1", int(dimension.largest) * 2):
        with pytest.raises(ValueError):
            check(wrong, dimension)


@given(st.text() | st.binary() | st.lists(st.integers()) | st.floats() | st.none())
def test_a_shown_value_is_one_short_printable_line(value: object) -> None:
    text = units.shown(value)
    assert 0 < len(text) <= 60
    assert text.isprintable()
