"""Memory of a placement at every moment, against an instance document (its extension ``peak_memory``).

Ends and starts are sums of rounded times: two moments closer than a few nanoseconds are one, so that what ends when
another begins never overlaps it by rounding.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from iegopt.verify.report import Violation

__all__ = ["check_peak"]

_TICK = 1e-9


def check_peak(
    document: Mapping[str, Any], chosen: list[int], start: list[float], finish: list[float]
) -> list[Violation]:
    """Devices that hold too much at some moment, or that a stage alone does not fit, whatever time it takes.

    Parameters
    ----------
    chosen, start, finish (V,)
        Option of every stage, and its seconds.
    """
    stages, devices = document["stages"], document["sites"]["devices"]
    near = _TICK * (len(stages) + len(document["edges"]))
    site = [stage["options"]["site"][o] for stage, o in zip(stages, chosen, strict=True)]
    memory = [float(stage["options"]["memory"][o]) for stage, o in zip(stages, chosen, strict=True)]
    kv = [float(stage["options"]["kv"][o]) if "kv" in stage["options"] else 0.0
          for stage, o in zip(stages, chosen, strict=True)]  # fmt: skip
    inner = [edge for edge in document["edges"] if site[edge["from"]] == site[edge["to"]]]
    release = list(finish)
    for edge in inner:
        if edge.get("kind", "data") == "data":
            release[edge["from"]] = max(release[edge["from"]], finish[edge["to"]])
    found = []
    for d, (name, allowed) in enumerate(zip(document["devices"]["id"], document["devices"]["memory"], strict=True)):
        here = [v for v in range(len(stages)) if d in devices[site[v]]]
        fixed = _weights(document, chosen, site, here)
        worst = max([fixed, *(_alone(document, chosen, site, v) for v in here)])
        for moment in [start[v] for v in here] + [release[v] for v in here]:
            held = [v for v in here if start[v] <= moment + near and moment + near < release[v]]
            load = fixed + sum(memory[v] / len(devices[site[v]]) for v in held)
            for edge in inner:
                u, v = edge["from"], edge["to"]
                if edge.get("hands_on") and v in held and moment + near < release[u]:
                    load -= min(kv[u], kv[v]) / len(devices[site[v]])
            worst = max(worst, load)
        if worst > allowed + 1e-6 * len(chosen) + 1e-15 * allowed:
            found.append(Violation("memory", name, worst, allowed))
    return found


def _alone(document: Mapping[str, Any], chosen: list[int], site: list[int], v: int) -> float:
    """Bytes that a stage and its weights take on each of its devices."""
    own = float(document["stages"][v]["options"]["memory"][chosen[v]])
    return own / len(document["sites"]["devices"][site[v]]) + _weights(document, chosen, site, [v])


def _weights(document: Mapping[str, Any], chosen: list[int], site: list[int], here: list[int]) -> float:
    """Bytes of shared weights on a device, once per key and site; they stay throughout."""
    size: dict[tuple[str, int], float] = {}
    for v in here:
        weights = document["stages"][v]["options"].get("weights")
        if weights is not None and weights["key"][chosen[v]] is not None:
            share = weights["memory"][chosen[v]] / len(document["sites"]["devices"][site[v]])
            size[weights["key"][chosen[v]], site[v]] = share
    return sum(size.values())
