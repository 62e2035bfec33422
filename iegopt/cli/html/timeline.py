"""When what runs where: a Gantt chart with a row per site, and the transfers above the stages they feed."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from iegopt.cli.format import data, seconds
from iegopt.cli.html.axis import time_axis
from iegopt.cli.html.graph import node_type
from iegopt.cli.html.svg import BOLD, clip, rect, svg, text, text_width, titled

if TYPE_CHECKING:
    from iegopt.plans import Plan, StagePlan

__all__ = ["draw_timeline"]

_WIDTH, _LABELS, _RIGHT = 1180.0, 190.0, 60.0
_LANE, _BAR, _STRIP, _TOP = 23.0, 18.0, 9.0, 30.0
_NARROW = 2.5


def draw_timeline(plan: Plan) -> str:
    """The chart of a plan."""
    end = plan.makespan or 1.0
    if plan.deadline is not None and plan.deadline <= 1.5 * end:
        end = plan.deadline
    scale = (_WIDTH - _LABELS - _RIGHT) / end
    rows: dict[str, list[StagePlan]] = {}
    for stage in sorted(plan.stages, key=lambda stage: (stage.start, stage.finish)):
        rows.setdefault(stage.site, []).append(stage)
    y = _TOP
    stripes: list[str] = []
    body: list[str] = []
    for number, (site, stages) in enumerate(rows.items()):
        arriving = _arriving(plan, {stage.id for stage in stages}, scale, y)
        bars, lanes = _bars(stages, scale, y + _STRIP)
        height = _STRIP + lanes * _LANE + 5
        stripes.append(rect(0, y, _WIDTH, height, "row odd" if number % 2 else "row", 0))
        body.append(_row_label(site, stages[0], y, height))
        body += [*arriving, *bars]
        y += height
    axis = time_axis(end, scale, _LABELS, _TOP, y)
    if plan.deadline is not None and plan.deadline == end:
        x = _LABELS + end * scale
        axis += f'<path class="limit" d="M{x:.1f},{_TOP - 6:.1f}V{y:.1f}"/>' + text(
            x - 4, _TOP - 18, "deadline", "small", "end"
        )
    return svg(_WIDTH, y + 4, "timeline", "".join(stripes) + axis + "".join(body))


def _row_label(site: str, stage: StagePlan, y: float, height: float) -> str:
    gang = f"{len(stage.devices)} × " if len(stage.devices) > 1 else ""
    middle = y + height / 2
    words = text(8, middle - 1, clip(site, _LABELS - 20, BOLD), "name") + text(
        8, middle + 12, clip(f"{gang}{stage.device_model}", _LABELS - 20, 11), "small dim"
    )
    return titled(words, f"{site}\n{gang}{stage.device_model}")


def _bars(stages: Iterable[StagePlan], scale: float, top: float) -> tuple[list[str], int]:
    """A bar per stage; stages that run (or whose names stand) side by side get lanes of their own."""
    free: list[float] = []
    bars = []
    for stage in stages:
        x, width = _LABELS + stage.start * scale, max((stage.finish - stage.start) * scale, _NARROW)
        name = clip(stage.id, 220, 11)
        needs = text_width(name, 11) + 8
        inside = width >= needs
        before = not inside and x + width + needs > _WIDTH
        left = x - needs if before else x
        right = x + width if inside or before else x + width + needs
        lane = next((i for i, taken in enumerate(free) if taken <= left), len(free))
        if lane == len(free):
            free.append(0.0)
        free[lane] = right
        y = top + lane * _LANE
        at = x + width / 2 if inside else x - 4 if before else x + width + 4
        anchor = "middle" if inside else "end" if before else "start"
        body = rect(x, y, width, _BAR, f"bar {node_type(stage.kind)}", min(3, width / 2))
        body += text(at, y + 13, name, "on" if inside else "small", anchor)
        when = f"{seconds(stage.start)} – {seconds(stage.finish)}: {seconds(stage.time)}"
        bars.append(titled(body, f"{stage.id} ({stage.kind}) on {stage.site}\n{when}"))
    return bars, len(free)


def _arriving(plan: Plan, targets: set[str], scale: float, y: float) -> list[str]:
    finish = {stage.id: stage.finish for stage in plan.stages}
    strips = []
    for transfer in plan.transfers:
        if transfer.target in targets and transfer.exposed > 0 and transfer.source in finish:
            start = finish[transfer.source]
            strip = rect(_LABELS + start * scale, y + 3, max(transfer.exposed * scale, 1.5), 4, "moving", 1)
            tooltip = (
                f"{transfer.source} → {transfer.target} over {transfer.path}\n{data(transfer.bytes)}: "
                f"{seconds(transfer.raw)} raw, {seconds(transfer.exposed)} exposed"
            )
            strips.append(titled(strip, tooltip))
    return strips
