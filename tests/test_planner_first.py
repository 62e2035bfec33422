"""First plans: costs by rows, best fit, what they say in the user's words, and where a planner takes them."""

from __future__ import annotations

import copy
import dataclasses
import pickle
import random
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from iegopt.cost.model import CostModel
from iegopt.cost.roofline import Capacity
from iegopt.cost.rows import BOTTLENECKS, KindRates
from iegopt.devices import DeviceClass
from iegopt.errors import InternalError
from iegopt.explain.chosen import chosen
from iegopt.planner import Planner
from iegopt.planner.answer import beside_first
from iegopt.planner.first import FirstPlans
from iegopt.planner.first_told import parts_of
from iegopt.planner.promising import Promising
from iegopt.plans import CostSplit, Plan, StagePlan, TransferPlan, made
from iegopt.problem.decode import decode
from iegopt.solvers.clock import Clock
from iegopt.solvers.evaluate import feasible, objective
from iegopt.solvers.exact import compiled
from iegopt.solvers.result import Result, Status
from iegopt.solvers.search.best_fit import Board, best_fit, neighbours, offers
from iegopt.spec.cluster import ClusterSpec
from iegopt.spec.figures import plain_figures
from iegopt.spec.load import load_cluster, load_request
from iegopt.spec.request import RequestSpec
from iegopt.spec.stage import Parallelism, Precision, StageSpec
from tests.test_planner_deadlines import cluster, request

INSTANCES = Path(__file__).parent.parent / "instances"
CLUSTERS, REQUESTS = INSTANCES / "clusters", INSTANCES / "requests"
PAIR: dict[str, Any] = {"devices": [{"id": name, "model": "H100"} for name in "ab"]}
KV: dict[str, Any] = {"chunk_size": "64MB", "pipeline_depth": 2, "overlap_compute": True, "compression": "none"}


@pytest.fixture(scope="module")
def planner() -> Planner:
    return Planner(cluster())


def first(planner: Planner, asked: RequestSpec) -> Plan:
    plan = FirstPlans().plan(planner._cluster, planner.graph(asked), asked, Clock(10.0))
    assert plan is not None
    return plan


def chain(rng: random.Random, count: int, **more: Any) -> RequestSpec:
    stages: list[dict[str, Any]] = [
        {"id": f"s{i}", "type": rng.choice(["prefill", "decode"]),
         "compute": {"flops": f"{rng.randrange(20, 90)}T"} | ({"precision": "fp16"} if rng.random() < 0.5 else {}),
         "memory": {"vram": f"{rng.randrange(1, 20)}GB", "traffic": "60GB"},
         "parallelism": {"degree": rng.choice([1, 1, 2])}, "latency_sla": "30s"}
        for i in range(count)
    ]  # fmt: skip
    edges = [
        {"from": f"s{max(0, i - rng.choice([1, 2]))}", "to": f"s{i}", "bytes": "900MB", "kv": rng.random() < 0.5}
        for i in range(1, count)
    ]
    document = {"graph": {"stages": stages, "edges": edges}, **more}
    return RequestSpec.model_validate(document, context={"document": True})


@pytest.mark.parametrize("seed", range(12))
def test_a_first_plan_is_a_plan_of_the_compiled_problem_at_the_same_price(planner: Planner, seed: int) -> None:
    rng = random.Random(seed)
    for d in rng.sample(range(100), 20):
        planner.update(f"H100-{d}", utilisation=rng.random(), used=rng.randrange(60) * 10**9)
    asked = chain(rng, 8, **({"kv_transfer_config": KV} if seed % 2 else {}))
    plan = first(planner, asked)
    assert planner.verify(plan, asked).ok
    whole, choice = chosen(planner._cluster, planner.graph(asked), asked, plan)
    assert feasible(whole.problem, choice)
    value = objective(whole.problem, choice)
    assert plan.objective == pytest.approx(value / 1e9, rel=1e-9)
    decoded = decode(
        whole, choice, status=plan.status, objective=value, bound=None, gap=None, proof=None,
        solver=plan.solver, seconds=plan.seconds, note=plan.note,
    )  # fmt: skip
    for own, other in zip((*plan.stages, *plan.transfers), (*decoded.stages, *decoded.transfers), strict=True):
        for name, said in dataclasses.asdict(other).items():  # type: ignore[call-overload]
            found = dataclasses.asdict(own)[name]  # type: ignore[call-overload]
            assert found == (pytest.approx(said, rel=1e-6, abs=2e-9) if isinstance(said, float | dict) else said), name


