"""A run on the terminal: its graph while it runs, and afterwards the plan against what happened."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.table import Table
from rich.text import Text

from iegopt.cli.format import data, seconds
from iegopt.control.controller import Controller
from iegopt.control.messages import Stream
from iegopt.control.states import State

__all__ = ["LiveView", "account"]

_STYLE = {
    State.RUNNING: "bold green", State.BLOCKED: "yellow", State.COMPLETED: "dim", State.FAILED: "bold red",
    State.TERMINAL: "bold red", State.PREEMPTED: "magenta", State.SCHEDULED: "cyan",
}  # fmt: skip


class LiveView:
    """Stages of a request with their states, and its text as it comes; drawn anew ten times a second on a terminal,
    and not at all elsewhere."""

    def __init__(self, controller: Controller, *, shown: bool = True, console: Console | None = None) -> None:
        self._controller, self._console = controller, console or Console(stderr=True)
        self._shown = shown and self._console.is_terminal
        self._request_id, self.text = "", ""

    @contextmanager
    def following(self, request_id: str) -> Iterator[None]:
        """Draw while the block runs."""
        self._request_id = request_id
        if not self._shown:
            yield
            return
        with Live(console=self._console, get_renderable=self._drawn, refresh_per_second=10, transient=True):
            yield

    def say(self, piece: Stream) -> None:
        self.text += piece.text

    def _drawn(self) -> RenderableType:
        run = self._controller.core.runs.get(self._request_id)
        table = Table(box=None, pad_edge=False)
        for name in ("stage", "state", "device", "tokens"):
            table.add_column(name)
        for stage in run.stages.values() if run is not None else ():
            style = _STYLE.get(stage.state, "")
            count = str(len(stage.emitted)) if stage.emitted else ""
            table.add_row(stage.id, Text(str(stage.state), style), stage.device or "", count)
        return Group(table, Text(), Text(self.text))


def account(answer: dict[str, Any]) -> list[RenderableType]:
    """The answer's text, its stages as planned and as measured, and every recovery."""
    if not answer["stages"]:
        return [Text(_summary(answer))]
    parts: list[RenderableType] = [Text(answer["text"] or "(no text)"), Text(), _stages(answer)]
    if answer["recoveries"]:
        parts += [Text(), _recoveries(answer)]
    return [*parts, Text(), Text(_summary(answer))]


def _stages(answer: dict[str, Any]) -> Table:
    title = "Planned and measured; tokens of KV that were made, and had already"
    table = Table(box=None, padding=(0, 1, 0, 0), title=title, title_justify="left")
    for name in ("stage", "device"):
        table.add_column(name, overflow="fold")
    for name in ("planned", "measured", "ratio", "KV moved", "made + had", "tries"):
        table.add_column(name, justify="right")
    table.add_column("ended", no_wrap=True)
    for name, stage in answer["stages"].items():
        planned, ran = stage["planned"], stage["ran"]
        ratio = _ratio(ran / planned) if planned and ran else ""
        ended = "" if stage["state"] == "COMPLETED" else stage["state"]
        table.add_row(
            name, stage["device"] or "", seconds(planned) if planned is not None else "", seconds(ran), ratio,
            data(stage["moved"]) if stage["moved"] else "", _computed(stage), str(stage["attempts"]), ended,
        )  # fmt: skip
    return table


def _ratio(value: float) -> str:
    return f"{value:,.0f} ×" if value >= 10 else f"{value:.2g} ×"


def _computed(stage: dict[str, Any]) -> str:
    """Tokens whose KV a stage computed, and those of which it had it."""
    return f"{stage['computed']:,} + {stage['reused']:,}" if stage["computed"] is not None else ""


def _recoveries(answer: dict[str, Any]) -> Table:
    table = Table(box=None, pad_edge=False, title="Recoveries", title_justify="left")
    for name in ("level", "stage", "cause", "from", "to", "KV cache", "time"):
        table.add_column(name)
    for found in answer["recoveries"]:
        took = seconds(found["ended"] - found["began"]) if found["ended"] is not None else "not recovered"
        words = (found[name] or "" for name in ("level", "stage", "cause", "from", "to", "kv"))
        table.add_row(*words, took)
    return table


def _summary(answer: dict[str, Any]) -> str:
    usage = answer["usage"]
    if not answer["stages"]:
        return f"{answer['status']}: {answer['reason']}"
    status = answer["status"] + (f" ({answer['reason']})" if answer["reason"] else "")
    return (
        f"{status} in {seconds(answer['seconds'])}: {usage['generated']} tokens generated, "
        f"{usage['prefilled']} prefilled, {usage['reused']} reused, {usage['tool_calls']} tool calls, "
        f"{usage['plans']} plans"
    )
