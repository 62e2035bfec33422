"""Kinds of instances that the tests of the costs share: roofline, fitted and tabled, dense and sparse, gangs."""

from __future__ import annotations

from iegopt.batch.kinds import InstanceKind, instance_kind
from iegopt.cost.model import CostModel
from iegopt.cost.profile import Profiles
from iegopt.devices import DeviceClass, expand
from iegopt.problem.variants import Candidate
from iegopt.spec.cluster import ClusterSpec
from iegopt.spec.device import DeviceSpec
from iegopt.spec.llm import LlmCard
from iegopt.spec.profile import DecodeFit, Measurement, PrefillFit, Profile, ProfilePoint
from iegopt.spec.stage import Precision, StageKind
from iegopt.spec.variant import Backend, Variant

from ..cost.cards import llm, moe

__all__ = ["EFFICIENCY", "KINDS", "MODEL", "device_class", "kind_of"]

EFFICIENCY = (0.9, 0.5)


def device_class(model: str, **changes: object) -> DeviceClass:
    spec = DeviceSpec.model_validate({"id": "d", "model": model, **changes})
    return expand(ClusterSpec(devices=(spec,)))[0].kind


def _points(kind: StageKind, scale: float) -> tuple[ProfilePoint, ...]:
    """A grid that no roofline would give."""
    return tuple(
        ProfilePoint(batch=b, tokens=n, seconds=scale * (0.01 + 1e-5 * b**0.9 * n**1.1 + 0.002 * (b + n) ** 0.3))
        for b in (1, 2, 8)
        for n in (64, 512, 4000)
    )


def _profile(name: str, model: str, device: str, *measurements: Measurement) -> Profile:
    return Profile(
        name=name, model=model, precision=Precision.FP16, device=device, peak_flops=312e12, peak_bandwidth=2e12,
        measurements=measurements, sources={"all": "test"},
    )  # fmt: skip


MODEL = CostModel(
    Profiles(
        (
            _profile(
                "fitted", "Llama-2-70B", "A100-80GB",
                Measurement(
                    kind=StageKind.PREFILL, degrees=(4,),
                    prefill=PrefillFit(fixed=0.03, compute=1.2, per_token=2e-5, excess_from=2048, excess_token=4e-5),
                ),
                Measurement(
                    kind=StageKind.DECODE, degrees=(4,),
                    decode=DecodeFit(fixed=0.002, sync=0.004, weights=1.4, kv=5.0, per_sequence=2e-4),
                ),
            ),
            _profile(
                "tabled", "Llama-2-70B", "H100",
                Measurement(kind=StageKind.PREFILL, degrees=(2,), points=_points(StageKind.PREFILL, 1.0)),
                Measurement(kind=StageKind.DECODE, degrees=(2,), points=_points(StageKind.DECODE, 0.5)),
            ),
            _profile(
                "again", "Llama-2-70B", "MI300X",
                Measurement(kind=StageKind.PREFILL, degrees=(2,), points=_points(StageKind.PREFILL, 2.0)),
                Measurement(
                    kind=StageKind.RE_PREFILL, degrees=(2,),
                    prefill=PrefillFit(fixed=0.01, compute=2.0, per_token=1e-5),
                ),
            ),
        )
    )
)  # fmt: skip


def kind_of(card: LlmCard, device: DeviceClass, size: int, fabric: bool = True) -> InstanceKind:
    variant = Variant(precision=Precision.FP16, backend=Backend.CUDA, compatible_devices=(device.model,))
    candidate = Candidate(f"{card.name}/{variant.artifact}", card, variant.precision, variant)
    return instance_kind(candidate, device, size, fabric, MODEL, EFFICIENCY)


_SMALL = llm(name="Small", parameters=7 * 10**9, layers=32, hidden_size=4096, attention_heads=32, kv_heads=32)

KINDS = (
    kind_of(_SMALL, device_class("A100-80GB", efficiency=0.7), 1),
    kind_of(_SMALL, device_class("L40S"), 2, fabric=False),
    kind_of(llm(), device_class("A100-80GB"), 4),
    kind_of(llm(), device_class("H100"), 2),
    kind_of(llm(), device_class("MI300X"), 2),
    kind_of(moe(), device_class("H200"), 4),
)
