"""Instance files: what is written is read back, and what is malformed is refused with its place."""

from __future__ import annotations

import copy
import gzip
import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from iegopt.errors import InputError, SpecError
from iegopt.problem.arrays import NO_LIMIT
from iegopt.problem.families import generate
from iegopt.problem.instance import from_problem, parse_instance, read_instance, to_problem, write_instance
from iegopt.solvers import evaluate
from tests.solvers.random_problems import random_instance, random_problem


def example() -> dict[str, Any]:
    """Two stages on two devices and their gang, everything given."""
    stage = {
        "site": [0, 1, 2],
        "variant": ["fp16", "fp16", "fp16"],
        "cost": [0.31, -0.33, 0.2],
        "time": [0.3, 0.32, 0.18],
        "memory": [5e9, 5e9, 5e9],
    }
    link = {"latency": 1e-5, "bandwidth": 3.2e10}
    return {
        "format": "iegopt-instance/1",
        "name": "example",
        "devices": {"id": ["g0", "g1"], "memory": [80e9, 80e9]},
        "sites": {
            "id": ["g0", "g1", "g0+g1"],
            "devices": [[0], [1], [0, 1]],
            "domain": [0, 7, -1],
            "host": [0, 0, 0],
            "rack": [0, 0, 0],
            "datacenter": [0, 0, 0],
        },
        "links": {
            "domain": dict(link),
            "host": {**link, "groups": {"0": {"bandwidth": 1.6e10}}},
            "rack": dict(link),
            "datacenter": dict(link),
            "wan": dict(link),
        },
        "stages": [
            {"id": "prefill", "sla": 0.5, "options": copy.deepcopy(stage)},
            {"id": "decode", "options": copy.deepcopy(stage)},
        ],
        "edges": [{"from": 0, "to": 1, "kind": "data", "bytes": 1.3e9, "weight": 1.0}],
        "affinity": [{"stages": [0, 1], "level": "domain", "apart": False, "required": True, "penalty": 0.0}],
        "deadline": 5.0,
    }


def all_extensions() -> dict[str, Any]:
    document = example()
    document["extensions"] = ["overlap", "finish_by", "budget", "weights"]
    document["edges"][0]["overlap"] = {"chunk": 1e6, "hidden": [0.1, 0.2, 0.0]}
    document["stages"][1]["finish_by"] = 1.0
    document["budget"] = {"limit": 1.0, "stages": [0, 1]}
    document["stages"][0]["options"]["weights"] = {"key": ["w", None, "w"], "memory": [1e9, 0, 1e9]}
    return document


def test_the_example_compiles_to_ticks_and_shares() -> None:
    problem = to_problem(parse_instance(example()))
    assert problem.options.time[:3].tolist() == [300_000_000, 320_000_000, 180_000_000]
    assert problem.options.cost[1] == -330_000_000
    assert problem.memory_scale == 2
    assert problem.options.share[:3].tolist() == [10 * 10**9, 10 * 10**9, 5 * 10**9]
    assert problem.capacity.tolist() == [160 * 10**9] * 2
    assert problem.sla.tolist() == [500_000_000, NO_LIMIT]
    assert problem.deadline == 5 * 10**9
    assert problem.topology.group[0].tolist() == [0, 1, -1]
    assert problem.topology.seconds_per_byte[1].tolist() == [1 / 1.6e10]
    assert problem.topology.latency[1].tolist() == [1e-5]


def test_fractional_memory_is_kept_to_a_millionth_of_a_byte() -> None:
    document = example()
    document["devices"]["memory"] = [0.25, 1]
    problem = to_problem(parse_instance(document))
    assert problem.memory_scale == 2 * 10**6
    assert problem.capacity.tolist() == [500_000, 2_000_000]


def test_a_level_left_out_beside_pairs_and_a_default_kind() -> None:
    document = example()
    matrix = [[0, 1, 2], [3, 0, 4], [5, 6, 0]]
    document["links"] = {"pairs": {"latency": matrix, "seconds_per_byte": [[0] * 3] * 3}}
    document["edges"] = [{"from": 0, "to": 1, "bytes": 8}]
    problem = to_problem(parse_instance(document))
    assert evaluate.objective(problem, np.array([0, 4])) == 310_000_000 - 330_000_000 + 10**9


