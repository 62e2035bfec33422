"""``iegopt run``: plan a request, have local workers run it, and show the plan against what happened."""

from __future__ import annotations

import argparse
import signal
import sys
from collections.abc import Coroutine
from pathlib import Path
from typing import TYPE_CHECKING, Any

from iegopt.cli.output import document_path, print_json, show
from iegopt.errors import InputError
from iegopt_runtime.cli.extra import needs_runtime

if TYPE_CHECKING:
    from iegopt.spec.cluster import ClusterSpec
    from iegopt.spec.request import RequestSpec
    from iegopt_runtime.runtime import Runtime
    from iegopt_runtime.view import LiveView

__all__ = ["add_commands"]

_EXIT = {"complete": 0, "partial": 4, "failed": 5, "cancelled": 5, "refused": 5}


def add_commands(commands: Any) -> None:
    parser = commands.add_parser(
        "run",
        help="run a request on this machine's workers",
        description="Plan a request, start the cluster's local workers, run every stage on them, and show the plan "
        "against what happened.",
        epilog="Exit: 0 answered, 4 a limit was reached (partial answer), 5 failed or refused, 1 bad file or argument, "
        "130 and 143 interrupted and terminated.",
    )
    parser.add_argument("request", metavar="REQUEST", help="file or name of the request")
    where = parser.add_mutually_exclusive_group(required=True)
    where.add_argument("--cluster", metavar="CLUSTER", help="file or name; devices with worker.roles")
    where.add_argument("--controller", metavar="ADDRESS", help="a controller that runs already")
    parser.add_argument("--secret-file", metavar="FILE", help="the shared secret, with --controller")
    parser.add_argument("--prompt", metavar="TEXT", help="in place of the request's prompt")
    parser.add_argument("--tools", metavar="FILE", help="registered tools that the model may call")
    parser.add_argument("--documents", metavar="FILE", help="JSONL of documents to retrieve from")
    parser.add_argument("--policy", metavar="FILE", help="control_policy: retries, times of grace, limits")
    parser.add_argument("--trace", metavar="FILE", help="write a Chrome/Perfetto trace")
    amount = parser.add_mutually_exclusive_group()
    amount.add_argument("--json", action="store_true", help="one JSON object on stdout: the answer")
    amount.add_argument("--quiet", action="store_true", help="only the text of the answer")
    parser.set_defaults(run=_run)


@needs_runtime
def _run(arguments: argparse.Namespace) -> int:
    import asyncio

    from iegopt.cli.output import check_outputs
    from iegopt.spec.load import load_cluster, load_request

    check_outputs([arguments.trace])
    _check_prompt(arguments.prompt)
    request = load_request(document_path(arguments.request, "requests"))
    if arguments.controller is None:
        cluster = load_cluster(document_path(arguments.cluster, "clusters"))
        work = _answered(arguments, request, cluster)
    else:
        work = _answered_elsewhere(arguments, request)
    try:
        answer = asyncio.run(_until_terminated(work))
    except asyncio.CancelledError:
        print("iegopt: terminated", file=sys.stderr)
        return 128 + signal.SIGTERM
    if arguments.json:
        print_json(answer)
    if answer["status"] != "complete" and arguments.quiet:
        print(f"iegopt: {answer['status']}: {answer['reason']}", file=sys.stderr)
    return _EXIT[answer["status"]]


async def _until_terminated(work: Coroutine[Any, Any, dict[str, Any]]) -> dict[str, Any]:
    """SIGTERM cancels it, as Ctrl-C does, so that nothing is left; a second one ends the process."""
    import asyncio

    loop, task = asyncio.get_running_loop(), asyncio.current_task()
    assert task is not None

    def end() -> None:
        loop.remove_signal_handler(signal.SIGTERM)
        task.cancel()

    loop.add_signal_handler(signal.SIGTERM, end)
    return await work


async def _answered(arguments: argparse.Namespace, request: RequestSpec, cluster: ClusterSpec) -> dict[str, Any]:
    from iegopt_runtime.runtime import Runtime
    from iegopt_runtime.shell.launch import read_policy
    from iegopt_runtime.trace import Trace
    from iegopt_runtime.view import LiveView, account

    talks = not (arguments.json or arguments.quiet)
    files = {name: _existing(getattr(arguments, name)) for name in ("tools", "documents")}
    policy = read_policy(_existing(arguments.policy)) if arguments.policy is not None else None
    async with Runtime(cluster, policy=policy, tell=_tell if talks else _silent, **files) as runtime:
        trace = Trace()
        runtime.shell.watch(trace.watch)
        view = LiveView(runtime.shell.controller, shown=talks)
        try:
            answer = await _followed(runtime, request, arguments, view)
        finally:
            if arguments.trace is not None:
                trace.write(Path(arguments.trace))
    if talks:
        show(*account(answer))
    return answer


async def _followed(
    runtime: Runtime, request: RequestSpec, arguments: argparse.Namespace, view: LiveView
) -> dict[str, Any]:
    """The answer; with ``--quiet`` its text is written as it comes, else shown with the graph, and kept at Ctrl-C."""
    import asyncio

    run = runtime.run(request, {"text": arguments.prompt} if arguments.prompt is not None else None)
    try:
        with view.following(run.request_id):
            async for piece in run:
                view.say(piece)
                if arguments.quiet:
                    print(piece.text, end="", flush=True)
    except asyncio.CancelledError:
        if not (arguments.quiet or arguments.json):
            show(view.text)
        raise
    if arguments.quiet:
        print()
    return await run.answer()


async def _answered_elsewhere(arguments: argparse.Namespace, request: RequestSpec) -> dict[str, Any]:
    """By a controller in another process, whose workers, tools and documents are its own."""
    import asyncio
    import secrets

    from iegopt.control.messages import Answer
    from iegopt_runtime.client import Client
    from iegopt_runtime.net.address import Address
    from iegopt_runtime.secret_file import read_secret
    from iegopt_runtime.view import account

    own = [name for name in ("tools", "documents", "policy", "trace") if getattr(arguments, name) is not None]
    if own:
        raise InputError(f"--{own[0]} goes with --cluster: a controller that runs has its own")
    if arguments.secret_file is None:
        raise InputError("--controller needs --secret-file")
    client = Client(Address.read(arguments.controller), read_secret(Path(arguments.secret_file)), patience=10.0)
    inputs = {"text": arguments.prompt} if arguments.prompt is not None else {}
    name = f"{request.id}-{secrets.token_hex(4)}"
    answer: dict[str, Any] = {}
    try:
        async for message in client.run(name, request.document(), inputs):
            if isinstance(message, Answer):
                answer = message.answer
            elif arguments.quiet:
                print(message.text, end="", flush=True)
    except asyncio.CancelledError:  # Ctrl-C: nobody will ask for the answer
        await client.cancel(name, "the one who asked has left")
        raise
    if arguments.quiet:
        print()
    if not (arguments.json or arguments.quiet):
        show(*account(answer))
    return answer


def _check_prompt(text: str | None) -> None:
    """Refuse bytes that are no text, which Python hands on as surrogates (PEP 383)."""
    try:
        (text or "").encode()
    except UnicodeEncodeError as error:
        byte = ord(error.object[error.start]) & 0xFF
        raise InputError(f"--prompt: byte {byte:#04x} at character {error.start}: expected text in UTF-8") from None


def _existing(text: str | None) -> Path | None:
    if text is None:
        return None
    if not Path(text).is_file():
        raise InputError(f"{text}: there is no such file")
    return Path(text)


def _tell(line: str) -> None:
    print(line, file=sys.stderr)


def _silent(line: str) -> None:
    return
