"""From a trace and a cluster to snapshots, in one call."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from iegopt.batch.build_instances import build_instances
from iegopt.batch.traces.deploy import deploy, variants_of
from iegopt.batch.traces.read import MOONCAKE_BLOCK, Trace
from iegopt.batch.traces.replay import replay
from iegopt.batch.traces.snapshots import Mix, snapshot_at
from iegopt.errors import InputError
from iegopt.problem.cluster import CompiledCluster
from iegopt.spec.batch_policy import BatchPolicy
from iegopt.spec.cluster import ClusterSpec
from iegopt.spec.snapshot import SnapshotSpec
from iegopt.spec.stage import SIXTEEN_BIT
from iegopt.units import shown

__all__ = ["make_snapshots"]


def make_snapshots(
    trace: Trace,
    cluster: ClusterSpec,
    model: str,
    moments: Sequence[float],
    *,
    gang: int | None = None,
    speedup: float = 1.0,
    patience: float = 10.0,
    mix: Mix | None = None,
) -> list[SnapshotSpec]:
    """A snapshot for each of ``moments``.

    Parameters
    ----------
    model
        Of every request: a model, or one variant of it by its full name.
    moments
        Seconds after the first arrival, as fast as arrivals are.
    gang
        Devices of every instance; the fewest that hold the weights where left out.
    speedup
        Arrivals come so many times as fast as in the trace.
    patience
        Seconds that a request waits for its prefill before it leaves.

    Raises
    ------
    InputError
        A moment after the trace has ended; a model that the cluster has no devices for.
    """
    mix = mix or Mix()
    end = trace.duration / speedup
    late = [moment for moment in moments if moment > end]
    if late:
        raise InputError(f"{shown(trace.name)} ends after {end:.6g}s: nothing is known of {late[0]:.6g}s")
    compiled = CompiledCluster(cluster)
    variants = variants_of(compiled, model)
    instances = tuple(deploy(compiled, variants, gang))
    policy = BatchPolicy()
    built = build_instances(compiled, SnapshotSpec(time=0.0, instances=instances), policy)
    arrivals = [replace(arrival, at=arrival.at / speedup) for arrival in trace.arrivals]
    replayed = replay(
        built, arrivals, until=max(moments, default=0.0), reference_pace=policy.reference_pace, patience=patience,
        block_tokens=MOONCAKE_BLOCK,
    )  # fmt: skip
    card, precision = variants[0].card, variants[0].precision
    assert card is not None
    fast = "" if speedup == 1.0 else f", {speedup:g} times as fast"
    asked = None if precision in SIXTEEN_BIT else precision
    return [
        snapshot_at(
            replayed, instances, at, model=card.name, precision=asked, mix=mix,
            name=f"{trace.name[:80]} at {at:g}s{fast}; tenants, priorities and limits drawn, seed {mix.seed}",
        )
        for at in moments
    ]  # fmt: skip
