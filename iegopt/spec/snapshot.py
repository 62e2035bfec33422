"""A snapshot: what is known of a cluster's engines and its queue at one moment (section 5.4; docs/replanning.md).

::

    snapshot:
      time: 81.25s
      instances:
        - {id: chat-0, devices: [h100-0, h100-1], variant: Llama-3.1-70B/fp8/TensorRT, prefix: [7, 8, 9]}
      running:
        - {id: r1, instance: chat-0, stage: decode, context: 3000, remaining: 120, priority: 2}
      queue:
        - id: q1
          tenant: acme
          arrival: 80.9s
          request: {model: Llama-3.1-70B, precision: fp8, prompt_tokens: 2048, output_tokens: 300}

All times are on one clock of the caller's. A running stage whose instance is ``lost`` is not an error: it waits again,
as a request that prefills all it held.
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import StrEnum
from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from iegopt.spec.base import Identifier, Name, Spec
from iegopt.spec.quantities import Bytes, Fraction, PositiveInt, Seconds, SmallInt
from iegopt.spec.request import RequestSpec, SlaClass, SlaSpec

__all__ = [
    "DEFAULT_PRIORITY", "InstanceSpec", "InstanceState", "PlannedSpec", "PrefixTier", "QueuedSpec", "Role",
    "RunningSpec", "SnapshotSpec", "UtilityClass", "UtilitySpec",
]  # fmt: skip

PriorityLevel = Annotated[int, Field(strict=True, ge=0, le=9)]
Block = Annotated[int, Field(strict=True, ge=0, lt=2**63)]
"""Hash of a block of tokens and all before it, so equal blocks have equal prefixes (as in the Mooncake traces)."""

DEFAULT_PRIORITY = {SlaClass.REALTIME: 0, SlaClass.AGENT: 1, SlaClass.BATCH: 2, SlaClass.OFFLINE: 2}
"""Priority of a request that states none (the table of section 5.4); 0 goes first."""


_NOT_READ = {
    "graph": "replanning reads a model with a prompt, not a graph given whole",
    "parallelism": "the instances fix it",
    "weights": "utility says what the request is worth",
    "objective": "utility says what the request is worth",
    "no_overlap": "an engine batches its decodes",
    "memory_accounting": "an instance holds all that is placed on it at once",
    "prefer": "planned says where it should stay",
    "dag_constraints": "they bind a graph, and replanning plans the present round",
    "kv_transfer_config": "it belongs in the batch policy",
    "fallback_policy": "the instances fix model and precision",
}
"""What a request of a queue may not say, and why: nothing would read it."""


class Role(StrEnum):
    """What an instance is deployed for."""

    ANY = "any"
    PREFILL = "prefill"
    DECODE = "decode"


class InstanceState(StrEnum):
    """``draining`` finishes what runs and takes nothing new; ``lost`` runs nothing any more."""

    UP = "up"
    DRAINING = "draining"
    LOST = "lost"


class UtilityClass(StrEnum):
    LATENCY = "latency"
    THROUGHPUT = "throughput"


class UtilitySpec(Spec):
    """What a request is worth: ``weight`` where its limits are kept, or times its throughput (section 5.4).

    Left out, the class is throughput for the SLA classes batch and offline, latency for the others.
    """

    kind: UtilityClass | None = Field(default=None, alias="class")
    weight: float = Field(default=1.0, gt=0, le=1e6)


class PrefixTier(Spec):
    """Prefix blocks that an instance's host or disk holds; ``tier`` as in section 6.3."""

    tier: Literal["host", "disk"]
    blocks: tuple[Block, ...]


