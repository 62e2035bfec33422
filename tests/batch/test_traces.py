"""Traces as snapshots: reading, engines of a cluster, a replay whose times can be worked out by hand."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from iegopt.batch.build import build_model
from iegopt.batch.build_instances import build_instances
from iegopt.batch.traces import (
    Arrival,
    Mix,
    Replay,
    Trace,
    deploy,
    make_snapshots,
    read_trace,
    replay,
    snapshot_at,
    variants_of,
)  # fmt: skip
from iegopt.devices import expand
from iegopt.errors import InputError, SpecError
from iegopt.library import data_dir
from iegopt.planner import Planner
from iegopt.problem.cluster import CompiledCluster
from iegopt.spec.batch_policy import BatchPolicy
from iegopt.spec.load import dump, load_cluster, load_snapshot
from iegopt.spec.snapshot import SnapshotSpec

from ..conftest import shared_dir
from .small import KV, STEP_BASE, VARIANT, cluster, instance, prefill_seconds

MOONCAKE = """\
{"timestamp": 5000, "input_length": 1030, "output_length": 12, "hash_ids": [7, 8, 9]}

{"timestamp": 6500, "input_length": 400, "output_length": 500, "hash_ids": [7]}
{"timestamp": 6000, "input_length": 100, "output_length": 1, "hash_ids": []}
"""
AZURE = """\
TIMESTAMP,ContextTokens,GeneratedTokens
2023-11-16 23:59:59.6805900,374,44
2023-11-17 00:00:01.1805900,396,109
"""


def written(folder: Path, text: str | bytes, name: str = "trace") -> Path:
    path = folder / name
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return path


def test_a_mooncake_trace_is_sorted_and_starts_at_zero(tmp_path: Path) -> None:
    trace = read_trace(written(tmp_path, MOONCAKE))
    assert trace.arrivals == (
        Arrival(0.0, 1030, 12, (7, 8, 9)),
        Arrival(1.0, 100, 1),
        Arrival(1.5, 400, 500, (7,)),
    )
    assert (trace.duration, trace.has_prefixes) == (1.5, True)


def test_an_azure_trace_counts_over_midnight_and_has_no_prefixes(tmp_path: Path) -> None:
    trace = read_trace(written(tmp_path, AZURE))
    assert [(a.prompt, a.output) for a in trace.arrivals] == [(374, 44), (396, 109)]
    assert trace.duration == pytest.approx(1.5)
    assert not trace.has_prefixes


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "no requests: expected a Mooncake JSONL or an Azure CSV trace"),
        ("hello\n", "line 1: hello: expected a Mooncake request in JSON, or the header TIMESTAMP,ContextTokens"),
        (MOONCAKE + "{oops", "line 5: not JSON: {oops: expected one request a line"),
        (MOONCAKE + "[1]", "line 5: a list: expected a request with timestamp"),
        ('{"timestamp": 1, "input_length": 3}', "line 1: output_length: missing: expected a whole number of tokens"),
        ('{"timestamp": -1, "input_length": 3, "output_length": 3}', "line 1: timestamp: -1: expected a whole number"),
        ('{"timestamp": 1, "input_length": 0, "output_length": 3}', "line 1: input_length: 0: expected"),
        ('{"timestamp": 1, "input_length": 2.5, "output_length": 3}', "line 1: input_length: 2.5: expected"),
        ('{"timestamp": NaN, "input_length": 2, "output_length": 3}', "line 1: timestamp: nan: expected"),
        ('{"timestamp": 1, "input_length": 1e30, "output_length": 3}', "line 1: input_length: 1e+30: expected at most"),
        ('{"timestamp": 1, "input_length": 2, "output_length": true}', "line 1: output_length: true: expected"),
        (
            '{"timestamp": 1, "input_length": 512, "output_length": 3, "hash_ids": [1, 2]}',
            "line 1: hash_ids: 2 blocks, but the prompt has 512 tokens, 1 blocks of 512",
        ),
        (
            '{"timestamp": 1, "input_length": 512, "output_length": 3, "hash_ids": ["a"]}',
            "line 1: hash_ids: a: expected a list of whole numbers",
        ),
        (AZURE + "2023-11-16 18:15:46,5\n", "line 4: 2 columns: expected 3"),
        (AZURE + "yesterday,5,5\n", "line 4: TIMESTAMP: yesterday: expected a time such as"),
        (AZURE + "2023-11-16 18:15:46,x,5\n", "line 4: ContextTokens: x: expected a whole number of tokens"),
        (AZURE + "2023-11-16 18:15:46,5,0\n", "line 4: GeneratedTokens: 0: expected a whole number"),
        (b"TIMESTAMP\xff\n", "line 1: not UTF-8"),
    ],
)  # fmt: skip
def test_a_malformed_line_is_named(tmp_path: Path, text: str | bytes, says: str) -> None:
    path = written(tmp_path, text)
    with pytest.raises(SpecError) as caught:
        read_trace(path)
    assert f"{path}: {says}" in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(SpecError, match="cannot be read: No such file"):
        read_trace(tmp_path / "none.jsonl")
    with pytest.raises(SpecError, match="cannot be read: Is a directory"):
        read_trace(tmp_path)


def test_engines_are_the_blocks_of_a_cluster_each_device_once() -> None:
    found = deploy(cluster(), variants_of(cluster(), "Llama-2-7B"), 2)
    assert [spec.id for spec in found] == ["x-0+1", "x-2+1", "x-4+1", "x-6+1"]
    assert found[1].devices == ("x-2", "x-3")
    assert {spec.variant for spec in found} == {VARIANT}
    assert [spec.devices for spec in deploy(cluster(), variants_of(cluster(), VARIANT))] == [
        (f"x-{n}",) for n in range(8)
    ]  # fmt: skip


def shipped(name: str) -> CompiledCluster:
    return CompiledCluster(load_cluster(data_dir("instances") / "clusters" / f"{name}.yaml"))


def test_where_devices_say_what_is_resident_only_that_is_up() -> None:
    racks = shipped("mixed-racks")
    found = deploy(racks, variants_of(racks, "Llama-2-70B"))
    assert {spec.devices[0].rpartition("-")[0] for spec in found} == {"a100-a", "a100-c", "h100"}
    assert {len(spec.devices) for spec in found} == {4}
    assert {spec.id for spec in deploy(racks, variants_of(racks, "Llama-3.1-8B"))} == {f"l40s-{n}" for n in range(16)}


def test_a_model_that_fits_nowhere_is_said_so() -> None:
    racks = shipped("mixed-racks")
    with pytest.raises(InputError, match="no accelerators of cluster mixed-racks have room for Llama"):
        deploy(racks, variants_of(racks, "Llama-3.1-405B"))
    with pytest.raises(InputError, match="in gangs of 3"):
        deploy(cluster(), variants_of(cluster(), "Llama-2-7B"), 3)
    with pytest.raises(InputError, match="bge-m3 generates no tokens"):
        variants_of(racks, "bge-m3")


def served_on(count: int, arrivals: list[Arrival], until: float = 1e3, patience: float = 1e3, **more: Any) -> Replay:
    spec = {"time": 0.0, "instances": [instance(n, **more) for n in range(count)]}
    built = build_instances(cluster(), SnapshotSpec.model_validate(spec), BatchPolicy())
    return replay(built, arrivals, until=until, reference_pace=0.05, patience=patience, block_tokens=512)


def test_one_request_takes_its_prefill_at_the_speed_that_decode_leaves() -> None:
    (served,) = served_on(1, [Arrival(1.0, 1000, 101)]).served
    assert served is not None
    step = STEP_BASE + KV * (1000 + 50) / 1e12
    assert served.start == 1.0
    assert served.first_token - 1.0 == pytest.approx(prefill_seconds(1000) / (1 - step / 0.05))
    assert served.end - served.first_token == pytest.approx(101 * 0.05)
    assert (served.instance, served.reused) == (0, 0)


def test_it_goes_where_fewest_are_in_flight() -> None:
    arrivals = [Arrival(0.01 * n, 1000, 200) for n in range(6)]
    assert [s.instance for s in served_on(3, arrivals).served if s is not None] == [0, 1, 2, 0, 1, 2]


def test_prefills_of_an_instance_run_one_after_the_other() -> None:
    first, second = served_on(1, [Arrival(0.0, 2000, 1), Arrival(0.01, 2000, 1)]).served
    assert first is not None
    assert second is not None
    assert second.start == first.first_token


def test_a_prefix_is_reused_and_the_last_token_computed() -> None:
    arrivals = [Arrival(0.0, 1024, 1, (1, 2)), Arrival(1.0, 1024, 1, (1, 2)), Arrival(2.0, 1500, 1, (1, 9, 2))]
    assert [s.reused for s in served_on(1, arrivals).served if s is not None] == [0, 1023, 512]


def test_a_full_batch_waits_for_the_first_that_ends() -> None:
    first, second = served_on(1, [Arrival(0.0, 100, 100), Arrival(0.1, 100, 100)], max_batch=1).served
    assert first is not None
    assert second is not None
    assert second.start == first.end


def test_memory_is_never_overdrawn() -> None:
    # Room for two of these requests besides the weights and a chunk's working memory.
    arrivals = [Arrival(0.01 * n, 1000, 1000) for n in range(5)]
    free = 2.5 * 2000 * KV
    replayed = served_on(1, arrivals, used=int(80e9 - free) - 5 * 2 * 4096 * 8192)
    done = [s for s in replayed.served if s is not None]
    assert len(done) == 5
    for s in done:
        assert sum(other.start <= s.start < other.end for other in done) <= 2


def test_who_would_wait_too_long_gives_up_and_is_gone() -> None:
    arrivals = [Arrival(0.0, 4000, 1), Arrival(0.1, 4000, 1), Arrival(0.2, 50_000, 1)]
    replayed = served_on(1, arrivals, patience=0.3)
    assert [s is None for s in replayed.served] == [False, True, True]
    spec = SnapshotSpec.model_validate({"time": 0.0, "instances": [instance(0)]}).instances
    waits = {at: [q.id for q in snapshot_at(replayed, spec, at, model="Llama-2-7B").queue] for at in (0.25, 0.45, 0.6)}
    assert waits == {0.25: ["r1", "r2"], 0.45: ["r2"], 0.6: []}


def test_a_moment_shows_who_waits_prefills_and_decodes() -> None:
    arrivals = [Arrival(0.0, 2000, 100, (1, 2, 3)), Arrival(0.1, 2000, 100, (1, 2, 4)), Arrival(0.2, 2000, 100, (1, 5))]
    replayed = served_on(1, arrivals)
    first, second, _ = replayed.served
    assert first is not None
    assert second is not None
    at = second.start + 0.5001 * (second.first_token - second.start)
    spec = SnapshotSpec.model_validate({"time": 0.0, "instances": [instance(0)]}).instances
    snapshot = snapshot_at(replayed, spec, at, model="Llama-2-7B")
    decodes, prefills = snapshot.running
    assert (decodes.id, decodes.stage, decodes.context + decodes.remaining) == ("r0", "decode", 2100)
    assert decodes.remaining == 100 - int((at - first.first_token) / 0.05)
    assert (prefills.id, prefills.stage, prefills.output) == ("r1", "prefill", 100)
    assert (prefills.context, prefills.remaining) == (1024 + 488, 488)
    assert [q.id for q in snapshot.queue] == ["r2"]
    assert snapshot.instances[0].prefix == (1,)  # what the queue asks for, of what is held


def test_requests_are_the_same_in_every_snapshot() -> None:
    mix = Mix(seed=3, tenants=4)
    arrival = Arrival(0.0, 2000, 100)
    drawn = [mix.draw(n, arrival) for n in range(400)]
    assert drawn == [mix.draw(n, arrival) for n in range(400)]
    assert drawn != [Mix(seed=4, tenants=4).draw(n, arrival) for n in range(400)]
    assert {d.tenant for d in drawn} == {f"tenant-{n}" for n in range(1, 5)}
    share = [sum(d.priority == p for d in drawn) / 400 for p in range(3)]
    assert share == pytest.approx([0.3, 0.5, 0.2], abs=0.08)
    assert {d.sla.ttft for d in drawn} == {1.4, 4.0, None}


def small_trace(count: int = 300) -> Trace:
    """30 requests a second, of which groups of ten share a block."""
    return Trace("small", tuple(Arrival(n / 30, 600 + n % 7, 200, (n // 10, 1000 + n)) for n in range(count)))


def test_what_is_made_is_read_back_replanned_and_verified(tmp_path: Path) -> None:
    on = cluster()
    made = make_snapshots(small_trace(), on.spec, "Llama-2-7B", [1.0, 2.0], speedup=3.0, patience=5.0)
    assert [snapshot.time for snapshot in made] == [1.0, 2.0]
    assert "3 times as fast; tenants, priorities and limits drawn, seed 0" in made[0].name
    assert len(made[1].queue) > 10
    for snapshot in made:
        path = written(tmp_path, dump("snapshot", snapshot), "snapshot.yaml")
        assert load_snapshot(path) == snapshot
        plan = Planner(on.spec).replan(snapshot)
        assert any(decision.status == "placed" for decision in plan.queue)
        assert build_model(on, snapshot, BatchPolicy()).impossible == {}


def test_a_moment_after_the_end_is_refused() -> None:
    with pytest.raises(InputError, match=r"small ends after 4.98333s: nothing is known of 6s"):
        make_snapshots(small_trace(), cluster().spec, "Llama-2-7B", [1.0, 6.0], speedup=2.0)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("file", "requests", "seconds", "model", "racks", "speedup"),
    [
        ("mooncake/conversation_trace.jsonl", 8000, 2435.999, "Llama-3.1-8B", "mixed-racks", 4.0),
        ("mooncake/synthetic_trace.jsonl", 3993, 1022.025, "Llama-3.1-8B", "mixed-racks", 4.0),
        ("azure_llm_2023/AzureLLMInferenceTrace_conv.csv", 19_366, 3501.721, "Llama-2-70B", "mixed-racks", 4.0),
    ],
)  # fmt: skip
def test_public_traces(file: str, requests: int, seconds: float, model: str, racks: str, speedup: float) -> None:
    path = shared_dir() / "data" / file
    if not path.exists():
        pytest.skip(f"the public trace {file} is not here")
    trace = read_trace(path)
    assert len(trace.arrivals) == requests
    assert trace.duration == pytest.approx(seconds, abs=0.001)
    on = load_cluster(data_dir("instances") / "clusters" / f"{racks}.yaml")
    (snapshot,) = make_snapshots(trace, on, model, [30.0], speedup=speedup)
    assert len(snapshot.queue) > 5
    assert len(snapshot.running) > 5
    assert {i.devices[0] for i in snapshot.instances} <= {device.id for device in expand(on)}
