"""Snapshots from traces: what requests arrived when, on engines that a cluster could have up."""

from iegopt.batch.traces.deploy import deploy, variants_of
from iegopt.batch.traces.make import make_snapshots
from iegopt.batch.traces.read import Arrival, Trace, read_trace
from iegopt.batch.traces.replay import Replay, replay
from iegopt.batch.traces.snapshots import Mix, snapshot_at

__all__ = [
    "Arrival", "Mix", "Replay", "Trace", "deploy", "make_snapshots", "read_trace", "replay", "snapshot_at",
    "variants_of",
]  # fmt: skip
