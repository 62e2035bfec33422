"""Break a correct plan, or what it was made for, by one unit: the verifier names that and nothing else."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from iegopt.batch.answer import LevelBound, to_plan
from iegopt.batch.build import build_model
from iegopt.batch.confirm import confirm, verified
from iegopt.batch.placement import MIGRATE, PREEMPT, Placement
from iegopt.batch.schedule import evaluate
from iegopt.batch_plans import BatchPlan
from iegopt.errors import InternalError
from iegopt.spec.batch_policy import BatchPolicy
from iegopt.spec.snapshot import SnapshotSpec

from .small import cluster, decodes, instance, prefill_seconds, prefills, queued

CLUSTER = cluster()
POLICY: dict[str, Any] = {
    "paces": [0.02, 0.05, 0.1], "tenants": {"t": {"quota": {"requests": 3, "memory": "50%", "time": "50%"}}},
    "fairness": 0.2,
}  # fmt: skip


def snapshot() -> dict[str, Any]:
    """Two instances on one host and one in another: a, b and c on i0 (b reuses what a leaves), d from i0 to i1, e
    fetches from i2, f waits, g is refused; p prefills on i1, s is put aside on i0, m moves from i2 to i1."""
    instances = [instance(0, prefix=[1]), instance(1, prefix=[50]), instance(4, id="i2", prefix=[7, 8, 9])]
    queue = [
        queued("a", 2000, 40, prefix=[1, 2, 3, 4], sla={"ttft": 5.0}, tenant="t", priority=0),
        queued("b", 2200, 60, prefix=[1, 2, 3, 5], sla={"ttft": 6.0, "e2e": 20.0}, priority=1),
        queued("c", 1000, 50, sla={"itl": 0.06}, utility={"weight": 3.0, "class": "throughput"}, priority=1),
        queued("d", 3000, 50, tenant="t", priority=1, sla={"e2e": 9.0}),
        queued("e", 1800, 50, prefix=[7, 8, 9, 10], priority=1),
        queued("f", 500, 50, tenant="u", priority=2),
        queued("g", 500, 50, sla={"ttft": 0.51}, priority=2),
    ]
    running = [
        prefills("p", "i1", arrival=9.5, sla={"ttft": 4.0, "e2e": 9.0, "itl": 0.05}, priority=1),
        decodes("s", "i0", 2000, 100, priority=2, preempted=1, arrival=9.0, sla={"e2e": 40.0}),
        decodes("m", "i2", 500, 50, priority=1, sla={"itl": 0.08}),
        decodes("k", "i2", 500, 50, priority=1, sla={"itl": 0.08}),
    ]
    return {"name": "mutants", "time": 10.0, "instances": instances, "queue": queue, "running": running}


PLACES = {"a": (0, 0, -1), "b": (0, 0, -1), "c": (0, 0, -1), "d": (0, 1, -1), "e": (1, 1, 2)}


def made(document: dict[str, Any], policy: dict[str, Any]) -> BatchPlan:
    """The plan of ``PLACES``, whatever it breaks."""
    model = build_model(CLUSTER, SnapshotSpec.model_validate(document), BatchPolicy.model_validate(policy))
    plan = Placement.empty(model)
    for name, place in PLACES.items():
        i = model.queue.ids.index(name)
        plan.prefill[i], plan.decode[i], plan.fetch[i] = place
    plan.pace[:] = [1, 1, 1]
    for name, action, to in (("s", PREEMPT, -1), ("m", MIGRATE, 1)):
        r = model.running.ids.index(name)
        plan.action[r], plan.to[r] = action, to
    bounds = {level: LevelBound(20.0, "a test") for level in (0, 1, 2)}
    return to_plan(
        model, plan, replace(evaluate(model, plan), violations=()), solver="test", seconds=0.0, bounds=bounds
    )


def found(plan: BatchPlan, document: dict[str, Any] | None = None, policy: dict[str, Any] | None = None) -> set[Any]:
    """(rule, where) of all that the verifier finds."""
    spec = SnapshotSpec.model_validate(document or snapshot())
    report = verified(plan, spec, BatchPolicy.model_validate(policy or POLICY), CLUSTER)
    return {(violation.rule, violation.where) for violation in report.violations}


GOOD = made(snapshot(), POLICY)


def test_the_plan_is_correct_and_has_something_of_everything() -> None:
    assert found(GOOD) == set()
    by = {decision.id: decision for decision in GOOD.queue}
    assert [by[name].reused_from for name in "abcde"] == ["i0", "plan", None, None, "i2"]
    assert by["e"].fetched > 0
    assert by["d"].transferred > 0
    assert (by["f"].status, by["g"].status) == ("held", "refused")
    assert {decision.action for decision in GOOD.running} == {"keep", "preempt", "migrate"}


def queue_with(name: str, **changes: Any) -> BatchPlan:
    return replace(GOOD, queue=tuple(replace(d, **changes) if d.id == name else d for d in GOOD.queue))


def running_with(name: str, **changes: Any) -> BatchPlan:
    return replace(GOOD, running=tuple(replace(d, **changes) if d.id == name else d for d in GOOD.running))


def of(name: str, field: str) -> Any:
    return getattr(next(d for d in (*GOOD.queue, *GOOD.running) if d.id == name), field)


TIMES = [
    ("a", "work"), ("b", "start"), ("c", "first_token"), ("d", "transfer"), ("d", "finish"), ("c", "pace"),
    ("c", "utility"),
]  # fmt: skip


@pytest.mark.parametrize(("name", "field"), TIMES)
def test_a_time_that_is_misstated_by_a_microsecond(name: str, field: str) -> None:
    for sign in (1, -1):
        plan = queue_with(name, **{field: of(name, field) + sign * 1e-6})
        assert found(plan) == {("claim", f"{field.replace('_', ' ')} of {name}")}


@pytest.mark.parametrize(("name", "field"), [("b", "reused"), ("e", "fetched"), ("d", "transferred"), ("a", "memory")])
def test_a_count_that_is_misstated_by_one(name: str, field: str) -> None:
    for sign in (1, -1):
        plan = queue_with(name, **{field: of(name, field) + sign})
        assert found(plan) == {("claim", f"{field} of {name}")}


@pytest.mark.parametrize(
    ("name", "field", "value"), [("b", "reused_from", "i0"), ("a", "reused_from", "plan"), ("d", "path", "same")]
)
def test_a_word_that_is_wrong(name: str, field: str, value: str) -> None:
    assert found(queue_with(name, **{field: value})) == {("claim", f"{field.replace('_', ' ')} of {name}")}


def test_a_fetch_that_the_plan_hides() -> None:
    assert ("claim", "reused of e") in found(queue_with("e", reused_from=None))


@pytest.mark.parametrize(
    ("name", "field", "change", "where"),
    [
        ("s", "seconds", 1e-6, "seconds of s"), ("s", "loss", 1e-6, "loss of s"), ("m", "bytes", 1, "bytes of m"),
        ("m", "seconds", -1e-6, "seconds of m"), ("k", "loss", 1e-6, "loss of k"),
    ],
)  # fmt: skip
def test_a_cost_that_is_misstated(name: str, field: str, change: float, where: str) -> None:
    assert found(running_with(name, **{field: of(name, field) + change})) == {("claim", where)}


def test_the_words_of_a_running_stage() -> None:
    other = {"swap": "recompute", "recompute": "swap"}[of("s", "how")]
    assert found(running_with("s", how=other)) == {("claim", "how of s")}
    assert ("claim", "misses of s") in found(running_with("s", misses=True))
    assert found(running_with("k", instance="i0")) == {("claim", "instance of k")}
    assert found(running_with("k", action="requeue")) == {("stage", "k")}
    assert found(running_with("k", to="i1")) == {("migration", "k")}
    assert found(running_with("s", by="d")) == set()
    assert found(running_with("s", by="f")) == {("preemption", "s")}
    assert found(running_with("s", by="e")) == {("preemption", "s")}


def test_requests_stages_and_instances_stand_in_the_plan_once() -> None:
    assert found(replace(GOOD, queue=GOOD.queue[1:])) == {("request", "a")}
    assert found(replace(GOOD, queue=(*GOOD.queue, GOOD.queue[0]))) == {("request", "a")}
    assert found(queue_with("a", id="z")) == {("request", "a"), ("request", "z")}
    assert found(replace(GOOD, running=GOOD.running[:-1])) == {("stage", "k")}
    assert found(replace(GOOD, instances=GOOD.instances[:-1])) == {("instance", "i2")}
    assert found(queue_with("a", tenant="u")) == {("claim", "tenant of a")}
    assert found(queue_with("a", finish=None)) == {("request", "a")}
    assert found(queue_with("f", reason=None)) == {("request", "f")}
    assert found(queue_with("f", utility=1.0)) == {("request", "f")}
    assert found(queue_with("a", decode="i9")) == {("place", "a")}
    assert found(replace(GOOD, time=11.0)) == {("claim", "snapshot")}


def test_refusals_and_reasons() -> None:
    assert found(queue_with("f", status="refused")) - {("claim", "waiting of tenant u at 2")} == {("refusal", "f")}
    reason = of("g", "reason")
    assert found(queue_with("g", reason=replace(reason, need=reason.have))) == {("reason", "g")}


@pytest.mark.parametrize(
    ("field", "change", "words"),
    [
        ("decode_share", 1e-6, "decode share"), ("other_share", 1e-6, "other share"), ("memory", 1, "memory"),
        ("prefill_seconds", -1e-6, "prefill seconds"), ("free", -1, "free memory"), ("sequences", 1, "sequences"),
    ],
)  # fmt: skip
def test_an_instance_that_is_misstated(field: str, change: float, words: str) -> None:
    uses = tuple(replace(u, **{field: getattr(u, field) + change}) if u.id == "i0" else u for u in GOOD.instances)
    expected = {("claim", f"{words} of i0")}
    assert found(replace(GOOD, instances=uses)) == expected


def test_a_pace_that_the_policy_does_not_list() -> None:
    uses = tuple(replace(u, pace=0.051) if u.id == "i2" else u for u in GOOD.instances)
    assert ("pace", "i2") in found(replace(GOOD, instances=uses))
    uses = tuple(replace(u, pace=None) if u.id == "i2" else u for u in GOOD.instances)
    assert ("pace", "i2") in found(replace(GOOD, instances=uses))


@pytest.mark.parametrize("field", ["utility", "loss", "objective", "gap"])
def test_a_level_that_is_misstated(field: str) -> None:
    levels = tuple(
        replace(x, **{field: getattr(x, field) + 1e-6}) if x.priority == 1 else x for x in GOOD.levels
    )  # fmt: skip
    assert found(replace(GOOD, levels=levels)) == {("claim", f"{field} of level 1")}


def test_a_bound_below_the_objective_and_a_proof_there_is_none_of() -> None:
    low = tuple(replace(x, bound=x.objective - 1e-6) if x.priority == 1 else x for x in GOOD.levels)
    assert found(replace(GOOD, levels=low)) == {("bound", "level 1")}
    assert found(replace(GOOD, status="optimal")) == {("claim", "status")}
    assert found(replace(GOOD, levels=GOOD.levels[:-1])) == {("claim", "level 2")}
    assert found(replace(GOOD, levels=GOOD.levels[::-1])) == {("claim", "levels")}


def test_tenants_that_are_misstated() -> None:
    first = GOOD.tenants[0]
    where = f"tenant {first.id} at {first.priority}"
    for field, change in (
        ("requests", 1),
        ("waiting", 1),
        ("memory_share", 1e-6),
        ("time_share", 1e-6),
        ("dominant_share", 1e-6),
        ("utility", 1e-6),
    ):
        changed = replace(first, **{field: getattr(first, field) + change})
        words = f"{field.replace('_', ' ')} of {where}"
        assert found(replace(GOOD, tenants=(changed, *GOOD.tenants[1:]))) == {("claim", words)}
    assert found(replace(GOOD, tenants=GOOD.tenants[1:])) == {("claim", where)}


SHARE = sum(u.decode_share for u in GOOD.instances if u.id == "i1")
END_OF_P = prefill_seconds(700, 300) / (1.0 - SHARE)
"""p is the first on i1, and keeps the pace of 50 ms there."""


def edit(document: dict[str, Any], part: str, name: str, change: Callable[[dict[str, Any]], Any]) -> dict[str, Any]:
    change(next(entry for entry in document[part] if entry["id"] == name))
    return document


LIMITS: list[tuple[str, str, str, Callable[[], float], str]] = [
    ("queue", "a", "ttft", lambda: of("a", "first_token"), "ttft"),
    ("queue", "a", "e2e", lambda: of("a", "finish"), "e2e"),
    ("running", "p", "ttft", lambda: 0.5 + END_OF_P, "ttft"),
    ("running", "p", "e2e", lambda: 0.5 + END_OF_P + 11 * 0.05, "e2e"),
    ("queue", "c", "itl", lambda: of("c", "pace"), "itl"),
    ("running", "k", "itl", lambda: 0.05, "itl"),
    ("running", "m", "itl", lambda: 0.05, "itl"),
]


@pytest.mark.parametrize(("part", "name", "limit", "least", "rule"), LIMITS)
def test_a_limit_is_kept_to_the_microsecond(
    part: str, name: str, limit: str, least: Callable[[], float], rule: str
) -> None:
    """With the limit where the plan just keeps it nothing is found; a microsecond less, and that is."""
    for change, expected in ((1e-7, set()), (-1e-6, {(rule, name)})):
        document = edit(
            snapshot(), part, name, lambda e, c=change: _sla(e).update({limit: least() + c})
        )  # fmt: skip
        plan = made(document, POLICY)
        assert found(plan, document) == expected


def _sla(entry: dict[str, Any]) -> dict[str, Any]:
    within: dict[str, Any] = entry.get("request", entry)
    return within.setdefault("sla", {})  # type: ignore[no-any-return]


def test_memory_and_batch_are_kept_to_the_unit() -> None:
    use = next(u for u in GOOD.instances if u.id == "i0")
    total = 80 * 10**9 - 5 * 4096 * 8192 * 2
    for spare, expected in ((0, set()), (-1, {("memory", "i0")})):
        document = edit(snapshot(), "instances", "i0", lambda e, s=spare: e.update(used=total - use.memory - s))
        assert found(made(document, POLICY), document) - {("quota", "t")} == expected
    for most, rules in ((use.sequences, set()), (use.sequences - 1, {("batch", "i0")})):
        document = edit(snapshot(), "instances", "i0", lambda e, m=most: e.update(max_batch=m))
        assert found(made(document, POLICY), document) == rules


@pytest.mark.parametrize(("quota", "amount"), [("requests", 2.0), ("memory", None), ("time", None)])
def test_quotas_are_kept_to_the_unit(quota: str, amount: float | None) -> None:
    spec = SnapshotSpec.model_validate(snapshot())
    model = build_model(CLUSTER, spec, BatchPolicy.model_validate(POLICY))
    share = {"requests": 2.0}
    t = model.tenants.index("t")
    plan = Placement.empty(model)
    for name, place in PLACES.items():
        i = model.queue.ids.index(name)
        plan.prefill[i], plan.decode[i], plan.fetch[i] = place
    plan.pace[:] = [1, 1, 1]
    shares = evaluate(model, plan).tenants
    share["memory"] = float(shares.memory[:, t].sum()) / float(model.instances.free.sum())
    share["time"] = float(shares.time[:, t].sum()) / model.J
    for more, expected in ((1, set()), (-1, {("quota", "t")})):
        limit: float = int(share[quota] + (more < 0) * more) if amount else share[quota] * (1 + more * 1e-6)
        policy = {**POLICY, "tenants": {"t": {"quota": {quota: limit}}}}
        assert found(made(snapshot(), policy), None, policy) == expected


def test_fairness_is_kept_to_the_unit() -> None:
    """e's tenant has the most at priority 1; another of it waits from now on."""
    document = snapshot()
    document["queue"].append(queued("w", 500, 50, tenant="w", priority=1))
    share = max(u.dominant_share for u in made(document, POLICY).tenants if u.priority == 1)
    assert 0.0 < share < 0.2
    most = next(u.id for u in GOOD.tenants if u.dominant_share == share)
    for change, expected in ((1e-6, set()), (-1e-6, {("fairness", f"{most} at 1")})):
        policy = {**POLICY, "fairness": share + change}
        assert found(made(document, policy), document, policy) == expected


