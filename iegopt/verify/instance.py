"""Check of a placement against an instance document, in plain loops and floating-point seconds.

Everything is recomputed from the document alone: nothing here knows the compiled problem or a solver. Times that
were rounded to nanoseconds may be off by half a nanosecond each, so a sum of n of them may exceed its limit by less
than (n + 1)/2 ns before it counts as broken; memory by a millionth of a byte per stage.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from iegopt.verify.peak import check_peak
from iegopt.verify.report import Report, Violation

__all__ = ["check_placement", "finite"]

_LEVELS = ("domain", "host", "rack", "datacenter")
_TICK = 1e-9


def check_placement(document: Mapping[str, Any], placement: Mapping[str, Any]) -> Report:
    """Every constraint that a placement breaks, its objective and makespan in seconds.

    Parameters
    ----------
    document
        A well-formed ``iegopt-instance/1``.
    placement
        Stage id → ``{"site": site id, "variant": name}``, with the extension ``no_overlap`` also ``"start"`` (s).
    """
    chosen, found = _chosen(document, placement)
    if found:
        return Report(tuple(found), None, None)
    start, found = _starts(document, placement)
    if found:
        return Report(tuple(found), None, None)
    finish = _finish(document, chosen) if start is None else _from_starts(document, chosen, start)
    if start is not None:
        found += _order(document, chosen, start) + _overlaps(document, chosen, start)
    if "peak_memory" in document.get("extensions", []):
        times = [float(stage["options"]["time"][o]) for stage, o in zip(document["stages"], chosen, strict=True)]
        begin = [end - time for (end, _), time in zip(finish, times, strict=True)] if start is None else start
        found += check_peak(document, chosen, begin, [end for end, _ in finish])
    else:
        found += _memory(document, chosen)
    found += _times(document, chosen, finish) + _affinities(document, chosen, required=True)
    objective = sum(float(stage["options"]["cost"][o]) for stage, o in zip(document["stages"], chosen, strict=True))
    objective += sum(float(edge.get("weight", 1)) * _transfer(document, edge, chosen) for edge in document["edges"])
    objective += sum(float(v.used) for v in _affinities(document, chosen, required=False))
    makespan = max(end for end, _ in finish)
    objective += float(document.get("makespan_weight", 0)) * makespan
    return Report(tuple(found), objective, makespan)


def finite(value: object) -> float | None:
    """A finite number, or ``None``."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        return None
    return float(value)


def _chosen(document: Mapping[str, Any], placement: Mapping[str, Any]) -> tuple[list[int], list[Violation]]:
    """The option of every stage, and what is missing or unknown."""
    chosen: list[int] = []
    found: list[Violation] = []
    site_ids = document["sites"]["id"]
    stage_ids = [stage["id"] for stage in document["stages"]]
    for stage in document["stages"]:
        at = placement.get(stage["id"])
        if at is None:
            found.append(Violation("stage", stage["id"], "not placed", "one option"))
            continue
        site, variant = (at.get("site"), at.get("variant")) if isinstance(at, dict) else (at, None)
        options = stage["options"]
        matches = [
            o
            for o, (s, m) in enumerate(zip(options["site"], options["variant"], strict=True))
            if site_ids[s] == site and m == variant
        ]
        if matches:
            chosen.append(matches[0])
        else:
            found.append(Violation("option", stage["id"], f"{variant} on {site}", "one of its options"))
    found += [Violation("stage", str(name), "placed", "no such stage") for name in placement if name not in stage_ids]
    return chosen, found


def _starts(document: Mapping[str, Any], placement: Mapping[str, Any]) -> tuple[list[float] | None, list[Violation]]:
    """(V,) seconds where stages must not overlap, else ``None``; and the stages without."""
    if "no_overlap" not in document.get("extensions", []):
        return None, []
    start = [finite(placement[stage["id"]].get("start")) for stage in document["stages"]]
    missing = [
        Violation("start", stage["id"], repr(placement[stage["id"]].get("start")), "seconds")
        for stage, at in zip(document["stages"], start, strict=True)
        if at is None
    ]
    return [at for at in start if at is not None], missing


