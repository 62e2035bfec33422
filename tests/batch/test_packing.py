"""From afar and in detail: groups of requests, the programme over them, and the plan that follows it."""

from __future__ import annotations

import time
from typing import Any

import numpy as np
import pytest

from iegopt.batch.blueprint import Blueprint, drawn
from iegopt.batch.board import Board
from iegopt.batch.bound_rows import classes_of, queued_items
from iegopt.batch.construct import plain_prices
from iegopt.batch.dealing import whole_instances
from iegopt.batch.denser import denser
from iegopt.batch.groups import Groups, slowest_rungs
from iegopt.batch.leavings import Leavings
from iegopt.batch.linear import Programme
from iegopt.batch.model import BatchModel
from iegopt.batch.packing import Packing
from iegopt.batch.placement import MIGRATE, Placement
from iegopt.batch.schedule import evaluate
from iegopt.batch.scout import Scout
from iegopt.solvers.clock import Clock

from .random_snapshots import random_case
from .small import build, cluster, decodes, instance, prefill_seconds, queued


def blueprint_of(model: BatchModel, board: Board | None = None) -> Blueprint | None:
    classes = classes_of(model)
    return drawn(board or Board(model), classes, queued_items(model, classes), Clock(60.0, time.perf_counter()))


def packed(model: BatchModel) -> tuple[Board, Packing | None]:
    """A board filled level by level, and the last packing."""
    board, classes, scout, leavings, packing = Board(model), classes_of(model), Scout(model), Leavings(model), None
    for level in np.unique(model.queue.priority).tolist():
        blueprint = drawn(board, classes, queued_items(model, classes), Clock(60.0, time.perf_counter()))
        if blueprint is not None:
            claims = whole_instances(board, scout, blueprint) if packing is None else {}
            packing = Packing(board, scout, classes, blueprint, leavings, claims)
            packing.claim(Clock(60.0, time.perf_counter()))
            packing.fill(level, Clock(60.0, time.perf_counter()))
    return board, packing


def test_a_programme_keeps_one_objective_while_it_improves_another() -> None:
    """max x + y, then max y with x + y kept, of x ≤ 3, y ≤ 2, x + 2y ≤ 5: 4 at (3, 1), and y = 1."""
    lp = Programme()
    x, y = lp.columns([3.0, 0.0, 2.0])[[0, 2]].tolist()
    lp.add(lp.rows([5.0])[0], [x, y], [1.0, 2.0])
    first, second = lp.costs(), lp.costs()
    first[[x, y]], second[y] = 1.0, 1.0
    found = lp.maximise(first, 10.0)
    assert found is not None
    assert found[0] == pytest.approx(4.0)
    lp.keep(first, found[0])
    found = lp.maximise(second, 10.0)
    assert found is not None
    assert found[1][[x, y]] == pytest.approx([3.0, 1.0])
    assert found[1][lp.columns([0.0])[0]] == 0.0


def test_without_time_there_is_no_optimum() -> None:
    lp = Programme()
    lp.add(lp.rows([1.0]), lp.columns([1.0]), 1.0)
    assert lp.maximise(lp.costs(), 0.0) is None


def test_like_requests_are_one_group_and_others_are_not() -> None:
    alike = [queued(f"a{n}", 1000 + n) for n in range(4)]
    others = [
        queued("long", 4000),
        queued("urgent", 1000, priority=0, sla={"ttft": 1.0}),
        queued("west", tenant="west"),
    ]
    policy = {"tenants": {"west": {"quota": {"requests": 1}}}}
    model = build([instance(0)], [*alike, *others], policy=policy)
    board = Board(model)
    groups = Groups.of_queue(model, queued_items(model, classes_of(model)), board.grid, board.plan.prefill < 0)
    assert len(set(groups.of[:4].tolist())) == 1
    assert len(set(groups.of.tolist())) == 4
    g = int(groups.of[0])
    assert groups.count[g] == 4
    assert groups.work[:, g] == pytest.approx([np.mean([prefill_seconds(1000 + n) for n in range(4)])])
    assert groups.tenant[groups.of[-1]] == model.tenants.index("west")