@pytest.mark.parametrize(
    ("config", "expected"),
    [
        ({"max_preempt_per_request": 2}, set()), ({"max_preempt_per_request": 1}, {("preemption", "s")}),
        ({"enabled": False}, {("preemption", "s")}), ({"min_priority_gap": 2}, set()),
    ],
)  # fmt: skip
def test_preemption_keeps_to_its_configuration(config: dict[str, Any], expected: set[Any]) -> None:
    policy = {**POLICY, "preemption_config": config}
    assert found(made(snapshot(), policy), None, policy) == expected


def test_places_and_moves_that_may_not_be() -> None:
    for changes, expected in (
        ({"i1": {"role": "prefill"}}, {("place", "d"), ("place", "e"), ("migration", "m")}),
        ({"i0": {"role": "decode"}}, {("place", name) for name in "abcd"}),
        ({"i1": {"state": "draining"}}, {("place", "d"), ("place", "e"), ("migration", "m")}),
        ({"i1": {"observed": -30.0}}, {("place", "d"), ("place", "e"), ("migration", "m")}),
    ):
        document = snapshot()
        for name, change in changes.items():
            for key, value in change.items():
                document["instances"][int(name[1])][key] = max(0.0, 10.0 + value) if key == "observed" else value
        policy = {**POLICY, "lost_after": 5.0}
        wanted = {rule for rule in found(made(document, policy), document, policy) if rule[0] != "claim"}
        assert wanted == expected, changes
    policy = {**POLICY, "migration": False}
    assert found(made(snapshot(), policy), None, policy) == {("migration", "m")}


def test_time_that_an_instance_does_not_have() -> None:
    document = edit(snapshot(), "instances", "i2", lambda e: e.update(utilization=0.99))
    assert ("time", "i2") in found(GOOD, document)


def test_a_refused_plan_is_an_internal_error() -> None:
    spec, policy = SnapshotSpec.model_validate(snapshot()), BatchPolicy.model_validate(POLICY)
    assert confirm(GOOD, spec, policy, CLUSTER) is GOOD
    with pytest.raises(InternalError, match="the verifier refuses the plan of test: 1 violations, first claim of work"):
        confirm(queue_with("a", work=0.0), spec, policy, CLUSTER)