def same(a: Any, b: Any, seed: int) -> None:
    """Same objective, same feasibility, same reason, for up to 60 choices."""
    rng = np.random.default_rng(seed)
    for _ in range(60):
        choice = rng.integers(a.options.ptr[:-1], a.options.ptr[1:])
        assert evaluate.objective(a, choice) == evaluate.objective(b, choice)
        assert evaluate.why_infeasible(a, choice) == evaluate.why_infeasible(b, choice)


@pytest.mark.parametrize("seed", range(60))
def test_a_problem_comes_back_from_its_file(seed: int, tmp_path: Path) -> None:
    problem = random_problem(seed)
    path = tmp_path / ("p.json.gz" if seed % 2 else "p.json")
    write_instance(problem, path)
    same(problem, to_problem(read_instance(path)), seed)


def test_all_extensions_come_back() -> None:
    problem = to_problem(parse_instance(all_extensions()))
    document = from_problem(problem).document
    assert document["extensions"] == ["budget", "finish_by", "overlap", "weights"]
    same(problem, to_problem(parse_instance(document)), 0)


def test_parallel_shards_are_written_as_pairs(monkeypatch: pytest.MonkeyPatch) -> None:
    problem = generate("agent", 6, 28, "tight", 3, gangs=True)
    document = from_problem(problem).document
    assert "extensions" not in document
    same(problem, to_problem(parse_instance(document)), 0)
    monkeypatch.setattr("iegopt.problem.instance_document.LARGEST_PAIRS", 27)
    document = from_problem(problem).document
    assert document["extensions"] == ["parallel_shards"]
    assert "pairs" not in document["links"]
    same(problem, to_problem(parse_instance(document)), 0)


def test_single_devices_need_no_pairs_for_parallel_shards() -> None:
    problem = generate("chain", 3, 8, "slack", 0)
    parallel = replace(problem, topology=replace(problem.topology, parallel_shards=True))
    assert "pairs" not in from_problem(parallel).document["links"]


def test_equal_problems_give_equal_files(tmp_path: Path) -> None:
    for name in ("a.json.gz", "b.json.gz"):
        write_instance(random_problem(1), tmp_path / name)
    assert (tmp_path / "a.json.gz").read_bytes() == (tmp_path / "b.json.gz").read_bytes()


def put(value: Any, *path: str | int) -> Callable[[dict[str, Any]], None]:
    def change(document: dict[str, Any]) -> None:
        at: Any = document
        for step in path[:-1]:
            at = at[step]
        at[path[-1]] = value

    return change


def drop(*path: str | int) -> Callable[[dict[str, Any]], None]:
    def change(document: dict[str, Any]) -> None:
        at: Any = document
        for step in path[:-1]:
            at = at[step]
        del at[path[-1]]

    return change


