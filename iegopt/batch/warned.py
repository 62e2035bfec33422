"""What a snapshot says that cannot be so, or cannot be kept: one line each, with its figures."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from iegopt.batch.build_instances import BuiltInstances
from iegopt.batch.build_running import BuiltRunning
from iegopt.batch.model import Running
from iegopt.spec.snapshot import SnapshotSpec

__all__ = ["contradictions", "missed_limits"]


def missed_limits(read: Running, settled: BuiltRunning) -> Iterator[str]:
    """Running stages whose limits were lifted, and what they need; ``read`` has the limits as the snapshot has them."""
    instances, paces = settled.instances, settled.paces
    for r in np.flatnonzero(settled.running.missed).tolist():
        p, q = int(read.instance[r]), int(read.decode[r])
        pace = float(paces[instances.base_pace[q]]) if instances.base_pace[q] >= 0 else 0.0
        if read.sequences[r] and pace > read.itl[r]:
            need, left = f"a token takes {pace:.3g} s on {instances.ids[q]}", float(read.itl[r])
        else:
            left = min(float(read.prefill_by[r]), float(read.finish_by[r]) - int(read.remaining[r]) * pace)
            speed = max(0.0, float(settled.speed[p]))
            need = (
                f"its prefill takes {read.prefill[r]:.3g} s at full speed, and {instances.ids[p]} has {speed:.1%} left"
            )
        leave = f"{left:.3g} s" if left > 0 else "none"
        yield f"{read.ids[r]} misses a limit whatever is placed: {need}; its limits leave {leave}"


def contradictions(snapshot: SnapshotSpec, built: BuiltInstances, settled: BuiltRunning) -> Iterator[str]:
    """Engines that run more than they have room for, or use less memory than their weights take."""
    reported, eased, kinds = built.instances, settled.instances, built.kinds.kinds
    for j, name in enumerate(reported.ids):
        kind, used = kinds[int(reported.kind[j])], built.specs[j].used
        weights = kind.card.parameters * kind.precision.bytes
        if used is not None and used < weights:
            yield (
                f"instance {name}: {used / 1e9:.4g} GB are said to be used, and its weights alone take "
                f"{weights / 1e9:.4g} GB"
            )
        if eased.free[j] > reported.free[j]:
            need, have = eased.free[j] / 1e9, reported.free[j] / 1e9
            yield f"instance {name}: what runs there comes to {need:.4g} GB of KV cache, and {have:.4g} GB are free"
        if eased.max_batch[j] > reported.max_batch[j]:
            count, most = eased.max_batch[j], reported.max_batch[j]
            yield f"instance {name}: {count} sequences decode there, and its max_batch is {most}"
    for stage in snapshot.running:
        if stage.instance in built.index:
            card = kinds[int(reported.kind[built.index[stage.instance]])].card
            tokens, most = stage.context + (stage.remaining if stage.stage == "prefill" else 0), card.max_context
            if tokens > most:
                yield f"{stage.id}: {tokens} tokens are more than the context of {card.name}, which ends at {most}"
