"""Which options of a stage are open: what its fallback tier and its device affinity leave, and the penalties."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from iegopt.errors import InputError
from iegopt.problem.cluster import CompiledCluster
from iegopt.problem.preference import within_latency
from iegopt.problem.sites import SiteTable
from iegopt.problem.stage_options import StageOptions
from iegopt.problem.tiers import Preferred
from iegopt.spec.stage import StageSpec

__all__ = ["opened_options"]

Ints = npt.NDArray[np.int64]


def opened_options(
    stage: StageSpec, options: StageOptions, tier: int | None, preference: Preferred | None,
    cluster: CompiledCluster, table: SiteTable,
) -> tuple[Ints, npt.NDArray[np.float64]]:  # fmt: skip
    """Which options of a stage tier and device affinity leave, and the seconds that each option's penalty adds."""
    if preference is None and stage.affinity.device is None:
        return options.layout.every, options.layout.nothing
    mask = _tier_mask(stage, options, tier, preference, cluster)
    bound = stage.affinity.device
    if bound is None:
        return np.flatnonzero(mask), np.zeros(len(options.site))
    there = _on_device(bound, f"stage {stage.id}: affinity.device", options, cluster, table)
    if not stage.affinity.required:
        return np.flatnonzero(mask), np.where(there, 0.0, stage.affinity.penalty)
    if not there.any():
        options.refused[f"affinity binds it to {bound}, which cannot run it"] += 1
    return np.flatnonzero(mask & there), np.zeros(len(options.site))


def _tier_mask(
    stage: StageSpec, options: StageOptions, tier: int | None, preference: Preferred | None, cluster: CompiledCluster
) -> npt.NDArray[np.bool_]:
    if preference is None:
        return np.ones(len(options.site), dtype=np.bool_)
    tiers = np.array([block.tier for block in options.blocks], dtype=np.int64)[options.block] if options.blocks else (
        np.empty(0, dtype=np.int64)
    )  # fmt: skip
    opened = tiers <= (len(preference.names) if tier is None else tier)
    return opened & within_latency(stage, options, tiers, preference, cluster)


def _on_device(
    device: str, where: str, options: StageOptions, cluster: CompiledCluster, table: SiteTable
) -> npt.NDArray[np.bool_]:
    """Which options stand on a device, alone or in a gang."""
    if device not in cluster.state.index:
        raise InputError(f"{where}: no device of cluster {cluster.spec.name} is called {device}")
    d = cluster.state.index[device]
    holds = np.logical_or.reduceat(table.topology.device_index == d, table.topology.device_ptr[:-1])
    return np.asarray(holds[options.site])
