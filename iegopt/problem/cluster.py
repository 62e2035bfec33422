"""A compiled cluster: what requests share, worked out once and updated in place."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Hashable, Iterable
from functools import cached_property
from typing import TypeVar

import numpy.ma  # noqa: F401 - np.unique loads it when first called: 20 ms of the first plan's deadline

from iegopt import library
from iegopt.cost.model import CostModel
from iegopt.cost.profile import Profiles
from iegopt.devices import Device, DeviceClass, expand
from iegopt.errors import InputError
from iegopt.problem.focus import focused
from iegopt.problem.names import check_names
from iegopt.problem.sites import SiteTable, build_sites, gang_sizes
from iegopt.problem.stage_options import StageBlocks, StageLayout, stage_blocks
from iegopt.problem.state import ClusterState
from iegopt.problem.tiers import Preferred
from iegopt.problem.variants import Registry
from iegopt.spec.cluster import ClusterSpec
from iegopt.spec.stage import Precision, StageSpec

__all__ = ["MAX_LAYOUTS", "CompiledCluster"]

MAX_LAYOUTS = 512
"""Stage layouts kept per cluster: on 1,000 devices some 50 kB each."""
_LEAST_UPDATES, _UPDATED_PART = 64, 4
"""Updates of devices, and the part of all devices, after which the promising sites are chosen again."""
Kept = TypeVar("Kept")


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
        self._focus: dict[SiteTable, SiteTable] = {}
        self._updates = 0
        self._layouts: OrderedDict[Hashable, StageLayout] = OrderedDict()
        self._blocks: OrderedDict[Hashable, StageBlocks] = OrderedDict()
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
        demand = _demand(stage, precisions, table, degrees, preference)
        layout = self._layouts.get((table, demand))
        if layout is not None:
            self._layouts.move_to_end((table, demand))
            return layout
        layout = StageLayout.of(self._blocks_of(demand, stage, precisions, table, degrees, preference), table)
        _keep(self._layouts, (table, demand), layout)
        return layout

    def blocks(
        self, stage: StageSpec, precisions: frozenset[Precision] | None, table: SiteTable, degrees: tuple[int, ...],
        preference: Preferred | None = None,
    ) -> StageBlocks:  # fmt: skip
        """What a stage costs on kinds of sites, from those kept likewise."""
        demand = _demand(stage, precisions, table, degrees, preference)
        return self._blocks_of(demand, stage, precisions, table, degrees, preference)

    def _blocks_of(
        self, demand: Hashable, stage: StageSpec, precisions: frozenset[Precision] | None, table: SiteTable,
        degrees: tuple[int, ...], preference: Preferred | None,
    ) -> StageBlocks:  # fmt: skip
        blocks = self._blocks.get(demand)
        if blocks is None:
            candidates = self.registry.candidates(stage, precisions)
            efficiency = self.parallel_efficiency
            blocks = stage_blocks(stage, candidates, table, self.cost_model, efficiency, degrees, preference)
            _keep(self._blocks, demand, blocks)
        return blocks

    @property
    def parallel_efficiency(self) -> tuple[float, float]:
        """Of gangs within a domain, and of gangs that only share a host."""
        return self.spec.parallel_efficiency, self.spec.host_parallel_efficiency

    def update(
        self,
        device: str,
        *,
        queue: tuple[int, float] | None = None,
        utilisation: float | None = None,
        used: int | None = None,
    ) -> None:
        """``ClusterState.update``; the promising sites are chosen again after so many that they may be others."""
        self.state.update(device, queue=queue, utilisation=utilisation, used=used)
        self._updates += 1
        if self._updates >= max(_LEAST_UPDATES, len(self.devices) // _UPDATED_PART):
            self._updates = 0
            self._focus = {table: focused(table, self.state) for table in self._tables.values()}

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
            table = self._tables[key] = build_sites(self.spec, self.devices, key)
            self._focus[table] = focused(table, self.state)
        return self._tables[key]

    def sites_at_hand(self, sizes: Iterable[int]) -> SiteTable | None:
        """A table with the sites for these gang sizes, and perhaps for others, that need not be built first."""
        key, every = frozenset(sizes) | {1}, frozenset(self.gang_sizes) | {1}
        return self._tables.get(key) or (self._tables[every] if key <= every else None)

    @property
    def focus_tables(self) -> tuple[SiteTable, ...]:
        """The promising sites of every table at hand, as chosen last."""
        return tuple(dict.fromkeys(self._focus.values()))

    def focus(self, sizes: Iterable[int]) -> SiteTable | None:
        """The promising ones of the sites at hand for these gang sizes; all, where there are few."""
        table = self.sites_at_hand(sizes)
        return None if table is None else self._focus.get(table, table)


def _demand(
    stage: StageSpec, precisions: frozenset[Precision] | None, table: SiteTable, degrees: tuple[int, ...],
    preference: Preferred | None,
) -> Hashable:  # fmt: skip
    """What the options of a stage depend on.

    A table cut from another shares its kinds (kept as long as the cluster), and so the costs of a stage on them.
    """
    return (
        stage.type, stage.model, stage.tokens, stage.compute, stage.memory, stage.io, stage.fixed_time,
        stage.parallelism, stage.device_types, precisions, id(table.kinds), degrees, preference,
    )  # fmt: skip


def _keep(kept: OrderedDict[Hashable, Kept], key: Hashable, value: Kept) -> None:
    kept[key] = value
    if len(kept) > MAX_LAYOUTS:
        kept.popitem(last=False)