def test_a_decode_may_be_no_slower_than_its_end_allows() -> None:
    queue = [queued("a", output=100, sla={"e2e": 13.0}), queued("b", output=100, sla={"itl": 0.05}), queued("c")]
    model = build([instance(0)], queue, policy={"paces": [0.02, 0.05, 0.1, 0.2]})
    # 0.8 of 13 s for 100 tokens are 0.104 s each.
    assert slowest_rungs(model).tolist() == [2, 1, 3]


def test_a_blueprint_places_all_that_fits() -> None:
    """A prefill of 4,000 tokens takes 0.54 s; within 2 s an instance that does not decode has time for 3.7 of them."""
    queue = [queued(f"q{n}", 4000, 1, sla={"ttft": 2.0}) for n in range(20)]
    one, four = (blueprint_of(build([instance(n) for n in range(count)], queue)) for count in (1, 4))
    assert one is not None
    assert four is not None
    assert one.decode.sum() <= 2.0 / prefill_seconds(4000)
    assert one.decode.sum() >= 2.5
    assert four.decode.sum() == pytest.approx(4 * one.decode.sum(), rel=1e-3)
    assert four.prefill.sum() == pytest.approx(four.decode.sum())


def test_a_blueprint_serves_the_higher_priority_first() -> None:
    queue = [
        queued(f"q{n}", 4000, 1, sla={"ttft": 2.0}, priority=n % 2, utility={"weight": 9.0 if n % 2 else 1.0})
        for n in range(20)
    ]  # fmt: skip
    found = blueprint_of(build([instance(0)], queue))
    assert found is not None
    placed = found.decode.sum(axis=(1, 2))
    assert placed[found.groups.level == 0].sum() == pytest.approx(placed.sum(), rel=1e-3)


def test_a_blueprint_keeps_quotas() -> None:
    queue = [queued(f"q{n}", tenant="west" if n < 6 else "east") for n in range(8)]
    model = build([instance(n) for n in range(4)], queue, policy={"tenants": {"west": {"quota": {"requests": 2}}}})
    found = blueprint_of(model)
    assert found is not None
    placed, west = found.decode.sum(axis=(1, 2)), model.tenants.index("west")
    assert placed[found.groups.tenant == west].sum() == pytest.approx(2.0, rel=1e-3)
    assert placed[found.groups.tenant < 0].sum() == pytest.approx(2.0, rel=1e-3)


def test_nothing_is_drawn_of_nothing() -> None:
    assert blueprint_of(build([instance(0)], [])) is None
    assert blueprint_of(build([instance(0, state="draining")], [queued("a")])) is None


def test_equal_instances_get_equal_work() -> None:
    """One of them may decode more, and then prefills less: the time that is free is about the same."""
    model = build([instance(n) for n in range(4)], [queued(f"q{n}", 2000, 50, sla={"ttft": 6.0}) for n in range(40)])
    board, _ = packed(model)
    assert (board.plan.prefill >= 0).all()
    assert board.slack[:, -1].min() > 0.0
    assert board.slack[:, -1].max() - board.slack[:, -1].min() < 3 * prefill_seconds(2000)


def test_prefills_go_where_their_prefix_is() -> None:
    """Each of two prefixes is held by one instance, and prefilled again elsewhere only if that must be."""
    instances = [instance(0, prefix=[1, 2]), instance(1, prefix=[7, 8])]
    queue = [queued(f"q{n}", 1100, 10, prefix=[1, 2] if n % 2 else [7, 8], sla={"ttft": 5.0}) for n in range(12)]
    board, _ = packed(build(instances, queue))
    assert board.plan.prefill.tolist() == [1, 0] * 6


