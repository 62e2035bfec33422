"""``iegopt warmup``: compile the kernels of the extra ``fast`` once, so that no solve ever does."""

from __future__ import annotations

import argparse
from dataclasses import asdict

from iegopt.cli.arguments import Commands
from iegopt.cli.output import print_json, show

__all__ = ["add_commands"]


def add_commands(commands: Commands) -> None:
    parser = commands.add_parser(
        "warmup",
        help="compile the kernels of the extra 'fast' for this machine",
        description="Compile the message kernels with numba and keep them on disk. "
        "A process uses them after iegopt.warmup(); without, numpy does the same work.",
        epilog="Exit: 0 kernels are there; 1 numba is missing, or with --check any kernel is.",
    )
    parser.add_argument(
        "--check", action="store_true", help="compile nothing, only say what is there; exit 1 where kernels are missing"
    )
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.set_defaults(run=_run)


def _run(arguments: argparse.Namespace) -> int:
    from iegopt.solvers.exact.compiled import warmup

    done = warmup(compile=not arguments.check)
    if arguments.json:
        print_json(asdict(done))
    elif done.reason is not None:
        show(f"numpy: {done.reason}")
    else:
        show(
            f"numba: {len(done.compiled)} kernels compiled, {len(done.loaded)} from the cache, in {done.seconds:.1f} s"
        )
    return 0 if done.reason is None else 1
