"""Many requests to their end in a world with faults by seed: none lost, none answered twice, tokens as undisturbed."""

from __future__ import annotations

from functools import cache

import pytest

from iegopt.control.recovery import WITHIN

from .world import World, replay

NAMES = ("a-0", "b-0", "a-1", "b-1", "a-2", "b-2", "c-0", "c-1")


def a_run(seed: int, faults: int, failing: float) -> World:
    world = World(seed)
    world.failing = failing
    for i, name in enumerate(NAMES):
        world.after(world.random.uniform(0, 0.3), lambda name=name, i=i: world.submit(name, i % 3))  # type: ignore[misc]
    for _ in range(faults):
        world.after(world.random.uniform(0.02, 2.0), world.disturb)
    world.run_until(lambda: len(world.answers) == len(NAMES) and world.up and world.now > 3.0, 110.0)
    return world


@cache
def undisturbed() -> dict[str, list[int]]:
    return {name: answer["tokens"] for name, answer in a_run(0, 0, 0.0).answers.items()}


def test_the_undisturbed_run_does_what_it_should() -> None:
    world = a_run(0, 0, 0.0)
    assert set(world.answers) == set(NAMES)
    for name, answer in world.answers.items():
        assert answer["status"] == "complete", answer["reason"]
        assert answer["usage"]["rounds"] == int(name[-1])
        assert answer["recoveries"] == []
        assert {stage["attempts"] for stage in answer["stages"].values()} <= {1, 2}
        assert len(answer["tokens"]) == 4 * int(name[-1]) + 12


@pytest.mark.parametrize("seed", range(40))
def test_with_faults_all_are_answered_with_the_same_tokens(seed: int) -> None:
    world = a_run(seed, faults=seed % 8 + 1, failing=0.02 if seed % 2 else 0.0)
    assert set(world.answers) == set(NAMES), f"lost: {set(NAMES) - set(world.answers)}"
    for name, answer in world.answers.items():
        assert (answer["status"], answer["reason"]) == ("complete", "")
        assert answer["tokens"] == undisturbed()[name]
        streamed = world.streams[name]
        assert [token for stage in answer["stages"] for token in streamed.get(stage, ())] == answer["tokens"]
    assert replay(world.policy, world.journal).core == world.controller.core
    world.acknowledge_all()
    assert world.controller.core.runs == {}


def test_faults_are_recovered_at_all_levels() -> None:
    seen, left = set[str](), iter(range(40))
    while len(seen) < len(WITHIN):
        answers = a_run(next(left), 8, 0.02).answers.values()
        seen |= {recovery["level"] for answer in answers for recovery in answer["recoveries"]}
    assert seen == {"L0", "L1", "L2", "L3", "L4"}
