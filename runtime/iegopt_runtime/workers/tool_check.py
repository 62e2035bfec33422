"""Tools tried before they are called: each callable imported in a process of its own, each command looked for."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Mapping

from iegopt.errors import SpecError
from iegopt.units import shown
from iegopt_runtime.net.frames import Frame, decode_all, encode
from iegopt_runtime.workers.tool_python import child_environment
from iegopt_runtime.workers.tool_registry import RegisteredTool

__all__ = ["check_tools"]

_IMPORTING = 60.0
"""Seconds that all imports together may take."""


def check_tools(tools: Mapping[str, RegisteredTool], file: str, importing: float = _IMPORTING) -> None:
    """Refuse tools that no call could reach.

    Raises
    ------
    SpecError
        Naming the file, the path of the tool inside it, what stands there and what was expected.
    """
    for tool in tools.values():
        command = tool.command[0] if tool.command is not None else ""
        if command and "{" not in command and shutil.which(command) is None:
            raise SpecError(
                file, f"tools.{tool.name}.command.0", f"{shown(command)}: expected a command that can be found here"
            )
    python = [tool for tool in tools.values() if tool.python is not None]
    if not python:
        return
    answers, ended = _imported([str(tool.python) for tool in python], importing)
    for tool, answer in zip(python, [*answers, {"reason": ended}], strict=False):
        if answer["reason"] is not None:
            problem = f"{shown(tool.python)}: {answer['reason']}: expected a callable that can be imported here"
            raise SpecError(file, f"tools.{tool.name}.python", problem)


def _imported(callables: list[str], importing: float) -> tuple[list[Frame], str | None]:
    """An answer for each callable, in order, up to where the process ended; and how it did, where it did too early."""
    with subprocess.Popen(
        [sys.executable, "-m", "iegopt_runtime.workers.tool_child"],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, start_new_session=True,
        env=child_environment(),
    ) as child:  # fmt: skip
        ended = None
        try:
            written, _ = child.communicate(b"".join(map(encode, map(_check, callables))), importing)
            if child.returncode:
                ended = f"its import ended the process (code {child.returncode})"
        except subprocess.TimeoutExpired as late:
            written, ended = late.output or b"", f"its import took longer than {importing:g} s"
        finally:
            _end_session(child)
    return decode_all(written), ended


def _check(name: str) -> Frame:
    return {"type": "check", "callable": name}


def _end_session(child: subprocess.Popen[bytes]) -> None:
    """It, and what an import has started."""
    try:
        os.killpg(child.pid, signal.SIGKILL)
    except (ProcessLookupError, PermissionError):
        return
