"""Vectors of many texts, made by a model of this process."""

from __future__ import annotations

import queue
from collections.abc import Sequence

import torch

from iegopt_runtime.errors import ModelError
from iegopt_runtime.kv.memory import DeviceMemory
from iegopt_runtime.kv.store import KvStore
from iegopt_runtime.kv.tiers import TierPolicy
from iegopt_runtime.lm.engine import LmEngine
from iegopt_runtime.lm.jobs import Embed, Event, Failed, Vectors
from iegopt_runtime.lm.model_host import ModelHost
from iegopt_runtime.models.registry import Registry

__all__ = ["embedded"]


def embedded(
    registry: Registry, model: str, texts: Sequence[str], variant: str | None = None
) -> list[tuple[float, ...]]:
    """A vector of each text, as an embedding stage of the model makes it of a query.

    Raises
    ------
    ModelError
        The model is not known, or one of the texts has no tokens or more than its context holds.
    """
    memory = DeviceMemory("cuda" if torch.cuda.is_available() else "cpu")
    events: queue.SimpleQueue[Event] = queue.SimpleQueue()
    with LmEngine(ModelHost(registry, memory), KvStore(memory, TierPolicy({}))) as engine:
        engine.submit(Embed("embed", model, tuple(texts), variant), events.put)
        while not isinstance(event := events.get(), Vectors):
            if isinstance(event, Failed):
                raise ModelError(f"{model}: {event.message.removeprefix('embed: ')}")
    return list(event.rows)
