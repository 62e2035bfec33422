"""Any sequence of submissions, faults, late, doubled and senseless messages: what must hold, holds."""

from __future__ import annotations

from functools import cache
from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from iegopt.control.documents import document, read
from iegopt.control.messages import (
    Accepted,
    Acknowledged,
    Cancelled,
    Draining,
    Failed,
    Finished,
    Planned,
    Preempted,
    Progress,
    Resumed,
    Waiting,
)

from .world import World, replay

OF_WORKERS = (Accepted, Waiting, Resumed, Progress, Finished, Failed, Preempted)
NAMES = st.sampled_from(["a-0", "a-1", "a-2", "b-0", "b-1", "c-0", "c-2", "d-1"])
WORKERS = st.sampled_from(
    ["gpu-a.lm", "gpu-b.lm", "gpu-c.lm", "host.cpu", "host.tool", "host.retrieval", "host2.cpu", "host2.tool"]
)
SECONDS = st.floats(0.01, 1.0)


@cache
def expected(name: str) -> list[int]:
    """What a request answers when nothing disturbs it."""
    world = World(0)
    world.submit(name, 1)
    world.run_until(lambda: name in world.answers, 60.0)
    tokens: list[int] = world.answers[name]["tokens"]
    return tokens


class Faults(RuleBasedStateMachine):
    """``World.give`` checks every invariant of ``invariants.Watch`` after every event."""

    @initialize(seed=st.integers(0, 1000), failing=st.sampled_from([0.0, 0.0, 0.05]))
    def begin(self, seed: int, failing: float) -> None:
        self.world = World(seed)
        self.world.failing = failing
        self.submitted: set[str] = set()
        self.drained: set[str] = set()

    @rule(steps=st.integers(1, 60))
    def go_on(self, steps: int) -> None:
        for _ in range(steps):
            self.world.step()

    @rule(name=NAMES, priority=st.integers(0, 2))
    def submit(self, name: str, priority: int) -> None:
        if name not in self.world.answers:
            self.submitted.add(name)
            self.world.submit(name, priority)

    @rule(name=NAMES)
    def cancel(self, name: str) -> None:
        self.world.give(Cancelled(self.world.now, name, "not wanted"))

    @rule(worker=WORKERS, back=SECONDS)
    def kill(self, worker: str, back: float) -> None:
        self.world.kill(self.world.workers[worker], back)

    @rule(worker=WORKERS, back=SECONDS)
    def disconnect(self, worker: str, back: float) -> None:
        self.world.disconnect(self.world.workers[worker], back)

    @rule(worker=WORKERS, seconds=SECONDS)
    def freeze(self, worker: str, seconds: float) -> None:
        self.world.freeze(self.world.workers[worker], seconds)

    @rule(away=SECONDS)
    def restart_the_controller(self, away: float) -> None:
        self.world.restart_controller(away)

    @rule()
    def save(self) -> None:
        self.world.save()

    @precondition(lambda self: len(self.drained) < 2)
    @rule(worker=st.sampled_from(["gpu-b.lm", "host2.cpu"]))
    def drain(self, worker: str) -> None:
        self.drained.add(worker)
        self.world.give(Draining(self.world.now, worker))

    @rule(place=st.floats(0, 1))
    def say_again(self, place: float) -> None:
        """A message of a worker arrives late and for the second time."""
        said = [event for event in self.world.journal if isinstance(event, OF_WORKERS)]
        if said:
            event = said[int(place * (len(said) - 1))]
            self.world.give(read(document(event) | {"at": self.world.now}))  # type: ignore[arg-type]

    @rule(place=st.floats(0, 1))
    def plan_again(self, place: float) -> None:
        """A plan arrives late and for the second time."""
        said = [event for event in self.world.journal if isinstance(event, Planned)]
        if said:
            self.world.give(read(document(said[int(place * (len(said) - 1))])))  # type: ignore[arg-type]

    @rule(place=st.floats(0, 1), result=st.sampled_from([{}, {"tokens": ["x"], "text": 7}, {"kv": None}]))
    def talk_nonsense(self, place: float, result: dict[str, Any]) -> None:
        """A worker hands over a result that is none."""
        live = [(r, s) for r in self.world.controller.core.runs.values() for s in r.live()]
        if live and self.world.up:
            run, stage = live[int(place * (len(live) - 1))]
            assert stage.worker is not None
            self.world.give(
                Finished(self.world.now, stage.worker, run.id, stage.id, stage.attempt, result, place * 9.0)
            )

    @rule()
    def acknowledge(self) -> None:
        for name in sorted(self.world.answers):
            if self.world.answers[name]["status"] != "complete":
                continue
            self.world.give(Acknowledged(self.world.now, name))

    @invariant()
    def tokens_are_a_beginning_of_what_is_expected(self) -> None:
        if not hasattr(self, "world"):
            return
        for name, stages in self.world.streams.items():
            order = sorted(stages, key=lambda stage: (len(stage), stage))
            streamed = [token for stage in order for token in stages[stage]]
            assert streamed == expected(name)[: len(streamed)]

    def teardown(self) -> None:
        if not hasattr(self, "world"):
            return
        world = self.world
        world.heal()
        world.run_until(lambda: world.up and self.submitted <= set(world.answers), world.now + 120.0)
        assert self.submitted <= set(world.answers), f"lost: {self.submitted - set(world.answers)}"
        for name, answer in world.answers.items():
            assert answer["status"] in ("complete", "cancelled"), (name, answer["status"], answer["reason"])
            if answer["status"] == "complete":
                assert answer["tokens"] == expected(name)
        assert replay(world.policy, world.journal).core == world.controller.core


TestFaults = Faults.TestCase
TestFaults.settings = settings(max_examples=30, stateful_step_count=40, deadline=None)