OPTIONS = ("stages", 0, "options")
MALFORMED: list[tuple[Callable[[dict[str, Any]], None], str, str]] = [
    (put("iegopt-instance/2", "format"), "format", "iegopt-instance/2: expected iegopt-instance/1"),
    (drop("format"), "format", "expected iegopt-instance/1"),
    (drop("stages"), "", "key stages is missing"),
    (put([], "stage"), "", "unknown key stage. Maybe stages?"),
    (put([], "edgs"), "", "unknown key edgs. Maybe edges?"),
    (put(3, "name"), "name", "expected a text"),
    (put(["teleport"], "extensions"), "extensions[0]", "unknown extension teleport"),
    (put({"limit": 1, "stages": []}, "budget"), "", "unknown key budget"),
    (put([80e9], "devices", "memory"), "devices.memory", "1 entries, expected 2, one per device"),
    (put(-1, "devices", "memory", 0), "devices.memory[0]", "at least 0"),
    (put("80GB", "devices", "memory", 1), "devices.memory[1]", "80GB: expected a number"),
    (put(["g0", "g0"], "devices", "id"), "devices.id[1]", "g0 stands twice, first at 0"),
    (put("", "devices", "id", 0), "devices.id[0]", "expected a text"),
    (put(["a", "b", "a"], "sites", "id"), "sites.id[2]", "a stands twice"),
    (put([2], "sites", "devices", 1), "sites.devices[1][0]", "2: expected a whole number, 0 to 1"),
    (put([], "sites", "devices", 1), "sites.devices[1]", "at least one device"),
    (put([0, 0], "sites", "devices", 2), "sites.devices[2]", "none twice"),
    (put([[0], [1]], "sites", "devices"), "sites.devices", "2 entries, expected 3, one per site"),
    (put([0, 0], "sites", "rack"), "sites.rack", "2 entries, expected 3, one per site"),
    (put([0, 0, -1], "sites", "rack"), "sites.rack[2]", "inside one host, hence inside one rack"),
    (put([0, 1, 0], "sites", "rack"), "sites.rack[1]", "host 0 lies in rack 0"),
    (put(-2, "sites", "host", 0), "sites.host[0]", "expected a whole number, -1 or more"),
    (put(0.5, "sites", "host", 0), "sites.host[0]", "expected a whole number"),
    (put(True, "sites", "host", 0), "sites.host[0]", "expected a whole number"),
    (drop("links", "rack"), "links", "key rack is missing"),
    (put(0, "links", "wan", "bandwidth"), "links.wan.bandwidth", "above 0"),
    (put(-1e-6, "links", "wan", "latency"), "links.wan.latency", "at least 0"),
    (put({}, "links", "wan", "groups"), "links.wan", "unknown key groups"),
    (put({"5": {}}, "links", "host", "groups"), "links.host.groups.5", "no site lies in host 5"),
    (put({"0": {"speed": 1}}, "links", "host", "groups"), "links.host.groups.0", "unknown key speed"),
    (put([1], "links", "host", "groups"), "links.host.groups", "expected an object"),
    (put({"latency": []}, "links", "pairs"), "links.pairs", "seconds_per_byte is missing"),
    (
        put({"latency": [[0] * 3] * 2, "seconds_per_byte": [[0] * 3] * 3}, "links", "pairs"),
        "links.pairs.latency",
        "2 entries, expected 3",
    ),
    (
        put({"latency": [[0] * 3] * 3, "seconds_per_byte": [[0] * 3, [0], [0] * 3]}, "links", "pairs"),
        "links.pairs.seconds_per_byte[1]",
        "1 entries, expected 3",
    ),
    (put([], "stages"), "stages", "at least one stage"),
    (put("prefill", "stages", 1, "id"), "stages[1].id", "stands twice"),
    (put(1.0, "stages", 0, "finish_by"), "stages[0]", "unknown key finish_by"),
    (put(-1, "stages", 0, "sla"), "stages[0].sla", "at least 0"),
    (put([], *OPTIONS, "site"), "stages[0].options.variant", "3 entries, expected 0, one per option"),
    (put([0, 1, 3], *OPTIONS, "site"), "stages[0].options.site[2]", "3: expected a whole number, 0 to 2"),
    (put([0, 0, 1], *OPTIONS, "site"), "stages[0].options.site[1]", "site 0 with variant fp16 stands twice"),
    (put([0.1, 0.2], *OPTIONS, "time"), "stages[0].options.time", "2 entries, expected 3, one per option"),
    (put(float("nan"), *OPTIONS, "cost", 1), "stages[0].options.cost[1]", "finite"),
    (put(float("inf"), *OPTIONS, "time", 1), "stages[0].options.time[1]", "finite"),
    (put(10**400, *OPTIONS, "memory", 2), "stages[0].options.memory[2]", "out of range"),
    (put(-0.1, *OPTIONS, "time", 2), "stages[0].options.time[2]", "-0.1: expected a number of at least 0"),
    (put(True, *OPTIONS, "cost", 0), "stages[0].options.cost[0]", "true: expected a number"),
    (put(None, *OPTIONS, "variant", 0), "stages[0].options.variant[0]", "expected a text"),
    (put({"key": [], "memory": []}, *OPTIONS, "weights"), "stages[0].options", "unknown key weights"),
    (put(2, "edges", 0, "to"), "edges[0].to", "2: expected the index of a stage, 0 to 1"),
    (put("prefill", "edges", 0, "from"), "edges[0].from", "expected the index of a stage"),
    (put("rpc", "edges", 0, "kind"), "edges[0].kind", "expected data or control"),
    (put(-1, "edges", 0, "bytes"), "edges[0].bytes", "at least 0"),
    (drop("edges", 0, "bytes"), "edges[0]", "key bytes is missing"),
    (put(-1, "edges", 0, "weight"), "edges[0].weight", "at least 0"),
    (put(0, "edges", 0, "to"), "edges", "a cycle: prefill → prefill"),
    (
        put([{"from": 0, "to": 1, "bytes": 0}, {"from": 1, "to": 0, "bytes": 0}], "edges"),
        "edges",
        "a cycle: prefill → decode → prefill",
    ),
    (put([5], "affinity", 0, "stages"), "affinity[0].stages[0]", "5: expected a whole number, 0 to 1"),
    (put([], "affinity", 0, "stages"), "affinity[0].stages", "at least one stage"),
    (put([0, 0], "affinity", 0, "stages"), "affinity[0].stages", "a stage stands twice"),
    (put("city", "affinity", 0, "level"), "affinity[0].level", "city: expected site, domain"),
    (put("no", "affinity", 0, "apart"), "affinity[0].apart", "expected true or false"),
    (put(-1, "affinity", 0, "penalty"), "affinity[0].penalty", "at least 0"),
    (put("soon", "deadline"), "deadline", "soon: expected a number"),
    (put("a\ud800b", "stages", 0, "id"), "stages[0].id", "a\\ud800b: a lone surrogate at 1: expected text in Unicode"),
    (put("\udfff", "devices", "id", 1), "devices.id[1]", "a lone surrogate at 0"),
    (put("\udfff", *OPTIONS, "variant", 1), "stages[0].options.variant[1]", "a lone surrogate at 0"),
    (put("\ud83d", "name"), "name", "a lone surrogate at 0"),
    (put(1e300, *OPTIONS, "cost", 0), "stages", "largest cost of every stage reaches 2^62 ns"),
    (put(1e15, *OPTIONS, "time", 0), "stages", "largest time of every stage reaches 2^62 ns"),
    (put(1e25, *OPTIONS, "memory", 0), "stages", "reaches 2^62"),
    (put(1e300, "edges", 0, "bytes"), "edges", "longest transfers"),
    (put(1e300, "affinity", 0, "penalty"), "edges", "penalties reaches 2^62"),
]

