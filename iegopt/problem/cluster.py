"""A compiled cluster: what requests share, worked out once and updated in place."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Hashable, Iterable
from functools import cached_property

import numpy.ma  # noqa: F401 - np.unique loads it when first called: 20 ms of the first plan's deadline

from iegopt import library
from iegopt.cost.model import CostModel
from iegopt.cost.profile import Profiles
from iegopt.devices import Device, DeviceClass, expand
from iegopt.errors import InputError
from iegopt.problem.names import check_names
from iegopt.problem.sites import SiteTable, build_sites, gang_sizes
from iegopt.problem.stage_options import StageLayout, stage_layout
from iegopt.problem.state import ClusterState
from iegopt.problem.tiers import Preferred
from iegopt.problem.variants import Registry
from iegopt.spec.cluster import ClusterSpec
from iegopt.spec.stage import Precision, StageSpec

__all__ = ["MAX_LAYOUTS", "CompiledCluster"]

MAX_LAYOUTS = 512
"""Stage layouts kept per cluster: on 1,000 devices some 50 kB each."""


class CompiledCluster:
    """Devices, state, registry and cost model of a cluster, and its site tables by gang sizes.

    ``names_checked``: the spec is cut from one whose names are known to exist, and may name what was cut away.

    Raises
    ------
    InputError
        Naming the entry of the cluster's file that is wrong.
    """

    def __init__(self, spec: ClusterSpec, *, names_checked: bool = False) -> None:
        if not names_checked:
            check_names(spec)
        self.spec = spec
        self.devices: tuple[Device, ...] = expand(spec)
        self.state = ClusterState.of(self.devices)
        self.registry = Registry(spec.execution_path_registry)
        self.cost_model = CostModel(Profiles(library.profiles()))
        self.gang_sizes = gang_sizes(spec, self.devices)
        self._tables: dict[frozenset[int], SiteTable] = {}
        self._layouts: OrderedDict[Hashable, StageLayout] = OrderedDict()
        # Finds fault with links and overrides now, and is what a request with an LLM stage asks for first.
        self.sites(self.gang_sizes)

    def layout(
        self,
        stage: StageSpec,
        precisions: frozenset[Precision] | None,
        table: SiteTable,
        degrees: tuple[int, ...],
        preference: Preferred | None,
    ) -> StageLayout:
        """The options of a stage, from the ``MAX_LAYOUTS`` kept where one of the same demand was asked for before."""
        key = (
            stage.type, stage.model, stage.tokens, stage.compute, stage.memory, stage.io, stage.fixed_time,
            stage.parallelism, stage.device_types, precisions, id(table), degrees, preference,
        )  # fmt: skip
        if key in self._layouts:
            self._layouts.move_to_end(key)
            return self._layouts[key]
        efficiency = (self.spec.parallel_efficiency, self.spec.host_parallel_efficiency)
        candidates = self.registry.candidates(stage, precisions)
        found = stage_layout(stage, candidates, table, self.cost_model, efficiency, degrees, preference)
        self._layouts[key] = found
        if len(self._layouts) > MAX_LAYOUTS:
            self._layouts.popitem(last=False)
        return found

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
