"""``iegopt queue``: moments of a trace as snapshots that ``iegopt replan`` reads."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from iegopt.cli.arguments import Commands, positive, whole
from iegopt.cli.output import busy, check_ending, check_outputs, document_path, note, writing
from iegopt.files import write_whole
from iegopt.units import SECONDS, parse, render, shown

if TYPE_CHECKING:
    from iegopt.spec.snapshot import SnapshotSpec

__all__ = ["add_commands"]


MOST_MOMENTS = 1000
"""Snapshots made at once: each is held in memory, and is a file of its own."""


def add_commands(commands: Commands) -> None:
    parser = commands.add_parser(
        "queue",
        help="make snapshots of a queue from a trace",
        description=(
            "Replay a trace (Mooncake JSONL or Azure CSV) on engines that the cluster could have up, each request "
            "where the fewest are in flight, and write what waits and what runs at one moment or several. Tenants, "
            "priorities and limits, which traces lack, are drawn."
        ),
    )
    parser.add_argument("trace", metavar="TRACE", help="trace file, .jsonl or .csv")
    parser.add_argument(
        "--cluster", required=True, metavar="CLUSTER", help="cluster file, or the name of a shipped one"
    )
    parser.add_argument(
        "--model", required=True, metavar="MODEL", help="model of all requests, or one variant: MODEL/fp8/TensorRT"
    )
    parser.add_argument("--gang", type=whole(1), metavar="N", help="devices of an instance (default: as few as do)")
    parser.add_argument("--at", required=True, type=_time, metavar="TIME", help="moment after the first arrival: 120s")
    parser.add_argument(
        "--count", type=whole(1, MOST_MOMENTS), default=1, metavar="N",
        help=f"number of moments, at most {MOST_MOMENTS:,} (default 1)",
    )  # fmt: skip
    parser.add_argument("--every", type=_time, metavar="TIME", help="from one moment to the next (default 1s)")
    parser.add_argument(
        "--speedup", type=positive, default=1.0, metavar="F", help="arrivals F times as fast (default 1)"
    )
    parser.add_argument(
        "--patience", type=_time, default=10.0, metavar="TIME", help="who waits longer goes (default 10s)"
    )
    parser.add_argument("--tenants", type=whole(1), default=3, metavar="N", help="number of tenants drawn (default 3)")
    parser.add_argument("--seed", type=whole(0), default=0, metavar="N", help="random seed (default 0)")
    parser.add_argument(
        "-o", "--output", metavar="FILE", help="file to write, .yaml or .json (default stdout); several get numbers"
    )
    parser.set_defaults(run=_queue)


def _time(text: str) -> float:
    from iegopt.errors import InputError

    try:
        value = float(parse(text, SECONDS))
    except (InputError, ValueError) as error:
        raise argparse.ArgumentTypeError(" ".join(str(error).split())) from None
    if value <= 0:
        raise argparse.ArgumentTypeError(f"{shown(text)}: expected a time above 0")
    return value


def _queue(arguments: argparse.Namespace) -> int:
    from iegopt.cli.arguments import UsageError

    if arguments.output is None and arguments.count > 1:
        raise UsageError("--count: several snapshots need files: expected --output FILE (see iegopt queue --help)")
    files = _files(arguments.output, arguments.count)
    cluster_file = document_path(arguments.cluster, "clusters")
    check_outputs(files, [arguments.trace, cluster_file])
    check_ending(arguments.output, (".yaml", ".yml", ".json"))
    from iegopt.batch.traces import Mix, make_snapshots, read_trace
    from iegopt.spec.load import load_cluster

    cluster = load_cluster(cluster_file)
    with busy(f"reading {arguments.trace}"):
        trace = read_trace(arguments.trace)
    moments = [arguments.at + n * (arguments.every or 1.0) for n in range(arguments.count)]
    with busy(f"replaying {len(trace.arrivals):,} requests on {cluster.name}"):
        made = make_snapshots(
            trace, cluster, arguments.model, moments,
            gang=arguments.gang, speedup=arguments.speedup, patience=arguments.patience,
            mix=Mix(seed=arguments.seed, tenants=arguments.tenants),
        )  # fmt: skip
    note(f"{trace.name} has no tenants, priorities and limits: they are drawn, seed {arguments.seed}")
    if not trace.has_prefixes:
        note(f"{trace.name} has no prefixes: nothing is reused")
    for file, snapshot in zip(files, made, strict=True):
        text = _document(snapshot, file)
        if file is None:
            sys.stdout.write(text)
        else:
            with writing(file):
                write_whole(file, text)
        moment = render(snapshot.time, SECONDS)
        counts = f"{len(snapshot.queue):,} wait, {len(snapshot.running):,} run on {len(snapshot.instances):,} instances"
        note(f"{f'wrote {file}: ' if file else ''}at {moment} {counts}")
    return 0


def _files(output: str | None, count: int) -> list[str | None]:
    """``queue.yaml``, or ``queue-1.yaml`` and so on."""
    if output is None or count == 1:
        return [output]
    path = Path(output)
    return [str(path.with_name(f"{path.stem}-{n}{path.suffix}")) for n in range(1, count + 1)]


def _document(snapshot: SnapshotSpec, file: str | None) -> str:
    """The text of a file; raises ``InputError`` where it would be more than a document may be."""
    from iegopt.errors import InputError
    from iegopt.spec.json_reader import parse_json
    from iegopt.spec.load import dump
    from iegopt.spec.text import MAX_BYTES, MAX_SNAPSHOT_NODES

    compact = json.dumps({"snapshot": snapshot.document()}, ensure_ascii=False)
    parse_json(compact, snapshot.name, MAX_SNAPSHOT_NODES)
    as_json = file is not None and Path(file).suffix.lower() == ".json"
    text = compact + "\n" if as_json else f"# {snapshot.name}\n{dump('snapshot', snapshot)}"
    if len(text.encode()) > MAX_BYTES:
        shorter = "" if as_json else ": as .json it is shorter"
        raise InputError(f"{snapshot.name}: larger than {MAX_BYTES // 10**6} MB, the most a document may be{shorter}")
    return text
