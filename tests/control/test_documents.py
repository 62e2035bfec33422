"""Every message survives its document, and a malformed one is refused with path, value and expectation."""

from __future__ import annotations

import json
from dataclasses import fields
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from iegopt.control.documents import document, read
from iegopt.control.messages import (
    CAUSES,
    COMMANDS,
    EVENTS,
    HOW,
    ROLES,
    AttemptKey,
    Heartbeat,
    Message,
    Progress,
    Registered,
    Ticked,
)
from iegopt.errors import SpecError

NATURAL = st.integers(0, 2**63 - 1)
PLAIN = st.recursive(
    st.none() | st.booleans() | NATURAL | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=6,
)
MAPPING = st.dictionaries(st.text(max_size=5), PLAIN, max_size=3)
KEY = st.builds(AttemptKey, st.text(max_size=5), st.text(max_size=5), NATURAL)
BY_ANNOTATION: dict[str, Any] = {
    "str": st.text(max_size=5),
    "int": NATURAL,
    "float": st.floats(allow_nan=False, allow_infinity=False),
    "bool": st.booleans(),
    "int | None": st.none() | NATURAL,
    "float | None": st.none() | st.floats(0, allow_infinity=False),
    "dict[str, Any]": MAPPING,
    "dict[str, float]": st.dictionaries(st.text(max_size=5), st.floats(0, allow_infinity=False), max_size=3),
    "dict[str, Any] | None": st.none() | MAPPING,
    "tuple[str, ...]": st.lists(st.text(max_size=5), max_size=3).map(tuple),
    "tuple[int, ...]": st.lists(NATURAL, max_size=3).map(tuple),
    "tuple[AttemptKey, ...]": st.lists(KEY, max_size=2).map(tuple),
    "tuple[dict[str, Any], ...]": st.lists(MAPPING, max_size=2).map(tuple),
}
CHOICES = {"cause": CAUSES, "how": HOW, "role": ROLES}


def messages() -> st.SearchStrategy[Message]:
    def of(message: type[Any]) -> st.SearchStrategy[Message]:
        parts = {
            field.name: st.sampled_from(CHOICES[field.name])
            if field.name in CHOICES
            else st.integers(1, 2**63 - 1)
            if field.name == "slots"
            else BY_ANNOTATION[str(field.type)]
            for field in fields(message)
        }
        return st.builds(message, **parts)

    return st.sampled_from((*EVENTS, *COMMANDS)).flatmap(of)


@given(messages())
def test_a_message_survives_its_document_and_json(message: Message) -> None:
    assert read(json.loads(json.dumps(document(message)))) == message


def beat(**changes: Any) -> dict[str, Any]:
    message = Heartbeat(1.5, "w", "e", (AttemptKey("r", "decode", 2),), 10, ("tiny/fp32",), 0.5)
    return document(message) | changes


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (3, "journal 7: 3: expected a mapping with type"),
        ({"type": "Heartbeet"}, "journal 7: type: Heartbeet: no such message. Maybe Heartbeat?"),
        ({"type": ["Heartbeat"]}, "journal 7: type: a list: no such message. Expected the name of an event"),
        (beat(load="high"), "journal 7: load: high: expected a finite number"),
        (beat(load=float("nan")), "journal 7: load: nan: expected a finite number"),
        (beat(load=True), "journal 7: load: true: expected a finite number"),
        (beat(kv_free=-1), "journal 7: kv_free: -1: expected at least 0"),
        (beat(kv_free=1.5), "journal 7: kv_free: 1.5: expected a whole number"),
        (beat(kv_free=2**63), "journal 7: kv_free: a number of more than 64 bits: expected less"),
        (beat(worker=None), "journal 7: worker: nothing: expected text"),
        (beat(running="all"), "journal 7: running: all: expected a list"),
        (beat(running=[["r", "decode"]]), "journal 7: running.0: a list: expected [request, stage, attempt]"),
        (beat(running=[["r", "decode", "2"]]), "journal 7: running.0.2: 2: expected a whole number"),
        (beat(variants=["a", 4]), "journal 7: variants.1: 4: expected text"),
        (beat(extra=1), "journal 7: extra: unknown key. Known in Heartbeat: at, worker, epoch"),
        ({"type": "Ticked"}, "journal 7: at: missing, and required"),
        ({"type": "Stop", "worker": "w", "request_id": "r", "stage": "s", "attempt": 1, "how": "kill"},
         "journal 7: how: kill: expected one of cancel, preempt, migrate"),
        ({"type": "Answer", "request_id": "r", "answer": {"a": [1, {"b": b"x"}]}},
         "journal 7: answer.a.1.b: a bytes: expected text, a number, true, false, null, a list or a mapping"),
        ({"type": "Answer", "request_id": "r", "answer": {"a": [float("inf")]}}, "journal 7: answer.a.0: inf: exp"),
        ({"type": "Answer", "request_id": "r", "answer": {1: 2}}, "journal 7: answer.1: 1: expected text"),
        ({"type": "Answer", "request_id": "r", "answer": []}, "journal 7: answer: a list: expected a mapping"),
    ],
)  # fmt: skip
def test_a_malformed_document_is_refused(data: object, said: str) -> None:
    with pytest.raises(SpecError) as refused:
        read(data, "journal 7")
    assert str(refused.value).startswith(said)


def test_an_id_has_an_end() -> None:
    cancelled = {"type": "Cancelled", "at": 0.0, "request_id": "r" * 1000, "reason": ""}
    assert read(cancelled).request_id == "r" * 1000  # type: ignore[union-attr]
    with pytest.raises(SpecError, match="client: request_id: 1001 characters: expected at most 1000"):
        read(cancelled | {"request_id": "r" * 1001}, "client")


def test_a_document_without_end_is_refused() -> None:
    deep: Any = {}
    for _ in range(100):
        deep = {"a": deep}
    with pytest.raises(SpecError, match=r"^message: answer\.a\.a\.a\.…: nested deeper than 64 levels$"):
        read({"type": "Answer", "request_id": "r", "answer": deep})


def test_a_worker_without_slots_is_refused() -> None:
    worker = Registered(1.0, "w", "gpu-a", "lm", {}, "e", {}, 1, (), 0, (), ())
    with pytest.raises(SpecError, match="slots: 0: expected at least 1"):
        read(document(worker) | {"slots": 0})


def test_whole_seconds_are_read_as_a_time() -> None:
    message = read({"type": "Ticked", "at": 3})
    assert message == Ticked(3.0)
    assert isinstance(message, Ticked)
    assert type(message.at) is float


def test_what_may_be_left_out_is_told() -> None:
    assert read({"type": "Submitted", "at": 0, "request_id": "r", "request": {}, "inputs": {}}) is not None
    assert document(Progress(1.0, "w", "r", "s", 1, 0, (5, 6), "ab"))["tokens"] == [5, 6]
