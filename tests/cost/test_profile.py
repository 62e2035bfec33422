from __future__ import annotations

import math
from typing import Any

import pytest
from pydantic import ValidationError

from iegopt import library
from iegopt.cost.demand import demand
from iegopt.cost.profile import Measured, Profiles, interpolate
from iegopt.spec.profile import Profile
from iegopt.spec.stage import Precision, StageKind, TokenWork

from .cards import llm, stage

FP16 = Precision.FP16
TABLE = [(1, 100, 1.0), (1, 400, 2.0), (4, 100, 4.0), (4, 400, 8.0)]


def _profile(name: str = "p", **measurement: Any) -> Profile:
    points = [{"batch": b, "tokens": n, "seconds": s} for b, n, s in TABLE]
    default = {"kind": "prefill", "degrees": [1], "points": points}
    return Profile.model_validate(
        {
            "name": name, "model": "Llama-2-70B", "precision": "fp16", "device": "A100-80GB", "peak_flops": 100.0,
            "peak_bandwidth": 10.0, "measurements": [measurement or default], "sources": {"all": "test"},
        }
    )  # fmt: skip


def _measured(profile: Profile) -> Measured:
    return Measured(profile, profile.measurements[0])


def _prefill(batch: int, new: int, context: int = 0, own: float = 0.0) -> float:
    tokens = TokenWork(new=new, batch=batch, context=context)
    work = demand(stage("prefill", new=new, batch=batch), llm(), FP16)
    return _measured(_profile()).seconds(tokens, work, 1, lambda b, n: b * n / 1000, own)


@pytest.mark.parametrize(("batch", "tokens", "seconds"), TABLE)
def test_measured_points_come_back(batch: int, tokens: int, seconds: float) -> None:
    assert _prefill(batch, tokens) == pytest.approx(seconds)


def test_inside_the_range_the_logarithms_are_interpolated() -> None:
    assert _prefill(1, 200) == pytest.approx(math.sqrt(2))
    assert _prefill(2, 100) == pytest.approx(2.0)
    assert _prefill(2, 200) == pytest.approx(2 * math.sqrt(2))


def test_outside_the_range_the_roofline_is_scaled_at_the_nearest_point() -> None:
    assert _prefill(1, 800) == pytest.approx(0.8 * 2.0 / 0.4)
    assert _prefill(8, 50) == pytest.approx(0.4 * 4.0 / 0.4)
    assert _prefill(2, 1600) == pytest.approx(3.2 * 4.0 / 0.8)


def test_context_scales_a_prefill_table_by_its_roofline() -> None:
    assert _prefill(1, 100, context=50, own=0.3) == pytest.approx(1.0 * 0.3 / 0.1)


def test_decode_table_is_of_one_step_at_the_mean_kv_length() -> None:
    points = [{"batch": 1, "tokens": n, "seconds": n / 1000} for n in (100, 1000)]
    measured = _measured(_profile(kind="decode", degrees=[1], points=points))
    work = demand(stage("decode", context=500, output=11), llm(), FP16)
    seconds = measured.seconds(TokenWork(context=500, output=11), work, 1, lambda b, n: 1.0, 0.0)
    assert seconds == pytest.approx(11 * 0.505)


def test_one_batch_and_one_length_is_a_grid_too() -> None:
    assert interpolate({(2.0, 3.0): 5.0}, [2.0], [3.0], 2.0, 3.0) == pytest.approx(5.0)


def test_prefill_coefficients() -> None:
    fit = {"fixed": 1.0, "compute": 2.0, "per_token": 0.01, "excess_from": 100, "excess_token": 0.1}
    measured = _measured(_profile(kind="prefill", degrees=[2, 4], prefill=fit))
    work = demand(stage("prefill", new=60, batch=2), llm(), FP16)
    seconds = measured.seconds(TokenWork(new=60, batch=2), work, 4, lambda b, n: 1.0, 0.0)
    assert seconds == pytest.approx(1.0 + 2.0 * work.flops / 400 + 1.2 + 2.0)


