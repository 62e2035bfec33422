"""Every answer goes through the verifier before anybody sees it."""

from __future__ import annotations

from iegopt.batch_plans import BatchPlan
from iegopt.errors import InternalError
from iegopt.graph.tokens import estimate_tokens
from iegopt.problem.cluster import CompiledCluster
from iegopt.spec.batch_policy import BatchPolicy
from iegopt.spec.snapshot import SnapshotSpec
from iegopt.verify.batch import check_batch
from iegopt.verify.report import Report

__all__ = ["confirm", "verified"]


def verified(plan: BatchPlan, snapshot: SnapshotSpec, policy: BatchPolicy, cluster: CompiledCluster) -> Report:
    """What ``verify.batch`` says of a plan, in the cluster's present state."""
    state = {
        device.id: (load, free)
        for device, load, free in zip(
            cluster.devices, cluster.state.load.tolist(), cluster.state.free.tolist(), strict=True
        )
    }
    return check_batch(
        plan, snapshot, policy, cluster.spec, cluster.by_id, state, cluster.cost_model, estimate_tokens
    )  # fmt: skip


def confirm(plan: BatchPlan, snapshot: SnapshotSpec, policy: BatchPolicy, cluster: CompiledCluster) -> BatchPlan:
    """The plan, where it keeps every rule and states itself truly.

    Raises
    ------
    InternalError
        It does not: a bug of the method or of the evaluation.
    """
    report = verified(plan, snapshot, policy, cluster)
    if not report.ok:
        found = report.violations
        raise InternalError(
            f"the verifier refuses the plan of {plan.solver}: {len(found)} violations, first {found[0]}"
        )
    return plan
