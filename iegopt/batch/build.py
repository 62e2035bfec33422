"""From a snapshot to a ``BatchModel``: the one entry of everything that plans a queue."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from iegopt.batch.alone import best_alone
from iegopt.batch.build_instances import build_instances
from iegopt.batch.build_queue import build_queue
from iegopt.batch.build_running import build_running, settle
from iegopt.batch.model import BatchModel
from iegopt.batch.prefixes import build_holdings
from iegopt.batch.read_queue import Allowance, read_queue
from iegopt.batch.warned import contradictions, missed_limits
from iegopt.problem.cluster import CompiledCluster
from iegopt.spec.batch_policy import BatchPolicy, QuotaSpec
from iegopt.spec.explain_error import nearest
from iegopt.spec.snapshot import SnapshotSpec
from iegopt.units import shown

__all__ = ["build_model"]

Floats = npt.NDArray[np.float64]


def build_model(cluster: CompiledCluster, snapshot: SnapshotSpec, policy: BatchPolicy) -> BatchModel:
    """The snapshot under the policy, as arrays.

    Raises
    ------
    InputError
        Naming the entry: an unknown device or variant, devices that form no instance, more memory used than there is.
    """
    if policy.kv_transfer_config is None and cluster.spec.kv_transfer_config is not None:
        policy = policy.model_copy(update={"kv_transfer_config": cluster.spec.kv_transfer_config})
    built = build_instances(cluster, snapshot, policy)
    allowed = Allowance(built, policy)
    read = read_queue(built, snapshot, allowed)
    tenants: dict[str, int] = {}
    queue = build_queue(read.waiting, built, policy, tenants)
    warnings = [*built.warnings, *read.warnings, *_misspelled(snapshot, policy)]
    running = build_running(built, snapshot, allowed, tenants, warnings)
    settled = settle(running, built.instances, built.kinds, policy)
    warnings += [*missed_limits(running, settled), *contradictions(snapshot, built, settled)]
    kept = {i: w.kept for i, w in enumerate(read.waiting) if w.kept is not None}
    holdings = build_holdings(
        built,
        [w.allowed.card.name for w in read.waiting],
        [w.prefix for w in read.waiting],
        snapshot.block_tokens,
        kept,
    )
    quotas = [policy.tenants[name].quota if name in policy.tenants else QuotaSpec() for name in tenants]
    memory = float(settled.instances.free.sum())
    return BatchModel(
        snapshot=snapshot,
        policy=policy,
        paces=settled.paces,
        kinds=built.kinds,
        instances=settled.instances,
        queue=queue.queue,
        holdings=holdings,
        running=settled.running,
        prefill=queue.prefill,
        alone=best_alone(queue.queue, holdings, queue.prefill, settled.instances, built.kinds, policy),
        tenants=tuple(tenants),
        quota_requests=_quota([quota.requests for quota in quotas], 1.0),
        quota_memory=_quota([quota.memory for quota in quotas], memory),
        quota_time=_quota([quota.time for quota in quotas], float(len(settled.instances.ids))),
        requeued=frozenset(read.requeued),
        impossible=read.impossible,
        warnings=tuple(warnings),
    )


def _quota(values: Sequence[float | None], whole: float) -> Floats:
    return np.array([np.inf if value is None else value * whole for value in values], dtype=float)


def _misspelled(snapshot: SnapshotSpec, policy: BatchPolicy) -> list[str]:
    """A slip of the pen in a tenant's name would lift its quota: warn of a name much like one that is there."""
    known = {queued.tenant for queued in snapshot.queue} | {running.tenant for running in snapshot.running}
    guesses = {name: nearest(name, known) for name in policy.tenants if name not in known}
    return [
        f"batch_policy.tenants: no request is of {shown(name)}. Maybe {guess}?"
        for name, guess in guesses.items()
        if guess is not None and guess not in policy.tenants
    ]
