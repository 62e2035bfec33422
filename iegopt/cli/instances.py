"""``iegopt instances``: the documents and problems that come with iegopt."""

from __future__ import annotations

import argparse
from collections import Counter
from pathlib import Path
from typing import Any

from iegopt.cli.arguments import Commands
from iegopt.cli.format import count, data, plain, seconds, sentence_list
from iegopt.cli.output import FOLDERS, print_json, shipped, short_name, show

__all__ = ["add_commands"]


def add_commands(commands: Commands) -> None:
    parser = commands.add_parser(
        "instances",
        help="list the shipped clusters, requests, snapshots and problems",
        description="List what comes with iegopt. Every command takes their names where it takes a file.",
    )
    parser.add_argument("--json", action="store_true", help="one JSON object on stdout: the files by kind and name")
    parser.set_defaults(run=_list)


def _list(arguments: argparse.Namespace) -> int:
    files = {kind: shipped(kind) for kind in FOLDERS}
    if arguments.json:
        print_json({kind: {short_name(file): str(file) for file in each} for kind, each in files.items()})
        return 0
    from iegopt.cli.render import table

    about = {
        "clusters": _cluster, "requests": _request, "snapshots": _snapshot, "policies": _policy, "problems": _problem,
    }  # fmt: skip
    parts = []
    for kind, each in files.items():
        made = table(kind.capitalize(), ("name", "left"), ("what it is", "left"))
        for file in each:
            made.add_row(short_name(file), plain(about[kind](file)))
        parts.append(made)
    show(*parts)
    return 0


def _cluster(file: Path) -> str:
    from iegopt.spec.load import load_cluster

    cluster = load_cluster(file)
    models: Counter[str] = Counter()
    for device in cluster.devices:
        models[device.model] += device.count
    return f"{models.total():,} devices: {', '.join(f'{n:,} × {model}' for model, n in models.most_common(6))}"


def _request(file: Path) -> str:
    from iegopt.spec.load import load_request

    request = load_request(file)
    if request.graph is not None:
        return f"{request.sla_class}: a graph of {len(request.graph.stages)} stages"
    tokens = count(request.prompt_tokens) + " tokens" if request.prompt_tokens else "a prompt"
    agent: Any = request.agent
    tools = f", agent with {len(agent.tools)} tools, {agent.lookahead} of {agent.max_rounds} rounds" if agent else ""
    return f"{request.sla_class}: {request.model}, {tokens} in, {count(request.output_tokens)} out{tools}"


def _snapshot(file: Path) -> str:
    from iegopt.spec.load import load_snapshot

    snapshot = load_snapshot(file)
    counts = f"{len(snapshot.queue):,} queued, {len(snapshot.running):,} running"
    return f"{counts} on {len(snapshot.instances):,} instances"


def _policy(file: Path) -> str:
    from iegopt.spec.load import load_policy

    policy = load_policy(file)
    tenants = f", quotas of {sentence_list(policy.tenants)}" if policy.tenants else ""
    return f"window {seconds(policy.window)}, a replan every {seconds(policy.period)}{tenants}"


def _problem(file: Path) -> str:
    return data(file.stat().st_size)