MALFORMED_EXTENSIONS: list[tuple[Callable[[dict[str, Any]], None], str, str]] = [
    (put(0, "edges", 0, "overlap", "chunk"), "edges[0].overlap.chunk", "above 0"),
    (put([0.1], "edges", 0, "overlap", "hidden"), "edges[0].overlap.hidden", "one per option of the from-stage"),
    (put(-1, "stages", 1, "finish_by"), "stages[1].finish_by", "at least 0"),
    (put([9], "budget", "stages"), "budget.stages[0]", "9: expected a whole number"),
    (drop("budget"), "budget", "expected an object"),
    (put(["w"], *OPTIONS, "weights", "key"), "stages[0].options.weights.key", "1 entries, expected 3"),
    (put(7, *OPTIONS, "weights", "key", 0), "stages[0].options.weights.key[0]", "expected a text"),
    (
        lambda d: put({"key": ["w", None, None], "memory": [2e9, 0, 0]}, "stages", 1, "options", "weights")(d),
        "stages",
        "weights 'w' have two sizes on site 'g0'",
    ),
]


@pytest.mark.parametrize(("change", "where", "problem"), MALFORMED, ids=[f"{w}: {p}"[:60] for _, w, p in MALFORMED])
def test_malformed(change: Callable[[dict[str, Any]], None], where: str, problem: str) -> None:
    refused(example(), change, where, problem)


@pytest.mark.parametrize(
    ("change", "where", "problem"), MALFORMED_EXTENSIONS, ids=[f"{w}: {p}"[:60] for _, w, p in MALFORMED_EXTENSIONS]
)
def test_malformed_extensions(change: Callable[[dict[str, Any]], None], where: str, problem: str) -> None:
    refused(all_extensions(), change, where, problem)


def refused(document: dict[str, Any], change: Callable[[dict[str, Any]], None], where: str, problem: str) -> None:
    to_problem(parse_instance(copy.deepcopy(document)))
    change(document)
    with pytest.raises(SpecError) as caught:
        to_problem(parse_instance(document, "x.json"))
    assert caught.value.where == where
    assert problem in caught.value.problem
    assert "\n" not in str(caught.value)
    assert str(caught.value).startswith("x.json: ")


