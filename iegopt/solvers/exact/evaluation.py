"""One evaluation of nodes under prices: their bounds, relaxed plans and subgradients.

By numpy for links of any kind, or by kernels where all of them are tables: the same numbers.
"""

from __future__ import annotations

from dataclasses import dataclass
from types import SimpleNamespace
from typing import Protocol

import numpy as np
import numpy.typing as npt

from iegopt.solvers.exact import sweeps
from iegopt.solvers.exact.ascent import in_order
from iegopt.solvers.exact.candidates import Candidates
from iegopt.solvers.exact.compiled import kernels
from iegopt.solvers.exact.links import Link
from iegopt.solvers.exact.messages import UNREACHABLE
from iegopt.solvers.exact.sweeps import Passed
from iegopt.solvers.exact.table_passes import TablePasses

__all__ = ["Dues", "Evaluation", "evaluation", "rent"]

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]
Bools = npt.NDArray[np.bool_]


@dataclass(frozen=True, eq=False)
class Dues:
    """What options and links pay beyond their cost.

    Attributes
    ----------
    price (D + 1, B), shift (n, B)
        Of devices, and what split edges add to options.
    of_stage (V, B), of_coupling (C, B)
        Ticks of cost per tick of time; without rows where no time is priced.
    links
        At these prices on time.
    """

    price: Floats
    shift: Ints
    of_stage: Floats
    of_coupling: Floats
    links: tuple[Link | None, ...]


class Evaluation(Protocol):
    """B nodes of some candidates."""

    def up(self, dues: Dues) -> tuple[Ints, Ints, Floats, Bools]:
        """Bounds (B,), the plans (V, B) of candidates that have them, their excess (D + 1, B), and whether they fit.

        A bound is the least cost with all that is due, less the rent of devices.
        The excess is the weight of a plan on every device, less 1; it fits where it keeps every memory.
        """

    def remember(self, whole: bool) -> None:
        """Keep the last evaluation, if ``whole``, else none, for ``recall``."""

    def recall(self) -> bool:
        """Make the one that was kept the last again; whether there is one."""

    def beliefs(self) -> Ints:
        """(n, B) least cost of any plan of the node that uses an option, by the last evaluation."""

    def passed(self) -> Passed:
        """The messages of the last evaluation."""


def evaluation(c: Candidates, keep: Bools, weight: Floats) -> Evaluation:
    """Of nodes with options ``keep`` (n, B), which weigh (K, n, B) on their devices."""
    base = np.ascontiguousarray(np.where(keep, c.cost[:, None], UNREACHABLE))
    ready = kernels()
    if ready is not None and c.passes is not None:
        return _ByKernels(c, c.passes, ready, base, weight)
    return _ByNumpy(c, base, weight)


def rent(price: Floats) -> Ints:
    """(B,) Σ ⌈λ⌉ of prices (D + 1, B), and a tick more per price against the rounding of floats."""
    return in_order(price + (price > 0)).astype(np.int64)


class _ByNumpy:
    def __init__(self, c: Candidates, base: Ints, weight: Floats) -> None:
        self._c, self._base, self._weight = c, base, weight
        self._nodes = np.arange(base.shape[1])
        self._passed: Passed | None = None
        self._kept: Passed | None = None

    def up(self, dues: Dues) -> tuple[Ints, Ints, Floats, Bools]:
        c = self._c
        theta = self._base + dues.shift
        if len(dues.of_stage):
            theta += (dues.of_stage[c.stage] * c.time[:, None]).astype(np.int64)
        for devices, weight in zip(c.devices, self._weight, strict=True):
            theta += (dues.price[devices] * weight).astype(np.int64)
        np.minimum(theta, UNREACHABLE, out=theta)
        self._passed = sweeps.pass_up(c, dues.links, theta)
        least, chosen = sweeps.choose(self._passed)
        chosen = chosen + c.starts[:, None]
        return least - rent(dues.price), chosen, *self._loads(chosen)

    def _loads(self, chosen: Ints) -> tuple[Floats, Bools]:
        c, B = self._c, len(self._nodes)
        shape = len(c.capacity), B
        cell = (c.devices[:, chosen] * B + self._nodes).ravel()
        share = np.broadcast_to(c.share[chosen], (len(c.devices), *chosen.shape))
        load = np.bincount(cell, self._weight[:, chosen, self._nodes].ravel(), shape[0] * B)
        used = np.bincount(cell, share.ravel(), shape[0] * B)
        excess = np.asarray(load.reshape(shape) - 1.0, dtype=np.float64)
        excess[-1] = 0.0
        return excess, np.asarray((used.reshape(shape) <= c.capacity[:, None])[:-1].all(axis=0))

    def remember(self, whole: bool) -> None:
        self._kept = self._passed if whole else None

    def recall(self) -> bool:
        self._passed = self._kept or self._passed
        return self._kept is not None

    def beliefs(self) -> Ints:
        return sweeps.beliefs(self.passed())

    def passed(self) -> Passed:
        assert self._passed is not None
        return self._passed


class _ByKernels:
    def __init__(self, c: Candidates, passes: TablePasses, ready: SimpleNamespace, base: Ints, weight: Floats) -> None:
        self._c, self._passes, self._ready = c, passes, ready
        self._base, self._weight, self._devices = base, weight, c.packed[2]
        self._buffers = passes.buffers(base.shape[1])
        self._dues: Dues | None = None

    def up(self, dues: Dues) -> tuple[Ints, Ints, Floats, Bools]:
        c, B = self._c, self._base.shape[1]
        self._dues = dues
        bound, chosen = np.empty(B, dtype=np.int64), np.empty((c.V, B), dtype=np.int64)
        excess, fits = np.empty((len(c.capacity), B)), np.empty(B, dtype=np.bool_)
        self._ready.evaluate_nodes(
            self._passes.slots.packed, self._passes.tables, dues.of_coupling, (self._base, dues.shift, self._devices),
            (dues.price, dues.of_stage), self._weight, (c.stage, c.time, c.share, c.capacity), self._buffers,
            bound, chosen, excess, fits,
        )  # fmt: skip
        return bound, chosen, excess, fits

    def remember(self, whole: bool) -> None:
        """The buffers hold one evaluation."""

    def recall(self) -> bool:
        return False

    def beliefs(self) -> Ints:
        assert self._dues is not None
        belief = np.empty_like(self._base)
        self._ready.node_beliefs(
            self._passes.slots.packed, self._passes.tables, self._dues.of_coupling, self._buffers, belief
        )
        return belief

    def passed(self) -> Passed:
        assert self._dues is not None
        upward, sent, whole = self._buffers
        own = tuple(upward[:, part].T for part in self._c.of)
        tables = self._passes.whole(whole)
        return Passed(self._c, own, tuple(self._passes.sent(sent)), self._dues.links, tables)
