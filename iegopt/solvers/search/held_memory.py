"""What the devices hold of a plan under search, and how much more every option of a stage would overload them."""

from __future__ import annotations

from collections import Counter

import numpy as np
import numpy.typing as npt

from iegopt.problem.arrays import Problem

__all__ = ["HeldMemory"]

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]


class HeldMemory:
    """Mutable; shared weights count once per key, as long as any stage uses them.

    Attributes
    ----------
    load (D,)
        Memory held by every device.
    pressure (D,)
        How much overload of a device weighs in ``overload``, 1 at first.
    """

    def __init__(self, problem: Problem) -> None:
        self._problem = problem
        self.load = np.zeros(problem.topology.D, dtype=np.int64)
        self.pressure = np.ones(problem.topology.D)
        self._scale = 1.0 / np.maximum(problem.capacity, 1)
        self._users: Counter[int] = Counter()
        self._keyed = bool((problem.options.weight_key >= 0).any())
        self._single = bool((problem.topology.width == 1).all())

    @property
    def over(self) -> npt.NDArray[np.bool_]:
        """(D,) the devices that hold more than they can."""
        return np.asarray(self.load > self._problem.capacity)

    @property
    def excess(self) -> float:
        """What is held beyond the capacities, in parts of these."""
        return float((np.maximum(0, self.load - self._problem.capacity) * self._scale).sum())

    def press(self) -> None:
        """Make overload of the devices that are overloaded now weigh more from here on."""
        self.pressure[self.over] += 1.0

    def bear(self, option: int, sign: int) -> None:
        """Put a stage with this option on its site (1), or take it off (−1)."""
        options = self._problem.options
        share = int(options.share[option])
        key = int(options.weight_key[option])
        if key >= 0:
            self._users[key] += sign
            if self._users[key] == (1 if sign > 0 else 0):
                share += int(options.weight_share[option])
        self.load[self._problem.topology.devices_of(int(options.site[option]))] += sign * share

    def free_without(self, chosen: list[int]) -> Ints:
        """(S,) free memory on the fullest device of every site once stages with these options have left (shared weights
        stay)."""
        options, topology = self._problem.options, self._problem.topology
        free = self._problem.capacity - self.load
        for option in chosen:
            free[topology.devices_of(int(options.site[option]))] += options.share[option]
        return topology.tightest(free)

    def overload(self, span: slice, now: int) -> Floats:
        """(n,) what every option of a stage adds to overload on its worst device, the stage itself (``now``: its
        option, −1 without one) taken off."""
        options, topology = self._problem.options, self._problem.topology
        sites, need = options.site[span], options.share[span]
        free = self._problem.capacity - self.load
        if now >= 0:
            devices = topology.devices_of(int(options.site[now]))
            own = int(options.share[now])
            key = int(options.weight_key[now])
            if key >= 0 and self._users[key] == 1:
                own += int(options.weight_share[now])
            free[devices] += own
        if self._keyed:
            keys = options.weight_key[span]
            used = {key for key, count in self._users.items() if count > (now >= 0 and key == options.weight_key[now])}
            new = (keys >= 0) & ~np.isin(keys, list(used))
            need = need + np.where(new, options.weight_share[span], 0)
        weight = self._scale * self.pressure
        if self._single:
            devices = topology.device_index[sites]
            room, scale = free[devices], weight[devices]
        else:
            room = topology.tightest(free)[sites]
            scale = np.maximum.reduceat(weight[topology.device_index], topology.device_ptr[:-1])[sites]
        return np.asarray((np.maximum(0, need - room) - np.maximum(0, -room)) * scale)
