"""The process in which Python tools run: reads a call, or a callable to try, answers it, until its standard input ends.

What a tool prints goes to standard error, so that it cannot break the frames.
"""

from __future__ import annotations

import asyncio
import importlib
import inspect
import json
import os
import sys
from typing import Any, BinaryIO

from iegopt.units import a_kind
from iegopt_runtime.net.frames import Frame, decode, encode
from iegopt_runtime.processes import die_with_parent

__all__ = ["main"]

KEY_PARAMETER = "idempotency_key"
_SHOWN = 400


def main() -> None:
    """Serve calls; returns when the parent has gone."""
    die_with_parent()
    calls, answers = os.fdopen(os.dup(0), "rb"), os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # print() of a tool
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)  # input() of a tool ends at once
    while (call := _read(calls)) is not None:
        answers.write(encode(_checked(call) if call["type"] == "check" else _answer(call)))
        answers.flush()


def _read(calls: BinaryIO) -> Frame | None:
    head = calls.read(4)
    if len(head) < 4:
        return None
    body = calls.read(int.from_bytes(head, "big"))
    return decode(body)


def _checked(call: Frame) -> Frame:
    try:
        function = _loaded(call)
    except BaseException as error:  # noqa: BLE001 - sys.exit() while it is imported, too
        return {"type": "checked", "reason": _told(error)}
    reason = None if callable(function) else a_kind(type(function))
    return {"type": "checked", "reason": reason}


def _loaded(call: Frame) -> Any:
    module, _, name = call["callable"].partition(":")
    return getattr(importlib.import_module(module), name)


def _answer(call: Frame) -> Frame:
    try:
        function = _loaded(call)
    except Exception as error:  # noqa: BLE001 - whatever an import of the user's code raises
        return _raised("refused", f"cannot be loaded from {call['callable']}: {_told(error)}", transient=False)
    try:
        content = _as_bytes(_called(function, call["arguments"] | _key_for(function, call["key"])))
    except _NoText as error:
        return _raised("error", str(error), transient=False)
    except BaseException as error:  # noqa: BLE001 - sys.exit() of a tool, too, is its failure and not ours
        return _raised("error", f"raised {_told(error)}", transient=not isinstance(error, TypeError))
    limit = call["limit"]
    return {"type": "returned", "content": content[:limit], "truncated": len(content) > limit}


class _NoText(Exception):
    """A tool returned what cannot be told to a model."""


def _key_for(function: Any, key: str | None) -> dict[str, str]:
    """The idempotency key as an argument, where the callable has a parameter for it."""
    try:
        parameter = inspect.signature(function).parameters.get(KEY_PARAMETER)
    except (TypeError, ValueError):  # some builtins have no signature
        return {}
    by_name = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
    return {KEY_PARAMETER: key} if key is not None and parameter is not None and parameter.kind in by_name else {}


def _called(function: Any, arguments: dict[str, Any]) -> Any:
    result = function(**arguments)
    return asyncio.run(result) if inspect.iscoroutine(result) else result


def _as_bytes(result: Any) -> bytes:
    """Text as it is, other data as JSON."""
    if isinstance(result, str):
        return result.encode(errors="surrogatepass")
    if isinstance(result, bytes | bytearray | memoryview):
        return bytes(result)
    try:
        return json.dumps(result, ensure_ascii=False).encode()
    except (TypeError, ValueError) as error:
        raise _NoText(f"returned {a_kind(type(result))} that is neither text nor JSON: {error}") from error


def _told(error: BaseException) -> str:
    text = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
    return text if len(text) <= _SHOWN else text[: _SHOWN - 1] + "…"


def _raised(cause: str, message: str, *, transient: bool) -> Frame:
    return {"type": "raised", "cause": cause, "message": message, "transient": transient}


if __name__ == "__main__":
    main()
    sys.exit(0)
