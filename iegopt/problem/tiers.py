"""Fallback: how far an option lies from the preferred device and precision (section 7.5).

Tier 0 is the preferred device model in the requested precision; tier i is the i-th step of the
policy's order. The planner opens a tier only when no feasible plan exists above it.
"""

from __future__ import annotations

from dataclasses import dataclass

from iegopt import library
from iegopt.devices import DeviceClass
from iegopt.errors import InputError
from iegopt.spec.policy import FallbackPolicy, FallbackStep
from iegopt.spec.stage import SIXTEEN_BIT, Precision

__all__ = ["PREFERRED", "Preferred", "preferred"]

PREFERRED = "preferred"


@dataclass(frozen=True)
class Preferred:
    """The preferred device family (``None``: any), its vendor and series, and the steps that may open after it."""

    family: str | None
    vendor: str
    series: str
    precision: Precision | None
    policy: FallbackPolicy

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the tiers, best first."""
        return (PREFERRED, *(str(step) for step in self.policy.preferences))

    @property
    def degrades(self) -> bool:
        """Whether the policy may lower the precision."""
        return FallbackStep.PRECISION_DEGRADATION in self.policy.preferences

    def tier(self, device: DeviceClass, precision: Precision) -> int | None:
        """The tier of an option, ``None`` where the policy has no step for it."""
        step = self._step(device, precision)
        if step is None:
            return 0
        return 1 + self.policy.preferences.index(step) if step in self.policy.preferences else None

    def _step(self, device: DeviceClass, precision: Precision) -> FallbackStep | None:
        like = {self.precision, precision}
        if self.precision is not None and len(like) > 1 and not like <= SIXTEEN_BIT:
            return FallbackStep.PRECISION_DEGRADATION
        if self.family is None or library.compatible((self.family,), device.model):
            return None
        if device.vendor != self.vendor:
            return FallbackStep.CROSS_VENDOR_SAME_PRECISION
        if device.series == self.series:
            return FallbackStep.SAME_VENDOR_SAME_SERIES
        return FallbackStep.SAME_VENDOR_DIFFERENT_SERIES


def preferred(
    family: str | None, precision: Precision | None, policy: FallbackPolicy | None, classes: tuple[DeviceClass, ...]
) -> Preferred:
    """Look a preferred device up among the cluster's classes, then among the cards.

    Without a policy nothing but the preferred device may be used.

    Raises
    ------
    InputError
        Neither the cluster nor the library knows such a device.
    """
    policy = policy or FallbackPolicy(preferences=())
    if family is None:
        return Preferred(None, "", "", precision, policy)
    for device in classes:
        if library.compatible((family,), device.model):
            return Preferred(family, device.vendor, device.series, precision, policy)
    for card in library.all_cards("device"):
        if library.compatible((family,), card.name):
            return Preferred(family, card.vendor, card.series, precision, policy)
    try:
        library.device(family)
    except InputError as error:
        raise InputError(f"request.prefer.device: {error}") from None
    raise InputError(f"request.prefer.device: no device is called {family}")
