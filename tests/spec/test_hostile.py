"""Files made to exhaust the reader are refused within its bounds of time and memory."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tracemalloc
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from iegopt.errors import SpecError
from iegopt.spec.json_reader import parse_json
from iegopt.spec.load import load_document, load_snapshot, read_document
from iegopt.spec.text import MAX_BYTES, MAX_DEPTH, MAX_NODES, MAX_SNAPSHOT_NODES
from iegopt.spec.yaml_reader import parse_yaml

ROOT = Path(__file__).resolve().parents[2]
SECONDS = 5.0
PEAK_BYTES = 500 * 10**6


def _laughs() -> str:
    lines = ["a0: &a0 [ha, ha, ha, ha, ha, ha, ha, ha, ha]"]
    lines += [f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 9)}]" for i in range(1, 30)]
    return "\n".join(lines)


def _fill(unit: str, head: str = "", tail: str = "") -> str:
    return head + unit * ((MAX_BYTES - len(head) - len(tail)) // len(unit)) + tail


def _merges() -> str:
    big = "base: &base {" + ", ".join(f"k{i}: 1" for i in range(1000)) + "}\n"
    return big + "\n".join(f"m{i}: {{<<: [*base, *base]}}" for i in range(1000))


def _cycle(length: int) -> str:
    stages = "".join(f"{{id: s{i}, type: tool}}, " for i in range(length))
    edges = "".join(f"{{from: s{i}, to: s{(i + 1) % length}}}, " for i in range(length))
    return f"graph: {{stages: [{stages}], edges: [{edges}]}}"


HOSTILE: dict[str, tuple[Callable[[], str], str]] = {
    "alias-bomb.yaml": (_laughs, f"expands to more than {MAX_NODES} values"),
    "merge-bomb.yaml": (_merges, f"expands to more than {MAX_NODES} values"),
    "alias-chain.yaml": (
        lambda: "a0: &a0 [x]\n" + "\n".join(f"a{i}: &a{i} [*a{i - 1}]" for i in range(1, 20000)),
        f"nested deeper than {MAX_DEPTH} levels",
    ),
    "flow-depth.yaml": (lambda: _fill("[", "request: "), "maximum nesting depth"),
    "map-depth.yaml": (lambda: _fill("{a: ", "request: "), f"nested deeper than {MAX_DEPTH} levels"),
    "dash-depth.yaml": (lambda: _fill("- "), f"nested deeper than {MAX_DEPTH} levels"),
    "block-depth.yaml": (
        lambda: "".join("  " * i + "a:\n" for i in range(3000)), f"nested deeper than {MAX_DEPTH} levels"
    ),
    "question-marks.yaml": (lambda: _fill("? "), "expected a word as key"),
    "many-values.yaml": (lambda: _fill("1,", "request: [", "1]"), f"expands to more than {MAX_NODES} values"),
    "many-keys.yaml": (
        lambda: "".join(f"k{i}: 1\n" for i in range(1_200_000)), f"expands to more than {MAX_NODES} values"
    ),
    "many-documents.yaml": (lambda: _fill("--- a\n"), "a second document starts here"),
    "one-long-key.yaml": (lambda: _fill("k", "", ": 1"), "not YAML"),
    "one-long-value.yaml": (lambda: _fill("v", "request: "), "expected a mapping"),
    "long-prompt.yaml": (
        lambda: _fill("v", "request: {model: m, output_tokens: 1, prompt: ", "}"), "expected at most 4000000 characters"
    ),
    "wide-text.yaml": (lambda: "request: " + "\U0001f600" * 3_900_000, "expected a mapping"),
    "long-unit.yaml": (lambda: _fill(" ", "node: {id: a, type: tool, fixed_time: '1", "x'}"), "expected a time"),
    "brackets.json": (lambda: _fill("["), f"nested deeper than {MAX_DEPTH} levels"),
    "braces.json": (lambda: _fill('{"a":'), f"nested deeper than {MAX_DEPTH} levels"),
    "many-values.json": (lambda: _fill("1,", '{"request": [', "1]}"), f"holds more than {MAX_NODES} values"),
    "many-lists.json": (lambda: _fill("[[]],", '{"request": [', "1]}"), f"holds more than {MAX_NODES} values"),
    "many-quotes.json": (lambda: _fill('"'), "not JSON"),
    "many-escapes.json": (lambda: _fill("\\", '{"a": "'), "not JSON"),
    "many-escaped-quotes.json": (lambda: _fill('\\"', '{"a": "'), "not JSON"),
    "trailing-backslashes.json": (lambda: '"\\" ' * 10**6 + '"' + "\\" * 10**6 + "\\", "not JSON"),
    "wrong-devices.yaml": (
        lambda: "cluster: {devices: [" + "1," * (MAX_NODES - 10) + "]}",
        "cluster.devices.0: 1: expected a mapping (and "
    ),
    "unknown-keys.yaml": (
        lambda: "request: {" + ", ".join(f"k{i}: 1" for i in range(MAX_NODES // 2 - 10)) + "}", "unknown key"
    ),
    "long-cycle.yaml": (lambda: _cycle(25_000), "cycle: s0 -> s1 -> "),
    "stage-twice-at-the-end.yaml": (
        lambda: "graph: {stages: [" + "".join(f"{{id: s{i}, type: tool}}, " for i in range(50_000))
        + "{id: s49999, type: tool}]}",
        "stage id s49999 stands twice",
    ),
}  # fmt: skip

_READER = """
import json, os, resource, sys, time
from iegopt.errors import SpecError
from iegopt.spec.load import load_document