@pytest.fixture
def core(monkeypatch: pytest.MonkeyPatch) -> None:
    """The compiled kernels, for one test."""
    pytest.importorskip("numba", reason="the extra 'fast' is not installed")
    before = compiled._ready
    compiled.warmup()
    module = compiled._ready
    monkeypatch.setattr(compiled, "_ready", before)
    monkeypatch.setattr(compiled, "_ready", module)


@pytest.mark.parametrize("seed", range(12))
def test_kernels_make_the_same_first_plan(
    planner: Planner, core: None, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    rng = random.Random(seed)
    for d in range(100):  # no two alike: among equal ones either may be chosen
        planner.update(f"H100-{d}", utilisation=rng.random(), used=rng.randrange(75) * 10**9)
    asked = chain(rng, 30, dag_constraints={"max_depth": 30})
    quick = first(planner, asked)
    monkeypatch.setattr(compiled, "_ready", None)
    plain = first(planner, asked)
    assert [stage.site for stage in quick.stages] == [stage.site for stage in plain.stages]
    for own, other in zip((*quick.stages, *quick.transfers), (*plain.stages, *plain.transfers), strict=True):
        for name, said in dataclasses.asdict(other).items():  # type: ignore[call-overload]
            found = dataclasses.asdict(own)[name]  # type: ignore[call-overload]
            assert found == (pytest.approx(said, rel=1e-12) if isinstance(said, float | dict) else said), name
    assert planner.verify(quick, asked).ok


def test_kernels_place_the_largest_first_where_the_graphs_order_leaves_no_room(
    core: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    planner, ready = Planner(ClusterSpec.model_validate(PAIR, context={"document": True})), compiled._ready
    for vram, sites in (((18, 44, 58, 33), ["a", "b", "a", "b"]), ((50, 50, 70), None)):
        stages = [
            {
                "id": f"s{i}",
                "type": "decode",
                "compute": {"flops": "1T"},
                "memory": {"vram": f"{each}GB", "traffic": "1GB"},
            }
            for i, each in enumerate(vram)
        ]
        asked = RequestSpec.model_validate({"graph": {"stages": stages}}, context={"document": True})
        for module in (ready, None):
            monkeypatch.setattr(compiled, "_ready", module)
            plan = FirstPlans().plan(planner._cluster, planner.graph(asked), asked, Clock(10.0))
            assert (None if plan is None else [stage.site for stage in plan.stages]) == sites


def test_a_first_plan_is_written_out_when_it_is_read(planner: Planner) -> None:
    asked = request()
    plan = first(planner, asked)
    assert not {"stages", "transfers"} & vars(plan).keys()
    twin, read = copy.copy(plan), dataclasses.replace(plan)
    assert parts_of(plan) is None
    assert plan.stages is plan.stages
    assert pickle.loads(pickle.dumps(first(planner, asked))).stages == plan.stages
    assert twin.document() == read.document() == plan.document()
    assert twin == read == plan
    assert len(plan.transfers) == 5
    with pytest.raises(AttributeError, match="Plan has no stages"):
        made(Plan, {}).stages  # noqa: B018


def test_the_terms_of_a_first_plan_are_the_sums_over_its_parts(planner: Planner) -> None:
    plan = first(planner, request())
    for name in ("L", "T", "M", "dollars"):
        assert getattr(plan.cost, name) == pytest.approx(sum(getattr(stage.cost, name) for stage in plan.stages))
    assert pytest.approx(sum(transfer.exposed for transfer in plan.transfers)) == plan.cost.D
    assert plan.makespan == max(stage.finish for stage in plan.stages)


def test_made_things_have_all_fields(planner: Planner) -> None:
    asked = chain(random.Random(1), 4)
    for plan in (first(planner, asked), planner.plan(asked)):
        assert isinstance(plan, Plan)
        stage, transfer = plan.stages[0], plan.transfers[0]
        for kind, thing in ((StagePlan, stage), (TransferPlan, transfer), (CostSplit, stage.cost)):
            assert vars(thing).keys() == {field.name for field in dataclasses.fields(kind)}


@pytest.mark.parametrize("name", ["agent", "chat", "rag", "kv-streaming", "research-agent"])
def test_requests_to_models_have_first_plans_too(name: str) -> None:
    on, asked = Planner(load_cluster(CLUSTERS / "mixed-racks.yaml")), load_request(REQUESTS / f"{name}.yaml")
    plan = FirstPlans().plan(on._cluster, on.graph(asked), asked, Clock(10.0))
    assert plan is not None
    report = on.verify(plan, asked)
    assert {each.rule for each in report.violations} <= {"deadline", "finish_by", "budget"}


@pytest.mark.parametrize("seed", range(20))
def test_rows_are_the_cost_models(seed: int) -> None:
    rng = random.Random(seed)
    kinds = [(device.kind, size, fabric) for device in Planner(cluster(8))._cluster.devices[::8]
             for size, fabric in ((1, True), (2, True), (2, False))]  # fmt: skip
    stages = []
    for i in range(4):
        document: dict[str, Any] = {"id": f"s{i}", "type": rng.choice(["prefill", "decode", "embedding", "tool"])}
        document["compute"] = {"flops": "40T"} if rng.random() < 0.6 else {}
        if rng.random() < 0.5:
            document["compute"]["precision"] = rng.choice([str(p) for p in Precision])
        document["memory"] = {k: "7GB" for k in ("vram", "traffic", "kv_cache_size") if rng.random() < 0.6}
        if rng.random() < 0.4:
            document |= {"io": {"bytes": "2GB"}, "fixed_time": "10ms"}
        if rng.random() < 0.5:
            document["parallelism"] = {"degree": 2, "efficiency": "90%"} if rng.random() < 0.5 else {"degree": 2}
        stages.append(StageSpec.model_validate(document, context={"document": True}))
    rates = KindRates(kinds, (0.9, 0.7))
    for _ in range(2):  # anew, and from what is kept
        rows = rates.rows(plain_figures(stages))
        for v, stage in enumerate(stages):
            for k, kind in enumerate(kinds):
                check_row(stage, kind, rows.seconds[v, k], rows.terms[v, :, k], rows.held[v])


def check_row(stage: StageSpec, kind: tuple[DeviceClass, int, bool], seconds: float, terms: Any, held: float) -> None:
    device, size, fabric = kind
    choices = [stage.compute.precision] if stage.compute.precision else [Precision.FP32, Precision.TF32, Precision.BF16]
    precision = next((p for p in choices if device.compute.rate(p) is not None), None)
    degree = stage.parallelism.degree if stage.parallelism else 1
    if precision is None or degree != size or stage.type == "tool":  # tools run on CPUs alone
        assert seconds == np.inf
        return
    rate = device.compute.rate(precision)
    assert rate is not None
    cost = CostModel().stage_cost(
        stage, None, precision, device.model, Capacity(rate, device.bandwidth, device.io, device.vram),
        stage.parallelism or Parallelism.model_validate({"strategy": "none"}),
        efficiency=device.efficiency_for(stage), parallel_efficiency=0.9 if fabric else 0.7,
    )  # fmt: skip
    assert seconds == pytest.approx(cost.t0, rel=1e-12)
    assert BOTTLENECKS[int(terms.argmax())] == cost.bottleneck
    assert held == np.ceil(cost.memory_bytes + cost.kv_bytes)


def test_best_fit_goes_by_price_room_and_neighbours() -> None:
    apart = [[0.0, 1.0, 1.0], [1.0, 0.0, 1.0], [1.0, 1.0, 0.0]]
    zero, one = [[0.0] * 3] * 3, [1.0] * 3
    board = Board(zero, apart, [[0], [1], [2]], [0, 1, 2], [[0], [1], [2]], one, one)
    edges = neighbours(2, [(0, 1)], [5.0], 1.0)
    t0, each = np.array([[1.0, 3.0, np.inf], [9.0, 7.0, 2.0]]), np.ones((2, 3))
    offered = offers(board, t0, each)
    slas = [np.inf, np.inf]
    for free, order, expected in (
        ([2.0, 2.0, 2.0], (0, 1), [0, 2]),  # 2 + 5 of transfer ties with 7 + 5 nowhere: 7 in all beats 9
        ([2.0, 2.0, 0.0], (0, 1), [0, 0]),
        ([0.0, 2.0, 0.0], (1, 0), [1, 1]),
    ):
        assert best_fit(board, offered, slas, edges, [*free], order, Clock(1.0)) == expected
    assert best_fit(board, offered, slas, edges, [0.0, 1.0, 0.0], (0, 1), Clock(1.0)) is None
    assert best_fit(board, offered, slas, edges, [2.0, 2.0, 2.0], (0, 1), Clock(0.0)) is None
    assert best_fit(board, offered, [np.inf, 6.0], edges, [1.0, 1.0, 0.0], (0, 1), Clock(1.0)) is None


@pytest.mark.parametrize("seed", range(60))
def test_best_fit_leaves_no_cheaper_site_out(seed: int) -> None:
    rng = np.random.default_rng(seed)
    V, m, kinds = int(rng.integers(1, 12)), int(rng.integers(1, 9)), 3
    kind, factor, load = rng.integers(0, kinds, m), rng.random(m) + 0.1, 1.0 + rng.random(m)
    factor[rng.random(m) < 0.1] = np.inf
    devices = [rng.choice(6, int(rng.integers(1, 3)), replace=False).tolist() for _ in range(m)]
    latency, rate = rng.random((2, m, m)) * (1.0 - np.eye(m))
    ranked = [sorted(np.flatnonzero(kind == k).tolist(), key=lambda p: float(factor[p])) for k in range(kinds)]
    board = Board(latency.tolist(), rate.tolist(), devices, kind.tolist(), ranked, factor.tolist(), load.tolist())
    ends = [(u, v) for v in range(V) for u in range(v) if rng.random() < 0.3]
    sizes, slas = rng.random(len(ends)).tolist(), (rng.random(V) * 2.0).tolist()
    t0_of, each_of = np.where(rng.random((V, kinds)) < 0.8, rng.random((V, kinds)), np.inf), rng.random((V, kinds))
    free, order = (rng.random(6) * 3).tolist(), rng.permutation(V).tolist()
    left, place = [*free], [-1] * V
    for v in order:
        costs = {}
        for p in range(m):
            t0, each = t0_of[v, kind[p]], each_of[v, kind[p]]
            moved = sum(
                0.7 * (latency[place[w], p] + size * rate[place[w], p])
                for ab, size in zip(ends, sizes, strict=True)
                for u, w in (ab, ab[::-1])
                if u == v and place[w] >= 0
            )
            if t0 * factor[p] < np.inf and t0 * load[p] <= slas[v] and all(left[d] >= each for d in devices[p]):
                costs[p] = t0 * factor[p] + moved
        if not costs:
            place = []
            break
        place[v] = min(costs, key=costs.__getitem__)
        for d in devices[place[v]]:
            left[d] -= each_of[v, kind[place[v]]]
    offered = offers(board, t0_of, each_of)
    found = best_fit(board, offered, slas, neighbours(V, ends, sizes, 0.7), free, order, Clock(10.0))
    assert found == (place or None)
    if place:
        assert free == left


def test_where_the_time_is_short_the_first_plan_is_the_answer(
    planner: Planner, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("iegopt.planner.in_time.whole_seconds", lambda graph, topology: 1e9)
    monkeypatch.setattr("iegopt.planner.in_time._PART_LEAST", 1e9)
    asked = request()
    plan = planner.plan(asked, deadline_ms=250)
    assert isinstance(plan, Plan)
    assert (plan.status, plan.bound, plan.tier) == ("feasible", None, None)
    assert plan.note.startswith("best fit over")
    assert not plan.explanation
    assert planner.explained(plan, asked).explanation["summary"]


def test_where_compiling_takes_longer_than_it_should_the_first_plan_is_the_answer(
    planner: Planner, monkeypatch: pytest.MonkeyPatch
) -> None:
    def slow(*_: object, until: float, **__: object) -> None:
        time.sleep(max(0.0, until - time.perf_counter()))

    monkeypatch.setattr("iegopt.planner.in_time.whole_seconds", lambda graph, topology: 0.02)
    monkeypatch.setattr("iegopt.planner.in_time.compile_graph", slow)
    plan = planner.plan(request(), deadline_ms=200)
    assert isinstance(plan, Plan)
    assert plan.note.startswith("best fit over")


def test_a_first_plan_that_breaks_a_limit_of_the_request_is_none(
    planner: Planner, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("iegopt.planner.in_time.whole_seconds", lambda graph, topology: 1e9)
    asked = request(6)
    tight = asked.model_copy(update={"sla": asked.sla.model_copy(update={"e2e": 1e-6})})
    assert planner._first(asked, planner.graph(asked), "auto", Clock(10.0)) is not None
    assert planner._first(tight, planner.graph(tight), "auto", Clock(10.0)) is None


def test_a_first_plan_that_is_wrong_is_a_bug(planner: Planner, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("iegopt.planner.in_time.whole_seconds", lambda graph, topology: 1e9)
    asked = request()
    wrong = dataclasses.replace(first(planner, asked), objective=1.0)
    monkeypatch.setattr(FirstPlans, "plan", lambda *_: wrong)
    with pytest.raises(InternalError, match="objective"):
        planner.plan(asked, deadline_ms=100)


def test_no_first_plan_is_tried_where_best_fit_does_not_suffice(planner: Planner) -> None:
    bound = request(affinity={"device": "H100-1"})
    assert FirstPlans().plan(planner._cluster, planner.graph(bound), bound, Clock(10.0)) is None
    huge = request(6, memory={"vram": "4TB"})
    assert FirstPlans().plan(planner._cluster, planner.graph(huge), huge, Clock(10.0)) is None


def test_a_first_plan_keeps_the_bound_of_a_solver_that_found_a_worse_one(planner: Planner) -> None:
    plan = first(planner, request())
    worse = round(plan.objective * 2e9)
    result = Result(Status.FEASIBLE, np.zeros(6, dtype=np.int64), worse, worse // 4, "relaxation", "auto", 0.1, "cut")
    told = beside_first(plan, result)
    assert (told.bound, told.proof, told.status) == (worse // 4 / 1e9, "relaxation", "feasible")
    assert told.gap == pytest.approx(0.5, rel=1e-6)
    assert beside_first(plan, dataclasses.replace(result, bound=None, proof=None)) is plan
    proven = beside_first(plan, dataclasses.replace(result, bound=worse - 1))
    assert (proven.status, proven.bound) == ("optimal", plan.objective)


def test_promising_sites_are_laid_out_when_they_are_chosen_and_not_again() -> None:
    planner = Planner(cluster())
    plans = planner._in_time._first
    before = dict(plans._sites)
    assert set(before) == set(planner._cluster.focus_tables)
    for i in range(80):
        planner.update(f"H100-{i}", utilisation=0.5)
    after = dict(plans._sites)
    assert set(after) == set(planner._cluster.focus_tables)
    assert not set(after) & set(before)
    FirstPlans.plan(plans, planner._cluster, planner.graph(request()), request(), Clock(10.0))
    assert plans._sites == after
    assert planner._on(planner._cluster)._in_time._first._sites == {}


def test_no_sites_are_laid_out_within_a_deadline(monkeypatch: pytest.MonkeyPatch) -> None:
    planner, asked = Planner(cluster()), request()
    tables = planner._cluster.focus_tables
    planner.plan(asked)  # builds the sites of this request's gang sizes
    assert set(planner._cluster.focus_tables) - set(tables)
    monkeypatch.setattr(Promising, "of", lambda *_: pytest.fail("laid out"))
    assert first_of(planner, asked) is not None
    monkeypatch.undo()
    planner.update("H100-0", utilisation=0.5)
    assert set(planner._in_time._first._sites) == set(planner._cluster.focus_tables)


def first_of(planner: Planner, asked: RequestSpec) -> Plan | None:
    return planner._in_time._first.plan(planner._cluster, planner.graph(asked), asked, Clock(10.0))
