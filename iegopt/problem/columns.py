"""The option arrays of a problem, from the options of its stages: one pass over all stages together.

What a site adds (load, price, width) is gathered once for all options, and sums are built in place: at 20 stages on
1,024 devices a column has 160 kB, and every temporary one costs as much as the arithmetic on it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

import numpy as np
import numpy.typing as npt

from iegopt.cost.weights import CostWeights
from iegopt.errors import InputError
from iegopt.problem.arrays import MOST_TICKS, TICKS_PER_SECOND, Options
from iegopt.problem.sites import SiteTable
from iegopt.problem.stage_options import SiteFigures, StageOptions

__all__ = ["Companions", "keep_freed_memory", "option_columns"]

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]

T = TypeVar("T", np.int64, np.float64)

Companions = Sequence[int]
"""Site of every KV location: a stage after all others with this one option, which costs and holds nothing."""

_LARGE_BLOCK = 30 * 2**20
"""Bytes: just below the largest that glibc adapts to."""
_RESIDENT = "resident"
"""Variant of a KV location."""


def option_columns(
    stages: Sequence[StageOptions],
    kept: Sequence[Ints],
    penalty: Sequence[Floats],
    companions: Companions,
    table: SiteTable,
    figures: SiteFigures,
    weights: CostWeights,
    scale: int,
    kv: bool,
) -> tuple[Options, tuple[str, ...]]:
    """The options that are kept of all stages, then those of the companions; and the names of the variants.

    Parameters
    ----------
    penalty
        Per stage (options,) seconds that come on top of the cost.
    scale
        ``Problem.memory_scale``: a multiple of every width, so a device's share is exact.
    kv
        Whether ``kv_share`` is wanted.

    Raises
    ------
    InputError
        A cost or time that does not fit the ticks.
    """
    whole = [len(keep) == len(options.site) for options, keep in zip(stages, kept, strict=True)]
    count = [len(keep) for keep in kept]

    def column(arrays: Sequence[npt.NDArray[T]]) -> npt.NDArray[T]:
        parts = zip(arrays, kept, whole, strict=True)
        return np.concatenate([array if all_of_it else array[keep] for array, keep, all_of_it in parts])

    first = stages[0].site
    alike = all(whole) and all(options.site is first for options in stages)
    # Where all stages have the same sites, what depends on the site is a row for all of them.
    shape = (len(stages), len(first)) if alike else (sum(count),)
    site = first if alike else column([options.site for options in stages])
    t0 = column([options.t0 for options in stages]).reshape(shape)
    share = column([options.layout.memory for options in stages])
    buffers = [options.buffer for options in stages]
    if any(buffers):
        share += np.repeat(np.array(buffers, dtype=np.int64), count)
    per_device = None if scale == 1 else (scale // table.topology.width)[site]
    if per_device is not None:
        np.multiply(share.reshape(shape), per_device, out=share.reshape(shape))
    time = t0 * figures.load[site]
    cost = weights.alpha * t0
    money = weights.beta * time
    cost += money
    np.multiply(t0, figures.price[site], out=money)
    money /= figures.reference_price
    money *= weights.gamma
    cost += money
    cost = cost.reshape(-1)
    if any(extra is not options.layout.nothing for extra, options in zip(penalty, stages, strict=True)):
        cost += column(penalty)
    if alike:
        site = np.tile(site, len(stages))
        per_device = None if per_device is None else np.tile(per_device, len(stages))
    names, variant = _variants(stages, kept, count)
    weight_key, weight_share = np.full(len(site), -1), np.zeros(len(site), dtype=np.int64)
    if any(options.layout.held.any() for options in stages):
        held = column([options.layout.held[options.block] for options in stages])
        weight_key = np.where(held > 0, variant * table.topology.S + site, -1)
        weight_share = held if per_device is None else held * per_device
    kv_share: Ints | None = None
    if kv:
        kv_share = column([options.layout.kv_bytes[options.block] for options in stages])
        if per_device is not None and kv_share is not None:
            kv_share *= per_device
    columns: dict[str, Ints] = {
        "site": site, "variant": variant, "cost": _ticks(cost), "time": _ticks(time.reshape(-1)), "share": share,
        "weight_key": weight_key, "weight_share": weight_share,
    }  # fmt: skip
    if kv_share is not None:
        columns["kv_share"] = kv_share
    if companions:
        names.setdefault(_RESIDENT, len(names))
        alone = {"site": np.array(companions), "variant": np.full(len(companions), names[_RESIDENT])}
        alone["weight_key"] = np.full(len(companions), -1)
        nothing = np.zeros(len(companions), dtype=np.int64)
        columns = {key: np.concatenate([values, alone.get(key, nothing)]) for key, values in columns.items()}
    ptr = np.zeros(len(count) + len(companions) + 1, dtype=np.int64)
    np.cumsum(count + [1] * len(companions), out=ptr[1:])
    return Options(ptr=ptr, **columns), tuple(names)


def _variants(stages: Sequence[StageOptions], kept: Sequence[Ints], count: list[int]) -> tuple[dict[str, int], Ints]:
    """Name -> number of every variant in order of appearance, and (O,) the variant of every option."""
    names: dict[str, int] = {}
    numbers = [[names.setdefault(name, len(names)) for name in options.layout.names] for options in stages]
    if all(len(set(own)) <= 1 for own in numbers):
        only = np.array([own[0] if own else 0 for own in numbers], dtype=np.int64)
        return names, np.repeat(only, count)
    parts = [
        np.array(own, dtype=np.int64)[options.block[keep]]
        for own, options, keep in zip(numbers, stages, kept, strict=True)
    ]
    return names, np.concatenate(parts)


def _ticks(seconds: Floats) -> Ints:
    """Seconds as ticks, in place."""
    seconds *= TICKS_PER_SECOND
    if not max(seconds.max(initial=0.0), -seconds.min(initial=0.0)) <= MOST_TICKS:
        raise InputError("a cost is over 36 years of weighted time: check the units of the request and the cluster")
    np.rint(seconds, out=seconds)
    return seconds.astype(np.int64)


def keep_freed_memory() -> None:
    """Let glibc keep the arrays of one plan for the next, in place of returning them to the system.

    Its ``malloc`` maps blocks of over 128 kB one by one, and returns the top of the heap, until a block of 32 MB at
    most was freed: from then on blocks of that size come from a heap of which it keeps twice as much (mallopt(3),
    M_MMAP_THRESHOLD). The block is never touched. Without it, a plan on 1,024 devices spends a third of its time on
    500 page faults. Where memory comes from elsewhere, nothing changes.
    """
    np.empty(_LARGE_BLOCK, dtype=np.uint8)
