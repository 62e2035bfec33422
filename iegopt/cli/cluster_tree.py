"""A placement on its cluster as a tree: datacenter → rack → host → devices, the unused parts counted.

The tree is as large as the plan, not as the cluster: 10,000 devices of which four are used are
four leaves, and a line "1,249 more hosts" where they belong. A small cluster is shown whole.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from iegopt.devices import Device
    from iegopt.plans import Plan

__all__ = ["Branch", "cluster_tree"]

_SMALL = 24
"""A cluster of at most so many devices is shown whole."""
_LEVELS = ("datacenter", "rack", "host")


@dataclass(frozen=True)
class Branch:
    """A line of the tree: ``stages`` run on this very device, ``used`` tells whether any runs below."""

    label: str
    detail: str
    stages: tuple[str, ...]
    used: bool
    children: tuple[Branch, ...]


def cluster_tree(plan: Plan, devices: Sequence[Device]) -> Branch:
    """The tree of a cluster's devices with the stages of a plan at theirs."""
    at: dict[str, list[str]] = {}
    for stage in plan.stages:
        for number, device in enumerate(stage.devices, 1):
            part = f" ({number}/{len(stage.devices)})" if len(stage.devices) > 1 else ""
            at.setdefault(device, []).append(stage.id + part)
    children = _groups(devices, 0, at, len(devices) <= _SMALL)
    return Branch(plan.cluster, _models(devices), (), bool(at), children)


def _groups(devices: Iterable[Device], depth: int, at: Mapping[str, list[str]], whole: bool) -> tuple[Branch, ...]:
    """The branches of one level: used ones in full, the others as one line."""
    if depth == len(_LEVELS):
        return _devices(devices, at, whole)
    members: dict[str, list[Device]] = {}
    for device in devices:
        members.setdefault(device.path[len(_LEVELS) - depth], []).append(device)
    shown: list[tuple[str, list[Device]]] = []
    hidden: list[tuple[str, list[Device]]] = []
    for name, inside in members.items():
        (shown if whole or any(device.id in at for device in inside) else hidden).append((name, inside))
    branches = [_group(name, inside, depth, at, whole) for name, inside in shown]
    if hidden:
        rest = [device for _, inside in hidden for device in inside]
        label = f"{len(hidden):,} {'more ' if shown else ''}{_LEVELS[depth]}{'s' if len(hidden) > 1 else ''}"
        branches.append(Branch(label, _models(rest), (), False, ()))
    return tuple(branches)


def _group(name: str, inside: list[Device], depth: int, at: Mapping[str, list[str]], whole: bool) -> Branch:
    own = name.rpartition("/")[2]
    if _LEVELS[depth] == "host" and len(inside) == 1 and inside[0].id == own:
        return _devices(inside, at, whole)[0]
    used = any(device.id in at for device in inside)
    return Branch(f"{_LEVELS[depth]} {own}", _models(inside), (), used, _groups(inside, depth + 1, at, whole))


def _devices(devices: Iterable[Device], at: Mapping[str, list[str]], whole: bool) -> tuple[Branch, ...]:
    shown: list[Device] = []
    hidden: list[Device] = []
    for device in devices:
        (shown if whole or device.id in at else hidden).append(device)
    leaves = [
        Branch(device.id, device.kind.model, tuple(at.get(device.id, ())), device.id in at, ()) for device in shown
    ]
    if hidden:
        label = f"{len(hidden):,} more device{'s' if len(hidden) > 1 else ''}"
        leaves.append(Branch(label, _models(hidden), (), False, ()))
    return tuple(leaves)


def _models(devices: Iterable[Device]) -> str:
    counts = Counter(device.kind.model for device in devices)
    return ", ".join(f"{number:,} × {model}" for model, number in counts.most_common())
