"""The passes of a relaxation by compiled kernels: a problem's messages and forest as the flat arrays these take."""

from __future__ import annotations

from itertools import pairwise
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from iegopt.solvers.clock import Clock
from iegopt.solvers.exact.compiled import as_ints
from iegopt.solvers.exact.messages import Messages

if TYPE_CHECKING:
    from iegopt.solvers.exact.kernels import Layout, Prices
    from iegopt.solvers.exact.relaxation import Forest

__all__ = ["CompiledPasses", "packed"]

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]

_OPTIONS_PER_LOOK = 50_000
"""Options between two looks at the clock, about a fifth of a millisecond."""


class CompiledPasses:
    """Forward and backward pass and the choice, for links that follow the topology tree.

    Parameters
    ----------
    theta (O,)
        Costs of all options; grows by the messages that each option receives from below.
    """

    def __init__(self, core: SimpleNamespace, messages: Messages, forest: Forest, theta: Ints) -> None:
        self._core = core
        self._messages = messages
        self._stages, self._ptr = messages.problem.V, messages.ptr
        self._layout, self._prices = packed(messages, forest)
        self.theta = theta

    def forward(self, clock: Clock | None) -> bool:
        """Send all messages to the parents; False where the clock ends first."""
        stages = self._stages
        if clock is not None:
            stages = max(1, _OPTIONS_PER_LOOK * stages // max(1, len(self.theta)))
        for stop in range(self._stages, 0, -stages):
            if clock is not None and clock.left <= 0:
                return False
            self._core.forward(self.theta, self._layout, self._prices, max(0, stop - stages), stop)
        return True

    def upward(self) -> tuple[Ints, ...]:
        """θ by stage."""
        return tuple(self.theta[a:b] for a, b in pairwise(self._ptr))

    def choose(self) -> tuple[int, Ints]:
        """Bound and choice, after the forward pass."""
        choice = np.zeros(self._stages, dtype=np.int64)
        none = np.zeros(0, dtype=np.int64)
        return int(self._choose(choice, (none,) * 7)), choice

    def choose_fitting(self) -> Ints | None:
        """(V,) the best option that still fits of every stage, parents first; ``None`` where one finds no room."""
        problem, choice = self._messages.problem, np.zeros(self._stages, dtype=np.int64)
        options, topology = problem.options, problem.topology
        memory = options.share, options.weight_key, options.weight_share, options.site
        devices = topology.device_ptr, topology.device_index
        self._choose(choice, (*map(as_ints, (*memory, *devices)), problem.capacity.copy()))
        return choice if choice.min(initial=0) >= 0 else None

    def _choose(self, choice: Ints, room: tuple[Ints, ...]) -> Any:
        return self._core.choose(self.theta, choice, room, self._messages.problem.allowed, self._layout, self._prices)

    def backward(self) -> Ints:
        """(O,) the least cost of every option's tree with it, after the forward pass."""
        belief = self.theta.copy()
        self._core.backward(self.theta, belief, self._layout, self._prices)
        return belief


def packed(messages: Messages, forest: Forest) -> tuple[Layout, Prices]:
    """What kernels take."""
    return _layout(messages, forest), _prices(messages)


def _layout(messages: Messages, forest: Forest) -> Layout:
    options, edges = messages.problem.options, messages.problem.edges
    tree = messages.tree.flat
    return (
        tree.child,
        tree.up,
        tree.link,
        tree.first,
        tree.last,
        tree.base,
        as_ints(options.ptr),
        as_ints(messages.position),
        as_ints(messages.width),
        as_ints(edges.source),
        _hidden_at(messages),
        as_ints(forest.order),
        as_ints(forest.parent),
        as_ints(forest.edge),
        as_ints(messages.prices.widths),
    )


def _prices(messages: Messages) -> Prices:
    edges, prices = messages.problem.edges, messages.prices
    hidden = [part for part in edges.hidden if part is not None]
    return (
        prices.ticks,
        prices.raw,
        prices.least,
        prices.monotone,
        np.require(edges.weight, np.float64, ["C", "W"]),
        np.concatenate(hidden, dtype=np.float64) if hidden else np.zeros(0),
    )


def _hidden_at(messages: Messages) -> Ints:
    """(E,) where the seconds that an edge hides start among those of all edges; −1: it hides none."""
    count = np.array([-1 if part is None else len(part) for part in messages.problem.edges.hidden], dtype=np.int64)
    start = np.cumsum(np.maximum(count, 0)) - np.maximum(count, 0)
    return np.where(count < 0, -1, start)
