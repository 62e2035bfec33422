"""Whether a stage may run as a plan says: variant, precision, residency and fallback step, read from the documents."""

from __future__ import annotations

from collections.abc import Mapping

from iegopt import library
from iegopt.devices import Device
from iegopt.spec.cluster import ClusterSpec
from iegopt.spec.kinds import LLM_KINDS
from iegopt.spec.llm import LlmCard
from iegopt.spec.policy import FallbackPolicy
from iegopt.spec.request import RequestSpec
from iegopt.spec.stage import SIXTEEN_BIT, Precision, StageSpec
from iegopt.spec.variant import Variant

__all__ = ["forbidden_step", "is_resident", "variant_named"]


def variant_named(
    name: str, spec: StageSpec, device: Device, request: RequestSpec, cluster: ClusterSpec
) -> tuple[Precision, Variant] | None:
    """Precision and variant of a name, for a stage with a model; ``None`` where it is not one that it may run there."""
    assert spec.model is not None
    card = library.llm(spec.model)
    own = [path for path in cluster.execution_path_registry or () if path.model.lower() in _names(card)]
    path = own[-1] if own else library.path(card.name)
    for variant in path.variants if path else ():
        tail = "" if variant.version == "1" else f"/{variant.version}"
        if f"{card.name}/{variant.precision}/{variant.backend}{tail}" != name:
            continue
        runs = library.compatible(variant.compatible_devices, device.kind.model)
        if (
            runs
            and device.kind.compute.rate(variant.precision)
            and _wants(spec, card, variant.precision, request, cluster)
        ):
            return variant.precision, variant
    return None


def is_resident(model: str, variant: str, resident: tuple[str, ...]) -> bool:
    """Whether a device that holds ``resident`` holds this variant of the model."""
    names = _names(library.llm(model))
    artifact = variant.split("/", 1)[1].lower()
    return any(r.lower() in names or r.lower() in {f"{n}/{artifact}" for n in names} for r in resident)


def forbidden_step(
    tier: str | None, spec: StageSpec, device: Device, precision: Precision, request: RequestSpec,
    cluster: ClusterSpec, devices: Mapping[str, Device],
) -> str | None:  # fmt: skip
    """The fallback step that a placement takes, where the policy lacks it or the plan's tier comes before it."""
    policy = _policy(request, cluster)
    if spec.model is None or spec.type not in LLM_KINDS or (policy is None and request.prefer is None):
        return None
    step = _step(spec, device, precision, request, devices)
    if step == "preferred":
        return None
    opened = ["preferred", *map(str, policy.preferences if policy else ())]
    reached = opened.index(tier) if tier in opened else -1
    return None if step in opened[: reached + 1] else step


def _step(
    spec: StageSpec, device: Device, precision: Precision, request: RequestSpec, devices: Mapping[str, Device]
) -> str:
    """How far from the preferred device and precision a placement lies (section 7.5 of the source)."""
    asked = spec.compute.precision or request.precision or library.llm(str(spec.model)).native_precision
    if precision is not asked and not {precision, asked} <= SIXTEEN_BIT:
        return "precision_degradation"
    if request.prefer is None or library.compatible((request.prefer.device,), device.kind.model):
        return "preferred"
    family = (request.prefer.device,)
    like = [(d.kind.vendor, d.kind.series) for d in devices.values() if library.compatible(family, d.kind.model)]
    like += [(c.vendor, c.series) for c in library.all_cards("device") if library.compatible(family, c.name)]
    vendor, series = like[0]
    if device.kind.vendor != vendor:
        return "cross_vendor_same_precision"
    return "same_vendor_same_series" if device.kind.series == series else "same_vendor_different_series"


def _wants(spec: StageSpec, card: LlmCard, precision: Precision, request: RequestSpec, cluster: ClusterSpec) -> bool:
    """Whether the request lets the stage run in this precision."""
    if spec.compute.precision is None and spec.type not in LLM_KINDS:
        return precision.bytes >= 2
    asked = spec.compute.precision or request.precision
    wanted = {asked or card.native_precision}
    policy = _policy(request, cluster)
    steps = policy.preferences if policy is not None else ()
    if (asked is None or steps) and wanted & SIXTEEN_BIT:
        wanted |= SIXTEEN_BIT
    lower = all(precision.bytes < p.bytes for p in wanted) and "precision_degradation" in steps
    return precision in wanted or lower


def _policy(request: RequestSpec, cluster: ClusterSpec) -> FallbackPolicy | None:
    return request.fallback_policy or cluster.fallback_policy


def _names(card: LlmCard) -> set[str]:
    return {card.name.lower(), *(alias.lower() for alias in card.aliases)}
