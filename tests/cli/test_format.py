import pytest

from iegopt.cli import format


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0, "0 s"), (1.23, "1.23 s"), (0.045, "45 ms"), (12e-6, "12 µs"), (0.9996, "1 s"), (999.6e-6, "1 ms"),
        (119.4, "119 s"), (150, "2.5 min"), (7200, "2 h"), (5e7, "13,889 h"), (3.874e-9, "3.87 ns"),
        (2e-10, "0.2 ns"), (-0.0213, "-21.3 ms"), (None, "–"),
    ],
)  # fmt: skip
def test_seconds(value: float | None, text: str) -> None:
    assert format.seconds(value) == text


@pytest.mark.parametrize(
    ("value", "text"), [(0, "0 B"), (999.9, "1 kB"), (1.34e9, "1.34 GB"), (80e9, "80 GB"), (0.4, "0.4 B"), (None, "–")]
)
def test_data(value: float | None, text: str) -> None:
    assert format.data(value) == text


@pytest.mark.parametrize(
    ("value", "text"),
    [(0, "$0"), (1234.567, "$1,234.57"), (0.0196, "$0.0196"), (2.64e-6, "$0.00000264"), (1.2e-8, "$1.2e-08")],
)
def test_dollars(value: float, text: str) -> None:
    assert format.dollars(value) == text


@pytest.mark.parametrize(
    ("value", "text"), [(0.0, "0 %"), (0.0231, "2.31 %"), (1e-9, "< 0.0001 %"), (float("inf"), "∞"), (None, "–")]
)
def test_percent(value: float | None, text: str) -> None:
    assert format.percent(value) == text


def test_counts_and_rates() -> None:
    assert format.count(131_072) == "131,072"
    assert format.count(70_553_706_496) == "70.6 B"
    assert format.rate(3.35e12) == "3.35 TB/s"
    assert format.rate(989e12, "FLOP/s") == "989 TFLOP/s"


def test_quantity_of_an_explanation() -> None:
    assert format.quantity(37.5e9, "B") == "37.5 GB"
    assert format.quantity(0.31, "s") == "310 ms"
    assert format.quantity(3, "") == "3"
    assert format.quantity("both on host h0", "s") == "both on host h0"


def test_sentence_list() -> None:
    assert format.sentence_list([]) == ""
    assert format.sentence_list("abc") == "a, b and c"
    assert format.sentence_list("abcdefgh") == "a, b, c and 5 more"
    assert format.sentence_list(["gpu-0", "gpu-1", "gpu-2"], 2) == "gpu-0 and 2 more"


def test_no_escape_sequence_reaches_a_terminal() -> None:
    assert format.plain("\x1b[31mred\n") == "\\x1b[31mred\\n"
    assert format.plain("größer") == "größer"
