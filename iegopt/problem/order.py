"""Topological order of a small graph, and the cycle that forbids one."""

from __future__ import annotations

from collections.abc import Sequence

__all__ = ["find_cycle", "topological_order"]


def topological_order(count: int, edges: Sequence[tuple[int, int]]) -> list[int]:
    """Kahn's algorithm. Shorter than ``count`` where there is a cycle."""
    successors, waiting = _successors(count, edges), [0] * count
    for _, target in edges:
        waiting[target] += 1
    ready = [v for v in reversed(range(count)) if not waiting[v]]
    order = []
    while ready:
        u = ready.pop()
        order.append(u)
        for v in successors[u]:
            waiting[v] -= 1
            if not waiting[v]:
                ready.append(v)
    return order


def find_cycle(count: int, edges: Sequence[tuple[int, int]]) -> list[int]:
    """The stages of one cycle in order, the first repeated at the end; empty where there is none."""
    stuck = set(range(count)) - set(topological_order(count, edges))
    if not stuck:
        return []
    predecessors: dict[int, int] = {v: u for u, v in edges if u in stuck and v in stuck}
    walk = [min(predecessors)]
    while walk[-1] not in walk[:-1]:
        walk.append(predecessors[walk[-1]])
    return walk[walk.index(walk[-1]) :][::-1]


def _successors(count: int, edges: Sequence[tuple[int, int]]) -> list[list[int]]:
    successors: list[list[int]] = [[] for _ in range(count)]
    for source, target in edges:
        successors[source].append(target)
    return successors
