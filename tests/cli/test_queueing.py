"""Snapshots from traces on the command line: one to stdout or several files, which are then replanned."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from iegopt.spec.load import load_snapshot

Run = Callable[..., Any]
ON = ("--cluster", "mixed-racks", "--model", "Llama-3.1-8B")


@pytest.fixture
def trace(tmp_path: Path) -> Path:
    """600 requests in a minute, groups of which share a prefix."""
    path = tmp_path / "trace.jsonl"
    rows = [
        {"timestamp": 100 * n, "input_length": 2000, "output_length": 300, "hash_ids": [n // 20, 1000 + n]}
        for n in range(600)
    ]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def test_a_moment_on_stdout(iegopt: Run, trace: Path, tmp_path: Path) -> None:
    ran = iegopt("queue", trace, *ON, "--at", "1s", "--speedup", 20)
    assert ran.code == 0
    first, second = ran.out.splitlines()[:2]
    assert first == "# trace.jsonl at 1s, 20 times as fast; tenants, priorities and limits drawn, seed 0"
    assert second == "snapshot:"
    notes = ran.err.splitlines()
    assert notes[0] == "iegopt: trace.jsonl has no tenants, priorities and limits: they are drawn, seed 0"
    assert notes[1].startswith("iegopt: at 1s ")
    assert ran.out == iegopt("queue", trace, *ON, "--at", "1s", "--speedup", 20).out
    path = tmp_path / "queue.yaml"
    path.write_text(ran.out, encoding="utf-8")
    plan = iegopt("replan", path, "--cluster", "mixed-racks", "--json")
    assert plan.code == 0
    assert any(q["status"] == "placed" for q in json.loads(plan.out)["queue"])


def test_several_moments_in_files(iegopt: Run, trace: Path, tmp_path: Path) -> None:
    target = tmp_path / "queue.json"
    more = ("--count", 2, "--every", "500ms", "--speedup", 20, "--seed", 4, "--tenants", 2, "-o", target)
    ran = iegopt("queue", trace, *ON, "--at", "1s", *more)
    assert (ran.code, ran.out) == (0, "")
    first, second = (load_snapshot(tmp_path / f"queue-{n}.json") for n in (1, 2))
    assert (first.time, second.time) == (1.0, 1.5)
    assert {q.tenant for q in second.queue} <= {"tenant-1", "tenant-2"}
    assert f"wrote {tmp_path / 'queue-2.json'}: at 1.5s " in ran.err
    assert all(a.request == b.request for a in first.queue for b in second.queue if a.id == b.id)


@pytest.mark.parametrize(
    ("argv", "says"),
    [
        (("--at", "1"), "--at: 1: no unit. Maybe 1ms?"),
        (("--at", "0s"), "--at: 0s: expected a time above 0"),
        (("--at", "2min"), "trace.jsonl ends after 59.9s: nothing is known of 120s"),
        (("--at", "1s", "--count", "1000000", "--every", "1ns"), "1000000: expected a whole number from 1 to 1000"),
        (("--at", "1s", "-o", "a.txt"), "a.txt: expected a file name that ends in .yaml, .yml or .json"),
        (("--at", "1s", "--count", "2"), "--count: several snapshots need files: expected --output FILE"),
        (("--at", "1s", "-o", "no/such/folder.yaml"), "there is no folder"),
        (("--at", "1s", "--model", "Llama-3.1-80B"), "Llama-3.1-8B"),
        (("--at", "1s", "--model", "Llama-3.1-8B/fp9/CUDA"), "Llama-3.1-8B has no variant fp9/CUDA: expected one of"),
        (("--at", "1s", "--gang", "5"), "in gangs of 5"),
    ],
)
def test_a_bad_argument_is_one_line(iegopt: Run, trace: Path, argv: tuple[str, ...], says: str) -> None:
    ran = iegopt("queue", trace, *ON, *argv)
    assert (ran.code, ran.out) == (1, "")
    assert says in ran.error_line


def test_a_malformed_line_is_one_line(iegopt: Run, trace: Path) -> None:
    trace.write_text(trace.read_text() + '{"timestamp": 1}\n')
    ran = iegopt("queue", trace, *ON, "--at", "1s")
    assert (ran.code, ran.out) == (1, "")
    assert f"{trace}: line 601: input_length: missing" in ran.error_line


@pytest.mark.parametrize(
    ("blocks", "shown"), [("[1, -2]", "-2"), ("7", "7"), ('["x"]', "x"), (f"[{2**63}]", f"{2**63}")]
)
def test_a_block_that_is_none_is_shown(iegopt: Run, trace: Path, blocks: str, shown: str) -> None:
    trace.write_text('{"timestamp": 0, "input_length": 600, "output_length": 5, "hash_ids": ' + blocks + "}\n")
    ran = iegopt("queue", trace, *ON, "--at", "1s")
    assert (ran.code, ran.out) == (1, "")
    assert f"line 1: hash_ids: {shown}: expected a list of whole numbers from 0 to below " in ran.error_line
