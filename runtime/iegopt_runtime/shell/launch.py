"""A controller as a process of its own."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Callable
from pathlib import Path

from iegopt.control.policy import ControlPolicy
from iegopt.errors import InputError
from iegopt.spec.cluster import ClusterSpec
from iegopt.spec.explain_error import validate
from iegopt.spec.load import read_document
from iegopt_runtime.deployment import deployed, roles
from iegopt_runtime.net.address import Address
from iegopt_runtime.processes import until_terminated
from iegopt_runtime.shell.journal import Journal
from iegopt_runtime.shell.plan_service import PlanService
from iegopt_runtime.shell.shell import Shell

__all__ = ["read_policy", "serve"]


def read_policy(file: Path | None) -> ControlPolicy:
    """The policy of a file with the key ``control_policy``; the default without one.

    Raises
    ------
    SpecError
        Naming the file, the path inside it, the value and what was expected.
    """
    if file is None:
        return ControlPolicy()
    document = read_document(file)
    return validate(ControlPolicy, document.get("control_policy", document), str(file), "control_policy")


async def serve(
    cluster: ClusterSpec,
    policy: ControlPolicy,
    address: Address,
    secret: bytes,
    journal: Path,
    *,
    durable: bool,
    tell: Callable[[str], None],
) -> None:
    """Run a controller until it is terminated.

    Raises
    ------
    InputError
        Where the address or the journal cannot be had.
    """
    opened = Journal(journal, durable)
    shell = Shell(policy, opened, PlanService(cluster), secret, tell, workers=roles(deployed(cluster)))
    if not address.is_loopback:
        tell(f"{address} can be reached from other machines: frames are authenticated, but not encrypted")
    try:
        tell(f"listening on {await shell.listen(address)}")
    except InputError:
        opened.discard()
        await shell.close()
        raise
    gc.collect()
    gc.freeze()  # what was imported stays: a full collection, in which nothing else happens, need not look through it
    await until_terminated(asyncio.create_task(shell.run()))
