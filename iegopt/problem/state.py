"""What changes on a cluster between two plans: load, free memory, price, per device and per site."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from iegopt.cost.load import load_factor
from iegopt.devices import Device
from iegopt.errors import InputError
from iegopt.problem.topology import Topology
from iegopt.spec.device import QueueState

__all__ = ["ClusterState"]

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class ClusterState:
    """Arrays over devices, changed in place by ``update``.

    Attributes
    ----------
    load (D,)
        T/T0 on every device: 1 + q·w; infinite where the device is fully utilised.
    free (D,)
        Bytes that a plan may use: vram·(1 − utilisation) − reserve, never below 0.
    price (D,)
        $/h.
    """

    devices: tuple[Device, ...]
    index: dict[str, int]
    load: Floats
    free: Ints
    price: Floats

    @classmethod
    def of(cls, devices: tuple[Device, ...]) -> ClusterState:
        """The state that the cluster's file gives."""
        return cls(
            devices=devices,
            index={device.id: d for d, device in enumerate(devices)},
            load=np.array([_load(d.queue, d.utilization.compute) for d in devices]),
            free=np.array([_free(d, round(d.kind.vram * d.utilization.memory)) for d in devices], dtype=np.int64),
            price=np.array([device.price for device in devices]),
        )

    def update(
        self,
        device: str,
        *,
        queue: tuple[int, float] | None = None,
        utilisation: float | None = None,
        used: int | None = None,
    ) -> None:
        """Set what is known anew of one device.

        Parameters
        ----------
        queue
            (depth, mean wait per item in service times); wins over ``utilisation``, as in the file.
        utilisation
            Compute utilisation, 0 to 1; counts where no queue is given in the same call.
        used
            Bytes that other work holds.

        Raises
        ------
        InputError
            Unknown device, or a figure out of range; nothing is changed then.
        """
        if device not in self.index:
            raise InputError(f"update: no device is called {device}")
        d = self.index[device]
        vram = self.devices[d].kind.vram
        state = None if queue is None else _queue(device, queue)
        if utilisation is not None and not (isinstance(utilisation, int | float) and 0 <= utilisation <= 1):
            raise InputError(f"update {device}: utilisation {utilisation!r}: expected a number from 0 to 1")
        if used is not None and not (isinstance(used, int | np.integer) and 0 <= used <= vram):
            raise InputError(f"update {device}: used {used!r}: expected a whole number of bytes from 0 to {vram}")
        if state is not None:
            self.load[d] = load_factor(state, 0.0)
        elif utilisation is not None:
            self.load[d] = load_factor(None, utilisation)
        if used is not None:
            self.free[d] = _free(self.devices[d], int(used))

    def snapshot(self, names: Iterable[str]) -> dict[str, tuple[float, int]]:
        """Device id -> (T/T0, free bytes) of those of ``names`` that there are, for the verifier."""
        index = self.index
        known = {name: index[name] for name in names if name in index}
        at = np.array(list(known.values()), dtype=np.int64)
        return dict(zip(known, zip(self.load[at].tolist(), self.free[at].tolist(), strict=True), strict=True))

    def site_load(self, topology: Topology) -> Floats:
        """(S,) a gang waits for its most loaded device."""
        return np.maximum.reduceat(self.load[topology.device_index], topology.device_ptr[:-1])

    def site_price(self, topology: Topology) -> Floats:
        """(S,) $/h of all devices of a site."""
        return np.add.reduceat(self.price[topology.device_index], topology.device_ptr[:-1])


def _queue(device: str, queue: tuple[int, float]) -> QueueState:
    try:
        depth, wait = queue
        return QueueState(depth=depth, wait=wait)
    except (TypeError, ValueError):
        expected = "(depth, wait), a whole number and a factor from 0 to 1000"
        raise InputError(f"update {device}: queue {queue!r}: expected {expected}") from None


def _load(queue: tuple[int, float] | None, utilisation: float) -> float:
    return load_factor(QueueState(depth=queue[0], wait=queue[1]) if queue else None, utilisation)


def _free(device: Device, used: int) -> int:
    return max(0, device.kind.vram - used - device.reserve)
