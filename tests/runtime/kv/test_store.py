"""Tiers: budgets hold, what is referred to stays whole, the least recently used goes down first."""

from __future__ import annotations

import tempfile
from pathlib import Path

import pytest
import torch
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from iegopt_runtime.errors import KvLost, NoRoom
from iegopt_runtime.kv.blocks import Block, KvManifest
from iegopt_runtime.kv.layout import KvLayout
from iegopt_runtime.kv.memory import DeviceMemory
from iegopt_runtime.kv.store import KvStore
from iegopt_runtime.kv.tiers import Tier, TierPolicy

LAYOUT = KvLayout(1, 1, 4, "float32")
SIZE = LAYOUT.bytes_per_token
"""Bytes of a block of one token, the unit of the budgets here."""
L0, L1, L2 = Tier.L0, Tier.L1, Tier.L2


def block(number: int) -> Block:
    return Block(f"{number:032x}", number, number + 1)


def content(number: int) -> torch.Tensor:
    return torch.full(LAYOUT.shape(1), float(number))


def store(folder: Path | None, *budgets: int, cold: tuple[float, float] = (10.0, 100.0)) -> KvStore:
    policy = TierPolicy({t: n * SIZE for t, n in zip(Tier, budgets, strict=False)}, {L0: cold[0], L1: cold[1]})
    return KvStore(DeviceMemory("cpu"), policy, folder)


def manifest(name: str, *numbers: int) -> KvManifest:
    return KvManifest(name, "m", LAYOUT, tuple(block(n) for n in numbers))


def hold(kv: KvStore, wanted: KvManifest) -> KvManifest:
    """Refer to what there is of a sequence."""
    incoming = kv.incoming()
    incoming.held(wanted.blocks)
    return incoming.commit(wanted)


def fill(kv: KvStore, *numbers: int) -> None:
    for number in numbers:
        kv.put(block(number), content(number), float(number))


def places(kv: KvStore, *numbers: int) -> list[list[Tier]]:
    return [sorted(kv.tiers(block(n))) for n in numbers]


