"""The topology tree of the sites: device < domain < host < rack < datacenter < WAN.

Two sites talk over the link of the lowest level at which they share a group; a group may have a
link of its own, and a dense matrix of measured pairs takes the tree's place altogether.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import numpy.typing as npt

from iegopt.errors import InputError
from iegopt.problem.typed import Unpickled, check_shape, hold

__all__ = ["LEVEL_NAMES", "WAN", "Topology"]

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]

LEVEL_NAMES = ("domain", "host", "rack", "datacenter")
WAN = len(LEVEL_NAMES)
"""Index of the level that joins everything, one past the tree levels."""


@dataclass(frozen=True, eq=False)
class Topology(Unpickled):
    """Sites, the devices under them, the groups above them, and the links.

    Attributes
    ----------
    sites, devices
        Ids.
    device_ptr (S + 1,), device_index
        Devices of site s: ``device_index[device_ptr[s]:device_ptr[s + 1]]``.
    group (L, S)
        Group of every site at every tree level; −1 where a gang spans several groups, and at that
        level it meets nobody but itself. A group of a level lies inside one group of the next.
    latency, seconds_per_byte
        Tuple of L arrays, one value per group of the level, and a last array of one value for WAN.
    pair_latency, pair_seconds_per_byte (S, S)
        Or ``None``: measured pairs; they replace the tree for every a ≠ b.
    parallel_shards
        Whether equal gangs of k devices move their shards in parallel (bytes / k). False where
        ``pair_*`` or the instance already says so.
    """

    sites: tuple[str, ...]
    devices: tuple[str, ...]
    device_ptr: Ints
    device_index: Ints
    group: Ints
    latency: tuple[Floats, ...]
    seconds_per_byte: tuple[Floats, ...]
    pair_latency: Floats | None = None
    pair_seconds_per_byte: Floats | None = None
    parallel_shards: bool = False

    def __post_init__(self) -> None:
        hold(self, np.int64, "device_ptr", "device_index", "group")
        hold(self, np.float64, "latency", "seconds_per_byte", "pair_latency", "pair_seconds_per_byte")
        levels = len(self.latency) - 1
        if levels < 1 or len(self.seconds_per_byte) != levels + 1 or self.group.shape != (levels, self.S):
            raise InputError(
                f"Topology.group: expected one level or more and {self.S:,} sites, and links for one level more; "
                f"got {self.group.shape}, {len(self.latency)} latencies, {len(self.seconds_per_byte)} rates "
                "(sites under nothing common are one level of a group each)"
            )
        check_shape(self, (self.S + 1,), "site, and one", "device_ptr")
        check_shape(self, (int(self.device_ptr[-1]),), "device of a site up to device_ptr[-1]", "device_index")
        check_shape(self, (self.S, self.S), "pair of sites", "pair_latency", "pair_seconds_per_byte")
        last = [*self.group.max(axis=1, initial=-1).tolist(), 0]
        for level, (latency, rate) in enumerate(zip(self.latency, self.seconds_per_byte, strict=True)):
            if latency.ndim != 1 or rate.shape != latency.shape or len(latency) <= last[level]:
                raise InputError(
                    f"Topology.latency[{level}], Topology.seconds_per_byte[{level}]: shapes {latency.shape} and "
                    f"{rate.shape}, expected one for every group, to {last[level]}"
                )

    @property
    def S(self) -> int:
        return len(self.sites)

    @property
    def D(self) -> int:
        return len(self.devices)

    @cached_property
    def device_numbers(self) -> dict[str, int]:
        """Index of every device by id."""
        return {name: d for d, name in enumerate(self.devices)}

    @cached_property
    def width(self) -> Ints:
        """(S,) devices of every site: 1, or the gang size."""
        return np.diff(self.device_ptr)

    @cached_property
    def widths(self) -> frozenset[int]:
        """All widths of sites."""
        return frozenset(self.width.tolist())

    @cached_property
    def shard_width(self) -> Ints:
        """(S,) the width by which transfers between equal gangs divide: 1 without parallel shards."""
        return self.width if self.parallel_shards else np.ones_like(self.width)

    @cached_property
    def all_links(self) -> tuple[Floats, Floats]:
        """Latency and seconds per byte of every link: the groups of the lowest level first, WAN last."""
        return np.concatenate(self.latency), np.concatenate(self.seconds_per_byte)

    @cached_property
    def slowest(self) -> tuple[float, float]:
        """The largest latency and seconds per byte of any link."""
        latency, rate = self.all_links
        if self.pair_latency is not None and self.pair_seconds_per_byte is not None:
            latency, rate = self.pair_latency, self.pair_seconds_per_byte
        return float(latency.max()), float(rate.max())

    def part(self, sites: Ints) -> Topology:
        """The topology of some sites; devices and groups keep their numbers."""
        width = self.width[sites]
        starts = np.repeat(self.device_ptr[sites] - np.cumsum(width) + width, width)
        pairs = np.ix_(sites, sites)
        latency, rate = self.pair_latency, self.pair_seconds_per_byte
        return replace(
            self,
            sites=tuple(self.sites[s] for s in sites.tolist()),
            device_ptr=np.concatenate([[0], np.cumsum(width)]),
            device_index=self.device_index[starts + np.arange(int(width.sum()))],
            group=self.group[:, sites],
            pair_latency=None if latency is None else latency[pairs],
            pair_seconds_per_byte=None if rate is None else rate[pairs],
        )

    def devices_of(self, site: int) -> Ints:
        return self.device_index[self.device_ptr[site] : self.device_ptr[site + 1]]

    def tightest(self, capacity: Ints) -> Ints:
        """(S,) the smallest capacity among the devices of every site."""
        return np.minimum.reduceat(capacity[self.device_index], self.device_ptr[:-1])

    def level(self, a: int, b: int) -> int:
        """Lowest level at which two sites meet: −1 for one site, ``WAN`` for none of the tree's."""
        if a == b:
            return -1
        for level in range(WAN):
            if self.group[level, a] == self.group[level, b] >= 0:
                return level
        return WAN
