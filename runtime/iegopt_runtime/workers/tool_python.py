"""Tools that are Python callables, each call in a child process that can be killed.

Children are kept for the next call of any callable; one is spawned where all are busy. They end with their parent.
"""

from __future__ import annotations

import asyncio
import os
import sys
from typing import Any

from iegopt_runtime.errors import WireError
from iegopt_runtime.net.frames import Frame, encode, read_frame
from iegopt_runtime.workers.executor import StageFailed
from iegopt_runtime.workers.tool_commands import as_text, ended
from iegopt_runtime.workers.tool_registry import RegisteredTool

__all__ = ["PythonCalls", "child_environment"]

_KEPT = 8


def child_environment() -> dict[str, str]:
    """Of a process that imports tools: from the folder that it is started in, and from where this one imports."""
    paths = os.pathsep.join(path for path in (os.getcwd(), *sys.path) if path)
    return os.environ | {"PYTHONPATH": paths}


class PythonCalls:
    """Idle children, newest last."""

    def __init__(self) -> None:
        self._idle: list[asyncio.subprocess.Process] = []

    async def call(self, tool: RegisteredTool, arguments: dict[str, Any], key: str | None) -> tuple[str, bool]:
        """What the callable returned as text, and whether the limit cut it off; one with a parameter
        ``idempotency_key`` is told ``key``.

        Raises
        ------
        StageFailed
            Where it raises, returns what is no text, or takes its process with it.
        """
        request = {
            "type": "call", "callable": tool.python, "arguments": arguments, "key": key, "limit": tool.output,
        }  # fmt: skip
        child = self._idle.pop() if self._idle else await self._spawned()
        try:
            reply = await self._asked(child, request)
        except BaseException:
            await ended(child)
            raise
        if reply is None:
            code = await ended(child)
            raise StageFailed("error", f"tool {tool.name} ended its process (code {code})", transient=True)
        if len(self._idle) < _KEPT:
            self._idle.append(child)
        else:
            await ended(child)
        if reply["type"] == "raised":
            raise StageFailed(reply["cause"], f"tool {tool.name} {reply['message']}", transient=reply["transient"])
        return as_text(tool.name, reply["content"], reply["truncated"]), reply["truncated"]

    async def _asked(self, child: asyncio.subprocess.Process, request: Frame) -> Frame | None:
        assert child.stdin is not None
        assert child.stdout is not None
        try:
            child.stdin.write(encode(request))
            await child.stdin.drain()
            return await read_frame(child.stdout)
        except (ConnectionError, WireError):
            return None

    async def _spawned(self) -> asyncio.subprocess.Process:
        return await asyncio.create_subprocess_exec(
            sys.executable,
            "-m",
            "iegopt_runtime.workers.tool_child",
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            start_new_session=True,
            env=child_environment(),
        )

    async def close(self) -> None:
        while self._idle:
            await ended(self._idle.pop())