def slow() -> Any:
    """Beside x-0 … x-7 a device y that computes slowly and reads as fast."""
    kind = {
        "id": "y", "model": "Y", "type": "GPU", "vendor": "v", "count": 2, "price": 1.0,
        "compute": {"fp16_flops": 10e12, "precision_support": ["fp16"]},
        "memory": {"vram": 80 * 10**9, "bandwidth": 1e12}, "io": {"bandwidth": 10e9},
    }  # fmt: skip
    both = [{"precision": "fp16", "backend": "CUDA", "compatible_devices": ["X", "Y"]}]
    first = cluster().spec.model_dump(mode="json", exclude_unset=True)["devices"]
    return cluster(devices=[*first, kind], execution_path_registry=[{"model": "Llama-2-7B", "variants": both}])


def test_what_computes_slowly_decodes_for_what_computes_fast() -> None:
    """As many prefills as the fast instance has time for if it decodes nothing."""
    slowly = {"id": "i1", "devices": ["y-0"], "variant": "Llama-2-7B/fp16/CUDA"}
    queue = [queued(f"q{n}", 2000, 200, sla={"ttft": 4.0, "itl": 0.05}) for n in range(14)]
    model = build([instance(0), slowly], queue, on=slow(), policy={"paces": [0.02, 0.05]})
    board, _ = packed(model)
    assert (board.plan.prefill >= 0).sum() == 14
    assert set(board.plan.prefill.tolist()) == {0}
    assert set(board.plan.decode.tolist()) == {1}


@pytest.mark.parametrize("first", range(0, 40, 10))
def test_a_packed_board_keeps_all_rules_and_knows_its_worth(first: int) -> None:
    placed = 0
    for seed in range(first, first + 10):
        model = random_case(seed).model
        board, _ = packed(model)
        outcome = evaluate(model, board.plan)
        # A change of pace moves shares of tenants; ``repair`` sees to them.
        assert {violation.rule for violation in outcome.violations} <= {"quota", "fairness"}, seed
        assert outcome.objective == pytest.approx(board.worth), seed
        placed += int((board.plan.prefill >= 0).sum())
    assert placed > 0


def test_prefill_and_decode_are_on_instances_of_one_precision() -> None:
    """Requests that name none run in either; those that prefill and those that decode are others."""
    device = {
        "id": "x", "model": "X", "type": "GPU", "vendor": "v", "count": 8, "price": 2.0,
        "compute": {"fp16_flops": 100e12, "bf16_flops": 50e12, "precision_support": ["fp16", "bf16"]},
        "memory": {"vram": 80 * 10**9, "bandwidth": 1e12}, "io": {"bandwidth": 10e9}, "spread": {"per_host": 4},
    }  # fmt: skip
    variants = [{"precision": p, "backend": "CUDA", "compatible_devices": ["X"]} for p in ("fp16", "bf16")]
    both = cluster(devices=[device], execution_path_registry=[{"model": "Llama-2-7B", "variants": variants}])
    instances = [
        instance(2 * n + first, role="prefill" if first else "decode", variant=f"Llama-2-7B/{precision}/CUDA")
        for n, precision in enumerate(("fp16", "bf16", "fp16", "bf16"))
        for first in (0, 1)
    ]
    limits = [{"ttft": 4.0, "itl": itl} for itl in (0.02, 0.05, 0.1)]
    requests = [queued(f"r{n}", 500 + 10 * n, 20 + 5 * (n % 7), sla=limits[n % 3]) for n in range(60)]
    model = build(instances, requests, on=both)
    board, _ = packed(model)
    assert (board.plan.prefill >= 0).sum() >= 55
    assert evaluate(model, board.plan).violations == ()


