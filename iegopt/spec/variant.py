"""Model variants and the execution path registry (section 7.5): which artifact runs where."""

from __future__ import annotations

from enum import StrEnum
from typing import Self

from pydantic import Field, model_validator

from iegopt.spec.base import Name, Spec
from iegopt.spec.quantities import Seconds
from iegopt.spec.stage import Precision

__all__ = ["Backend", "ExecutionPath", "PathCard", "Variant"]


class Backend(StrEnum):
    CUDA = "CUDA"
    TENSORRT = "TensorRT"
    ROCM = "ROCm"
    CANN = "CANN"
    ONNX = "ONNX"
    CPU = "CPU"


class Variant(Spec):
    """One artifact of a model: precision, backend, the device models it runs on, where it lies.

    ``compatible_devices`` names cards, aliases, or families (``A100`` covers ``A100-40GB`` and
    ``A100-80GB``). ``version`` and ``load_time`` belong to the artifact registry; without a load
    time it is weight bytes over the device's IO bandwidth.
    """

    precision: Precision
    backend: Backend
    compatible_devices: tuple[Name, ...] = Field(min_length=1)
    artifact_path: Name | None = None
    version: Name = "1"
    load_time: Seconds | None = None

    @property
    def artifact(self) -> str:
        """``precision/backend``, and the version where it is not the first."""
        name = f"{self.precision}/{self.backend}"
        return name if self.version == "1" else f"{name}/{self.version}"


class ExecutionPath(Spec):
    """All variants of one model."""

    model: Name
    variants: tuple[Variant, ...] = Field(min_length=1)

    @model_validator(mode="after")
    def _variants_once(self) -> Self:
        keys = [(v.precision, v.backend, v.version) for v in self.variants]
        if len(set(keys)) != len(keys):
            raise ValueError(f"{self.model}: a (precision, backend, version) stands twice")
        return self


class PathCard(ExecutionPath):
    """Variants of a model as the library ships them, with their source."""

    notes: str = ""
    sources: dict[Name, str] = Field(min_length=1)
