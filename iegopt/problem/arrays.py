"""The compiled placement problem: int64 arrays, indices instead of ids.

Times and costs are int64 nanoseconds ("ticks"), memory is int64 in ``1/memory_scale`` bytes, where
``memory_scale`` is a multiple of every gang size, so that a gang's even share is exact. Rounding to
ticks happens once, when a problem is built; everything after is integer arithmetic, so that
every solver agrees to the bit.

Shapes: V stages, E edges, S sites, D devices, O options in all (stage-major), L = 4 tree levels.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from iegopt.errors import InputError
from iegopt.problem.topology import Topology
from iegopt.problem.typed import Unpickled, check_shape, hold, hold_ints, nothing_in

__all__ = ["MOST_TICKS", "NO_LIMIT", "TICKS_PER_SECOND", "Affinity", "Edges", "Options", "Problem"]

Ints = npt.NDArray[np.int64]

TICKS_PER_SECOND = 10**9
NO_LIMIT = int(np.iinfo(np.int64).max)
"""Stands for "no SLA", "no deadline" in int64 arrays."""
MOST_TICKS = 2**60
"""What one option or transfer may cost or take: 36 years."""
_BLOCK = 1 << 14
"""Options looked at together."""


@dataclass(frozen=True, eq=False)
class Options(Unpickled):
    """Options (site, variant) of all stages; those of stage v are ``ptr[v]:ptr[v + 1]``.

    Attributes
    ----------
    ptr (V + 1,), site (O,), variant (O,)
        ``variant`` indexes ``Problem.variants``.
    cost, time (O,)
        Ticks. ``time`` is what an SLA and a deadline see.
    share (O,)
        Memory that each device of the site gives, in ``1/memory_scale`` bytes.
    weight_key, weight_share (O,)
        Weights shared by every stage that uses the same key: counted once per key on each device of
        the site. Key −1: none. Equal keys mean equal site and equal share.
    kv_share (O,)
        The part of ``share`` that is KV cache; ``None``: none anywhere. Only ``peak_memory`` reads it.
    """

    ptr: Ints
    site: Ints
    variant: Ints
    cost: Ints
    time: Ints
    share: Ints
    weight_key: Ints
    weight_share: Ints
    kv_share: Ints | None = None

    def __post_init__(self) -> None:
        each = "site", "variant", "cost", "time", "share", "weight_key", "weight_share", "kv_share"
        hold(self, np.int64, "ptr", *each)
        if self.ptr.ndim != 1 or not len(self.ptr):
            raise InputError(f"Options.ptr: shape {self.ptr.shape}, expected one for every stage, and one")
        check_shape(self, (int(self.ptr[-1]),), "option up to ptr[-1]", *each)

    def of(self, stage: int) -> slice:
        """The options of one stage, as a slice into the option arrays."""
        return slice(int(self.ptr[stage]), int(self.ptr[stage + 1]))

    @cached_property
    def stage(self) -> Ints:
        """(O,) the stage of every option."""
        return np.repeat(np.arange(len(self.ptr) - 1), np.diff(self.ptr))


@dataclass(frozen=True, eq=False)
class Edges(Unpickled):
    """Edges of the graph.

    Attributes
    ----------
    source, target (E,)
        Stage indices.
    bytes (E,), weight (E,)
        Bytes on the wire; weight of a second of transfer in the objective (float64).
    chunk (E,)
        Bytes of a chunk where the transfer overlaps the producer, 0 where it does not.
    hidden
        Per edge ``None``, or (options of the source,) seconds of transfer that the producer hides:
        t(a, b) = max(raw − hidden, latency + min(chunk, bytes)/bandwidth).
    hands_on (E,)
        Edges over which the target takes over the source's KV cache, at most one into a stage; ``None``: no edge.
        Only ``peak_memory`` reads it.
    """

    source: Ints
    target: Ints
    bytes: npt.NDArray[np.float64]
    weight: npt.NDArray[np.float64]
    chunk: npt.NDArray[np.float64]
    hidden: tuple[npt.NDArray[np.float64] | None, ...]
    kind: tuple[str, ...] = ()
    hands_on: npt.NDArray[np.bool_] | None = None

    def __post_init__(self) -> None:
        hold(self, np.int64, "source", "target")
        hold(self, np.float64, "bytes", "weight", "chunk", "hidden")
        hold(self, np.bool_, "hands_on")
        count = self.source.size
        check_shape(self, (count,), "edge", "source", "target", "bytes", "weight", "chunk", "hands_on")
        if len(self.hidden) != count or len(self.kind) not in (0, count):
            raise InputError(
                f"Edges.hidden, Edges.kind: {len(self.hidden)} and {len(self.kind)} entries, "
                f"expected {count}, one for every edge, or no kind"
            )

    def is_data(self, edge: int) -> bool:
        return not self.kind or self.kind[edge] != "control"


@dataclass(frozen=True)
class Affinity:
    """Stages that share (or, ``apart``, pairwise do not share) a group of a level.

    ``level`` is −1 for the site itself, else an index into ``Topology.group``. A broken preferred
    affinity costs ``penalty`` ticks once.
    """

    stages: tuple[int, ...]
    level: int
    apart: bool
    required: bool
    penalty: int

    def __post_init__(self) -> None:
        hold_ints(self, "stages", "level", "penalty")


@dataclass(frozen=True, eq=False)
class Problem(Unpickled):
    """Minimise Σ option costs + Σ edge costs + Σ penalties of broken preferred affinities
    + ``makespan_weight`` · max finish, subject to

    - one option per stage;
    - ``time ≤ sla[v]``;
    - per device, Σ shares + Σ distinct weight shares ≤ ``capacity``;
    - required affinities;
    - finish(v) ≤ min(``finish_by[v]``, ``deadline``), finish along the DAG of time + transfer;
    - Σ time over ``budget_stages`` ≤ ``budget``;
    - with ``no_overlap``, stages on a common device run one after the other. Start times are then part of the
      answer; without it every stage starts as soon as its inputs are there.

    With ``peak_memory`` the memory of a device is limited at every moment instead of in sum. A stage holds its share
    from its start until the last of its in-place consumers ends: itself, and the targets of its data edges on the
    same site. Over an edge that ``hands_on``, both ends on one site, the smaller of the two KV shares is one
    copy: the target counts it only once the source has let go of its own. Shared weights stay throughout. A stage
    that takes no time holds its memory for no time, and still has to fit its devices alone, as every stage has.

    Attributes
    ----------
    capacity (D,)
        In ``1/memory_scale`` bytes.
    sla, finish_by (V,)
        Ticks, ``NO_LIMIT`` where there is none.
    order (V,)
        A topological order of the stages.
    meta
        What the compiler wants back at decode (never read by a solver).
    makespan_weight
        ≥ 0, counted in millionths: ``makespan_cost``.
    """

    name: str
    stages: tuple[str, ...]
    variants: tuple[str, ...]
    topology: Topology
    options: Options
    edges: Edges
    affinities: tuple[Affinity, ...]
    capacity: Ints
    memory_scale: int
    sla: Ints
    finish_by: Ints
    deadline: int
    budget: int
    budget_stages: tuple[int, ...]
    order: Ints
    meta: dict[str, Any] = field(default_factory=dict)
    makespan_weight: float = 0.0
    no_overlap: bool = False
    peak_memory: bool = False

    def __post_init__(self) -> None:
        hold(self, np.int64, "capacity", "sla", "finish_by", "order")
        hold_ints(self, "memory_scale", "deadline", "budget", "budget_stages")
        check_shape(self.options, (self.V + 1,), "stage, and one", "ptr")
        check_shape(self, (self.topology.D,), "device", "capacity")
        check_shape(self, (self.V,), "stage", "sla", "finish_by", "order")
        if not nothing_in(self.edges.hidden):
            self._check_hidden()

    def _check_hidden(self) -> None:
        count = np.diff(self.options.ptr)[self.edges.source].tolist()
        for e, hidden in enumerate(self.edges.hidden):
            if hidden is not None and hidden.shape != (count[e],):
                expected = f"expected ({count[e]},), one for every option of the edge's source"
                raise InputError(f"Edges.hidden[{e}]: shape {hidden.shape}, {expected}")

    @property
    def timed(self) -> bool:
        """Whether anything but a limit depends on when stages run."""
        return self.makespan_weight > 0 or self.no_overlap or self.peak_memory

    @cached_property
    def makespan_millionths(self) -> int:
        return round(self.makespan_weight * 10**6)

    def makespan_cost(self, makespan: int) -> int:
        """⌈weight · makespan⌉ in ticks, the weight rounded to millionths."""
        return -(-self.makespan_millionths * int(makespan) // 10**6)

    @property
    def V(self) -> int:
        return len(self.stages)

    @property
    def E(self) -> int:
        return len(self.edges.source)

    @cached_property
    def allowed(self) -> npt.NDArray[np.bool_]:
        """(O,) options that keep their stage's SLA and fit their devices alone."""
        o = self.options
        tightest = self.topology.tightest(self.capacity)
        limit = np.minimum(self.sla, np.minimum(self.finish_by, self.deadline))
        limited = bool((limit < NO_LIMIT).any())
        weighted = bool((o.weight_key >= 0).any())
        count = np.diff(o.ptr)
        allowed = np.empty(len(o.site), dtype=np.bool_)
        # In blocks: a large array for every step would be new memory each time, dearer than what is done to it.
        stages = max(1, _BLOCK * self.V // max(1, len(o.site)))
        for first in range(0, self.V, stages):
            block = slice(first, min(first + stages, self.V))
            part = slice(int(o.ptr[block.start]), int(o.ptr[block.stop]))
            need = o.share[part]
            if weighted:
                need = need + np.where(o.weight_key[part] >= 0, o.weight_share[part], 0)
            fits = need <= tightest.take(o.site[part])
            if limited:
                fits &= o.time[part] <= np.repeat(limit[block], count[block])
            allowed[part] = fits
        return allowed

    @cached_property
    def has_path_limits(self) -> bool:
        """Whether any limit on finish times exists."""
        return self.deadline < NO_LIMIT or bool((self.finish_by < NO_LIMIT).any())
