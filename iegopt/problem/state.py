"""What changes on a cluster between two plans: load, free memory, price, per device and per site."""

from __future__ import annotations

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
            Unknown device, or a figure out of range.
        """
        if device not in self.index:
            raise InputError(f"update: no device is called {device}")
        d = self.index[device]
        if queue is not None:
            if queue[0] < 0 or queue[1] < 0:
                raise InputError(f"update {device}: queue {queue}: expected (depth, wait), both at least 0")
            self.load[d] = _load(queue, 0.0)
        elif utilisation is not None:
            if not 0 <= utilisation <= 1:
                raise InputError(f"update {device}: utilisation {utilisation}: expected 0 to 1")
            self.load[d] = _load(None, utilisation)
        if used is not None:
            if not 0 <= used <= self.devices[d].kind.vram:
                raise InputError(f"update {device}: used {used}: expected 0 to {self.devices[d].kind.vram} bytes")
            self.free[d] = _free(self.devices[d], used)

    def snapshot(self) -> dict[str, tuple[float, int]]:
        """Device id -> (T/T0, free bytes), for the verifier."""
        return {
            device.id: (load, free)
            for device, load, free in zip(self.devices, self.load.tolist(), self.free.tolist(), strict=True)
        }

    def site_load(self, topology: Topology) -> Floats:
        """(S,) a gang waits for its most loaded device."""
        return np.maximum.reduceat(self.load[topology.device_index], topology.device_ptr[:-1])

    def site_price(self, topology: Topology) -> Floats:
        """(S,) $/h of all devices of a site."""
        return np.add.reduceat(self.price[topology.device_index], topology.device_ptr[:-1])


def _load(queue: tuple[int, float] | None, utilisation: float) -> float:
    return load_factor(QueueState(depth=queue[0], wait=queue[1]) if queue else None, utilisation)


def _free(device: Device, used: int) -> int:
    return max(0, device.kind.vram - used - device.reserve)
