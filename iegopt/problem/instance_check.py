"""Validation of an ``iegopt-instance/1`` document, with its extensions.

The format is the solver-neutral one: SI base units, seconds everywhere in the objective, indices for
sites and stages. Optional extensions are named in a top-level list ``extensions``:

==================  ==========================================================================================
``overlap``         ``edges[i].overlap = {"chunk": bytes, "hidden": [seconds per option of the from-stage]}``:
                    t = max(raw − hidden, latency + min(chunk, bytes)/bandwidth)
``finish_by``       ``stages[i].finish_by``: seconds by which the stage ends along the DAG
``budget``          ``{"limit": seconds, "stages": [indices]}``: Σ time over them ≤ limit
``weights``         ``stages[i].options.weights = {"key": [text or null], "memory": [bytes]}``: counted once per
                    key and site, spread evenly over the site's devices
``parallel_shards`` transfers between two gangs of k devices move bytes/k
``makespan_weight`` top-level number w ≥ 0, a multiple of 10⁻⁶: the objective adds w · the end of the last stage
``no_overlap``      stages that share a device must not overlap in time; an answer places every stage with a ``start``
                    in seconds, and ends are counted from the starts
``peak_memory``     memory is limited at every moment: a stage holds its own from its start until its last consumer
                    on the same site over a data edge has ended (or itself). Optional
                    ``stages[i].options.kv = [bytes]``, the part of the memory that is KV cache, and
                    ``edges[i].hands_on`` (true for one edge into a stage at most): with both ends on one site the
                    smaller of the two KV caches is counted at the target only after the source has let go of its own
==================  ==========================================================================================
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from iegopt.problem.json_reader import JsonReader
from iegopt.problem.order import find_cycle
from iegopt.problem.topology import LEVEL_NAMES
from iegopt.spec.text import surrogate_in
from iegopt.units import shown

__all__ = ["EXTENSIONS", "FORMAT", "KINDS", "check_instance"]

FORMAT = "iegopt-instance/1"
EXTENSIONS = (
    "overlap", "finish_by", "budget", "weights", "parallel_shards", "makespan_weight", "no_overlap", "peak_memory",
)  # fmt: skip
KINDS = ("data", "control")

_REQUIRED = ("format", "devices", "sites", "links", "stages")
_OPTIONAL = ("name", "edges", "affinity", "deadline")


def check_instance(document: object, file: str) -> dict[str, Any]:
    """The document with its ``edges`` filled in, once everything in it is known to be well formed.

    Raises
    ------
    SpecError
        At the first thing that is not, with its path and what was expected.
    """
    read = JsonReader(file)
    if not isinstance(document, dict):
        read.fail("", f"{shown(document)}: expected an object, format {FORMAT}")
    if document.get("format") != FORMAT:
        read.fail("format", f"{shown(document.get('format'))}: expected {FORMAT}")
    document = {**document, "edges": document.get("edges", [])}
    extensions = read.names(document.get("extensions", []), "extensions")
    for i, name in enumerate(extensions):
        if name not in EXTENSIONS:
            read.fail(f"extensions[{i}]", f"unknown extension {shown(name)}. Known: {', '.join(EXTENSIONS)}")
    extra = [name for name in ("budget", "makespan_weight") if name in extensions]
    read.mapping(document, "", _REQUIRED, (*_OPTIONAL, "extensions", *extra))
    name = document.get("name", "")
    if not isinstance(name, str):
        read.fail("name", f"{shown(name)}: expected a text")
    if problem := surrogate_in(name):
        read.fail("name", problem)

    devices = read.mapping(document["devices"], "devices", ("id", "memory"))
    read.names(devices["id"], "devices.id")
    read.numbers(devices["memory"], "devices.memory", len(devices["id"]), "device")
    groups = _check_sites(read, document["sites"], len(devices["id"]))
    _check_links(read, document["links"], groups)
    stages = _check_stages(read, document["stages"], groups.shape[1], extensions)
    _check_edges(read, document, [s["id"] for s in stages], [len(s["options"]["site"]) for s in stages], extensions)
    _check_affinity(read, document.get("affinity", []), len(stages))
    if document.get("deadline") is not None:
        read.number(document["deadline"], "deadline")
    if "makespan_weight" in extensions:
        read.number(document.get("makespan_weight"), "makespan_weight")
    if "budget" in extensions:
        rule = read.mapping(document.get("budget"), "budget", ("limit", "stages"))
        read.number(rule["limit"], "budget.limit")
        _check_stage_set(read, rule["stages"], "budget.stages", len(stages))
    return document


def _check_sites(read: JsonReader, value: object, devices: int) -> npt.NDArray[np.int64]:
    """Sites and their (L, S) groups."""
    sites = read.mapping(value, "sites", ("id", "devices", *LEVEL_NAMES))
    names = read.names(sites["id"], "sites.id")
    if not names:
        read.fail("sites.id", "empty: expected at least one site")
    for s, members in enumerate(read.array(sites["devices"], "sites.devices", len(names), "site")):
        where = f"sites.devices[{s}]"
        read.indices(members, where, None, "", count=devices)
        if not members or len(set(members)) < len(members):
            read.fail(where, f"{shown(members)}: expected at least one device, none twice")
    groups = np.array(
        [read.indices(sites[level], f"sites.{level}", len(names), "site", least=-1) for level in LEVEL_NAMES]
    )
    for lower, upper, at, above in zip(LEVEL_NAMES, LEVEL_NAMES[1:], groups, groups[1:], strict=False):
        _check_nested(read, lower, upper, at, above)
    return groups


def _check_nested(
    read: JsonReader, lower: str, upper: str, at: npt.NDArray[np.int64], above: npt.NDArray[np.int64]
) -> None:
    """A group of a level lies inside one group of the next; −1 (a gang over several groups) lies in none."""
    inside = np.flatnonzero(at >= 0)
    for s in inside[above[inside] < 0][:1]:
        read.fail(f"sites.{upper}[{s}]", f"-1, but the site lies inside one {lower}, hence inside one {upper}")
    _, first, member = np.unique(at[inside], return_index=True, return_inverse=True)
    expected = above[inside][first][member]
    for i in np.flatnonzero(above[inside] != expected)[:1]:
        s = int(inside[i])
        read.fail(
            f"sites.{upper}[{s}]",
            f"{above[s]}, but {lower} {at[s]} lies in {upper} {expected[i]}: a {lower} lies inside one {upper}",
        )


def _check_links(read: JsonReader, value: object, groups: npt.NDArray[np.int64]) -> None:
    levels = (*LEVEL_NAMES, "wan")
    has_pairs = isinstance(value, dict) and "pairs" in value
    links = read.mapping(value, "links", () if has_pairs else levels, (*levels, "pairs") if has_pairs else ("pairs",))
    for name, link in links.items():
        if name == "pairs":
            continue
        where = f"links.{name}"
        read.mapping(link, where, ("latency", "bandwidth"), ("groups",) if name != "wan" else ())
        _check_link(read, link, where)
        overrides = link.get("groups", {})
        if not isinstance(overrides, dict):
            read.fail(f"{where}.groups", f"{shown(overrides)}: expected an object of links by group number")
        known = set() if name == "wan" else {str(g) for g in groups[LEVEL_NAMES.index(name)].tolist() if g >= 0}
        for group, override in overrides.items():
            here = f"{where}.groups.{group}"
            if group not in known:
                read.fail(here, f"no site lies in {name} {shown(group)}")
            _check_link(read, read.mapping(override, here, (), ("latency", "bandwidth")), here)
    if has_pairs:
        pairs = read.mapping(links["pairs"], "links.pairs", ("latency", "seconds_per_byte"))
        S = groups.shape[1]
        for name, rows in pairs.items():
            for a, row in enumerate(read.array(rows, f"links.pairs.{name}", S, "site")):
                read.numbers(row, f"links.pairs.{name}[{a}]", S, "site")


def _check_link(read: JsonReader, link: dict[str, Any], where: str) -> None:
    if "latency" in link:
        read.number(link["latency"], f"{where}.latency")
    if "bandwidth" in link:
        read.number(link["bandwidth"], f"{where}.bandwidth", above=0.0)


def _check_stages(read: JsonReader, value: object, sites: int, extensions: list[str]) -> list[dict[str, Any]]:
    stages = read.array(value, "stages")
    if not stages:
        read.fail("stages", "empty: expected at least one stage")
    optional = ("sla", "finish_by") if "finish_by" in extensions else ("sla",)
    for v, stage in enumerate(stages):
        where = f"stages[{v}]"
        read.mapping(stage, where, ("id", "options"), optional)
        for limit in ("sla", "finish_by"):
            if stage.get(limit) is not None:
                read.number(stage[limit], f"{where}.{limit}")
        _check_options(read, stage["options"], f"{where}.options", sites, extensions)
    seen: dict[str, int] = {}
    for v, stage in enumerate(stages):
        name = read.text(stage["id"], f"stages[{v}].id")
        if name in seen:
            read.fail(f"stages[{v}].id", f"{shown(name)} stands twice, first at {seen[name]}")
        seen[name] = v
    return stages


def _check_options(read: JsonReader, value: object, where: str, sites: int, extensions: list[str]) -> None:
    extra = [key for key, name in (("weights", "weights"), ("kv", "peak_memory")) if name in extensions]
    options = read.mapping(value, where, ("site", "variant", "cost", "time", "memory"), extra)
    read.indices(options["site"], f"{where}.site", None, "", count=sites)
    count = len(options["site"])  # 0 is a stage that nothing can run: well formed, and infeasible
    for i, variant in enumerate(read.array(options["variant"], f"{where}.variant", count, "option")):
        read.text(variant, f"{where}.variant[{i}]")
    read.numbers(options["cost"], f"{where}.cost", count, "option", least=None)
    read.numbers(options["time"], f"{where}.time", count, "option")
    read.numbers(options["memory"], f"{where}.memory", count, "option")
    if "kv" in options:
        read.numbers(options["kv"], f"{where}.kv", count, "option")
        for i, (kv, memory) in enumerate(zip(options["kv"], options["memory"], strict=True)):
            if kv > memory:
                read.fail(f"{where}.kv[{i}]", f"{shown(kv)}: expected at most the option's memory, {shown(memory)}")
    pairs = list(zip(options["site"], options["variant"], strict=True))
    if len(set(pairs)) < count:
        i = next(i for i, pair in enumerate(pairs) if pair in pairs[:i])
        read.fail(f"{where}.site[{i}]", f"site {pairs[i][0]} with variant {shown(pairs[i][1])} stands twice")
    if "weights" in options:
        here = f"{where}.weights"
        weight = read.mapping(options["weights"], here, ("key", "memory"))
        for i, key in enumerate(read.array(weight["key"], f"{here}.key", count, "option")):
            if key is not None:
                read.text(key, f"{here}.key[{i}]")
        read.numbers(weight["memory"], f"{here}.memory", count, "option")


def _check_edges(
    read: JsonReader, document: dict[str, Any], stages: list[str], options: list[int], extensions: list[str]
) -> None:
    edges = read.array(document["edges"], "edges")
    extra = [key for key, name in (("overlap", "overlap"), ("hands_on", "peak_memory")) if name in extensions]
    optional = ("kind", "bytes", "weight", *extra)
    takes_over: dict[int, int] = {}
    for e, edge in enumerate(edges):
        where = f"edges[{e}]"
        read.mapping(edge, where, ("from", "to"), optional)
        source = read.index(edge["from"], f"{where}.from", len(stages), "stage")
        target = read.index(edge["to"], f"{where}.to", len(stages), "stage")
        if edge.get("kind", "data") not in KINDS:
            read.fail(f"{where}.kind", f"{shown(edge['kind'])}: expected data or control")
        if "bytes" not in edge and edge.get("kind", "data") == "data":
            read.fail(where, "key bytes is missing")
        read.number(edge.get("bytes", 0), f"{where}.bytes")
        read.number(edge.get("weight", 1), f"{where}.weight")
        if read.flag(edge.get("hands_on", False), f"{where}.hands_on"):
            if edge.get("kind", "data") != "data":
                read.fail(f"{where}.hands_on", "true on a control edge: expected a data edge")
            if target in takes_over:
                read.fail(f"{where}.hands_on", f"true, as in edges[{takes_over[target]}]: expected one into a stage")
            takes_over[target] = e
        if "overlap" in edge:
            here = f"{where}.overlap"
            overlap = read.mapping(edge["overlap"], here, ("chunk", "hidden"))
            read.number(overlap["chunk"], f"{here}.chunk", above=0.0)
            read.numbers(overlap["hidden"], f"{here}.hidden", options[source], "option of the from-stage")
    cycle = find_cycle(len(stages), [(edge["from"], edge["to"]) for edge in edges])
    if cycle:
        read.fail("edges", "a cycle: " + " → ".join(shown(stages[v]) for v in cycle))


def _check_affinity(read: JsonReader, value: object, stages: int) -> None:
    levels = ("site", *LEVEL_NAMES)
    for i, rule in enumerate(read.array(value, "affinity")):
        where = f"affinity[{i}]"
        read.mapping(rule, where, ("stages", "level"), ("apart", "required", "penalty"))
        _check_stage_set(read, rule["stages"], f"{where}.stages", stages)
        if not rule["stages"]:
            read.fail(f"{where}.stages", "empty: expected at least one stage")
        if rule["level"] not in levels:
            read.fail(f"{where}.level", f"{shown(rule['level'])}: expected {', '.join(levels)}")
        read.flag(rule.get("apart", False), f"{where}.apart")
        read.flag(rule.get("required", True), f"{where}.required")
        read.number(rule.get("penalty", 0), f"{where}.penalty")


def _check_stage_set(read: JsonReader, value: object, where: str, stages: int) -> None:
    read.indices(value, where, None, "", count=stages)
    if isinstance(value, list) and len(set(value)) < len(value):
        read.fail(where, f"{shown(value)}: a stage stands twice")
