"""``iegopt bench``: reports of results written by hand, files that cannot be read, extras that are missing."""

from __future__ import annotations

import gzip
import json
import random
import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from iegopt.bench.charts import Chart, Series, charts
from iegopt.cli.html.chart import draw_chart
from tests.bench.test_metrics import ROWS, row
from tests.cli.conftest import Ran

SESSION = {
    "command": "iegopt bench run s.yaml -o r.json", "date": "2026-01-02T03:04:05+00:00", "python": "3.11.9",
    "processor": "<b>Chip</b>", "cores": 2, "system": "Linux x86_64", "versions": {"numpy": "2.4"},
}  # fmt: skip
DOCUMENT: dict[str, Any] = {
    "format": "iegopt-bench/1", "suite": {"name": "hand", "threads": 2}, "sessions": [SESSION], "rows": ROWS,
}  # fmt: skip


@pytest.fixture
def results(tmp_path: Path) -> Path:
    path = tmp_path / "r.json"
    path.write_text(json.dumps(DOCUMENT))
    return path


def test_a_report_has_a_table_per_family_and_the_reasons(iegopt: Callable[..., Ran], results: Path) -> None:
    ran = iegopt("bench", "report", results)
    assert (ran.code, ran.err) == (0, "")
    assert "8 runs of suite hand, 2 threads, 2026-01-02T03:04:05+00:00" in ran.out
    cells = [re.split(r"\s{2,}", line.strip()) for line in ran.out.splitlines()]
    assert ["x", "2", "2", "1 (50 %)", "∞", "2.5 %", "5 %", "∞", "–", "0.281", "4.5 s", "7 B", "–"] in cells
    assert ["z", "2", "0", "0 (0 %)", "∞", "∞", "∞", "∞", "–", "1.000", "5 s", "–", "–"] in cells
    assert ["f", "10 s", "w", "2 × unsupported: no edges"] in cells
    assert ["family", "x", "y", "z"] in cells
    assert ["f", "+2.5 % (1/2 proved)", "+10.1 %", "no plan"] in cells


def test_a_report_may_be_on_some_runs_alone(iegopt: Callable[..., Ran], results: Path) -> None:
    found = json.loads(iegopt("bench", "report", results, "--json", "--filter", "a:x", "--filter", "b:*:10s").out)
    assert [(line["solver"], line["plans"]) for line in found["lines"]] == [("x", 2), ("y", 1), ("z", 0), ("w", 0)]
    ran = iegopt("bench", "report", results, "--filter", "nothing")
    assert (ran.code, ran.error_line) == (1, "iegopt: no run fits nothing; runs are called such as a:x:10s")


def test_a_report_as_json_is_one_object(iegopt: Callable[..., Ran], results: Path) -> None:
    found = json.loads(iegopt("bench", "report", results, "--json").out)
    assert [line["solver"] for line in found["lines"]] == ["x", "y", "z", "w"]
    assert found["contradictions"] == []
    assert found["suite"]["name"] == "hand"


def test_a_page_fetches_nothing_and_escapes_what_it_shows(
    iegopt: Callable[..., Ran], results: Path, tmp_path: Path
) -> None:
    page = tmp_path / "page.html"
    assert iegopt("bench", "report", results, "--html", page).code == 0
    text = page.read_text(encoding="utf-8")
    assert text.count("<svg ") == 3 + sum(len(names) for names in (["x"], ["x", "y"], ["x", "y", "z"]))
    assert not re.search(r"https?://|src=|url\(|@import|<script", text)
    assert "&lt;b&gt;Chip&lt;/b&gt;" in text
    assert "<b>Chip" not in text


def test_markdown_escapes_what_it_shows(iegopt: Callable[..., Ran], results: Path, tmp_path: Path) -> None:
    assert iegopt("bench", "report", results, "--markdown", tmp_path / "r.md").code == 0
    text = (tmp_path / "r.md").read_text(encoding="utf-8")
    assert "\\<b\\>Chip\\</b\\>" in text
    assert "| family | x | y | z |\n| --- | --: | --: | --: |\n| f | +2.5 % (1/2 proved) | +10.1 % | no plan |" in text


