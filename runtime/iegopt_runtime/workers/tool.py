"""The tool role: registered Python callables and commands, each call bounded in time, output and tries.

A callable runs in a child process, kept for the next call, because a thread that hangs cannot be ended; a command runs
in a session of its own, so that what it started dies with it. A call with an idempotency key that succeeded is not made
again; the tool itself is told the key, which is the same in every try and recovery of a call.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import time
from collections import OrderedDict
from collections.abc import Callable, Mapping

from iegopt_runtime.workers.executor import Attempt, Document, StageFailed
from iegopt_runtime.workers.plain import PlainExecutor
from iegopt_runtime.workers.tool_commands import run_command
from iegopt_runtime.workers.tool_python import PythonCalls
from iegopt_runtime.workers.tool_registry import RegisteredTool, ToolAnswer

__all__ = ["ToolExecutor"]

_REMEMBERED = 4096


class ToolExecutor(PlainExecutor):
    """Calls tools.

    Parameters
    ----------
    tools
        Registered tools by name.
    clock
        Seconds; of the results' age.
    """

    def __init__(self, tools: Mapping[str, RegisteredTool], clock: Callable[[], float] = time.monotonic) -> None:
        self._tools, self._clock = dict(tools), clock
        self._python = PythonCalls()
        self._done: OrderedDict[str, tuple[float, ToolAnswer]] = OrderedDict()
        self._making: dict[str, asyncio.Future[None]] = {}

    async def run(self, kind: str, work: Document, attempt: Attempt) -> Document:
        """``work``: ``name``, ``arguments`` (a map), ``key``, ``timeout`` in seconds (the tool's own is the most)."""
        name, arguments = work.get("name"), work.get("arguments") or {}
        tool = self._tools.get(str(name))
        if tool is None:
            known = ", ".join(sorted(self._tools)) or "none"
            raise StageFailed("refused", f"no tool is called {name!r}: registered here are {known}")
        if not isinstance(arguments, dict):
            raise StageFailed("refused", f"tool {name}: arguments are {arguments!r}: expected names and values")
        timeout = min(tool.timeout, float(work.get("timeout") or tool.timeout))
        answer, cached = await self._once(tool, arguments, work.get("key"), timeout)
        return {"content": answer.content, "truncated": answer.truncated, "cached": cached, "tries": answer.tries}

    async def _once(
        self, tool: RegisteredTool, arguments: Document, key: str | None, timeout: float
    ) -> tuple[ToolAnswer, bool]:
        """The answer, and whether it was there already; a second call with a key waits for the first."""
        if key is None:
            return await self._tried(tool, arguments, timeout, None), False
        key = _key_of(key, tool, arguments)
        while key in self._making:
            await asyncio.wait([self._making[key]])
        held = self._done.get(key)
        if held is not None and self._clock() - held[0] <= tool.keep:
            self._done.move_to_end(key)
            return held[1], True
        self._making[key] = asyncio.get_running_loop().create_future()
        try:
            answer = await self._tried(tool, arguments, timeout, key)
        finally:
            self._making.pop(key).set_result(None)
        self._done[key] = (self._clock(), answer)
        while len(self._done) > _REMEMBERED:
            self._done.popitem(last=False)
        return answer, False

    async def _tried(self, tool: RegisteredTool, arguments: Document, timeout: float, key: str | None) -> ToolAnswer:
        for tries in range(1, tool.retries + 2):
            try:
                async with asyncio.timeout(timeout):
                    if tool.command is not None:
                        content, truncated = await run_command(tool, arguments, key)
                    else:
                        content, truncated = await self._python.call(tool, arguments, key)
                return ToolAnswer(content, truncated, tries)
            except TimeoutError:
                failure = StageFailed(
                    "timeout", f"tool {tool.name} did not answer within {timeout:g} s", transient=True
                )
            except StageFailed as error:
                failure = error
            if not failure.transient:
                break
        more = f" ({tries} tries)" if tries > 1 else ""
        raise StageFailed(failure.cause, f"{failure}{more}; it was called with {_shown(arguments)}")

    async def close(self) -> None:
        await self._python.close()


def _key_of(key: str, tool: RegisteredTool, arguments: Document) -> str:
    """The idempotency key of a call in letters that any header takes; another request may bear an old one's id, but
    calls something else."""
    call = json.dumps([key, tool.name, arguments], sort_keys=True)
    return hashlib.blake2b(call.encode(), digest_size=16).hexdigest()


def _shown(arguments: Document) -> str:
    text = json.dumps(arguments, default=repr, ensure_ascii=False)
    return text if len(text) <= 200 else text[:199] + "…"
