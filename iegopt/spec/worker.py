"""How a device is served by the runtime: which worker processes stand for it, and what they may use."""

from __future__ import annotations

from typing import Literal, Self

from pydantic import Field, model_validator

from iegopt.spec.base import Spec
from iegopt.spec.quantities import Bytes, PositiveInt

__all__ = ["ROLES", "KvBudgets", "Role", "WorkerSpec"]

Role = Literal["lm", "tool", "retrieval", "cpu"]

ROLES: tuple[Role, ...] = ("lm", "tool", "retrieval", "cpu")
"""``lm`` runs every stage of a model, ``cpu`` tokenize, router, agent_decision and output."""


class KvBudgets(Spec):
    """Bytes of KV cache on each tier (section 6.3): the device, its host's memory, files."""

    device: Bytes = 2 * 10**9
    host: Bytes = 2 * 10**9
    disk: Bytes = 10 * 10**9


class WorkerSpec(Spec):
    """Workers of one device, one process for each role.

    Such a device is planned for stages of its ``roles`` alone, and not as part of a gang; the rest is read by
    ``iegopt_runtime``. ``at`` says who starts them: ``local`` workers are started beside the controller, ``elsewhere``
    ones register by themselves (``iegopt worker``). ``threads`` are those of one process, ``max_batch`` the sequences
    that an ``lm`` worker holds active, ``slots`` what the others run at once. ``block_tokens`` are those of a block of
    KV and of one pass of a prefill, the same for all ``lm`` workers of a cluster, since neither KV nor the last bits of
    its numbers agree otherwise: 64 suits processors, 1024 a GPU. ``resident`` of the device lists the variants that are
    loaded at the start.
    """

    roles: tuple[Role, ...] = Field(min_length=1)
    at: Literal["local", "elsewhere"] = "local"
    threads: PositiveInt = 1
    max_batch: PositiveInt = 8
    slots: PositiveInt = 16
    block_tokens: PositiveInt = 64
    kv: KvBudgets = KvBudgets()

    @model_validator(mode="after")
    def _roles_once(self) -> Self:
        if len(set(self.roles)) != len(self.roles):
            raise ValueError("a role stands twice")
        return self
