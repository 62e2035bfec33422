"""Which variants of a stage's model could run on which device class (section 7.5 of the source)."""

from __future__ import annotations

from dataclasses import dataclass

from iegopt import library
from iegopt.devices import DeviceClass
from iegopt.errors import InputError
from iegopt.spec.llm import LlmCard
from iegopt.spec.stage import Precision, StageSpec
from iegopt.spec.variant import ExecutionPath, Variant
from iegopt.units import shown

__all__ = ["Candidate", "Registry", "Residency"]

_BY_WIDTH = (Precision.FP32, Precision.TF32, Precision.BF16, Precision.FP16, Precision.FP8, Precision.INT8)


@dataclass(frozen=True)
class Residency:
    """How a variant stands on a device class: whether its weights still count, and whether they must be loaded."""

    weights_count: bool
    must_load: bool


@dataclass(frozen=True)
class Candidate:
    """A way to run a stage: a variant of its model, or, without a model, just an arithmetic precision.

    ``precision`` is ``None`` where the stage names neither: the device's widest is taken.
    """

    name: str
    card: LlmCard | None
    precision: Precision | None
    variant: Variant | None

    def precision_on(self, device: DeviceClass) -> Precision | None:
        """The precision it runs in there, ``None`` where the device cannot run it."""
        if self.variant is not None and not library.compatible(self.variant.compatible_devices, device.model):
            return None
        choices = _BY_WIDTH if self.precision is None else (self.precision,)
        return next((p for p in choices if device.compute.rate(p) is not None), None)

    def residency(self, device: DeviceClass) -> Residency | None:
        """``None`` where the variant is neither resident nor may be loaded."""
        if self.card is None:
            return Residency(weights_count=False, must_load=False)
        if device.resident is None:
            return Residency(weights_count=True, must_load=False)
        if any(self._is(name) for name in device.resident):
            return Residency(weights_count=False, must_load=False)
        return Residency(weights_count=True, must_load=True) if device.loading else None

    def load_time(self, device: DeviceClass, weight_bytes: float) -> float:
        """Seconds to load so many bytes of it there: as measured there, as its registry says, or by the device's IO."""
        measured = next((seconds for name, seconds in device.load_times if self._is(name)), None)
        if measured is not None:
            return measured
        stated = self.variant.load_time if self.variant is not None else None
        return stated if stated is not None else weight_bytes / device.io

    def _is(self, resident: str) -> bool:
        assert self.card is not None
        model, _, artifact = resident.partition("/")
        names = {self.card.name.lower(), *(alias.lower() for alias in self.card.aliases)}
        # A model alone stands for all its variants; an alias may itself hold a slash.
        if resident.lower() in names:
            return True
        return model.lower() in names and f"{self.card.name}/{artifact}".lower() == self.name.lower()


class Registry:
    """Execution paths: the cluster's own where it gives one for a model, else the library's."""

    def __init__(self, paths: tuple[ExecutionPath, ...] | None) -> None:
        self._own = {path.model.lower(): path for path in paths or ()}

    def candidates(self, stage: StageSpec, precisions: frozenset[Precision] | None) -> tuple[Candidate, ...]:
        """All candidates of a stage in one of ``precisions`` (``None``: any), in registry order.

        Raises
        ------
        InputError
            The model is unknown, has no execution path, or none in these precisions.
        """
        own = stage.compute.precision
        if stage.model is None:
            return (Candidate(str(own) if own else "default", None, own, None),)
        card = library.llm(stage.model)
        path = self._path(card)
        if path is None:
            raise InputError(
                f"stage {stage.id}: no execution path for model {card.name}; add one to execution_path_registry"
            )
        wanted = frozenset({own}) if own and precisions is None else precisions
        found = tuple(
            Candidate(f"{card.name}/{variant.artifact}", card, variant.precision, variant)
            for variant in path.variants
            if wanted is None or variant.precision in wanted
        )
        if not found:
            known = ", ".join(dict.fromkeys(str(v.precision) for v in path.variants))
            asked = ", ".join(sorted(wanted or ()))
            raise InputError(f"stage {stage.id}: {card.name} has no variant in {asked}: expected one of {known}")
        return found

    def named(self, name: str) -> Candidate:
        """The candidate that a plan calls ``model/precision/backend``.

        Raises
        ------
        InputError
            No model or none of its variants is called so, with the nearest name.
        """
        cuts = [i for i, letter in enumerate(name) if letter == "/"]
        # An alias may itself hold a slash.
        cut = next((i for i in reversed(cuts) if library.has_card("llm", name[:i])), cuts[0] if cuts else len(name))
        card, artifact = library.llm(name[:cut]), name[cut + 1 :]
        path = self._path(card)
        variants = {variant.artifact.lower(): variant for variant in path.variants} if path else {}
        found = variants.get(artifact.lower())
        if found is None:
            known = ", ".join(f"{card.name}/{variant.artifact}" for variant in variants.values())
            raise InputError(f"{card.name} has no variant {shown(artifact)}: expected one of {known or 'none'}")
        return Candidate(f"{card.name}/{found.artifact}", card, found.precision, found)

    def _path(self, card: LlmCard) -> ExecutionPath | None:
        for name in (card.name, *card.aliases):
            if name.lower() in self._own:
                return self._own[name.lower()]
        return library.path(card.name)
