"""The artifact registry: which folder holds the weights of a variant (section 7.5).

A variant is written as in plans: ``precision``, ``precision/backend`` or ``precision/backend/version``. What a
cluster's ``execution_path_registry`` names with an ``artifact_path`` can be served; beside it the two models that
need no hub. Any causal language model that transformers loads from a folder will do.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

from iegopt.spec.variant import ExecutionPath
from iegopt_runtime.errors import ModelError
from iegopt_runtime.models.cache import cache_dir

__all__ = ["RUNNABLE", "Artifact", "Registry"]

RUNNABLE = ("fp32", "bf16", "fp16")
"""Precisions that torch computes in as they are stored."""

ALIASES = {"smollm2": "smollm2-135m", "smollm2-135m-instruct": "smollm2-135m"}


@dataclass(frozen=True)
class Artifact:
    """One variant of a model that a worker can load.

    ``folder`` gives the place of the weights, and may take a while where they are made on first use.
    """

    model: str
    precision: str
    version: str
    folder: Callable[[], Path]

    @property
    def variant(self) -> str:
        return self.precision if self.version == "1" else f"{self.precision}/torch/{self.version}"

    @property
    def identity(self) -> str:
        """What the KV of this variant is keyed by: KV of other weights or another precision is of no use."""
        return f"{self.model}/{self.variant}"


@dataclass
class Registry:
    """Artifacts by model (in lower case), precision and version."""

    artifacts: dict[tuple[str, str, str], Artifact]

    @classmethod
    def of(cls, paths: Iterable[ExecutionPath] = (), cache: Path | None = None) -> Registry:
        """The built-in models, and every variant of ``paths`` that has an ``artifact_path`` and is runnable here."""
        own = [*_built_in(cache if cache is not None else cache_dir())]
        for path in paths:
            own += [
                Artifact(path.model, str(variant.precision), variant.version, _existing(Path(variant.artifact_path)))
                for variant in path.variants
                if variant.artifact_path is not None and variant.precision in RUNNABLE
            ]
        return cls({(_key(a.model), a.precision, a.version): a for a in own})

    def find(self, model: str, variant: str | None = None) -> Artifact:
        """The artifact of a variant; without one, the first of the model.

        Raises
        ------
        ModelError
            The model or the variant is not known, or its precision is not one that torch computes in.
        """
        precision, _, rest = (variant or "").partition("/")
        version = rest.partition("/")[2] or "1"
        known = [artifact for (name, _, _), artifact in self.artifacts.items() if name == _key(model)]
        if not known:
            names = ", ".join(sorted({artifact.model for artifact in self.artifacts.values()}))
            raise ModelError(f"model {model!r}: no artifact is known; known are {names}")
        if not precision:
            return known[0]
        if precision not in RUNNABLE:
            raise ModelError(f"{model}/{variant}: torch workers compute in {', '.join(RUNNABLE)}")
        found = self.artifacts.get((_key(model), precision, version))
        if found is None:
            raise ModelError(f"{model}/{variant}: no such variant; known are {', '.join(a.variant for a in known)}")
        return found


def _key(model: str) -> str:
    name = model.lower()
    return ALIASES.get(name, name)


def _built_in(cache: Path) -> Iterable[Artifact]:
    def tiny() -> Path:
        from iegopt_runtime.models.tiny import tiny_folder

        return tiny_folder(cache)

    def smollm2() -> Path:
        from iegopt_runtime.models.smollm2 import smollm2_folder

        return smollm2_folder(cache)

    for precision in RUNNABLE:
        yield Artifact("tiny", precision, "1", tiny)
        yield Artifact("SmolLM2-135M", precision, "1", smollm2)


def _existing(folder: Path) -> Callable[[], Path]:
    def look() -> Path:
        if not (folder / "config.json").is_file():
            raise ModelError(f"{folder}: expected a folder with config.json, weights and tokenizer of a causal model")
        return folder

    return look
