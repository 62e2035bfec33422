"""Whether what a client submits is taken; only then does it hear what is said of the request that bears this id."""

from __future__ import annotations

import asyncio

from iegopt.control.messages import Command, Differs, Submitted

__all__ = ["Submissions", "Verdict"]

Verdict = asyncio.Future[str | None]
"""Why a submission is not taken, ``None`` where it is."""


class Submissions:
    """Those that the controller has not handled yet."""

    def __init__(self) -> None:
        self._open: dict[int, Verdict] = {}
        self._ended = False

    def expect(self, event: Submitted) -> Verdict:
        """What the controller will say of an event that it is about to get."""
        verdict: Verdict = asyncio.get_running_loop().create_future()
        if self._ended:
            verdict.set_result(None)
        else:
            self._open[id(event)] = verdict
        return verdict

    def handled(self, event: Submitted, commands: tuple[Command, ...]) -> None:
        """The event has led to these commands."""
        verdict = self._open.pop(id(event), None)
        if verdict is not None and not verdict.done():
            verdict.set_result(next((c.reason for c in commands if isinstance(c, Differs)), None))

    def end(self) -> None:
        """Nothing more is handled: feeds say why."""
        self._ended = True
        for verdict in self._open.values():
            if not verdict.done():
                verdict.set_result(None)
        self._open.clear()