def _from_starts(document: Mapping[str, Any], chosen: list[int], start: list[float]) -> list[tuple[float, int]]:
    """(V,) end of every stage, and how many rounded times were summed."""
    stages = zip(document["stages"], chosen, start, strict=True)
    return [(at + float(stage["options"]["time"][o]), 2) for stage, o, at in stages]


def _order(document: Mapping[str, Any], chosen: list[int], start: list[float]) -> list[Violation]:
    """Stages that start before the beginning, or before an input has arrived."""
    finish = _from_starts(document, chosen, start)
    names = [stage["id"] for stage in document["stages"]]
    found = [Violation("start", names[v], at, 0.0) for v, at in enumerate(start) if at < 0]
    for edge in document["edges"]:
        u, v = edge["from"], edge["to"]
        arrival = finish[u][0] + _transfer(document, edge, chosen)
        if _exceeds(arrival, start[v], 1):
            found.append(Violation("order", f"{names[u]} -> {names[v]}", start[v], arrival))
    return found


def _overlaps(document: Mapping[str, Any], chosen: list[int], start: list[float]) -> list[Violation]:
    """Pairs of stages that run at one moment on one device."""
    finish = _from_starts(document, chosen, start)
    names = [stage["id"] for stage in document["stages"]]
    sites = [stage["options"]["site"][o] for stage, o in zip(document["stages"], chosen, strict=True)]
    found = []
    for v in range(len(chosen)):
        for u in range(v):
            common = set(document["sites"]["devices"][sites[u]]) & set(document["sites"]["devices"][sites[v]])
            shared = min(finish[u][0], finish[v][0]) - max(start[u], start[v])
            if _exceeds(shared, 0.0, 0):
                for d in sorted(common):
                    pair = f"{names[u]}, {names[v]} on {document['devices']['id'][d]}"
                    found.append(Violation("no_overlap", pair, shared, 0.0))
    return found


def _memory(document: Mapping[str, Any], chosen: list[int]) -> list[Violation]:
    used = [0.0] * len(document["devices"]["id"])
    counted = set()
    for stage, o in zip(document["stages"], chosen, strict=True):
        options = stage["options"]
        site = options["site"][o]
        amount = options["memory"][o]
        if "weights" in options:
            key = options["weights"]["key"][o]
            if key is not None and (key, site) not in counted:
                counted.add((key, site))
                amount = amount + options["weights"]["memory"][o]
        members = document["sites"]["devices"][site]
        for device in members:
            used[device] += amount / len(members)
    found = []
    for device, total, allowed in zip(document["devices"]["id"], used, document["devices"]["memory"], strict=True):
        if total > allowed + 1e-6 * len(chosen) + 1e-15 * allowed:
            found.append(Violation("memory", device, total, allowed))
    return found


def _times(document: Mapping[str, Any], chosen: list[int], finish: list[tuple[float, int]]) -> list[Violation]:
    found = []
    times = [stage["options"]["time"][o] for stage, o in zip(document["stages"], chosen, strict=True)]
    for stage, time, (end, terms) in zip(document["stages"], times, finish, strict=True):
        if stage.get("sla") is not None and _exceeds(time, stage["sla"], 1):
            found.append(Violation("sla", stage["id"], time, stage["sla"]))
        if stage.get("finish_by") is not None and _exceeds(end, stage["finish_by"], terms):
            found.append(Violation("finish_by", stage["id"], end, stage["finish_by"]))
    end, terms = max(finish)
    if document.get("deadline") is not None and _exceeds(end, document["deadline"], terms):
        last = document["stages"][finish.index((end, terms))]["id"]
        found.append(Violation("deadline", last, end, document["deadline"]))
    if document.get("budget") is not None:
        members = document["budget"]["stages"]
        spent = sum(times[v] for v in members)
        if _exceeds(spent, document["budget"]["limit"], len(members)):
            where = ", ".join(document["stages"][v]["id"] for v in members)
            found.append(Violation("budget", where, spent, document["budget"]["limit"]))
    return found


