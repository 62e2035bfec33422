"""Kinds of instances: what all instances of one device class, gang size, fabric and variant have in common."""

from __future__ import annotations

from dataclasses import dataclass

from iegopt.cost.gang import gang_capacity
from iegopt.cost.model import CostModel
from iegopt.cost.profile import Measured
from iegopt.cost.roofline import Capacity
from iegopt.devices import DeviceClass
from iegopt.errors import InputError
from iegopt.problem.variants import Candidate
from iegopt.spec.llm import LlmCard
from iegopt.spec.stage import Parallelism, ParallelStrategy, Precision, StageKind, StageSpec, TokenWork

__all__ = ["InstanceKind", "instance_kind"]


@dataclass(frozen=True)
class InstanceKind:
    """A kind; ``gang`` is the capacity that one request sees, ``efficiency`` divides its roofline.

    ``prefill``, ``re_prefill`` and ``decode`` are measurements in the roofline's place; ``None`` without one.
    """

    device: DeviceClass
    size: int
    fabric: bool
    variant: str
    card: LlmCard
    precision: Precision
    gang: Capacity
    efficiency: float
    prefill: Measured | None
    re_prefill: Measured | None
    decode: Measured | None

    @property
    def name(self) -> str:
        """``4 x H100: Llama-2-70B/fp16/TensorRT``."""
        return f"{self.size} x {self.device.model}: {self.variant}"

    @property
    def family(self) -> tuple[str, Precision]:
        """Model and precision, within which a KV cache may travel."""
        return self.card.name, self.precision


def instance_kind(
    candidate: Candidate, device: DeviceClass, size: int, fabric: bool, model: CostModel,
    parallel_efficiency: tuple[float, float],
) -> InstanceKind:  # fmt: skip
    """The kind of a variant on ``size`` devices of a class, tensor parallel where they are several.

    Parameters
    ----------
    fabric
        Whether one domain holds the gang.
    parallel_efficiency
        Of gangs within a domain, and of gangs that only share a host.

    Raises
    ------
    InputError
        The variant does not run there: an encoder, a precision or device it is not for, heads that the gang does not
        divide, or weights that do not fit.
    """
    card, precision = candidate.card, candidate.precision_on(device)
    if card is None or card.kind != "decoder":
        raise InputError(f"{candidate.name} generates no tokens: expected a variant of a decoder")
    if precision is None or (rate := device.compute.rate(precision)) is None:
        raise InputError(f"{candidate.name} does not run on {device.model}")
    if rate <= 0.0:
        raise InputError(f"{device.model} states no FLOP/s in {precision}")
    if size > 1 and card.attention_heads % size:
        raise InputError(f"{size} devices do not divide the {card.attention_heads} attention heads of {card.name}")
    if card.parameters * precision.bytes > size * device.vram:
        need, room = card.parameters * precision.bytes / 1e9, size * device.vram / 1e9
        there = f"{size} x {device.model} with {room:.4g} GB"
        raise InputError(f"the weights of {candidate.name}, {need:.4g} GB, do not fit {there}")
    shape = Parallelism(strategy=ParallelStrategy.TENSOR if size > 1 else ParallelStrategy.NONE, degree=size)
    capacity = Capacity(rate, device.bandwidth, device.io, device.vram)
    stage = StageSpec(id="decode", type=StageKind.DECODE, model=card.name, tokens=TokenWork(output=1))
    measured = {
        kind: model.profiles.lookup(kind, card.name, precision, device.model, size)
        for kind in (StageKind.PREFILL, StageKind.RE_PREFILL, StageKind.DECODE)
    }
    return InstanceKind(
        device=device,
        size=size,
        fabric=fabric,
        variant=candidate.name,
        card=card,
        precision=precision,
        gang=gang_capacity(capacity, shape, parallel_efficiency[0] if fabric else parallel_efficiency[1]),
        efficiency=device.efficiency_for(stage),
        prefill=measured[StageKind.PREFILL],
        re_prefill=measured[StageKind.RE_PREFILL],
        decode=measured[StageKind.DECODE],
    )
