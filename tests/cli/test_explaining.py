"""What would change a plan, on the command line."""

from __future__ import annotations

import io
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from iegopt.cli.answers import _prices
from iegopt.explain.margins import Margin
from iegopt.explain.shadow import ShadowPrice, ShadowPrices

Run = Callable[..., Any]

DOCUMENTS = Path(__file__).parent / "documents"
REQUEST, IMPOSSIBLE, CLUSTER = (DOCUMENTS / f"{name}.yaml" for name in ("request", "impossible", "uneven"))
EVERYTHING = ("--what-if-remove", "fast-0", "--what-if-add", "bench-gpu@r", "--suggest", "--sensitivity")


def without_time(text: str) -> str:
    document = json.loads(text)
    document["plan"]["seconds"] = 0.0
    return json.dumps(document, indent=2, ensure_ascii=False) + "\n"


def test_the_object(iegopt: Run, golden: Callable[[str, str], None]) -> None:
    ran = iegopt("explain", REQUEST, "--cluster", CLUSTER, "--json", *EVERYTHING)
    assert (ran.code, ran.err) == (0, "")
    answer = json.loads(ran.out)
    assert list(answer) == ["plan", "sensitivity", "shadow_prices", "what_if", "suggestions", "criticality"]
    assert {flip["kind"] for flip in answer["sensitivity"]["flips"]} == {"move", "replan"}
    assert answer["sensitivity"]["complete"]
    assert answer["what_if"]["before"]["objective"] == answer["plan"]["objective"]
    golden("explain.json", without_time(ran.out))


def test_what_was_not_asked_for_is_null(iegopt: Run) -> None:
    answer = json.loads(iegopt("explain", REQUEST, "--cluster", CLUSTER, "--json").out)
    assert [answer[key] for key in ("what_if", "suggestions", "criticality")] == [None] * 3
    assert {flip["kind"] for flip in answer["sensitivity"]["flips"]} == {"move"}
    assert answer["plan"] | {"seconds": 0} == json.loads(
        iegopt("plan", REQUEST, "--cluster", CLUSTER, "--json").out
    ) | {"seconds": 0}


def test_as_text(iegopt: Run) -> None:
    ran = iegopt("explain", REQUEST, "--cluster", CLUSTER, *EVERYTHING)
    assert (ran.code, ran.err) == (0, "")
    for part in (
        "Tightest constraints",
        "Best alternative of each stage",
        "Weights that would move a stage",
        "What if",
        "Shadow prices (finite differences)",
        "What one more idle device would save",
        "Without a device",
    ):
        assert part in ran.out.splitlines()
    assert any(line.startswith(" memory ") and line.endswith("/GB") for line in ran.out.splitlines())
    assert "best single move" in ran.out
    assert "re-solved optimum" in ran.out
    assert "skipped: " in ran.out


def test_devices_named_twice_stand_side_by_side(iegopt: Run) -> None:
    word = "bench-gpu@r"
    answer = json.loads(
        iegopt("explain", REQUEST, "--cluster", CLUSTER, "--json", "--what-if-add", word, "--what-if-add", word).out
    )
    sites = {place["site"] for place in answer["what_if"]["after"]["placement"].values()}
    assert {"added-bench-gpu-dc0-r-0", "added-bench-gpu-dc0-r-1"} <= sites


@pytest.mark.parametrize("no_overlap", [False, True])
def test_what_does_not_apply_to_the_objective_is_left_out_and_said(
    iegopt: Run, tmp_path: Path, no_overlap: bool
) -> None:
    request = tmp_path / "request.yaml"
    words = f"request:\n  objective: critical_path\n  no_overlap: {str(no_overlap).lower()}\n"
    request.write_text(REQUEST.read_text(encoding="utf-8").replace("request:\n", words, 1), encoding="utf-8")
    ran = iegopt("explain", request, "--cluster", CLUSTER, "--json", *EVERYTHING)
    assert ran.code == 0
    answer = json.loads(ran.out)
    assert (answer["sensitivity"], answer["shadow_prices"] is None) == (None, no_overlap)
    assert answer["plan"]["status"] == "optimal"
    assert all(answer[part] for part in ("what_if", "suggestions", "criticality"))
    said = ran.err.splitlines()
    assert said[0].startswith("iegopt: sensitivity left out: objective critical_path is not linear")
    assert [line.split(":")[1] for line in said[1:]] == [" shadow prices left out"] * no_overlap
    assert "Without a device" in iegopt("explain", request, "--cluster", CLUSTER, "--suggest").out


@pytest.mark.parametrize("argv", [("--what-if-remove", "fast-9"), ("--what-if-add", "H1000@r")])
def test_names_are_checked_before_anything_is_planned(
    iegopt: Run, argv: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object, **__: object) -> None:
        raise AssertionError("planned")

    monkeypatch.setattr("iegopt.planner.Planner.plan", fail)
    ran = iegopt("explain", REQUEST, "--cluster", CLUSTER, *argv)
    assert ran.code == 1
    assert argv[1].split("@")[0] in ran.error_line


def test_without_a_plan_it_says_why_and_what_would_help(iegopt: Run) -> None:
    ran = iegopt("explain", IMPOSSIBLE, "--cluster", CLUSTER, "--suggest", "--json", "--what-if-remove", "slow-1")
    assert ran.code == 2
    answer = json.loads(ran.out)
    assert (answer["sensitivity"], answer["shadow_prices"], answer["criticality"]) == (None, None, [])
    assert answer["what_if"]["after"]["status"] == "infeasible"
    assert not any(one["enables"] for one in answer["suggestions"])
    text = iegopt("explain", IMPOSSIBLE, "--cluster", CLUSTER, "--suggest")
    assert text.code == 2
    assert "the SLA of prefill is 1 ms" in text.out
    assert "No device that was tried saves anything." in text.out


@pytest.mark.parametrize(
    ("argv", "says"),
    [
        (("--what-if-add", "H100"), "--what-if-add: 'H100': expected MODEL@RACK, such as L40S@rack0"),
        (("--what-if-add", "H100@roo"), "roo: no rack or host is called so"),
        (("--what-if-add", "H100@zzz"), "zzz: no rack or host is called so. Racks: dc0/r"),
        (("--what-if-add", "H1000@r"), "--what-if-add H1000@r: unknown device model H1000. Maybe H100?"),
        (("--what-if-remove", "fast-9"), "remove: no device of cluster uneven is called fast-9"),
        (("--time-limit", "0"), "--time-limit: 0: expected a finite number above 0"),
    ],
)
def test_a_wrong_word_is_one_line_and_exit_1(iegopt: Run, argv: tuple[str, ...], says: str) -> None:
    ran = iegopt("explain", REQUEST, "--cluster", CLUSTER, *argv)
    assert (ran.code, ran.out) == (1, "")
    assert says in ran.error_line


def test_prices_at_the_margin_have_their_units() -> None:
    found = ShadowPrices(
        (ShadowPrice("memory", ("fast",), 4e10, 1e9, "B", 0.0, 0.0, "decode", True, 0.012),), True, "",
        (
            Margin("memory", ("fast",), 0.012, "GB", 1.5),
            Margin("deadline", ("prefill", "decode"), 0.25, "s"),
        ),
    )  # fmt: skip
    console = Console(width=140, record=True, file=io.StringIO())
    for part in _prices(found):
        console.print(part)
    text = console.export_text()
    for words in ("at the margin", "12 ms/GB", "Prices at the margin", "$1.50", "prefill → decode", "250 ms/s"):
        assert words in text, text