class InstanceSpec(Spec):
    """An engine that is up.

    Attributes
    ----------
    devices
        Ids of the cluster's devices, one for each gang member; a device serves one instance.
    variant
        Model, precision and backend, as a plan names them; the weights are resident.
    observed
        When load and memory were measured; the snapshot's time where left out.
    utilization
        Share of the time that work outside the snapshot takes.
    used
        Bytes over all devices that are not free and not KV cache of ``running`` (weights included). Left
        out: the weights of the variant and what the cluster's file says is used.
    prefix
        Blocks of KV cache held on the device, evictable.
    max_batch
        Sequences that the engine decodes together at most.
    """

    id: Identifier
    devices: tuple[Identifier, ...] = Field(min_length=1, max_length=64)
    variant: Name
    role: Role = Role.ANY
    state: InstanceState = InstanceState.UP
    observed: Seconds | None = None
    utilization: Fraction = 0.0
    used: Bytes | None = None
    prefix: tuple[Block, ...] = ()
    tiers: tuple[PrefixTier, ...] = ()
    max_batch: PositiveInt = 256

    @model_validator(mode="after")
    def _devices_once(self) -> Self:
        if len(set(self.devices)) != len(self.devices):
            raise ValueError("a device stands twice in an instance")
        return self


class RunningSpec(Spec):
    """A stage that runs.

    Attributes
    ----------
    context
        Tokens whose KV cache is held (a prefill: tokens done); over all sequences alike.
    remaining
        Tokens still to prefill, or to decode.
    output
        Of a prefill: tokens to decode after it, on ``decode`` (an instance) or where it is.
    arrival
        Of its request; limits count from there.
    preempted
        How often it was put aside already.
    """

    id: Identifier
    instance: Identifier
    stage: Literal["prefill", "decode"]
    context: SmallInt
    remaining: PositiveInt
    output: SmallInt = 0
    decode: Identifier | None = None
    sequences: PositiveInt = 1
    tenant: Identifier = "default"
    priority: PriorityLevel = 1
    utility: UtilitySpec = UtilitySpec()
    sla: SlaSpec = SlaSpec()
    arrival: Seconds | None = None
    preempted: SmallInt = 0

    @model_validator(mode="after")
    def _decode_of_a_prefill(self) -> Self:
        if self.stage == "decode" and (self.output or self.decode is not None):
            raise ValueError("output and decode say what follows a prefill: a decode states remaining alone")
        if self.decode is not None and not self.output:
            raise ValueError("decode is given but no output: expected the tokens to decode there")
        return self

    @model_validator(mode="after")
    def _limits_can_be_checked(self) -> Self:
        counted = [name for name in ("ttft", "e2e") if getattr(self.sla, name) is not None]
        if counted and self.arrival is None:
            raise ValueError(f"sla.{counted[0]} counts from the arrival of its request: expected arrival")
        if self.stage == "decode" and self.sla.ttft is not None:
            raise ValueError("sla.ttft of a decode would be ignored: its first token is out. Remove it")
        if self.sla.itl is not None and self.stage == "prefill" and not self.output:
            raise ValueError("sla.itl of a prefill without output would be ignored: remove it")
        return self

    @property
    def utility_class(self) -> UtilityClass:
        """Stated, or latency: nothing says the SLA class of what runs."""
        return self.utility.kind if self.utility.kind is not None else UtilityClass.LATENCY


class PlannedSpec(Spec):
    """Where an earlier plan put a queued request."""

    prefill: Identifier
    decode: Identifier


class QueuedSpec(Spec):
    """A request that waits. ``prefix`` are the blocks of its prompt, in order; the last may be a part of one.

    ``held_kv`` of a request that was put aside: tokens whose KV cache ``held_on`` (an instance's host) keeps;
    its ``output_tokens`` are those still to come and ``preempted`` counts how often it was put aside.
    """

    id: Identifier
    request: RequestSpec
    arrival: Seconds
    tenant: Identifier = "default"
    priority: PriorityLevel | None = None
    utility: UtilitySpec = UtilitySpec()
    prefix: tuple[Block, ...] = ()
    planned: PlannedSpec | None = None
    held_kv: SmallInt = 0
    held_on: Identifier | None = None
    preempted: SmallInt = 0

    @model_validator(mode="after")
    def _held_somewhere(self) -> Self:
        if bool(self.held_kv) != (self.held_on is not None):
            raise ValueError("held_kv and held_on belong together: give both or none")
        prompt = self.request.prompt_tokens
        if prompt is not None and self.held_kv > prompt:
            raise ValueError(f"held_kv: {self.held_kv} tokens are more than the {prompt} of the prompt")
        return self

    @property
    def level(self) -> int:
        """Its priority, stated or by its SLA class; 0 goes first."""
        return DEFAULT_PRIORITY[self.request.sla_class] if self.priority is None else self.priority

    @property
    def utility_class(self) -> UtilityClass:
        if self.utility.kind is not None:
            return self.utility.kind
        slow = self.request.sla_class in (SlaClass.BATCH, SlaClass.OFFLINE)
        return UtilityClass.THROUGHPUT if slow else UtilityClass.LATENCY


