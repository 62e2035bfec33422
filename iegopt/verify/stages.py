"""The running stages of a snapshot as a verifier reads them, and which of their limits still bind.

With nothing new placed every instance decodes at the slowest pace that what runs there allows; limits that are missed
even so are lifted. What remains is what a plan has to leave intact.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property

from iegopt.cost.demand import activation_bytes
from iegopt.cost.transfer import compression_ratio
from iegopt.spec.batch_policy import BatchPolicy
from iegopt.spec.policy import KvTransferConfig
from iegopt.spec.snapshot import RunningSpec, SnapshotSpec
from iegopt.verify.engine import Engine

__all__ = ["Base", "Stage", "Transfer", "ease", "stages_of"]

Transfer = Callable[[str, str, float, float], float]
"""Seconds from one instance to another, of bytes on the wire, that a producer of so many seconds may hide."""

ROUNDING = 1e-9
_FULL = 0.999


@dataclass(eq=False)
class Stage:
    """A running stage; ``prefill_by``, ``finish_by`` and ``itl`` are set to ∞ where they are lifted.

    Attributes
    ----------
    at, to
        Instances where it runs, and where it decodes.
    prompt, output
        Tokens whose KV cache it has when it decodes, and tokens it decodes from now on, per sequence.
    work
        Seconds of prefill left.
    """

    spec: RunningSpec
    at: Engine
    to: Engine
    prompt: int
    output: int
    work: float
    prefill_by: float
    finish_by: float
    itl: float
    ratio: float
    rows: dict[int, tuple[float, float]] = field(default_factory=dict)

    @property
    def id(self) -> str:
        return self.spec.id

    @property
    def is_prefill(self) -> bool:
        return self.spec.stage == "prefill"

    @property
    def sequences(self) -> int:
        """That decode."""
        return self.spec.sequences if self.output else 0

    @cached_property
    def _per_token(self) -> float:
        return self.at.card.kv_bytes_per_token() * self.spec.sequences

    @cached_property
    def kv_here(self) -> int:
        return math.ceil(self._per_token * self.prompt) if self.is_prefill else 0

    @cached_property
    def kv_there(self) -> int:
        working = activation_bytes(self.at.card, 1) * self.spec.sequences
        return math.ceil(self._per_token * (self.prompt + self.output) + working)

    @cached_property
    def kv_now(self) -> int:
        return math.ceil(self._per_token * self.spec.context)

    @property
    def wire_now(self) -> int:
        return math.ceil(self._per_token * self.spec.context * self.ratio)

    @property
    def wire_end(self) -> int:
        return math.ceil(self._per_token * self.ratio * self.prompt) if self.is_prefill else 0

    def step(self, engine: Engine) -> tuple[float, float]:
        """a and b on an instance."""
        key = id(engine.costs)
        if key not in self.rows:
            self.rows[key] = engine.costs.step(self.spec.sequences, self.prompt, self.output)
        return self.rows[key]

    def recompute(self) -> float:
        """Seconds to prefill anew all that it holds."""
        if not self.spec.context:
            return 0.0
        return self.at.costs.prefill(self.spec.context, 0, self.spec.sequences)


def stages_of(
    snapshot: SnapshotSpec, engines: Mapping[str, Engine], config: KvTransferConfig | None
) -> dict[str, Stage]:
    """Stages of instances that are not lost, by id."""
    found: dict[str, Stage] = {}
    for spec in snapshot.running:
        if spec.instance not in engines:
            continue
        at = engines[spec.instance]
        to = engines.get(spec.decode, at) if spec.decode is not None else at
        to = to if to.like(at) else at
        prefills = spec.stage == "prefill"
        prompt = spec.context + spec.remaining if prefills else max(1, spec.context)
        output = spec.output if prefills else spec.remaining
        waited = 0.0 if spec.arrival is None else snapshot.time - spec.arrival
        finish_by = _limit(spec.sla.e2e) - waited
        itl = _limit(spec.sla.itl) if output else math.inf
        found[spec.id] = Stage(
            spec=spec,
            at=at,
            to=to,
            prompt=prompt,
            output=output,
            work=at.costs.prefill(prompt, spec.context, spec.sequences) if prefills else 0.0,
            prefill_by=_limit(spec.sla.ttft) - waited if prefills else math.inf,
            finish_by=finish_by,
            itl=itl if prefills else min(itl, finish_by / spec.remaining),
            ratio=compression_ratio(config, True, at.card.kv_precision),
        )
    return found


def _limit(value: float | None) -> float:
    return math.inf if value is None else value


@dataclass(frozen=True, eq=False)
class Base:
    """An instance with nothing new placed.

    Attributes
    ----------
    other
        Share of its time that other work takes, less where something runs that is known to advance.
    pace
        Seconds between tokens; 0 where nothing decodes.
    speed
        1 − φ − ρ.
    memory, sequences
        Of what runs: never held against it.
    """

    other: float
    pace: float
    speed: float
    memory: int
    sequences: int


def ease(
    stages: Iterable[Stage], engines: Mapping[str, Engine], policy: BatchPolicy, transfer: Transfer
) -> tuple[dict[str, Base], tuple[float, ...]]:
    """Lift the limits of ``stages`` that are missed with nothing placed; bases by instance, and the ladder of paces."""
    at: dict[str, list[Stage]] = {name: [] for name in engines}
    to: dict[str, list[Stage]] = {name: [] for name in engines}
    for stage in stages:
        at[stage.at.id].append(stage)
        to[stage.to.id].append(stage)
    step: dict[str, float] = {}
    other: dict[str, float] = {}
    for name, engine in engines.items():
        here = [s for s in to[name] if s.output]
        other[name] = min(engine.other, _FULL if here or at[name] else 1.0)
        rows = [s.step(engine) for s in here]
        compute, read = engine.costs.base
        step[name] = max(compute + sum(a for a, _ in rows), read + sum(b for _, b in rows)) if here else 0.0
    least = {name: step[name] / (1.0 - other[name]) if step[name] else 0.0 for name in engines}
    paces = list(policy.paces)
    slowest = max(least.values(), default=0.0)
    if slowest > paces[-1] * (1.0 + ROUNDING):
        paces.append(slowest * (1.0 + ROUNDING))
    bases: dict[str, Base] = {}
    for name in engines:
        here = [s for s in to[name] if s.output]
        fastest = next(pace for pace in paces if pace * (1.0 + ROUNDING) >= least[name])
        for stage in here:
            if stage.itl < fastest:
                stage.itl = stage.finish_by = math.inf
            if fastest <= policy.paces[-1]:
                stage.itl = min(stage.itl, policy.paces[-1])
        tightest = min((stage.itl for stage in here), default=math.inf)
        pace = max(p for p in paces if p <= tightest) if here else 0.0
        memory = sum(s.kv_there for s in to[name])
        memory += sum(s.kv_here for s in at[name] if s.to is not s.at)
        share = step[name] / pace if here else 0.0
        bases[name] = Base(other[name], pace, 1.0 - share - other[name], memory, sum(s.sequences for s in here))
    for name in engines:
        _ease_prefills([s for s in at[name] if s.is_prefill], bases[name].speed, bases, policy.window, transfer)
    return bases, tuple(paces)


def _ease_prefills(
    here: list[Stage], speed: float, bases: Mapping[str, Base], window: float, transfer: Transfer
) -> None:
    """Lift the limits of prefills that are late; the others keep the window too, or end as late as they would."""

    def deadline(stage: Stage) -> float:
        moved = transfer(stage.at.id, stage.to.id, stage.wire_end, stage.work)
        after = moved + stage.output * bases[stage.to.id].pace if stage.output else 0.0
        return min(stage.prefill_by, stage.finish_by - after)

    def ends() -> list[tuple[Stage, float]]:
        found, now = [], 0.0
        for stage in sorted(here, key=deadline):
            now = now + stage.work / speed if speed > ROUNDING else math.inf
            found.append((stage, now))
        return found

    for stage, end in ends():
        limit = deadline(stage)
        if end > limit * (1.0 + ROUNDING):
            stage.prefill_by = stage.finish_by = math.inf
    # Where hardly any time is left, a difference of shares near 1 has lost digits.
    slack = ROUNDING + (4e-15 / speed if speed > ROUNDING else 0.0)
    for stage, end in ends():
        stage.prefill_by = min(stage.prefill_by, max(window, end * (1.0 + slack)))
