"""The command ``iegopt``: parse, dispatch, and turn every way to fail into one line and an exit code.

====  ==========================================================================
exit  meaning
====  ==========================================================================
0     done; for ``plan``, ``replan``, ``explain`` and ``solve`` an optimal or feasible plan was found
1     a bad file or argument, or a solver that does not apply (one line on stderr)
2     proven infeasible; for ``verify`` the plan breaks a constraint
3     unknown: a limit stopped the solver before a plan or a proof
70    a bug of iegopt; ``IEGOPT_DEBUG=1`` shows the traceback
130   interrupted (Ctrl-C)
141   the reader of stdout went away (``iegopt … | head``)
====  ==========================================================================
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence

from iegopt.cli import (
    bench,
    compiling,
    explaining,
    instances,
    models,
    planning,
    queueing,
    replanning,
    solving,
    warming,
)  # fmt: skip
from iegopt.cli.arguments import Parser, UsageError, Version
from iegopt.cli.output import note
from iegopt.cli.plugged import plugged
from iegopt.errors import IegoptError, InternalError

__all__ = ["main"]

_GROUPS = (planning, replanning, queueing, explaining, solving, compiling, models, instances, bench, warming)


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; returns the exit code, raises nothing (``--help`` included)."""
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:  # closed by the shell: >&-
            setattr(sys, name, open(os.devnull, "w"))  # noqa: SIM115 - as long as the process
        elif hasattr(getattr(sys, name), "reconfigure"):
            getattr(sys, name).reconfigure(errors="replace")  # a terminal without Greek letters
    try:
        code = _run(sys.argv[1:] if argv is None else argv)
        sys.stdout.flush()
    except UsageError as error:
        note(f"{error}")
        return 1
    except KeyboardInterrupt:
        note("interrupted")
        return 130
    except BrokenPipeError:
        _forget_stdout()
        return 141
    except OSError as error:  # files are opened where they are named in the message; what is left is stdout
        _forget_stdout()
        note(f"cannot write the answer: {error.strerror or error}")
        return 1
    except InternalError as error:
        return _internal(error)
    except IegoptError as error:
        note(" ".join(str(error).split()))
        return 1
    except Exception as error:  # noqa: BLE001 - the last line of defence; the traceback is one variable away
        return _internal(error)
    return code


def _run(argv: Sequence[str]) -> int:
    parser = Parser(
        prog="iegopt",
        description="Plan which device of a mixed cluster runs which stage of an LLM request, with a proof.",
        epilog="Exit: 0 done, 1 bad file or argument, 2 infeasible (verify: broken constraint), 3 unknown.",
    )
    parser.add_argument("--version", action=Version, help="show the version and exit")
    commands = parser.add_subparsers(dest="command", metavar="COMMAND", required=True)
    for group in (*_GROUPS, *plugged("iegopt.commands")):
        group.add_commands(commands)
    try:
        arguments = parser.parse_args(argv)
    except SystemExit as ended:  # --help and --version end here, with 0
        return int(ended.code or 0)
    code: int = arguments.run(arguments)
    return code


def _internal(error: Exception) -> int:
    if os.environ.get("IEGOPT_DEBUG") == "1":
        import traceback

        traceback.print_exception(error)
    words = " ".join(f"{type(error).__name__}: {error}".split())
    note(f"internal error, please report it with the files used (IEGOPT_DEBUG=1 shows more): {words[:500]}")
    return 70


def _forget_stdout() -> None:
    """Nothing more can be written; point the stream elsewhere, or the interpreter complains at exit."""
    try:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    except (OSError, ValueError):  # stdout is not a real file
        return