@pytest.mark.parametrize("document", [None, [], 3, "text"])
def test_a_document_that_is_no_object(document: object) -> None:
    with pytest.raises(SpecError, match="expected an object"):
        parse_instance(document)


@pytest.mark.parametrize(
    ("name", "raw", "problem"),
    [
        ("a.json", b"{", "line 1 column 2: not JSON"),
        ("a.json", b"\xff\xfe", "not UTF-8"),
        ("a.json", b'{"format": 1, "format": 2}', "key format stands twice"),
        ("a.json", b'{"a": [0, "x\\ud83d\\ude00", {"b": "x\\uD83D"}]}', r"a\[2\]\.b: x\\ud83d: a lone surrogate at 1"),
        ("a.json", b'{"a": {"x\\udfff": 0}}', r"a\.x\\udfff: x\\udfff: a lone surrogate at 1"),
        ("a.json", rb'["\\ud83d\ude00"]', r"\[0\]: .*: a lone surrogate at 6"),
        ("a.json.gz", gzip.compress(b'["\\ud800"]'), r"\[0\]: \\ud800: a lone surrogate at 0"),
        ("a.json", b"[" * 100_000, "not JSON"),
        ("a.json", b"1" * 5000, "not JSON"),
        ("a.json.gz", b"{}", "cannot be read"),
        ("a.json.gz", gzip.compress(b"{}" * 99)[:-12], "cannot be read"),
    ],
)
def test_files_that_hold_no_document(name: str, raw: bytes, problem: str, tmp_path: Path) -> None:
    (tmp_path / name).write_bytes(raw)
    with pytest.raises(SpecError, match=problem):
        read_instance(tmp_path / name)


def test_a_file_that_is_missing(tmp_path: Path) -> None:
    with pytest.raises(SpecError, match=r"none\.json: cannot be read: No such file"):
        read_instance(tmp_path / "none.json")


def test_a_file_that_is_too_large(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("iegopt.problem.json_reader.MAX_BYTES", 1000)
    (tmp_path / "a.json.gz").write_bytes(gzip.compress(b" " * 10**6))
    with pytest.raises(SpecError, match="larger than 1000 bytes"):
        read_instance(tmp_path / "a.json.gz")


def test_infinity_in_a_file_is_refused_where_it_stands(tmp_path: Path) -> None:
    document = random_instance(0)
    document["stages"][0]["options"]["cost"][0] = float("inf")
    (tmp_path / "a.json").write_text(json.dumps(document))
    with pytest.raises(SpecError) as caught:
        read_instance(tmp_path / "a.json")
    assert caught.value.where == "stages[0].options.cost[0]"


WEIRD: list[Any] = [None, True, -1, 0, 1.5, 10**400, float("nan"), float("inf"), 1e308, "", "x", [], [[]], {}, {"a": 1}]


def places(value: Any) -> list[tuple[Any, Any]]:
    """(container, key) of everything inside a document."""
    keys = value.keys() if isinstance(value, dict) else range(len(value)) if isinstance(value, list) else ()
    return [place for key in keys for place in [(value, key), *places(value[key])]]


@pytest.mark.parametrize("weird", WEIRD, ids=repr)
def test_anything_anywhere_is_taken_or_refused_in_one_line(weird: Any) -> None:
    refusals = []
    for i in range(len(places(all_extensions()))):
        document = all_extensions()
        container, key = places(document)[i]
        container[key] = copy.deepcopy(weird)
        try:
            problem = to_problem(parse_instance(document))
        except SpecError as error:
            refusals.append(str(error))
        else:
            parse_instance(from_problem(problem).document)
    assert len(refusals) > 50
    assert all(len(line) < 300 and "\n" not in line for line in refusals)


def test_a_problem_may_have_no_edges() -> None:
    document = example()
    del document["edges"]
    assert to_problem(parse_instance(document, "bare.json")).E == 0


def test_a_document_in_memory_is_checked_and_compiled_and_a_path_is_refused() -> None:
    instance = from_problem(generate("chain", 3, 4))
    problem = to_problem(instance.document)
    assert from_problem(problem).document == from_problem(to_problem(instance)).document
    with pytest.raises(SpecError, match="format"):
        to_problem({})
    with pytest.raises(InputError, match=r"expected an instance, not str: to_problem\(read_instance\(path\)\)"):
        to_problem("problem.json")  # type: ignore[arg-type]
