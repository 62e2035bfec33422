"""``iegopt worker`` and ``iegopt controller``: the parts of the runtime, each alone."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from iegopt.units import SECONDS, parse
from iegopt_runtime.cli.extra import needs_runtime

if TYPE_CHECKING:
    from iegopt_runtime.net.address import Address

__all__ = ["add_commands"]


def add_commands(commands: Any) -> None:
    _add_worker(commands)
    _add_controller(commands)


def _add_worker(commands: Any) -> None:
    parser = commands.add_parser(
        "worker",
        help="serve one device in one role",
        description="Serve a device of a cluster in one of its roles: run stages for a controller until dismissed.",
        epilog="SIGUSR1 has it drain: it gets no more work, and ends when nothing needs it. "
        "Exit: 0 dismissed or terminated; 1 the controller does not take it, or a bad file or argument.",
    )
    parser.add_argument("cluster", metavar="CLUSTER", help="file or name of the cluster")
    parser.add_argument("--device", required=True, metavar="ID", help="device to serve")
    parser.add_argument("--role", required=True, metavar="ROLE", help="one of the device's worker.roles")
    parser.add_argument("--controller", required=True, metavar="ADDRESS", help="unix:PATH or tcp:HOST:PORT")
    parser.add_argument("--secret-file", required=True, metavar="FILE", help="file with the shared secret")
    parser.add_argument("--listen", metavar="ADDRESS", help="where others fetch KV caches (default: a unix socket)")
    parser.add_argument("--folder", metavar="DIR", help="for sockets (default: the temporary folder)")
    parser.add_argument(
        "--files", metavar="DIR", help="for KV files, which outlive the process (default: --folder; else the cache)"
    )
    parser.add_argument("--tools", metavar="FILE", help="registered tools, for role tool")
    parser.add_argument("--documents", metavar="FILE", help="JSONL of documents, for role retrieval")
    parser.add_argument(
        "--heartbeat", type=_seconds, default=1.0, metavar="TIME", help="between two signs of life (default 1s)"
    )
    parser.add_argument("--die-with-parent", action="store_true", help="end when the process that started it does")
    parser.set_defaults(run=_worker)


def _add_controller(commands: Any) -> None:
    parser = commands.add_parser(
        "controller",
        help="take requests and run them on registered workers",
        description="Plan requests and have workers run them. Everything is in the journal before it is done: a "
        "controller that was killed goes on from there.",
        epilog="Exit: 0 terminated; 1 a bad file or argument.",
    )
    parser.add_argument("cluster", metavar="CLUSTER", help="file or name of the cluster")
    parser.add_argument("--listen", required=True, metavar="ADDRESS", help="unix:PATH or tcp:HOST:PORT")
    parser.add_argument("--journal", required=True, metavar="FILE", help="database of events; made where it is missing")
    parser.add_argument("--secret-file", required=True, metavar="FILE", help="shared secret; made where it is missing")
    parser.add_argument("--policy", metavar="FILE", help="control_policy: retries, times of grace, limits")
    parser.add_argument("--durable", action="store_true", help="survive a loss of power, too (slower)")
    parser.add_argument("--die-with-parent", action="store_true", help="end when the process that started it does")
    parser.set_defaults(run=_controller)


@needs_runtime
def _worker(arguments: argparse.Namespace) -> int:
    from iegopt_runtime.processes import die_with_parent, run_to_the_end
    from iegopt_runtime.secret_file import read_secret
    from iegopt_runtime.workers.launch import WorkerFiles, serve

    if arguments.die_with_parent:
        die_with_parent()
    files = WorkerFiles(
        folder=_path(arguments.folder), kv=_path(arguments.files) or _path(arguments.folder),
        tools=_path(arguments.tools), documents=_path(arguments.documents),
    )  # fmt: skip
    run_to_the_end(
        serve(
            _cluster(arguments.cluster), arguments.device, arguments.role, _address(arguments.controller),
            read_secret(Path(arguments.secret_file)), files, arguments.listen, arguments.heartbeat,
        )
    )  # fmt: skip


@needs_runtime
def _controller(arguments: argparse.Namespace) -> int:
    from iegopt_runtime.processes import die_with_parent, run_to_the_end
    from iegopt_runtime.secret_file import make_secret, read_secret
    from iegopt_runtime.shell.launch import read_policy, serve

    if arguments.die_with_parent:
        die_with_parent()
    secret_file = Path(arguments.secret_file)
    if not secret_file.exists():
        make_secret(secret_file)
    run_to_the_end(
        serve(
            _cluster(arguments.cluster), read_policy(_path(arguments.policy)), _address(arguments.listen),
            read_secret(secret_file), Path(arguments.journal), durable=arguments.durable, tell=_tell,
        )
    )  # fmt: skip


def _tell(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


def _cluster(name: str) -> Any:
    from iegopt.cli.output import document_path
    from iegopt.spec.load import load_cluster

    return load_cluster(document_path(name, "clusters"))


def _address(text: str) -> Address:
    from iegopt_runtime.net.address import Address

    return Address.read(text)


def _path(text: str | None) -> Path | None:
    return Path(text) if text is not None else None


def _seconds(text: str) -> float:
    try:
        seconds = float(parse(text, SECONDS))
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from error
    if seconds <= 0:
        raise argparse.ArgumentTypeError(f"{text}: expected more than 0s")
    return seconds
