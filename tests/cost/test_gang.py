from __future__ import annotations

import pytest

from iegopt.cost.demand import demand
from iegopt.cost.gang import gang_capacity, gang_demand, replica_demand
from iegopt.cost.roofline import Capacity, stage_time
from iegopt.spec.stage import Parallelism, ParallelStrategy, Precision

from .cards import A100, llm, stage

FP16 = Precision.FP16
TENSOR, PIPELINE, DATA = (
    Parallelism(strategy=s, degree=4)
    for s in (ParallelStrategy.TENSOR, ParallelStrategy.PIPELINE, ParallelStrategy.DATA)
)


def test_tensor_multiplies_rates_by_the_efficiency() -> None:
    assert gang_capacity(A100, TENSOR, 0.9) == Capacity(312e12 * 3.6, 2.039e12 * 3.6, 7e9 * 3.6, 320e9)


def test_one_device_is_itself() -> None:
    assert gang_capacity(A100, Parallelism(degree=1), 0.5) == A100


@pytest.mark.parametrize("parallelism", [PIPELINE, DATA])
def test_pipeline_and_data_keep_the_rates_of_one_device(parallelism: Parallelism) -> None:
    assert gang_capacity(A100, parallelism, 0.9) == Capacity(312e12, 2.039e12, 7e9, 320e9)


@pytest.mark.parametrize("strategy", [ParallelStrategy.TENSOR, ParallelStrategy.PIPELINE])
def test_efficiency_of_the_stage_wins(strategy: ParallelStrategy) -> None:
    own = Parallelism(strategy=strategy, degree=2, efficiency=0.5)
    assert gang_capacity(A100, own, 0.9).flops == (312e12 if strategy is ParallelStrategy.TENSOR else 156e12)


def test_data_parallelism_splits_the_batch_and_copies_the_weights() -> None:
    need = demand(stage("prefill", new=100, batch=8), llm(), FP16)
    one, whole = replica_demand(need, DATA), gang_demand(need, DATA)
    assert one.flops == need.flops / 4
    assert one.traffic_bytes == need.weight_traffic + need.kv_bytes / 4
    assert one.batch == 2
    assert whole.weight_bytes == 4 * need.weight_bytes
    assert whole.kv_bytes == need.kv_bytes


def test_the_busiest_replica_decides() -> None:
    need = demand(stage("decode", context=10, output=5, batch=5), llm(), FP16)
    one, whole = replica_demand(need, DATA), gang_demand(need, DATA)
    assert one.flops == pytest.approx(need.flops * 2 / 5)
    assert whole.kv_bytes == pytest.approx(need.kv_bytes * 8 / 5)
    assert one.decode is not None
    assert need.decode is not None
    assert one.decode.batch == 2
    assert one.decode.flops == pytest.approx(need.decode.flops * 2 / 5)
    assert one.decode.weight_traffic == need.decode.weight_traffic
    assert one.traffic_bytes == pytest.approx(one.decode.traffic)


@pytest.mark.parametrize("parallelism", [TENSOR, PIPELINE])
def test_other_strategies_leave_the_demand_alone(parallelism: Parallelism) -> None:
    need = demand(stage("prefill", new=100, batch=8), llm(), FP16)
    assert replica_demand(need, parallelism) is need
    assert gang_demand(need, parallelism) is need


def test_pipeline_does_not_shorten_one_request() -> None:
    need = demand(stage("prefill", new=1000), llm(), FP16)
    assert stage_time(need, gang_capacity(A100, PIPELINE, 0.9)).seconds == stage_time(need, A100).seconds