@pytest.mark.parametrize(
    "error",
    [MemoryError(), RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried to allocate 16 bytes")],
)
def test_a_block_for_which_memory_is_short_finds_no_room_and_leaves_nothing(
    error: Exception, monkeypatch: pytest.MonkeyPatch
) -> None:
    kv = store(None, 2, 2, cold=(1.0, 100.0))
    fill(kv, 1)

    def short(tensor: torch.Tensor) -> torch.Tensor:
        raise error

    with monkeypatch.context() as patched:
        patched.setattr(kv.memory, "to_device", short)
        patched.setattr(kv.memory, "to_host", short)
        with pytest.raises(NoRoom):
            fill(kv, 2)
        kv.sweep(50.0)  # the first one cannot sink
    assert places(kv, 1, 2) == [[], []]
    fill(kv, 1, 2)
    assert places(kv, 1, 2) == [[L0], [L0]]


def test_another_error_is_no_lack_of_room(monkeypatch: pytest.MonkeyPatch) -> None:
    kv = store(None, 2)

    def broken(tensor: torch.Tensor) -> torch.Tensor:
        raise RuntimeError("a bug")

    monkeypatch.setattr(kv.memory, "to_device", broken)
    with pytest.raises(RuntimeError, match="a bug"):
        fill(kv, 1)


def test_the_least_recently_used_sinks(tmp_path: Path) -> None:
    kv = store(tmp_path, 2, 1, 5)
    fill(kv, 1, 2)
    kv.read(block(1), 2.5)
    fill(kv, 3, 4)
    assert places(kv, 1, 2, 3, 4) == [[L1], [L2], [L0], [L0]]
    assert all(kv.read(block(n), 5.0).equal(content(n)) for n in (1, 2, 3, 4))


def test_a_use_brings_it_up_again(tmp_path: Path) -> None:
    kv = store(tmp_path, 2, 1, 5)
    fill(kv, 1, 2, 3, 4)
    with kv.leased([block(1)], 5.0) as held:
        assert held == [block(1)]
    assert places(kv, 1, 2, 3, 4) == [[L0, L2], [L2], [L1], [L0]]
    assert kv.read(block(1), 6.0).equal(content(1))


def test_cold_blocks_sink_by_time(tmp_path: Path) -> None:
    kv = store(tmp_path, 4, 4, 4)
    fill(kv, 1, 2)
    kv.sweep(11.0)
    assert places(kv, 1, 2) == [[L1], [L0]]
    kv.sweep(50.0)
    assert places(kv, 1, 2) == [[L1], [L1]]
    kv.sweep(101.5)
    assert places(kv, 1, 2) == [[L2], [L1]]


def test_what_is_referred_to_is_never_dropped(tmp_path: Path) -> None:
    kv = store(tmp_path, 1, 1, 1)
    fill(kv, 1, 2, 3)
    hold(kv, manifest("a", 1, 2, 3))
    with pytest.raises(NoRoom):
        kv.put(block(4), content(4), 4.0)
    kv.forget("a")
    kv.put(block(4), content(4), 4.0)
    assert [bool(place) for place in places(kv, 1, 2, 3, 4)] == [False, True, True, True]


def test_a_sequence_is_held_up_to_what_is_not_there(tmp_path: Path) -> None:
    kv = store(tmp_path, 3)
    fill(kv, 1, 2)
    assert hold(kv, manifest("a", 1)) == manifest("a", 1)
    assert hold(kv, manifest("a", 1, 7, 2)) == kv.manifest("a") == manifest("a", 1)
    assert kv.held() == ("a",)
    kv.forget("a")
    fill(kv, 3, 4, 5)
    assert places(kv, 1, 2) == [[], []]


def test_reservations_push_blocks_out_and_are_refused_when_full() -> None:
    kv = store(None, 4, 2)
    fill(kv, 1, 2, 3)
    kv.reserve("x", 3 * SIZE)
    assert places(kv, 1, 2, 3) == [[L1], [L1], [L0]]
    with pytest.raises(NoRoom, match="L0: 64 bytes are needed, 32 can be had"):
        kv.reserve("y", 2 * SIZE)
    kv.reserve("x", 4 * SIZE)
    assert (kv.use().reserved, kv.use().free) == (4 * SIZE, 0)
    kv.reserve("x", 0)
    assert kv.use().free == 4 * SIZE


def test_a_reservation_that_cannot_grow_stays_as_it_was() -> None:
    kv = store(None, 4)
    kv.reserve("x", 2 * SIZE)
    kv.reserve("y", SIZE)
    with pytest.raises(NoRoom):
        kv.reserve("x", 4 * SIZE)
    assert kv.use().reserved == 3 * SIZE


def test_a_reservation_that_cannot_be_leaves_the_blocks_where_they_are() -> None:
    kv = store(None, 4)
    kv.reserve("x", 3 * SIZE)
    fill(kv, 1)
    with pytest.raises(NoRoom, match="64 bytes are needed, 32 can be had"):
        kv.reserve("y", 2 * SIZE)
    assert places(kv, 1) == [[L0]]


def test_blocks_that_nobody_refers_to_are_room_for_others() -> None:
    kv = store(None, 4)
    fill(kv, 1, 2, 3)
    hold(kv, manifest("a", 1))
    kv.reserve("x", SIZE)
    assert (kv.use().free, kv.use().available) == (0, 2 * SIZE)


def test_memory_that_is_out_leaves_no_trace_of_a_block(monkeypatch: pytest.MonkeyPatch) -> None:
    kv = store(None, 4, 4)
    kv.put(block(1), content(1), 0.0, L1)

    def full(tensor: torch.Tensor) -> torch.Tensor:
        raise torch.OutOfMemoryError("device memory")

    monkeypatch.setattr(kv.memory, "to_device", full)
    with pytest.raises(torch.OutOfMemoryError):
        kv.put(block(2), content(2), 1.0)
    with kv.leased([block(1), block(2)], 2.0) as held:  # block 1 cannot be brought up and is lost
        assert held == []
    assert places(kv, 1, 2) == [[], []]
    monkeypatch.undo()
    fill(kv, 1, 2)
    assert kv.read(block(2), 3.0).equal(content(2))


def test_a_block_that_was_lost_and_is_back_is_not_dropped_under_its_new_holder(tmp_path: Path) -> None:
    kv = store(tmp_path, 1, 0, 1)
    fill(kv, 1)
    hold(kv, manifest("a", 1))
    fill(kv, 2)  # pushes it into a file, which is damaged
    next(tmp_path.glob("*.safetensors")).write_bytes(b"x")
    with pytest.raises(KvLost):
        kv.read(block(1), 1.0)
    fill(kv, 1)
    hold(kv, manifest("b", 1))
    kv.forget("a")
    fill(kv, 3, 4, 5)
    assert kv.match([block(1)]) == 1
    kv.forget("b")
    fill(kv, 6, 7, 8)
    assert kv.match([block(1)]) == 0


def test_copies_for_recovery_outlive_the_process(tmp_path: Path) -> None:
    kv = store(tmp_path, 4, 4, 4)
    kv.put(block(1), content(1), 0.0, copy=L2)
    kv.put(block(2), content(2), 0.0)
    assert places(kv, 1, 2) == [[L0, L2], [L0]]
    (tmp_path / "x.123.draft").touch()
    again = store(tmp_path, 4, 4, 4)
    assert places(again, 1, 2) == [[L2], []]
    assert again.read(block(1), 1.0).equal(content(1))
    assert [file.suffix for file in tmp_path.iterdir()] == [".safetensors"]


def test_a_damaged_file_is_lost_and_said_so(tmp_path: Path) -> None:
    kv = store(tmp_path, 1, 0, 4)
    fill(kv, 1, 2, 3)
    for file in tmp_path.glob("*.safetensors"):
        file.write_bytes(file.read_bytes()[:-3])
    with pytest.raises(KvLost, match="cannot be read"):
        kv.read(block(1), 5.0)
    assert places(kv, 1) == [[]]
    with kv.leased([block(2), block(3)], 6.0) as held:
        assert held == []
    assert places(kv, 2) == [[]]
    assert kv.read(block(3), 7.0).equal(content(3))


def test_leases_end_at_the_first_block_that_is_missing(tmp_path: Path) -> None:
    kv = store(tmp_path, 4)
    fill(kv, 1, 2, 4)
    assert kv.match([block(n) for n in (1, 2, 3, 4)]) == 2
    with kv.leased([block(n) for n in (1, 2, 3, 4)], 9.0) as held:
        assert held == [block(1), block(2)]


NUMBERS = st.integers(1, 9)


class Stores(RuleBasedStateMachine):
    """Random use of a store of a few blocks; what it should hold is kept beside it."""

    @initialize(budgets=st.tuples(st.integers(0, 4), st.integers(0, 3), st.integers(0, 4)))
    def begin(self, budgets: tuple[int, int, int]) -> None:
        self.scratch = tempfile.TemporaryDirectory()
        self.budgets = budgets
        self.kv = store(Path(self.scratch.name), *budgets, cold=(3.0, 9.0))
        self.now = 0.0
        self.holds: dict[str, KvManifest] = {}
        self.reserved: dict[str, int] = {}

    @rule(number=NUMBERS, tier=st.sampled_from(Tier), copy=st.sampled_from([None, L1, L2]))
    def put(self, number: int, tier: Tier, copy: Tier | None) -> None:
        try:
            self.kv.put(block(number), content(number), self.now, tier, copy)
        except NoRoom:
            assert not self.kv.tiers(block(number))

    @rule(name=st.sampled_from("ab"), numbers=st.lists(NUMBERS, max_size=4, unique=True))
    def hold_some(self, name: str, numbers: list[int]) -> None:
        wanted = manifest(name, *numbers)
        there = self.kv.match(wanted.blocks)
        self.holds[name] = hold(self.kv, wanted)
        assert self.holds[name].blocks == wanted.blocks[:there]

    @rule(name=st.sampled_from("ab"))
    def forget(self, name: str) -> None:
        self.kv.forget(name)
        self.holds.pop(name, None)

    @rule(owner=st.sampled_from("xy"), units=st.integers(0, 4))
    def reserve(self, owner: str, units: int) -> None:
        try:
            self.kv.reserve(owner, units * SIZE)
        except NoRoom:
            others = sum(n for name, n in self.reserved.items() if name != owner)
            blocked = sum(len(item.blocks) for item in self.holds.values())
            assert others + units + blocked > self.budgets[0]
        else:
            self.reserved[owner] = units

    @rule(numbers=st.lists(NUMBERS, max_size=4, unique=True), promote=st.booleans())
    def use(self, numbers: list[int], promote: bool) -> None:
        with self.kv.leased([block(n) for n in numbers], self.now, promote=promote) as held:
            for item in held:
                assert self.kv.read(item, self.now).equal(content(item.begin))

    @rule(seconds=st.floats(0, 5))
    def wait(self, seconds: float) -> None:
        self.now += seconds
        self.kv.sweep(self.now)

    @precondition(lambda self: hasattr(self, "kv"))
    @invariant()
    def budgets_hold(self) -> None:
        use = self.kv.use()
        assert use.reserved == sum(self.reserved.values()) * SIZE
        assert use.free >= 0
        for tier in Tier:
            held = use.blocks[tier] + (use.reserved if tier is L0 else 0)
            assert held <= self.budgets[tier] * SIZE

    @precondition(lambda self: hasattr(self, "kv"))
    @invariant()
    def nothing_that_is_held_is_lost(self) -> None:
        for item in self.holds.values():
            assert self.kv.match(item.blocks) == len(item.blocks)

    @precondition(lambda self: hasattr(self, "kv"))
    @invariant()
    def tensors_lie_where_the_index_says(self) -> None:
        places = {tier: {n for n in range(1, 10) if tier in self.kv.tiers(block(n))} for tier in Tier}
        for tier in (L0, L1):
            assert self.kv._tensors[tier].keys() == {block(n).key for n in places[tier]}
        files = {path.stem for path in Path(self.scratch.name).iterdir()}
        assert files == {block(n).key for n in places[L2]}

    def teardown(self) -> None:
        if hasattr(self, "scratch"):
            self.scratch.cleanup()


TestStores = Stores.TestCase
TestStores.settings = settings(max_examples=60, stateful_step_count=25, deadline=None)
