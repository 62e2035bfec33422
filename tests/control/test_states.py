"""The table of the code is the table of the source, both ways."""

from __future__ import annotations

from pathlib import Path

import pytest

from iegopt.control.stage_run import StageRun
from iegopt.control.states import BLOCK_TIMEOUT, TIMEOUT, TRANSITIONS, State
from iegopt.errors import InternalError
from iegopt.spec.load import load_document
from iegopt.spec.stage import StageKind

from ..conftest import shared_dir

COPY = Path(__file__).resolve().parent.parent / "spec" / "blocks" / "state_transitions.yaml"


def written(path: Path) -> dict[tuple[str, str], str]:
    """(state, successor) -> condition, a time-out leading to FAILED as the source's comment says."""
    _, table = load_document(path, "state_transitions")
    found = {}
    for state in type(table).model_fields:
        row = getattr(table, state)
        for name in type(row).model_fields:
            value = getattr(row, name)
            if name == "timeout":
                assert value == BLOCK_TIMEOUT
                found[state, "FAILED"] = TIMEOUT
            else:
                found[state, name.removeprefix("to_")] = value
    return found


def coded() -> dict[tuple[str, str], str]:
    return {(str(old), str(new)): why for old, row in TRANSITIONS.items() for new, why in row.items()}


def test_the_table_is_the_source_s() -> None:
    assert coded() == written(COPY)


def test_the_table_is_that_of_the_shared_block() -> None:
    assert coded() == written(shared_dir() / "seed" / "blocks" / "state_transitions.yaml")


def test_there_are_eight_states_and_an_end() -> None:
    assert len(State) == 9
    assert set(TRANSITIONS) == set(State)
    assert {old for old, row in TRANSITIONS.items() if not row} == {State.COMPLETED, State.TERMINAL}


@pytest.mark.parametrize("old", State)
@pytest.mark.parametrize("new", State)
def test_a_stage_takes_these_steps_and_no_others(old: State, new: State) -> None:
    stage = StageRun("s", StageKind.DECODE, state=old)
    if new in TRANSITIONS[old]:
        stage.step(new, 1.0)
        assert stage.state is new
        assert TRANSITIONS[old][new] in stage.history[0].text
    else:
        with pytest.raises(InternalError, match=f"stage s: no transition from {old} to {new}"):
            stage.step(new, 1.0)
        assert stage.state is old


def test_the_time_in_running_is_measured_without_the_time_blocked() -> None:
    stage = StageRun("s", StageKind.DECODE, state=State.SCHEDULED)
    stage.step(State.RUNNING, 1.0)
    stage.step(State.BLOCKED, 3.0)
    stage.step(State.RUNNING, 10.0)
    assert stage.run_time(11.0) == 3.0
    stage.step(State.COMPLETED, 12.0)
    assert (stage.ran, stage.began, stage.ended) == (4.0, 1.0, 12.0)


@pytest.mark.parametrize(
    ("seconds", "ran", "began"),
    [(None, 0.0, 9.0), (0.5, 0.5, 8.5), (100.0, 4.0, 5.0)],
    ids=["not told", "told", "more than can be"],
)
def test_the_time_that_a_worker_measured_counts(seconds: float | None, ran: float, began: float) -> None:
    stage = StageRun("s", StageKind.DECODE)
    stage.step(State.READY, 5.0)
    stage.step(State.SCHEDULED, 5.0)
    stage.step(State.RUNNING, 9.0)  # heard of with its end
    stage.measured(seconds, 9.0)
    stage.step(State.COMPLETED, 9.0)
    assert (stage.ran, stage.began, stage.run_time(20.0)) == (ran, began, ran)
