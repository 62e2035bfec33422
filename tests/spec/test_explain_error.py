"""Which of several problems is told, and how."""

from __future__ import annotations

import pytest

from iegopt.errors import SpecError
from iegopt.spec.cluster import ClusterSpec
from iegopt.spec.explain_error import nearest, validate
from iegopt.spec.stage import StageSpec


def refusal(spec_type: type, data: object) -> SpecError:
    with pytest.raises(SpecError) as caught:
        validate(spec_type, data, "f", "top")
    return caught.value


def test_a_misspelled_key_is_told_before_the_key_that_it_leaves_missing() -> None:
    error = refusal(StageSpec, {"idd": "a", "type": "tool"})
    assert (error.where, error.problem) == ("top.idd", "unknown key. Maybe id? (and 1 more)")


def test_problems_come_in_the_order_of_the_spec() -> None:
    error = refusal(StageSpec, {"id": "a", "type": "tol", "latency_sla": 5})
    assert (error.where, error.problem) == ("top.type", "tol: no such choice. Maybe tool? (and 1 more)")


def test_of_a_union_only_the_branch_that_was_meant_is_told() -> None:
    device = {"id": "a", "model": "L4"}
    error = refusal(ClusterSpec, {"devices": [device], "links": {"rack": {"latency": "1us", "bandwidth": "1GB"}}})
    assert error.where == "top.links.rack.bandwidth"
    assert error.problem == "1GB: unknown unit GB for a bandwidth. Maybe 1GB/s?"


def test_a_value_that_fits_no_branch_is_told_once() -> None:
    error = refusal(ClusterSpec, {"devices": [{"id": "a", "model": "L4"}], "links": {"rack": [1]}})
    assert (error.where, error.problem) == ("top.links.rack", "a list: expected a mapping or text")


def test_python_code_may_pass_numbers_and_documents_may_not() -> None:
    assert StageSpec.model_validate({"id": "a", "type": "tool", "latency_sla": 0.2}).latency_sla == 0.2
    assert refusal(StageSpec, {"id": "a", "type": "tool", "latency_sla": 0.2}).problem == "0.2: no unit. Maybe 0.2ms?"


def test_a_value_of_any_size_is_shown_short() -> None:
    error = refusal(StageSpec, {"id": "a", "type": "\n" * 10**6})
    assert len(error.problem) < 250
    assert "\n" not in str(error)


@pytest.mark.parametrize(
    ("word", "choices", "guess"),
    [
        ("gpu", ["GPU", "CPU"], "GPU"),
        ("tensor", ["tensor_parallel", "data_parallel"], "tensor_parallel"),
        ("re-prefill", ["prefill", "re_prefill"], "re_prefill"),
        ("xyz", ["GPU", "CPU"], None),
        ("", ["GPU"], None),
        ("x" * 10**7, ["x"], None),
        (17, ["17"], None),
    ],
)
def test_nearest(word: object, choices: list[str], guess: str | None) -> None:
    assert nearest(word, choices) == guess
