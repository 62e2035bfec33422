"""A tool that is a command: a session of its own, output read up to a limit, all that it started ended with it."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import re
import signal
from typing import Any

from iegopt_runtime.processes import die_with_parent
from iegopt_runtime.workers.executor import StageFailed
from iegopt_runtime.workers.tool_registry import RegisteredTool

__all__ = ["KEY_VARIABLE", "as_text", "ended", "run_command"]

KEY_VARIABLE = "IEGOPT_IDEMPOTENCY_KEY"
"""Environment variable in which a command finds the idempotency key of its call."""

_BLANK = re.compile(r"\{(\w+)\}")
_ERRORS_SHOWN = 400
_GRACE = 0.2
"""Seconds in which what a command left behind may still write to its pipes."""
_BUFFER = 2**16
_LOOKS = 0.02
"""Seconds between two looks whether a command's own process has ended: asyncio tells only when its pipes have, too."""


async def run_command(tool: RegisteredTool, arguments: dict[str, Any], key: str | None) -> tuple[str, bool]:
    """What the command wrote, and whether the limit cut it off; it finds ``key`` in ``KEY_VARIABLE``.

    Raises
    ------
    StageFailed
        Where it cannot be started, a word lacks its argument, it ends with another code than 0, or writes no text.
    """
    words, rest = _words(tool, arguments)
    loop = asyncio.get_running_loop()
    try:
        transport, protocol = await loop.subprocess_exec(
            lambda: asyncio.subprocess.SubprocessStreamProtocol(limit=_BUFFER, loop=loop),
            *words,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            start_new_session=True,
            preexec_fn=die_with_parent,
            env=os.environ | ({KEY_VARIABLE: key} if key is not None else {}),
        )
    except (OSError, ValueError) as error:
        raise StageFailed("refused", f"tool {tool.name}: {words[0]} cannot be started: {error}") from error
    process = asyncio.subprocess.Process(transport, protocol, loop)
    leaving = asyncio.create_task(_end_what_is_left(process, transport))
    try:
        output, errors, _ = await asyncio.gather(
            _read(process, process.stdout, tool.output),
            _read(process, process.stderr, tool.output),
            _write(process.stdin, rest),
        )
        truncated = len(output) > tool.output
        if not truncated:  # else it is ended below, its pipes still full, and asyncio would wait for them
            await process.wait()
    finally:
        try:
            code = await ended(process)
        finally:
            leaving.cancel()
    if code != 0 and not truncated:
        told = errors[-_ERRORS_SHOWN:].decode(errors="replace").strip() or "it wrote no error"
        raise StageFailed("error", f"tool {tool.name} ended with code {code}: {told}", transient=True)
    return as_text(tool.name, output[: tool.output], truncated), truncated


def as_text(name: str, output: bytes, truncated: bool) -> str:
    """UTF-8; a character that the limit cut in two is left away.

    Raises
    ------
    StageFailed
        For anything that is no text.
    """
    for shorter in range(4 if truncated else 1):
        with contextlib.suppress(UnicodeDecodeError):
            text = output[: len(output) - shorter].decode()
            if "\x00" not in text:
                return text
    raise StageFailed("error", f"tool {name} returned {len(output)} bytes that are no text: expected UTF-8")


def _words(tool: RegisteredTool, arguments: dict[str, Any]) -> tuple[list[str], bytes]:
    assert tool.command is not None
    used: set[str] = set()

    def fill(match: re.Match[str]) -> str:
        name = match.group(1)
        if name not in arguments:
            raise StageFailed("refused", f"tool {tool.name}: argument {name} is missing, which its command names")
        used.add(name)
        value = arguments[name]
        return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)

    words = [_BLANK.sub(fill, word) for word in tool.command]
    rest = {name: value for name, value in arguments.items() if name not in used}
    return words, json.dumps(rest, ensure_ascii=False).encode() if rest else b""


async def _read(process: asyncio.subprocess.Process, stream: asyncio.StreamReader | None, limit: int) -> bytes:
    """At most one byte more than the limit, which tells that there was more; the command, which may go on for ever, is
    ended there."""
    assert stream is not None
    parts: list[bytes] = []
    left = limit + 1
    while left > 0 and (part := await stream.read(min(left, 65536))):
        parts.append(part)
        left -= len(part)
    if left <= 0:
        end_session(process)
    return b"".join(parts)


async def _end_what_is_left(process: asyncio.subprocess.Process, transport: asyncio.SubprocessTransport) -> None:
    """A call is over a moment after the command's own process is: what that started may hold its pipes open for ever,
    even in a session of its own, where only the pipes can be closed."""
    while process.returncode is None:
        await asyncio.sleep(_LOOKS)
    await asyncio.sleep(_GRACE)
    end_session(process)
    await asyncio.sleep(_GRACE)
    transport.close()


async def _write(stream: asyncio.StreamWriter | None, text: bytes) -> None:
    assert stream is not None
    with contextlib.suppress(ConnectionError):  # a command need not read
        stream.write(text)
        await stream.drain()
        stream.close()
        await stream.wait_closed()


def end_session(process: asyncio.subprocess.Process) -> None:
    """The whole session: a command may have started others, which outlive it."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)


async def ended(process: asyncio.subprocess.Process) -> int:
    """End the session, and read its pipes empty, since asyncio closes them at their end only; returns the exit code."""
    end_session(process)
    for stream in (process.stdout, process.stderr):
        if stream is not None:
            with contextlib.suppress(TimeoutError):  # held open by a process that left the session
                async with asyncio.timeout(1):
                    while await stream.read(65536):
                        pass
    if process.stdin is not None:
        process.stdin.close()
    return await process.wait()
