"""The random cases themselves: the same for a seed, and with everything in them that the model speaks of."""

from __future__ import annotations

import numpy as np

from iegopt.batch.placement import Placement
from iegopt.batch.schedule import evaluate
from iegopt.spec.snapshot import InstanceState, Role

from .random_snapshots import random_case


def test_a_seed_gives_one_case() -> None:
    first, again, other = random_case(3), random_case(3), random_case(4)
    assert first.snapshot == again.snapshot
    assert first.policy == again.policy
    assert first.snapshot != other.snapshot


def test_nothing_placed_is_always_feasible() -> None:
    for seed in range(40):
        model = random_case(seed).model
        assert evaluate(model, Placement.empty(model)).feasible


def test_cases_have_all_that_the_model_speaks_of() -> None:
    cases = [random_case(seed) for seed in range(60)]
    instances = [i for c in cases for i in c.snapshot.instances]
    queue, running = [q for c in cases for q in c.snapshot.queue], [r for c in cases for r in c.snapshot.running]
    assert {i.state for i in instances} == set(InstanceState)
    assert {i.role for i in instances} == set(Role)
    assert {len(i.devices) for i in instances} == {1, 2, 4}
    assert {t.tier for i in instances for t in i.tiers} == {"host", "disk"}
    assert {q.level for q in queue} == {0, 1, 2}
    assert {q.utility_class for q in queue} == {"latency", "throughput"}
    assert any(q.planned for q in queue)
    assert any(q.held_on for q in queue)
    assert {r.stage for r in running} == {"prefill", "decode"}
    assert any(r.decode not in (None, r.instance) for r in running)
    assert any(c.model.requeued for c in cases)
    assert any(c.model.running.missed.any() for c in cases)
    assert any(np.isfinite(c.model.quota_memory).any() for c in cases)
    assert any(c.policy.fairness is not None for c in cases)
    refused = sum(int(c.model.alone.refused.sum()) for c in cases)
    assert 0.1 < refused / sum(c.model.N for c in cases) < 0.6
