"""The execution graph as a drawing: nodes coloured by node type, edges labelled with their bytes."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import TYPE_CHECKING

from iegopt.cli.format import data, seconds
from iegopt.cli.html.layers import Layout, layout
from iegopt.cli.html.svg import BOLD, clip, rect, svg, text, text_width, titled
from iegopt.spec.kinds import KINDS
from iegopt.spec.stage import NodeType, StageKind

if TYPE_CHECKING:
    from iegopt.plans import Plan, StagePlan, TransferPlan

__all__ = ["draw_graph", "node_type"]

_WIDTH, _HEIGHT = 176.0, 46.0
_GAP, _STEP, _MARGIN = 22.0, 92.0, 8.0
_PORT = 20.0

Point = tuple[float, float]


def node_type(kind: str) -> str:
    """The node type of a stage kind, by which it is coloured; a KV cache that lies somewhere is memory."""
    return str(NodeType.MEMORY if kind == "kv_location" else KINDS[StageKind(kind)].node_type)


def draw_graph(plan: Plan) -> tuple[str, float]:
    """The drawing, and how wide it is."""
    index = {stage.id: i for i, stage in enumerate(plan.stages)}
    drawn = [t for t in plan.transfers if t.source in index and t.target in index]
    place = layout(len(plan.stages), [(index[t.source], index[t.target]) for t in drawn], _WIDTH, _GAP)
    curves = _curves(place, drawn, index)
    labels: list[tuple[float, float, float]] = []
    lines, words = [], []
    for transfer, points in zip(drawn, curves, strict=True):
        tooltip = (
            f"{transfer.source} → {transfer.target} ({transfer.kind})\n{data(transfer.bytes)} over {transfer.path}\n"
            f"{seconds(transfer.raw)} raw, {seconds(transfer.exposed)} exposed"
        )
        lines.append(titled(_path(points, transfer.kind), tooltip))
        if transfer.bytes:
            words.append(_label(points, data(transfer.bytes), labels))
    nodes = [_node(stage, place.x[i], place.layer[i]) for i, stage in enumerate(plan.stages)]
    width, height = place.width + 2 * _MARGIN, (place.depth - 1) * _STEP + _HEIGHT + 2 * _MARGIN
    return svg(width, height, "execution graph", "".join([*lines, *nodes, *words])), width


def _node(stage: StagePlan, x: float, layer: int) -> str:
    left, top = _MARGIN + x - _WIDTH / 2, _MARGIN + layer * _STEP
    body = rect(left, top, _WIDTH, _HEIGHT, f"node {node_type(stage.kind)}", 6)
    room = _WIDTH - 16
    time = seconds(stage.time)
    site = clip(stage.site, room - text_width(f" · {time}", 11), 11)
    body += text(left + _WIDTH / 2, top + 19, clip(stage.id, room, BOLD), "name", "middle")
    body += text(left + _WIDTH / 2, top + 36, f"{site} · {time}", "small", "middle")
    where = f"{stage.variant} on {stage.site}, {stage.device_model}"
    return titled(body, f"{stage.id} ({stage.kind})\n{where}\n{time}, bound by {stage.bottleneck}")


def _curves(place: Layout, drawn: Sequence[TransferPlan], index: dict[str, int]) -> list[list[Point]]:
    """Points of every edge; edges that share a node leave and enter it side by side."""
    leave: dict[str, list[int]] = {}
    enter: dict[str, list[int]] = {}
    for e, transfer in enumerate(drawn):
        leave.setdefault(transfer.source, []).append(e)
        enter.setdefault(transfer.target, []).append(e)
    shift_out, shift_in = [0.0] * len(drawn), [0.0] * len(drawn)
    for groups, shifts, neighbour in ((leave, shift_out, 1), (enter, shift_in, -2)):
        for members in groups.values():
            members.sort(key=lambda e, at=neighbour: place.paths[e][at][0])  # type: ignore[misc]
            step = min(_PORT, (_WIDTH - 30) / len(members))
            for number, e in enumerate(members):
                shifts[e] = (number - (len(members) - 1) / 2) * step
    curves = []
    for e, path in enumerate(place.paths):
        points = [(_MARGIN + x, _MARGIN + layer * _STEP + _HEIGHT / 2) for x, layer in path]
        points[0] = (points[0][0] + shift_out[e], points[0][1] + _HEIGHT / 2)
        points[-1] = (points[-1][0] + shift_in[e], points[-1][1] - _HEIGHT / 2 - 5)
        curves.append(points)
    return curves


def _path(points: list[Point], kind: str) -> str:
    steps = [f"M{points[0][0]:.1f},{points[0][1]:.1f}"]
    for (x0, y0), (x1, y1) in itertools.pairwise(points):
        bend = (y1 - y0) / 2
        steps.append(f"C{x0:.1f},{y0 + bend:.1f} {x1:.1f},{y1 - bend:.1f} {x1:.1f},{y1:.1f}")
    way = "".join(steps)
    x, y = points[-1]
    head = f'<path class="head" d="M{x - 4:.1f},{y - 3:.1f}L{x + 4:.1f},{y - 3:.1f}L{x:.1f},{y + 5:.1f}Z"/>'
    return f'<path class="hit" d="{way}"/><path class="edge {kind}" d="{way}"/>{head}'


def _label(points: list[Point], words: str, taken: list[tuple[float, float, float]]) -> str:
    """The bytes of an edge on its line, where no earlier label is in the way."""
    width = text_width(words, 11) + 6
    spots = [_on_curve(points, share) for share in (0.5, 0.62, 0.38, 0.74, 0.26)]
    free = [
        (x, y) for x, y in spots if all(abs(x - a) > (width + w) / 2 or abs(y - b) > 13 for a, b, w in taken)
    ]  # fmt: skip
    x, y = (free or spots)[0]
    taken.append((x, y, width))
    return rect(x - width / 2, y - 7, width, 14, "under") + text(x, y + 4, words, "bytes", "middle")


def _on_curve(points: list[Point], share: float) -> Point:
    """A point of the segment in the middle of the edge; the segment is x(t) = x0 + (3t² − 2t³)(x1 − x0)."""
    middle = (len(points) - 1) // 2
    (x0, y0), (x1, y1) = points[middle], points[middle + 1]
    t = share
    y = (1 - t) ** 3 * y0 + 1.5 * (t * (1 - t) ** 2 + t**2 * (1 - t)) * (y0 + y1) + t**3 * y1
    return x0 + (3 * t**2 - 2 * t**3) * (x1 - x0), y
