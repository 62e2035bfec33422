"""The trace of a run: a slice for each attempt, whatever became of it."""

from __future__ import annotations

from typing import Any

from iegopt.control.messages import Accepted, Event, Failed, Finished, Progress
from iegopt_runtime.trace import Trace


def slices(*events: Event) -> list[dict[str, Any]]:
    trace = Trace()
    for event in events:
        trace.watch(event, ())
    return [row for row in trace.document()["traceEvents"] if row["ph"] == "X"]


def test_an_attempt_that_ended_with_its_worker_is_shown_until_the_next_begins() -> None:
    lost, done = slices(
        Accepted(10.0, "w1", "r", "decode", 1),
        Progress(10.5, "w1", "r", "decode", 1, 0, (1, 2), "ab"),
        Accepted(12.0, "w2", "r", "decode", 2),
        Finished(13.0, "w2", "r", "decode", 2, {}),
    )
    assert (lost["ts"], lost["dur"], lost["args"]["ended"], lost["args"]["tokens"]) == (0.0, 2e6, "lost", 2)
    assert (done["ts"], done["dur"], done["args"]["ended"]) == (2e6, 1e6, "Finished")
    assert lost["tid"] != done["tid"]


def test_what_an_attempt_said_last_counts() -> None:
    (failed,) = slices(
        Accepted(1.0, "w", "r", "tool", 1),
        Failed(1.5, "w", "r", "tool", 1, "timeout", "too long", True),
        Accepted(1.6, "w", "r", "tool", 2),
    )
    assert (failed["dur"], failed["args"]["cause"], failed["args"]["message"]) == (5e5, "timeout", "too long")


def test_a_short_attempt_is_shown_for_the_seconds_that_its_worker_measured() -> None:
    unheard, late = slices(
        Finished(2.0, "w", "r", "prefill", 1, {}, 0.25),
        Accepted(2.9, "w", "r", "decode", 1),
        Finished(3.0, "w", "r", "decode", 1, {}, 0.5),
    )
    assert (unheard["name"], unheard["ts"], unheard["dur"]) == ("prefill", 0.0, 0.25e6)
    assert (late["name"], late["ts"], late["dur"]) == ("decode", 0.75e6, 0.5e6)