def _exceeds(used: float, allowed: float, terms: int) -> bool:
    """Whether a sum of ``terms`` rounded times is over its limit by more than rounding explains."""
    return used > allowed + 0.5 * (terms + 1) * 0.999 * _TICK


def _finish(document: Mapping[str, Any], chosen: list[int]) -> list[tuple[float, int]]:
    """(V,) end of every stage, and how many times were summed, by relaxing the edges until nothing moves."""
    times = [float(stage["options"]["time"][o]) for stage, o in zip(document["stages"], chosen, strict=True)]
    edges = [(edge["from"], edge["to"], _transfer(document, edge, chosen)) for edge in document["edges"]]
    finish = [(time, 1) for time in times]
    for _ in times:
        before = list(finish)
        for u, v, transfer in edges:
            finish[v] = max(finish[v], (finish[u][0] + transfer + times[v], finish[u][1] + 2))
        if finish == before:
            break
    return finish


def _transfer(document: Mapping[str, Any], edge: Mapping[str, Any], chosen: list[int]) -> float:
    """Seconds of an edge (section 1 of the format, and the extensions ``overlap`` and ``parallel_shards``)."""
    u, v = edge["from"], edge["to"]
    a = document["stages"][u]["options"]["site"][chosen[u]]
    b = document["stages"][v]["options"]["site"][chosen[v]]
    if a == b:
        return 0.0
    latency, seconds_per_byte = _link(document, a, b)
    size = float(edge.get("bytes", 0))
    seconds = latency + size * seconds_per_byte
    if "overlap" not in edge:
        return seconds
    least = latency + min(float(edge["overlap"]["chunk"]), size) * seconds_per_byte
    return max(seconds - float(edge["overlap"]["hidden"][chosen[u]]), least)


def _link(document: Mapping[str, Any], a: int, b: int) -> tuple[float, float]:
    """Latency and seconds per byte between two sites, shards in parallel counted in."""
    sites, links = document["sites"], document["links"]
    shards = 1
    if "parallel_shards" in document.get("extensions", []) and len(sites["devices"][a]) == len(sites["devices"][b]):
        shards = len(sites["devices"][a])
    if "pairs" in links:
        return float(links["pairs"]["latency"][a][b]), float(links["pairs"]["seconds_per_byte"][a][b]) / shards
    link = links["wan"]
    for level in _LEVELS:
        group = sites[level][a]
        if group >= 0 and group == sites[level][b]:
            link = {**links[level], **links[level].get("groups", {}).get(str(group), {})}
            break
    return float(link["latency"]), 1 / (float(link["bandwidth"]) * shards)


def _affinities(document: Mapping[str, Any], chosen: list[int], *, required: bool) -> list[Violation]:
    """Broken affinities of one sort; ``used`` is the sites where required, the penalty where preferred."""
    found = []
    for rule in document.get("affinity", []):
        if rule.get("required", True) is not required:
            continue
        sites = [document["stages"][v]["options"]["site"][chosen[v]] for v in rule["stages"]]
        apart = rule.get("apart", False)
        pairs = [(a, b) for i, a in enumerate(sites) for b in sites[i + 1 :]]
        if any(_together(document, rule["level"], a, b) is apart for a, b in pairs):
            where = ", ".join(document["stages"][v]["id"] for v in rule["stages"])
            used = ", ".join(document["sites"]["id"][s] for s in sites) if required else float(rule.get("penalty", 0))
            found.append(Violation("affinity", where, used, f"{'apart' if apart else 'together'} by {rule['level']}"))
    return found


def _together(document: Mapping[str, Any], level: str, a: int, b: int) -> bool:
    if a == b or level == "site":
        return bool(a == b)
    group = document["sites"][level][a]
    return bool(group >= 0 and group == document["sites"][level][b])
