"""Moves that better a plan, each where no other helps."""

from __future__ import annotations

from iegopt.batch.board import Board
from iegopt.batch.construct import plain_prices
from iegopt.batch.improve import hasten, make_room
from iegopt.batch.levels import Search
from iegopt.batch.model import BatchModel
from iegopt.batch.placement import KEEP, MIGRATE, PREEMPT
from iegopt.batch.scout import Scout
from iegopt.solvers.clock import Clock

from .small import STEP_BASE, build, decodes, instance, prefill_seconds, queued

POLICY = {"paces": [0.05, 0.2]}
TIGHT = queued("tight", 4000, 1, sla={"ttft": 1.15 * prefill_seconds(4000)})
"""A prefill that leaves an eighth of the instance's time until its deadline to decode: enough at 0.2 s a token, not at
0.05 s, where reading the weights alone takes more than a quarter."""


def board_of(model: BatchModel, *places: tuple[int, int, int]) -> Board:
    """Requests (request, instance, rung) placed one after the other."""
    board = Board(model)
    for i, j, rung in places:
        assert board.place(i, j, j, rung)
    return board


def test_a_request_decodes_elsewhere_at_full_worth_and_prefills_where_it_was() -> None:
    assert STEP_BASE / 0.2 < 0.15 / 1.15 < STEP_BASE / 0.05
    slow = queued("slow", 500, 100, utility={"class": "throughput", "weight": 3.0})
    model = build([instance(0), instance(1)], [TIGHT, slow], policy=POLICY)
    board = board_of(model, (0, 0, 1), (1, 0, 1))
    assert board.worth.sum() == 1.0 + 3.0 * 0.05 / 0.2
    assert hasten(board, Scout(model), Clock(60.0)) == 1
    assert board.plan.prefill.tolist() == [0, 0]
    assert board.plan.decode.tolist() == [0, 1]
    assert board.worth.sum() == 4.0
    assert hasten(board, Scout(model), Clock(60.0)) == 0


def test_who_leaves_lets_the_rest_decode_slowly_for_one_that_needs_the_time() -> None:
    easy = queued("easy", 500, 100, sla={"itl": 0.05})
    running = decodes("r", "i0", 500, 100)
    policy = {**POLICY, "migration": False}
    model = build([instance(0), instance(1, utilization=0.4)], [TIGHT, easy], [running], policy=policy)
    board = Board(model)
    assert board.place(1, 1, 0, 0)
    scout = Scout(model)
    assert make_room(board, scout, [0], plain_prices(model, board.grid), Clock(60.0), 10) == 1
    assert board.plan.prefill.tolist() == [0, 1]
    assert board.plan.pace.tolist()[0] == 1


def test_an_instance_is_cleared_for_who_left_another() -> None:
    """Only the first has time for the longer one, and where the other then goes the third must leave."""
    first, second, third = (
        queued(name, 4000, 1, sla={"ttft": prefill_seconds(4000) / part})
        for name, part in (("first", 0.9), ("second", 0.7), ("third", 0.5))
    )
    instances = [instance(n, utilization=busy) for n, busy in enumerate((0.0, 0.2, 0.4))]
    model = build(instances, [first, second, third], policy=POLICY)
    board = board_of(model, (1, 0, 1), (2, 1, 1))
    scout = Scout(model)
    assert make_room(board, scout, [0], plain_prices(model, board.grid), Clock(60.0), 10) == 1
    assert board.plan.prefill.tolist() == [0, 1, 2]


def test_what_runs_and_what_is_placed_both_leave_for_one_that_needs_an_instance_alone() -> None:
    easy = queued("easy", 500, 100, sla={"itl": 0.05})
    running = decodes("r", "i0", 500, 100, sla={"itl": 0.05})
    model = build([instance(0), instance(1, utilization=0.4)], [TIGHT, easy], [running], policy=POLICY)
    board = board_of(model, (1, 0, 0))
    scout = Scout(model)
    assert make_room(board, scout, [0], plain_prices(model, board.grid), Clock(60.0), 10) == 1
    assert board.plan.prefill.tolist() == [0, 1]
    assert board.plan.action.tolist() == [MIGRATE]
    assert board.plan.to.tolist() == [1]


def test_who_is_planned_where_it_was_decodes_faster_there_before_it_goes_elsewhere() -> None:
    slow = queued(
        "slow", 500, 100, utility={"class": "throughput"}, planned={"prefill": "i0", "decode": "i0"}
    )  # fmt: skip
    model = build([instance(0), instance(1)], [slow], [decodes("r", "i0", 500, 100)], policy=POLICY)
    search = Search(model, Clock(60.0))
    search.run()
    assert (search.best.prefill.tolist(), search.best.decode.tolist()) == ([0], [0])
    assert search.best.pace.tolist()[0] == 0


def test_an_instance_is_cleared_from_which_none_of_its_own_priority_must_move() -> None:
    tight = queued("tight", 4000, 1, priority=1, sla={"ttft": 1.05 * prefill_seconds(4000)})
    running = [decodes(f"r{n}", f"i{n}", 500, 100, priority=1 + n, sla={"itl": 0.05}) for n in range(2)]
    model = build([instance(0), instance(1), instance(2, utilization=0.5)], [tight], running, policy=POLICY)
    board, scout = Board(model), Scout(model)
    assert make_room(board, scout, [0], plain_prices(model, board.grid), Clock(60.0), 10) == 1
    assert board.plan.prefill.tolist() == [1]
    assert board.plan.action.tolist() == [KEEP, MIGRATE]


def test_more_than_a_few_that_run_are_put_aside_for_one_that_needs_their_instance() -> None:
    running = [decodes(f"r{n}", "i0", 500, 100, priority=2, sla={"itl": 0.05}) for n in range(6)]
    fast = decodes("fast", "i1", 500, 100, sla={"itl": 0.05})
    tight = queued("tight", 4000, 100, sla={"ttft": 1.02 * prefill_seconds(4000), "itl": 0.05})
    model = build([instance(0), instance(1, utilization=0.4)], [tight], [*running, fast], policy={"migration": False})
    board, scout = Board(model), Scout(model)
    assert make_room(board, scout, [0], plain_prices(model, board.grid), Clock(60.0), 10) == 1
    assert (board.plan.prefill.tolist(), board.plan.decode.tolist()) == ([0], [1])
    assert board.plan.action.tolist() == [PREEMPT] * 6 + [KEEP]