def measure(path):
    start = time.process_time()
    try:
        load_document(path)
        line = "loaded"
    except SpecError as error:
        line = str(error)
    seconds = time.process_time() - start
    # Of a process that was forked, and so from what the reader holds on; an exec would keep what pytest held.
    return line, seconds, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024

for path in sys.stdin:
    child = os.fork()
    if not child:
        print(json.dumps(measure(path.rstrip())), flush=True)
        os._exit(0)
    _, status = os.waitpid(child, 0)
    if status:
        print(json.dumps([f"ended with status {status}", 0, 0]), flush=True)
"""


@pytest.fixture(scope="module")
def measure() -> Iterator[Callable[[Path], tuple[str, float, int]]]:
    """What a fresh process says to a document, its seconds of CPU time and its peak of memory in bytes."""
    if sys.platform != "linux":
        pytest.skip("ru_maxrss is in kB on Linux alone")
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    with subprocess.Popen(
        [sys.executable, "-c", _READER], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment
    ) as reader:  # imports once, and forks for every document
        assert reader.stdin is not None
        assert reader.stdout is not None
        asked, told = reader.stdin, reader.stdout

        def measured(path: Path) -> tuple[str, float, int]:
            print(path, file=asked, flush=True)
            line, seconds, peak = json.loads(told.readline())
            return line, seconds, peak

        yield measured
        asked.close()
    assert reader.returncode == 0


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_file_is_refused_within_time_and_memory(
    name: str, measure: Callable[[Path], tuple[str, float, int]], tmp_path: Path
) -> None:
    make, expected = HOSTILE[name]
    path = tmp_path / name
    path.write_text(make(), encoding="utf-8")
    line, seconds, peak = measure(path)
    path.unlink()
    assert line.startswith(f"{path}: ")
    assert expected in line
    assert len(line) < len(str(path)) + 400
    assert seconds < SECONDS
    assert peak < PEAK_BYTES


def test_a_file_of_50_mb_is_refused_before_it_is_read(tmp_path: Path) -> None:
    path = tmp_path / "large.yaml"
    with path.open("wb") as stream:
        stream.truncate(50 * 10**6)
    tracemalloc.start()
    with pytest.raises(SpecError, match="larger than 16 MB, the most a document may be"):
        read_document(path)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 10**6


@pytest.fixture
def odd_paths(tmp_path: Path) -> Iterator[dict[str, Path]]:
    locked = tmp_path / "locked.yaml"
    locked.write_text("request: {}")
    locked.chmod(0)
    loop = tmp_path / "loop.yaml"
    loop.symlink_to(loop)
    yield {"directory": tmp_path, "absent": tmp_path / "absent.yaml", "locked": locked, "loop": loop}
    locked.chmod(0o600)


@pytest.mark.parametrize(
    ("kind", "expected"),
    [
        ("directory", "cannot be read: Is a directory"),
        ("absent", "cannot be read: No such file"),
        ("loop", "cannot be read: Too many levels of symbolic links"),
        ("locked", "cannot be read: Permission denied"),
    ],
)
def test_what_cannot_be_opened_is_named(kind: str, expected: str, odd_paths: dict[str, Path]) -> None:
    path = odd_paths[kind]
    if kind == "locked" and os.access(path, os.R_OK):
        pytest.skip("this user may read any file")
    with pytest.raises(SpecError) as refusal:
        read_document(path)
    assert str(refusal.value).startswith(f"{path}: {expected}")


def test_a_file_name_with_a_newline_stays_one_line(tmp_path: Path) -> None:
    path = tmp_path / "two\nlines.yaml"
    path.write_text("- 1\n")
    with pytest.raises(SpecError) as refusal:
        read_document(path)
    assert str(refusal.value).isprintable()


def test_a_null_in_a_file_name_is_no_traceback() -> None:
    with pytest.raises(SpecError, match="not a file name"):
        read_document("a\0b")


def test_an_endless_file_is_refused() -> None:
    if not Path("/dev/zero").exists():
        pytest.skip("no /dev/zero on this system")
    with pytest.raises(SpecError, match=r"larger than 16 MB"):
        read_document("/dev/zero")


def test_the_bounds_leave_room_for_a_large_honest_cluster(tmp_path: Path) -> None:
    devices = [
        {"id": f"g{i}", "model": "H100", "utilization": {"compute": "10%"}, "location": {"rack": f"r{i // 64}"}}
        for i in range(20_000)
    ]
    path = tmp_path / "cluster.json"
    path.write_text(json.dumps({"cluster": {"devices": devices}}))
    _, cluster = load_document(path, "cluster")
    assert len(cluster.devices) == 20_000


def _with_blocks(blocks: int) -> str:
    request = {"model": "m", "prompt_tokens": blocks, "output_tokens": 1}
    queued = {"id": "q", "arrival": "1s", "request": request, "prefix": list(range(blocks))}
    instance = {"id": "i", "devices": ["d"], "variant": "v"}
    return json.dumps({"snapshot": {"time": "1s", "block_tokens": 1, "instances": [instance], "queue": [queued]}})


@pytest.mark.parametrize("suffix", [".json", ".yaml"])
def test_a_snapshot_may_hold_more_than_other_documents(suffix: str, tmp_path: Path) -> None:
    path = tmp_path / f"queue{suffix}"
    path.write_text(_with_blocks(MAX_NODES))
    assert len(load_snapshot(path).queue[0].prefix) == MAX_NODES
    with pytest.raises(SpecError, match=f"more than {MAX_NODES} values"):
        load_document(path, "request")


def test_a_snapshot_has_its_bound_too(tmp_path: Path) -> None:
    path = tmp_path / "queue.json"
    path.write_text(_with_blocks(MAX_SNAPSHOT_NODES))
    with pytest.raises(SpecError, match=f"holds more than {MAX_SNAPSHOT_NODES} values"):
        load_snapshot(path)


def test_many_wrong_entries_are_told_without_copies_of_all(tmp_path: Path) -> None:
    path = tmp_path / "queue.json"
    instances = '"instances": [{"id": "i", "devices": ["d"], "variant": "v"}]'
    path.write_text('{"snapshot": {"time": "1s", ' + instances + ', "queue": [' + "1," * 200_000 + "1]}}")
    tracemalloc.start()
    with pytest.raises(SpecError, match=r"snapshot.queue.0: 1: expected a mapping \(and 200000 more\)"):
        load_snapshot(path)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 20 * 10**6


def test_json_and_yaml_count_the_same_values() -> None:
    text = json.dumps({"a": {"b": [1, 2, {"c": "x: y, [z]"}], "d": None}, "e": [[3], [4, 5]]})
    nodes = 19
    for parse in (parse_json, parse_yaml):
        assert parse(text, "f", nodes) == json.loads(text)
        with pytest.raises(SpecError, match=f"more than {nodes - 2} values"):
            parse(text, "f", nodes - 2)
