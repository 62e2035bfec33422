"""The argument parser: errors are one line, and values are checked where they are read."""

from __future__ import annotations

import argparse
import math
import sys
from typing import TYPE_CHECKING, Any, NoReturn

from iegopt.units import shown

if TYPE_CHECKING:
    from iegopt.solvers.result import Params

__all__ = ["Commands", "Parser", "UsageError", "Version", "add_limits", "params", "positive", "whole"]

Commands = Any
"""What ``ArgumentParser.add_subparsers`` returns; argparse has no public name for it."""


_MOST = 2**31 - 1


class UsageError(Exception):
    """A bad argument; the message is one line."""


class Parser(argparse.ArgumentParser):
    """Raises ``UsageError`` where argparse would print its usage and leave with 2."""

    def __init__(self, **options: Any) -> None:
        super().__init__(allow_abbrev=False, **options)

    def error(self, message: str) -> NoReturn:
        raise UsageError(" ".join(f"{message} (see {self.prog} --help)".split()))


class Version(argparse.Action):
    """Looks the version up only when it is asked for."""

    def __init__(self, option_strings: list[str], dest: str, help: str | None = None) -> None:
        super().__init__(option_strings, dest, nargs=0, help=help)

    def __call__(self, parser: argparse.ArgumentParser, *_: object) -> None:
        from importlib.metadata import version

        sys.stdout.write(f"iegopt {version('iegopt')}\n")
        parser.exit()


def positive(text: str) -> float:
    """A finite number above 0."""
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not 0 < value < math.inf:
        raise argparse.ArgumentTypeError(f"{shown(text)}: expected a finite number above 0")
    return value


def whole(least: int, most: int = _MOST) -> Any:
    """A parser of whole numbers from ``least`` to ``most``."""

    def parse(text: str) -> int:
        try:
            value = int(text)
        except ValueError:
            value = least - 1
        if not least <= value <= most:
            limits = f", at least {least}" if value < least else f" from {least} to {most}"
            raise argparse.ArgumentTypeError(f"{shown(text)}: expected a whole number{limits}")
        return value

    return parse


def add_limits(parser: argparse.ArgumentParser, solver: str | None = "auto") -> None:
    """``--solver --time-limit --threads --seed``, equal in every command that solves."""
    parser.add_argument("--solver", default=solver, metavar="NAME", help=f"solver to use (default {solver})")
    parser.add_argument("--time-limit", type=positive, metavar="S", help="seconds the solver may take")
    parser.add_argument("--threads", type=whole(1), default=1, metavar="N", help="threads (default 1)")
    parser.add_argument("--seed", type=whole(0), default=0, metavar="N", help="random seed (default 0)")


def params(arguments: argparse.Namespace) -> Params:
    """The solver's parameters; ``--log`` sends its progress to stderr."""
    from iegopt.solvers.result import Params

    log = (lambda line: print(line, file=sys.stderr)) if getattr(arguments, "log", False) else None
    return Params(time_limit=arguments.time_limit, threads=arguments.threads, seed=arguments.seed, log=log)