def test_compact_results_are_results(iegopt: Callable[..., Ran], results: Path, tmp_path: Path) -> None:
    assert iegopt("bench", "compact", results, "-o", tmp_path / "small.json").code == 0
    thick, thin = (iegopt("bench", "report", path, "--json").out for path in (results, tmp_path / "small.json"))
    assert json.loads(thick)["claims"] == json.loads(thin)["claims"]
    assert json.loads(thick)["lines"] == json.loads(thin)["lines"]
    ran = iegopt("bench", "compact", results, "-o", tmp_path / "none" / "small.json")
    assert "there is no folder" in ran.error_line


def random_row(seed: int) -> dict[str, Any]:
    """A run with a long trajectory of plans and bounds at any times, some after its limit, ended late or not."""
    dice = random.Random(seed)
    limit = dice.choice([0.3, 1.0, 5.0, 60.0])
    seconds = sorted(round(1.5 * limit * dice.random() ** 3, 6) for _ in range(dice.randint(0, 200)))
    plans = iter(sorted((dice.randint(100, 130) for _ in seconds), reverse=True))
    bounds = iter(sorted(dice.randint(50, 100) for _ in seconds))
    value = bound = None
    points = []
    for moment in seconds:
        value, bound = dice.choice([(value, next(bounds)), (next(plans), bound)])
        points.append([moment, value, bound])
    ended = max([limit * dice.choice([0.5, 1.0, 1.5]), *seconds])
    made = row(dice.choice("xy"), value, instance=dice.choice("ab"), bound=bound, seconds=ended, seed=seed)
    return {**made, "engine": "auto" if made["solver"] == "x" else "milp", "limit": limit, "trajectory": points}


