"""Instances under a plan of a queue: prefills over the window, shares of time, and memory, a row an instance."""

from __future__ import annotations

from typing import TYPE_CHECKING

from iegopt.cli.format import NONE, data, percent, seconds
from iegopt.cli.html.axis import time_axis
from iegopt.cli.html.svg import BOLD, clip, rect, svg, text, text_width, titled

if TYPE_CHECKING:
    from iegopt.batch_plans import BatchPlan, InstanceUse, QueuedDecision

__all__ = ["MOST_DRAWN", "colour", "draw_instances"]

MOST_DRAWN = 100
"""Instances that are drawn; of more, those that prefill longest."""

_WIDTH, _LABELS, _BARS, _GAP = 1180.0, 170.0, 120.0, 18.0
_ROW, _BAR, _TOP = 32.0, 18.0, 30.0
_NARROW = 1.5
_COLOURS = ("compute", "io", "tool")
_NEAR = 1.5
"""The whole window is drawn where it is no more than so many times as long as the prefills."""
_SHORTEST = 7
"""Letters of a name that a bar must have room for to bear it."""


def colour(priority: int) -> str:
    """The class of the style sheet that a priority is drawn in."""
    return _COLOURS[priority] if priority < len(_COLOURS) else "control"


def draw_instances(plan: BatchPlan, window: float) -> str:
    """The drawing; ``window`` is the policy's, in seconds."""
    prefills: dict[str, list[QueuedDecision]] = {}
    for q in plan.queue:
        if q.prefill is not None and q.first_token is not None:
            prefills.setdefault(q.prefill, []).append(q)
    uses = sorted(plan.instances, key=lambda use: -use.prefill_seconds)[:MOST_DRAWN]
    shown = {use.id for use in uses}
    uses = [use for use in plan.instances if use.id in shown]
    latest = max((q.first_token or 0.0 for q in plan.queue), default=0.0) or window
    end = window if latest <= window <= _NEAR * latest else latest
    charts = _LABELS + _GAP, _WIDTH - 2 * (_BARS + _GAP)
    scale = (charts[1] - charts[0] - _GAP) / end
    stripes, body = [], []
    for number, use in enumerate(uses):
        y = _TOP + number * _ROW
        stripes.append(rect(0, y, _WIDTH, _ROW, "row odd" if number % 2 else "row", 0))
        body.append(_label(use, y))
        body += [_prefill(q, charts[0], scale, y) for q in prefills.get(use.id, ())]
        body += [_time(use, charts[1], y), _memory(use, charts[1] + _BARS + _GAP, y)]
    bottom = _TOP + len(uses) * _ROW
    heads = text(charts[1], _TOP - 10, "share of time", "small dim") + text(
        charts[1] + _BARS + _GAP, _TOP - 10, "KV cache", "small dim"
    )
    marks = time_axis(end, scale, charts[0], _TOP, bottom) + heads
    return svg(_WIDTH, bottom + 4, "instances", "".join(stripes) + marks + "".join(body))


def _label(use: InstanceUse, y: float) -> str:
    pace = f"{use.sequences:,} × {seconds(use.pace)} a token" if use.sequences else "no decodes"
    words = text(8, y + 14, clip(use.id, _LABELS - 12, BOLD), "name") + text(8, y + 27, pace, "small dim")
    return titled(words, f"{use.id}\n{pace}")


def _prefill(q: QueuedDecision, left: float, scale: float, y: float) -> str:
    """The prefill of one request, from its start to its first token."""
    start, end = q.start or 0.0, q.first_token or 0.0
    width = max((end - start) * scale, _NARROW)
    body = rect(left + start * scale, y + 7, width, _BAR, f"bar {colour(q.priority)}", min(3.0, width / 2))
    if width >= text_width("x" * _SHORTEST, 11) + 6:
        body += text(left + start * scale + width / 2, y + 20, clip(q.id, width - 6, 11), "on", "middle")
    reused = f"\n{q.reused:,} tokens reused" if q.reused else ""
    moved = f"\nKV cache to {q.decode}: {data(q.transferred)} over {q.path}" if q.decode != q.prefill else ""
    when = f"{seconds(start)} – {seconds(end)}, {seconds(q.work)} at full speed"
    return titled(body, f"{q.id} (P{q.priority}, {q.tenant})\n{when}{reused}{moved}")


def _time(use: InstanceUse, x: float, y: float) -> str:
    """What decode and other work take of the time; the rest is for prefills."""
    body = rect(x, y + 9, _BARS, 14, "room", 3)
    decode = _BARS * min(1.0, use.decode_share)
    body += rect(x, y + 9, decode, 14, "memory", 0)
    body += rect(x + decode, y + 9, _BARS * min(1.0 - decode / _BARS, use.other_share), 14, "control", 0)
    left = max(0.0, 1.0 - use.decode_share - use.other_share)
    shares = f"decode {percent(use.decode_share)}, other work {percent(use.other_share)}, left {percent(left)}"
    return titled(body, f"{use.id}\n{shares}\nprefills {seconds(use.prefill_seconds)} at full speed")


def _memory(use: InstanceUse, x: float, y: float) -> str:
    share = use.memory / use.free if use.free else 0.0
    body = rect(x, y + 9, _BARS, 14, "room", 3) + rect(x, y + 9, _BARS * min(1.0, share), 14, "L", 0)
    of = percent(share) if use.free else NONE
    return titled(body, f"{use.id}\nKV caches {data(use.memory)} of {data(use.free)}: {of}")
