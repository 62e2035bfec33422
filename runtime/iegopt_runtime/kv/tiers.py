"""Which block lies in which tier: decisions only, no tensors and no clock.

L0 is the memory of the device, L1 that of the host, L2 files (section 6.3). A block goes down when it has been cold
for long enough or its tier is full, least recently used first, and comes up when it is used; where a lower tier
already has a copy, going down costs nothing. A block that somebody refers to is never dropped, only moved. Memory
that running sequences have reserved counts as used in L0.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from enum import IntEnum

from iegopt_runtime.errors import KvLost, NoRoom

__all__ = ["Move", "Tier", "TierIndex", "TierPolicy"]


class Tier(IntEnum):
    L0 = 0
    L1 = 1
    L2 = 2


@dataclass(frozen=True)
class TierPolicy:
    """``budgets`` in bytes per tier (a tier left out has none); ``cold_after`` in seconds since the last use, after
    which a block leaves the tier for the next one down."""

    budgets: Mapping[Tier, int]
    cold_after: Mapping[Tier, float] = field(default_factory=lambda: {Tier.L0: 5.0, Tier.L1: 60.0})


@dataclass(frozen=True)
class Move:
    """Copy the block from ``source`` to ``target`` (``None``: nowhere), then drop it at ``source`` if ``drop``."""

    key: str
    source: Tier
    target: Tier | None
    drop: bool


@dataclass
class _Entry:
    size: int
    used_at: float
    tiers: set[Tier]
    references: int = 0


class TierIndex:
    """Every method that changes places appends to ``moves`` what must be done, in order; the owner empties it."""

    def __init__(self, policy: TierPolicy) -> None:
        self.policy = policy
        self.moves: list[Move] = []
        self.used = dict.fromkeys(Tier, 0)
        self.reserved: dict[str, int] = {}
        self._orphans: dict[str, int] = {}
        """References to blocks that were discarded as broken: whoever holds one still gives it back."""
        self._entries: dict[str, _Entry] = {}
        self._order: dict[Tier, OrderedDict[str, None]] = {tier: OrderedDict() for tier in Tier}

    def __contains__(self, key: str) -> bool:
        return key in self._entries

    def __len__(self) -> int:
        return len(self._entries)

    def __iter__(self) -> Iterator[str]:
        return iter(list(self._entries))

    def tiers(self, key: str) -> frozenset[Tier]:
        """Where a block lies; empty where it is not held."""
        entry = self._entries.get(key)
        return frozenset(entry.tiers) if entry else frozenset()

    def references(self, key: str) -> int:
        return self._entries[key].references

    def size(self, key: str) -> int:
        return self._entries[key].size

    def free(self, tier: Tier) -> int:
        """Bytes of the budget that nothing uses."""
        held = sum(self.reserved.values()) if tier is Tier.L0 else 0
        return self.policy.budgets.get(tier, 0) - self.used[tier] - held

    def idle(self, tier: Tier) -> int:
        """Bytes of the tier's blocks that nobody refers to: they make room when it is needed."""
        entries = (self._entries[key] for key in self._order[tier])
        return sum(entry.size for entry in entries if not entry.references)

    def put(self, key: str, size: int, now: float, tier: Tier = Tier.L0) -> Tier | None:
        """Take a new block in, at ``tier`` or the first below it that has room; ``None`` where it is held already.

        Raises
        ------
        NoRoom
            No tier from ``tier`` on can hold it.
        """
        if key in self._entries:
            self.touch(key, now)
            return None
        for target in Tier:
            if target >= tier and self._make_room(target, size):
                self._entries[key] = _Entry(size, now, set())
                self._add(key, target)
                return target
        raise NoRoom(tier.name, size, self.free(tier))

    def copy(self, key: str, tier: Tier) -> bool:
        """Have a copy in ``tier`` too, for recovery; False where it finds no room."""
        entry = self._entries[key]
        if tier in entry.tiers:
            return True
        if not self._make_room(tier, entry.size, keep=key):
            return False
        self.moves.append(Move(key, min(entry.tiers), tier, drop=False))
        self._add(key, tier)
        return True

    def touch(self, key: str, now: float) -> None:
        """The block was used: it is the most recent one of its tiers."""
        entry = self._entries[key]
        entry.used_at = now
        for tier in entry.tiers:
            self._order[tier].move_to_end(key)

    def promote(self, key: str, now: float) -> Tier:
        """Up to L0, or as far as there is room without pushing anything referred to below L1; the tier it is in."""
        self.touch(key, now)
        entry = self._entries[key]
        best = min(entry.tiers)
        for target in Tier:
            if target >= best:
                break
            if self._make_room(target, entry.size, keep=key):
                self.moves.append(Move(key, min(entry.tiers), target, drop=False))
                self._add(key, target)
                break
        return min(entry.tiers)

    def acquire(self, key: str) -> None:
        """One reference more.

        Raises
        ------
        KvLost
            The block is not held.
        """
        if key not in self._entries:
            raise KvLost(f"block {key} is not held")
        self._entries[key].references += 1

    def release(self, key: str) -> None:
        """One reference less; the block stays until room is needed. Nothing where it was discarded as broken."""
        if key in self._orphans:  # perhaps another's, whose own then counts for this one
            self._orphans[key] -= 1
            if not self._orphans[key]:
                del self._orphans[key]
            return
        entry = self._entries.get(key)
        if entry is None:
            return
        if not entry.references:
            raise ValueError(f"block {key} is released more often than it was acquired")
        entry.references -= 1

    def discard(self, key: str) -> None:
        """The block turned out broken: forget it in all tiers, whoever refers to it."""
        entry = self._entries[key]
        if entry.references:
            self._orphans[key] = self._orphans.get(key, 0) + entry.references
        for tier in sorted(entry.tiers):
            self._drop(key, tier)

    def reserve(self, owner: str, size: int) -> None:
        """Set ``size`` bytes of L0 aside for ``owner``, in place of what it had; 0 gives them back.

        Raises
        ------
        NoRoom
            Other reservations, or blocks that cannot go anywhere, take too much. The owner keeps what it had.
        """
        before = self.reserved.pop(owner, 0)
        if not size:
            return
        if not self._make_room(Tier.L0, size):
            free = self.free(Tier.L0) + self.idle(Tier.L0)
            if before:
                self.reserved[owner] = before
            raise NoRoom(Tier.L0.name, size, free)
        self.reserved[owner] = size

    def sweep(self, now: float) -> None:
        """Let cold blocks sink by one tier each, as far as the tier below has room without pushing others out."""
        for tier in (Tier.L1, Tier.L0):
            limit, below = self.policy.cold_after.get(tier), Tier(tier + 1)
            if limit is None:
                continue
            for key in list(self._order[tier]):
                entry = self._entries[key]
                if now - entry.used_at < limit:
                    break
                if any(lower > tier for lower in entry.tiers):
                    self._drop(key, tier)
                elif self.free(below) >= entry.size:
                    self._sink(key, tier, below)

    def _make_room(self, tier: Tier, size: int, keep: str | None = None) -> bool:
        """Move or drop the least recently used of a tier until ``size`` bytes are free; False where that fails."""
        if size > self.free(tier) + self.used[tier]:  # not even without any block
            return False
        if self.free(tier) >= size:
            return True
        for key in list(self._order[tier]):
            if key != keep and key in self._order[tier]:
                self._leave(key, tier, keep)
            if self.free(tier) >= size:
                return True
        return False

    def _leave(self, key: str, tier: Tier, keep: str | None) -> None:
        """A block leaves a tier: a copy elsewhere remains, or it sinks, or it is dropped if nobody refers to it."""
        entry = self._entries[key]
        if len(entry.tiers) > 1:
            self._drop(key, tier)
            return
        for below in Tier:
            if below > tier and self._make_room(below, entry.size, keep):
                self._sink(key, tier, below)
                return
        if not entry.references:
            self._drop(key, tier)

    def _sink(self, key: str, tier: Tier, below: Tier) -> None:
        self.moves.append(Move(key, tier, below, drop=True))
        self._remove(key, tier)
        self._add(key, below)

    def _drop(self, key: str, tier: Tier) -> None:
        self.moves.append(Move(key, tier, None, drop=True))
        self._remove(key, tier)
        if not self._entries[key].tiers:
            del self._entries[key]

    def _add(self, key: str, tier: Tier) -> None:
        """Enter a block into a tier, which stays ordered by last use."""
        entry = self._entries[key]
        entry.tiers.add(tier)
        self.used[tier] += entry.size
        order = self._order[tier]
        newest = next(reversed(order), None)
        order[key] = None
        if newest is not None and self._entries[newest].used_at > entry.used_at:
            for other in [other for other in order if self._entries[other].used_at > entry.used_at]:
                order.move_to_end(other)

    def _remove(self, key: str, tier: Tier) -> None:
        entry = self._entries[key]
        entry.tiers.remove(tier)
        self.used[tier] -= entry.size
        del self._order[tier][key]