def test_decode_coefficients_sum_over_the_growing_cache() -> None:
    fit = {"fixed": 1.0, "sync": 0.5, "weights": 2.0, "kv": 3.0, "per_sequence": 0.25}
    measured = _measured(_profile(kind="decode", degrees=[4], decode=fit))
    work = demand(stage("decode", context=7, output=5, batch=2), llm(), FP16)
    seconds = measured.seconds(TokenWork(context=7, output=5, batch=2), work, 4, lambda b, n: 1.0, 0.0)
    token = llm().kv_bytes_per_token()
    loop = sum(1.0 + 0.5 * 2 + 0.25 * 2 + (2 * 140e9 + 3 * 2 * (7 + i) * token) / 40 for i in range(5))
    assert seconds == pytest.approx(loop)


def test_lookup_needs_the_whole_key() -> None:
    profiles = Profiles([_profile()])
    key = (StageKind.PREFILL, "Llama-2-70B", FP16, "A100-80GB", 1)
    assert profiles.lookup(*key) is not None
    other = (StageKind.DECODE, "Llama-2-7B", Precision.INT8, "H100", 2)
    for i in range(5):
        changed = (*key[:i], other[i], *key[i + 1 :])
        assert profiles.lookup(*changed) is None  # type: ignore[arg-type]


def test_the_16_bit_precisions_share_their_measurements() -> None:
    found = Profiles([_profile()]).lookup(StageKind.PREFILL, "Llama-2-70B", Precision.BF16, "A100-80GB", 1)
    assert found is not None
    assert found.profile.precision is FP16


def test_prefill_measurements_serve_re_prefills() -> None:
    found = Profiles([_profile()]).lookup(StageKind.RE_PREFILL, "Llama-2-70B", FP16, "A100-80GB", 1)
    assert found is not None
    assert found.measurement.kind is StageKind.PREFILL


def test_two_profiles_of_one_key_are_refused() -> None:
    with pytest.raises(ValueError, match="profiles a and b both measure prefill"):
        Profiles([_profile("a"), _profile("b")])


POINT = {"batch": 1, "tokens": 1, "seconds": 1.0}


@pytest.mark.parametrize(
    ("measurement", "message"),
    [
        ({"kind": "prefill", "degrees": [1]}, "exactly one of points, prefill and decode"),
        ({"kind": "tool", "degrees": [1], "points": [POINT]}, "kind tool"),
        ({"kind": "decode", "degrees": [1], "prefill": {"fixed": 0, "compute": 1}}, "goes with decode"),
        ({"kind": "prefill", "degrees": [1], "decode": {"fixed": 0, "weights": 1}}, "goes with prefill"),
        ({"kind": "prefill", "degrees": [1, 2], "points": [POINT]}, "measured at one degree"),
        ({"kind": "prefill", "degrees": [1], "points": [POINT, POINT]}, "stands twice"),
        (
            {"kind": "prefill", "degrees": [1], "points": [POINT, {"batch": 2, "tokens": 2, "seconds": 1.0}]},
            "leave out batch 1, tokens 2",
        ),
    ],
)
def test_malformed_measurements_are_refused(measurement: dict[str, Any], message: str) -> None:
    with pytest.raises(ValidationError, match=message):
        _profile(**measurement)


def test_library_profiles_state_source_and_held_out_errors() -> None:
    profiles = library.profiles()
    assert {p.device for p in profiles} == {"A100-80GB", "H100"}
    for profile in profiles:
        assert "commit 8f99e7dc" in profile.sources["measurements"]
        assert library.llm(profile.model).name == profile.model
        assert library.device(profile.device).name == profile.device
        for measurement in profile.measurements:
            assert measurement.held_out is not None
            assert measurement.held_out.median < 0.10
    Profiles(profiles)