class SnapshotSpec(Spec):
    """Instances, running stages and the queue at ``time``.

    ``block_tokens`` is the number of tokens of a prefix block.
    """

    name: Name = "snapshot"
    time: Seconds
    block_tokens: PositiveInt = 512
    instances: tuple[InstanceSpec, ...] = Field(min_length=1)
    running: tuple[RunningSpec, ...] = ()
    queue: tuple[QueuedSpec, ...] = ()

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        known = {instance.id for instance in self.instances}
        _once("instances", [instance.id for instance in self.instances])
        _once("running and queue", (*(job.id for job in self.running), *(job.id for job in self.queue)))
        _check_instances(self.instances)
        for number, instance in enumerate(self.instances):
            self._not_later(f"instances.{number}.observed", instance.observed)
        for number, running in enumerate(self.running):
            self._not_later(f"running.{number}.arrival", running.arrival)
            for key, name in (("instance", running.instance), ("decode", running.decode)):
                if name is not None and name not in known:
                    raise ValueError(f"running.{number}.{key}: no instance is called {name}")
        for number, queued in enumerate(self.queue):
            self._not_later(f"queue.{number}.arrival", queued.arrival)
            self._readable(f"queue.{number}", queued)
            if queued.held_on is not None and queued.held_on not in known:
                raise ValueError(f"queue.{number}.held_on: no instance is called {queued.held_on}")
        _check_blocks(self.queue)
        return self

    def _not_later(self, where: str, moment: float | None) -> None:
        if moment is not None and moment > self.time:
            now = f"the snapshot's time {self.time:g}s"
            raise ValueError(f"{where}: {moment:g}s is after {now}: the clock ran backwards")

    def _readable(self, where: str, queued: QueuedSpec) -> None:
        """Whether all that a queued request says is read, and its blocks fit its prompt."""
        request = queued.request
        ignored = [name for name in _NOT_READ if name in request.model_fields_set]
        if ignored:
            raise ValueError(f"{where}.request.{ignored[0]}: {_NOT_READ[ignored[0]]}. Remove it")
        if "id" in request.model_fields_set and request.id != queued.id:
            raise ValueError(f"{where}.request.id: {request.id} is not {queued.id}, the id of the entry: remove it")
        if request.prompt_tokens is None:
            return
        most = -(-request.prompt_tokens // self.block_tokens)
        if len(queued.prefix) > most:
            prompt = f"{request.prompt_tokens} tokens, {most} blocks of {self.block_tokens}"
            raise ValueError(f"{where}.prefix: {len(queued.prefix)} blocks, but the prompt has {prompt}")


def _check_instances(instances: Iterable[InstanceSpec]) -> None:
    """A device serves one instance; one that is lost has let its devices go."""
    holder: dict[str, str] = {}
    for number, instance in enumerate(instances):
        if instance.state is InstanceState.LOST:
            continue
        for device in instance.devices:
            if device in holder:
                raise ValueError(f"instances.{number}: device {device} serves {holder[device]} already")
            holder[device] = instance.id


def _check_blocks(queue: Iterable[QueuedSpec]) -> None:
    """A block stands for all before it too: what comes before it is the same in every prompt of a model."""
    before: dict[tuple[str, int], int | None] = {}
    for number, queued in enumerate(queue):
        last: int | None = None
        for block in queued.prefix:
            key = str(queued.request.model), block
            if key in before and before[key] != last:
                here, there = ("nothing" if other is None else f"block {other}" for other in (last, before[key]))
                raise ValueError(
                    f"queue.{number}.prefix: before block {block} comes {here}, elsewhere {there}: a block's id "
                    "stands for all before it too"
                )
            before[key], last = last, block


def _once(what: str, names: Iterable[str]) -> None:
    seen: set[str] = set()
    for name in names:
        if name in seen:
            raise ValueError(f"{what}: {name} stands twice")
        seen.add(name)
