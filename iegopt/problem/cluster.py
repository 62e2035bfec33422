"""A compiled cluster: what requests share, worked out once and updated in place."""

from __future__ import annotations

from collections.abc import Iterable
from functools import cached_property

from iegopt import library
from iegopt.cost.model import CostModel
from iegopt.cost.profile import Profiles
from iegopt.devices import Device, DeviceClass, expand
from iegopt.errors import InputError
from iegopt.problem.sites import SiteTable, build_sites, gang_sizes
from iegopt.problem.state import ClusterState
from iegopt.problem.variants import Registry
from iegopt.spec.cluster import ClusterSpec

__all__ = ["CompiledCluster"]


class CompiledCluster:
    """Devices, state, registry and cost model of a cluster, and its site tables by gang sizes.

    Raises
    ------
    InputError
        Naming the entry of the cluster's file that is wrong.
    """

    def __init__(self, spec: ClusterSpec) -> None:
        self.spec = spec
        self.devices: tuple[Device, ...] = expand(spec)
        self.state = ClusterState.of(self.devices)
        self.registry = Registry(spec.execution_path_registry)
        self.cost_model = CostModel(Profiles(library.profiles()))
        self.gang_sizes = gang_sizes(spec, self.devices)
        self._tables: dict[frozenset[int], SiteTable] = {}
        self.sites(())  # finds fault with links and overrides now, not at the first request

    @cached_property
    def by_id(self) -> dict[str, Device]:
        return {device.id: device for device in self.devices}

    @cached_property
    def classes(self) -> tuple[DeviceClass, ...]:
        return tuple(dict.fromkeys(device.kind for device in self.devices))

    @cached_property
    def reference_price(self) -> float:
        """$/h that money is measured in: the file's, else the mean over the devices, else 1 where all are free."""
        given = self.spec.reference_price
        if given is not None:
            if given <= 0:
                raise InputError("cluster.reference_price: expected more than 0 $/h")
            return given
        mean = sum(device.price for device in self.devices) / len(self.devices)
        return mean if mean > 0 else 1.0

    def sites(self, sizes: Iterable[int]) -> SiteTable:
        """The sites for these gang sizes (1 is always among them)."""
        key = frozenset(sizes) | {1}
        if key not in self._tables:
            self._tables[key] = build_sites(self.spec, self.devices, key)
        return self._tables[key]
