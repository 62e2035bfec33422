"""Recoveries: each with its level and cause, from the fault until the stage runs again (section 8.2 of the source).

=====  =====================================  ===========================================  ========
level  cause                                  what is done                                 within
=====  =====================================  ===========================================  ========
L0     a transient error                      the same worker again                        100 ms
L1     a stage or worker that takes too long  another try on the device, or elsewhere      500 ms
L2     a device is lost                       another device, KV from a copy or again      2 s
L3     a rack is lost                         another rack                                 5 s
L4     a data centre is lost                  another data centre                          30 s
=====  =====================================  ===========================================  ========
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

__all__ = ["LEVELS", "WITHIN", "Recovery"]

LEVELS = {"error": 0, "process": 1, "slow": 1, "timeout": 1, "device": 2, "rack": 3, "datacenter": 4}
"""Cause -> level; ``process`` is a worker that ended while its device serves on."""

WITHIN = (0.1, 0.5, 2.0, 5.0, 30.0)
"""Seconds that the source allows a recovery of each level."""


@dataclass
class Recovery:
    """One stage brought back.

    Attributes
    ----------
    began, noticed, ended
        The fault, as far as can be told; when it was noticed; when the stage ran again, ``None`` where it has not yet.
    kv
        Where its KV cache came from: ``kept`` by the worker, a ``copy``, ``recomputed``; ``none`` where it needs none.
    """

    stage: str
    cause: str
    began: float
    noticed: float
    worker: str | None
    ended: float | None = None
    to: str | None = None
    kv: str = "none"

    @property
    def level(self) -> int:
        return LEVELS[self.cause]

    def widen(self, cause: str) -> None:
        """The fault turned out to be a wider one."""
        if LEVELS[cause] > self.level:
            self.cause = cause

    def document(self) -> dict[str, Any]:
        return {
            "stage": self.stage, "level": f"L{self.level}", "cause": self.cause, "began": self.began,
            "noticed": self.noticed, "ended": self.ended, "from": self.worker, "to": self.to, "kv": self.kv,
            "within": WITHIN[self.level],
        }  # fmt: skip
