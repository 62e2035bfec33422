"""A process that has imported what workers need and forks them: they are up in milliseconds, again after a crash too.

It reads frames ``{type: start, arguments, log}`` from standard input and answers ``{type: started, pid}``; when a child
ends it says ``{type: ended, pid, code}``. It ends with its parent, and takes its children along. Importing starts no
threads, which a fork would lose.
"""

from __future__ import annotations

import contextlib
import gc
import importlib
import os
import select
import signal
import sys
from typing import NoReturn

from iegopt_runtime.net.frames import Frame, decode, encode
from iegopt_runtime.processes import die_with_parent

__all__ = ["main"]


def main(preloaded: list[str]) -> None:
    """Serve until standard input ends; ``preloaded`` are the modules to import first."""
    die_with_parent()
    for name in preloaded:
        importlib.import_module(name)
    gc.freeze()  # what was imported stays: a collection in a child would copy its pages
    wake, woken = os.pipe()
    os.set_blocking(woken, False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    signal.set_wakeup_fd(woken)
    answers = os.dup(1)
    _say(answers, {"type": "ready"})
    children: set[int] = set()
    while True:
        ready, _, _ = select.select([0, wake], [], [])
        if wake in ready:
            os.read(wake, 4096)
            _bury(children, answers)
        if 0 in ready:
            request = _read()
            if request is None:
                break
            children.add(_start(request, answers, (wake, woken, answers)))
    for pid in children:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


def _start(request: Frame, answers: int, own: tuple[int, ...]) -> int:
    pid = os.fork()
    if pid == 0:
        _run(request, own)
    _say(answers, {"type": "started", "pid": pid})
    return pid


def _run(request: Frame, own: tuple[int, ...]) -> NoReturn:
    """The child: a command line of iegopt, in a session of its own, writing to its log."""
    code = 70
    try:
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        for end in own:  # a child that held the answers open would hide the end of its zygote
            os.close(end)
        os.setsid()
        log = os.open(request["log"], os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
        nothing = os.open(os.devnull, os.O_RDONLY)
        for source, target in ((nothing, 0), (log, 1), (log, 2)):
            os.dup2(source, target)
        from iegopt.cli.main import main as command

        code = command(request["arguments"])
        sys.stdout.flush()
        sys.stderr.flush()
    finally:
        os._exit(code)  # nothing of the parent's is to be cleaned up here


def _bury(children: set[int], answers: int) -> None:
    for pid in list(children):
        with contextlib.suppress(ChildProcessError):
            ended, status = os.waitpid(pid, os.WNOHANG)
            if ended:
                children.discard(pid)
                _say(answers, {"type": "ended", "pid": pid, "code": os.waitstatus_to_exitcode(status)})


def _read() -> Frame | None:
    head = _exactly(4)
    body = _exactly(int.from_bytes(head, "big")) if len(head) == 4 else b""
    return decode(body) if body else None


def _exactly(count: int) -> bytes:
    """So many bytes of standard input, fewer only at its end; unbuffered, since select must see what is left."""
    parts = b""
    while len(parts) < count and (part := os.read(0, count - len(parts))):
        parts += part
    return parts


def _say(answers: int, frame: Frame) -> None:
    os.write(answers, encode(frame))


if __name__ == "__main__":
    main(sys.argv[1:])
