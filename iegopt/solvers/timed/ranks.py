"""Priorities for list scheduling, known before any stage is placed.

Upward rank: the longest path from a stage to the end, downward rank: the longest path to its start, over mean times
and mean transfers (Topcuoglu, Hariri, Wu 2002). Optimistic cost (PEFT of Arabnejad, Barbosa 2014): from an option, the
longest path to the end when every stage behind takes its best option.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from iegopt.problem.arrays import TICKS_PER_SECOND
from iegopt.solvers.timed.pricer import Pricer

__all__ = ["MeanRanks", "mean_ranks", "optimistic_costs"]

Floats = npt.NDArray[np.float64]

_SAMPLED = 8
"""Sites whose links stand for all."""


@dataclass(frozen=True)
class MeanRanks:
    """Ticks over mean times and transfers: (V,) up, with the stage itself, and down, without it."""

    up: tuple[float, ...]
    down: tuple[float, ...]

    @property
    def critical(self) -> frozenset[int]:
        """The stages on a longest path."""
        total = [a + b for a, b in zip(self.up, self.down, strict=True)]
        most = max(total, default=0.0)
        return frozenset(v for v, length in enumerate(total) if length >= most * (1 - 1e-9))


def mean_ranks(price: Pricer) -> MeanRanks:
    """Upward and downward ranks; links are averaged over pairs of different sites."""
    problem, dispatcher = price.problem, price.dispatcher
    time = [float(problem.options.time[own].mean()) for own in price.own]
    latency, rate = _mean_link(price)
    moved = ((latency + problem.edges.bytes * rate) * TICKS_PER_SECOND).tolist()
    up, down = list(time), [0.0] * problem.V
    for v in reversed(dispatcher.order):
        up[v] += max((moved[e] + up[w] for e, w in dispatcher.outgoing[v]), default=0.0)
    for v in dispatcher.order:
        down[v] = max((down[u] + time[u] + moved[e] for e, u in dispatcher.incoming[v]), default=0.0)
    return MeanRanks(tuple(up), tuple(down))


def optimistic_costs(price: Pricer) -> Sequence[Floats]:
    """Per stage (allowed options,) ticks from the end of the stage to the end of all; O(E · options²)."""
    problem, dispatcher, site = price.problem, price.dispatcher, price.problem.options.site
    found = [np.zeros(len(own)) for own in price.own]
    if not problem.E:
        return found
    links = [price.transfers.links(s) for s in range(problem.topology.S)]
    latency, rate = np.array([one for one, _ in links]), np.array([one for _, one in links])
    np.fill_diagonal(latency, 0.0)
    np.fill_diagonal(rate, 0.0)
    for v in reversed(dispatcher.order):
        for e, w in dispatcher.outgoing[v]:
            pairs = np.ix_(site[price.own[v]], site[price.own[w]])
            # In ticks at the end: a transfer in ticks is bounded, the time for one byte is not where nothing is sent.
            moved = (latency[pairs] + float(problem.edges.bytes[e]) * rate[pairs]) * TICKS_PER_SECOND
            behind = (moved + (problem.options.time[price.own[w]] + found[w])).min(axis=1)
            np.maximum(found[v], behind, out=found[v])
    return found


def _mean_link(price: Pricer) -> tuple[float, float]:
    """Seconds, and seconds per byte, of the mean link; 0 where no edge takes any, since then nothing bounds them."""
    S = price.problem.topology.S
    if not price.problem.E:
        return 0.0, 0.0
    sampled = np.unique(np.linspace(0, S - 1, min(S, _SAMPLED)).astype(np.int64)).tolist()
    pairs = max(1, S - 1) * len(sampled)
    latency = rate = 0.0
    for s in sampled:
        latencies, rates = (each / pairs for each in price.transfers.links(s))  # before the sum, which has no bound
        latency += float(latencies.sum() - latencies[s])
        rate += float(rates.sum() - rates[s])
    return latency, rate
