"""Small random instances in which time counts: weighted makespan, no overlaps, peak memory, in every mixture."""

from __future__ import annotations

import random
from typing import Any

from tests.solvers.random_problems import random_instance

FEATURES = ("makespan_weight", "no_overlap", "peak_memory")


def timed_instance(seed: int, features: tuple[str, ...] | None = None) -> dict[str, Any]:
    """An ``iegopt-instance/1`` document with these extensions, else with a draw of one to three of them."""
    rng = random.Random(f"timed {seed}")
    chosen = rng.sample(FEATURES, rng.randint(1, 3)) if features is None else list(features)
    if features is None and "no_overlap" in chosen and rng.random() < 0.6:
        chosen = sorted({*chosen, "makespan_weight"})
    both = {"no_overlap", "peak_memory"} <= set(chosen)
    stages = rng.randint(2, 4 if both else 5)
    shape = "chain" if "peak_memory" in chosen and rng.random() < 0.5 else None
    document = random_instance(seed, stages=stages, shape=shape, combinations=60 if "no_overlap" in chosen else 400)
    if "makespan_weight" in chosen:
        document["makespan_weight"] = rng.choice([1.0, 0.5, 3, round(rng.uniform(0, 2), 6)])
        if rng.random() < 0.3:
            for stage in document["stages"]:
                stage["options"]["cost"] = [0.0] * len(stage["options"]["cost"])
    if "peak_memory" in chosen:
        lifetimes(rng, document)
    if rng.random() < 0.5:
        document.pop("deadline", None)
    instant = random.Random(f"instant {seed}")
    if instant.random() < 0.3:
        for stage in document["stages"]:
            stage["options"]["time"] = [0.0 if instant.random() < 0.4 else t for t in stage["options"]["time"]]
    document["extensions"] = sorted({*document.get("extensions", []), *chosen})
    return document


def lifetimes(rng: random.Random, document: dict[str, Any]) -> None:
    """KV caches, edges that hand them on, and capacities that a sum would break and a moment may not."""
    crowded = rng.random() < 0.7
    for stage in document["stages"]:
        options = stage["options"]
        if crowded:
            options["memory"] = [rng.randint(4, 6) * 10**9 for _ in options["memory"]]
        if crowded or rng.random() < 0.8:
            options["kv"] = [m if rng.random() < 0.6 else int(m * rng.uniform(0.4, 1)) for m in options["memory"]]
    taken: set[int] = set()
    for edge in document["edges"]:
        if edge["kind"] == "data" and edge["to"] not in taken and rng.random() < 0.8:
            edge["hands_on"] = True
            taken.add(edge["to"])
            if crowded:
                edge |= {"bytes": 4e9, "weight": 1.0}
    document["devices"]["memory"] = [int(m * rng.uniform(0.7, 1.3)) for m in document["devices"]["memory"]]
    if crowded:  # room for one stage and perhaps what another keeps, seldom for three
        document["devices"]["memory"] = [rng.randint(6, 10) * 10**9 for _ in document["devices"]["memory"]]