def test_every_figure_of_compact_results_is_that_of_the_full_ones(
    iegopt: Callable[..., Ran], results: Path, tmp_path: Path
) -> None:
    results.write_text(changed(rows=[random_row(seed) for seed in range(80)]))
    small, page = tmp_path / "small.json", tmp_path / "page.html"
    assert iegopt("bench", "compact", results, "-o", small).code == 0
    assert small.stat().st_size < 0.5 * results.stat().st_size
    for pattern in ("*", "a:*", "x:5s"):
        told = []
        for path in (results, small):
            words = ("bench", "report", path, "--filter", pattern)
            told.append((iegopt(*words, "--json").out, iegopt(*words, "--html", page).out, page.read_text()))
        assert told[0] == told[1]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("report", "r.json", "--html", "r.json"), "r.json: cannot be written: it is read too, expected another file"),
        (("report", "r.json", "--png", "./r.json"), "./r.json: cannot be written: r.json is the same file and is read"),
        (("report", "r.json", "--markdown", "soft.md"), "soft.md: cannot be written: r.json is the same file and is"),
        (("report", "r.json", "--markdown", "hard.md"), "hard.md: cannot be written: r.json is the same file and is"),
        (("report", "r.json", "--html", "r.json.journal"), "r.json.journal: cannot be written: it is read too"),
        (
            ("report", "r.json", "--html", "x", "--png", "x"),
            "x: cannot be written: it is written too, expected another",
        ),
        (("report", "r.json", "--html", "x", "--markdown", "./x"), "./x: cannot be written: x is the same file and is"),
        (("compact", "r.json", "-o", "r.json"), "r.json: cannot be written: it is read too, expected another file"),
        (("run", "s.yaml", "-o", "s.yaml", "--force"), "s.yaml: cannot be written: it is read too, expected another"),
    ],
)
def test_what_is_read_or_written_already_is_not_overwritten(
    iegopt: Callable[..., Ran],
    results: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    words: tuple[str, ...],
    said: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("s.yaml").write_text(
        "suite: {name: s, instances: [{generate: {family: chain, stages: 3, sites: 4}}], solvers: [tree], limits: 1s}"
    )
    Path("soft.md").symlink_to("r.json")
    Path("hard.md").hardlink_to("r.json")
    before = {file.name: file.read_bytes() for file in tmp_path.iterdir()}
    ran = iegopt("bench", *words)
    assert ran.code == 1
    assert ran.error_line.startswith(f"iegopt: {said}")
    assert {file.name: file.read_bytes() for file in tmp_path.iterdir()} == before


def test_two_outputs_may_go_to_one_device_and_it_stays(iegopt: Callable[..., Ran], results: Path) -> None:
    assert iegopt("bench", "report", results, "--html", "/dev/null", "--markdown", "/dev/null").code == 0
    assert iegopt("bench", "compact", results, "-o", "/dev/null").code == 0
    assert Path("/dev/null").is_char_device()


def test_without_matplotlib_a_picture_is_refused_in_one_line(
    iegopt: Callable[..., Ran], results: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    ran = iegopt("bench", "report", results, "--png", tmp_path / "p.png")
    assert ran.code == 1
    assert ran.error_line == "iegopt: --png needs matplotlib: pip install 'iegopt[plots]'"
    assert not (tmp_path / "p.png").exists()


def test_with_matplotlib_a_picture_is_written(iegopt: Callable[..., Ran], results: Path, tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    assert iegopt("bench", "report", results, "--png", tmp_path / "p.png").code == 0
    assert (tmp_path / "p.png").read_bytes().startswith(b"\x89PNG")


def changed(**changes: Any) -> str:
    """The results with these keys changed, left out where ``None``."""
    return json.dumps({key: value for key, value in {**DOCUMENT, **changes}.items() if value is not None})


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (None, "cannot be read: No such file or directory"),
        ("{", "line 1 column 2: not JSON: Expecting property name"),
        ("{}", "expected results of iegopt bench run, format iegopt-bench/1"),
        (changed(suite=None), "suite: nothing: expected a suite, an object"),
        (changed(rows=None), "rows: nothing: expected the list of rows"),
        (changed(rows=[*ROWS, [1, 2]]), "rows[8]: a list: expected a row, an object"),
        (changed(rows=[{"a": 1}]), "rows[0]: key instance is missing: expected a row"),
        (changed(rows=[{**ROWS[0], "trajectory": [[1.0, "2", None]]}]), "rows[0]: trajectory: a list: expected a list"),
        (changed(rows=[{**ROWS[0], "objective": 10**400}]), "rows[0]: objective: 1000"),
        (changed(rows=[{**ROWS[0], "seconds": None}]), "rows[0]: optimal, but seconds is null"),
        (changed(rows=[{**ROWS[0], "published_optimal": True}]), "rows[0]: published_optimal, but published is null"),
        (changed(sessions=[]), "sessions: empty: expected one at least"),
        (changed(sessions=[{}]), "sessions[0]: key command is missing"),
    ],
)
@pytest.mark.parametrize("command", [("report",), ("compact", "-o", "small.json")])
def test_what_is_no_results_file_is_refused(
    iegopt: Callable[..., Ran], tmp_path: Path, text: str | None, said: str, command: tuple[str, ...]
) -> None:
    if text is not None:
        (tmp_path / "r.json").write_text(text)
    ran = iegopt("bench", command[0], tmp_path / "r.json", *command[1:])
    assert ran.code == 1
    assert f"{tmp_path / 'r.json'}: {said}" in ran.error_line


HEADER, SESSION_LINE, ROW_LINE = (
    json.dumps(entry) + "\n"
    for entry in ({"format": "iegopt-bench/1", "suite": DOCUMENT["suite"]}, {"session": SESSION}, {"row": ROWS[0]})
)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", ": holds no run yet: iegopt bench run begins it anew"),
        (HEADER[:9], ": holds no run yet: iegopt bench run begins it anew"),
        (HEADER, ": no session: expected one at least"),
        ("[1,2]\n", ": line 1: expected the journal of an iegopt bench run, format iegopt-bench/1"),
        (HEADER + SESSION_LINE + "[1,2]\n", ": line 3: a list: expected an object with row, or one with session"),
        (HEADER + SESSION_LINE + '{"a":1}\n', ": line 3: a mapping: expected an object with row, or one with session"),
        (HEADER + SESSION_LINE + '{"row":{"a":1}}\n', ": line 3: key instance is missing: expected a row, an object"),
        (HEADER + SESSION_LINE + "{\n" + ROW_LINE, ": line 3: damaged: expected a JSON object"),
        (HEADER + SESSION_LINE + "\x80\n", ": line 3: damaged: expected a JSON object"),
    ],
)
def test_a_damaged_journal_is_refused_with_its_line(
    iegopt: Callable[..., Ran], tmp_path: Path, text: str, said: str
) -> None:
    journal = tmp_path / "r.json.journal"
    journal.write_bytes(text.encode("latin-1"))
    for named in (tmp_path / "r.json", journal):
        ran = iegopt("bench", "report", named)
        assert ran.code == 1
        assert f"{journal}{said}" in ran.error_line


