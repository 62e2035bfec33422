"""What a verifier says: every broken constraint as data, and the value it computed itself."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["Report", "Violation"]


@dataclass(frozen=True)
class Violation:
    """A broken constraint.

    Attributes
    ----------
    rule
        ``memory``, ``sla``, ``deadline``, ``finish_by``, ``budget``, ``affinity``, ``start``, ``order``,
        ``no_overlap``, ``fallback``, ``stage``, ``option``, ``claim``. Of a batch plan also ``request``, ``instance``,
        ``place``, ``ttft``, ``e2e``, ``itl``, ``time``, ``batch``, ``pace``, ``quota``, ``fairness``, ``preemption``,
        ``migration``, ``refusal``, ``reason``, ``bound``.
    where
        The stage, device or key at which it is broken.
    used, allowed
        In the unit of what was verified (seconds and bytes of a document, ticks of a problem), or words.
    """

    rule: str
    where: str
    used: float | str
    allowed: float | str

    def __str__(self) -> str:
        return f"{self.rule} of {self.where}: {self.used}, allowed {self.allowed}"


@dataclass(frozen=True)
class Report:
    """All violations; objective and makespan, ``None`` where the placement is incomplete."""

    violations: tuple[Violation, ...]
    objective: float | None
    makespan: float | None

    @property
    def ok(self) -> bool:
        return not self.violations