def test_a_level_is_filled_by_density_where_that_is_worth_more() -> None:
    """Time for one long prefill or for some short ones."""
    limit = {"ttft": 1.3 * prefill_seconds(4000)}
    queue = [queued("long", 4000, 1, sla=limit), *(queued(f"s{n}", 1000, 1, sla=limit) for n in range(4))]
    model = build([instance(0)], queue)
    cost = np.array([prefill_seconds(n) for n in (4000, 1000, 1000, 1000, 1000)])
    board, scout, clock = Board(model), Scout(model), Clock(60.0, time.perf_counter())
    assert board.place(0, 0, 0, len(model.paces) - 1)
    assert not any(board.place(n, 0, 0, len(model.paces) - 1) for n in range(1, 5))
    level, prices = int(model.queue.priority[0]), plain_prices(model, board.grid)
    found = denser(board, scout, Placement.empty(model), level, cost, prices, clock)
    assert np.flatnonzero(found.plan.prefill >= 0).tolist() == [1, 2, 3, 4]
    assert denser(found, scout, board.plan, level, cost, prices, clock) is found


def test_time_that_is_spared_is_not_given_to_a_prefill() -> None:
    model = build([instance(0)], [queued("a", 4000, 1, sla={"ttft": 1.1 * prefill_seconds(4000)})])
    rung = len(model.paces) - 1
    assert not Board(model).place(0, 0, 0, rung, spare=0.2)
    assert Board(model).place(0, 0, 0, rung, spare=0.0)


def test_blocks_of_one_request_alone_are_left_to_nobody() -> None:
    model = build([instance(0), instance(1)], [queued("a", prefix=[1, 2]), queued("b", prefix=[1, 3])])
    leavings = Leavings(model)
    assert list(leavings.runs(1)) == []
    leavings.leave(0, 1)
    (places, tokens), *more = leavings.runs(1)
    assert places.tolist() == [1]
    assert tokens == model.holdings.block_tokens
    assert more == []


def test_who_needs_an_instance_alone_claims_one_before_others_spread() -> None:
    """Two prefills of 0.27 s are urgent; the long one of the lower priority takes 0.54 of its 0.6 s."""
    urgent = [queued(f"u{n}", 2000, 1, priority=0, sla={"ttft": 1.0}) for n in range(2)]
    whole = queued("whole", 4000, 1, priority=1, sla={"ttft": prefill_seconds(4000) / 0.9})
    board, _ = packed(build([instance(0), instance(1)], [*urgent, whole]))
    assert (board.plan.prefill >= 0).all()


@pytest.mark.parametrize(("priority", "placed"), [(1, True), (0, False)])
def test_what_runs_makes_way_for_who_needs_an_instance_alone_but_not_what_ranks_higher(
    priority: int, placed: bool
) -> None:
    whole = queued("whole", 4000, 1, priority=1, sla={"ttft": prefill_seconds(4000) / 0.9})
    runs = [decodes(f"r{n}", f"i{n}", priority=priority, sla={"itl": 0.05}) for n in range(2)]
    board, _ = packed(build([instance(0), instance(1)], [whole], runs))
    assert (board.plan.prefill[0] >= 0) == placed
    assert (board.plan.action == MIGRATE).sum() == placed


def test_changes_are_taken_back_to_where_they_began() -> None:
    model = build([instance(0)], [queued(f"q{n}") for n in range(3)])
    board = Board(model)
    board.begin()
    assert board.place(0, 0, 0, 4)
    board.begin()
    assert board.place(1, 0, 0, 4)
    board.rollback()
    assert board.plan.prefill.tolist() == [0, -1, -1]
    board.begin()
    assert board.place(2, 0, 0, 4)
    board.commit()
    assert board.worth.sum() == 2.0
    board.rollback()
    fresh = Board(model)
    assert board.plan.prefill.tolist() == [-1, -1, -1]
    assert board.worth.sum() == 0.0
    assert board.slack.tolist() == fresh.slack.tolist()
    assert board.memory.tolist() == fresh.memory.tolist()