def test_a_journal_cut_short_is_reported_to_its_last_whole_line(iegopt: Callable[..., Ran], tmp_path: Path) -> None:
    (tmp_path / "r.json.journal").write_text(HEADER + SESSION_LINE + ROW_LINE + ROW_LINE[:50])
    assert "1 runs of suite hand" in iegopt("bench", "report", tmp_path / "r.json").out
    (tmp_path / "r.json.journal").write_text(HEADER + SESSION_LINE)
    assert "0 runs of suite hand" in iegopt("bench", "report", tmp_path / "r.json").out


def test_compact_results_may_be_compressed(iegopt: Callable[..., Ran], results: Path, tmp_path: Path) -> None:
    assert iegopt("bench", "compact", results, "-o", tmp_path / "small.json.gz").code == 0
    assert gzip.decompress((tmp_path / "small.json.gz").read_bytes()).startswith(b"{")
    thick, thin = (iegopt("bench", "report", path, "--json").out for path in (results, tmp_path / "small.json.gz"))
    assert thick == thin


def test_a_run_tells_its_steps_on_stderr_and_writes_results(iegopt: Callable[..., Ran], tmp_path: Path) -> None:
    (tmp_path / "s.yaml").write_text(
        "suite: {name: s, instances: [{generate: {family: chain, stages: 3, sites: 4}}], solvers: tree, limits: 1s}"
    )
    ran = iegopt("bench", "run", tmp_path / "s.yaml", "-o", tmp_path / "r.json")
    assert ran.code == 1
    assert "suite.solvers: tree: expected a list" in ran.error_line
    (tmp_path / "s.yaml").write_text((tmp_path / "s.yaml").read_text().replace("tree", "[tree]"))
    ran = iegopt("bench", "run", tmp_path / "s.yaml", "-o", tmp_path / "none" / "r.json")
    assert "there is no folder" in ran.error_line
    ran = iegopt("bench", "run", tmp_path / "s.yaml", "-o", tmp_path / "r.json", "--filter", "tree")
    assert (ran.code, ran.out) == (0, "")
    assert ran.error_line.startswith("[1/1] chain-3x4-slack-s0:tree:1s  optimal ")
    assert json.loads((tmp_path / "r.json").read_text())["rows"][0]["status"] == "optimal"


def test_gaps_have_a_logarithmic_axis_with_powers_of_ten() -> None:
    line = Series("x", 0, (0.001, 0.1, 1.0), (1.0, 0.01, 0.0))
    drawn = draw_chart(Chart("gaps", "seconds", "gap", 0.001, 10.0, 1e-4, 1.0, (line,)))
    assert re.findall(r">([\d.e-]+ %)<", drawn) == ["0.01 %", "0.1 %", "1 %", "10 %", "100 %"]
    (path,) = re.findall(r'd="M52.0 ([^"]+)" fill="none"', drawn)
    top, middle, base = (float(y) for y in re.findall(r"(?:^|V)([\d.]+)", path))
    assert middle == pytest.approx((top + base) / 2, abs=0.1)  # 1 % lies midway between 100 % and 0.01 %
    assert base == pytest.approx(260.0)


def test_a_summary_of_hinted_solvers_is_in_the_profile_of_proofs_alone() -> None:
    hinted = row("y", 100, hint="x", status="optimal", bound=100, seconds=1.0) | {"solver": "y+x"}
    drawn = charts({"rows": [*ROWS, hinted]})
    assert [chart.title for chart in drawn if any(line.name == "y+x" for line in chart.series)] == [
        "Time to proof, limit 10 s"
    ]  # fmt: skip
