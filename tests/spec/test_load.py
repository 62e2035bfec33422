"""Reading documents: YAML, JSON, wrappers, and blocks that stand beside them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from iegopt.errors import SpecError
from iegopt.spec.load import DOCUMENTS, dump, load_cluster, load_document, load_request, read_document
from iegopt.spec.request import RequestSpec
from iegopt.spec.yaml_reader import parse_yaml

REQUEST = "request: {model: Llama-2-7B, prompt_tokens: 512, output_tokens: 64}\n"


def write(path: Path, text: str | bytes) -> Path:
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return path


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("true", True), ("False", False), ("null", None), ("~", None), ("", None),
        ("12", 12), ("-3", -3), ("0", 0), ("1.50", 1.5), ("1.0e+3", 1000.0), (".inf", float("inf")),
        # Text, where YAML 1.1 sees a boolean, an octal, a base-60 number, a date, a long integer.
        ("on", "on"), ("yes", "yes"), ("No", "No"), ("010", "010"), ("0x1F", "0x1F"), ("1:30", "1:30"),
        ("2024-01-01", "2024-01-01"), ("1e3", "1e3"), ("1_000", "1_000"), ("=", "="), ("9" * 41, "9" * 41),
        ('"12"', "12"), ("'true'", "true"), ("!!str 12", "12"), ("! 12", "12"),
    ],
)  # fmt: skip
def test_scalars_are_read_narrowly(text: str, value: object) -> None:
    read = parse_yaml(f"a: {text}", "f")["a"]
    assert read == value
    assert type(read) is type(value)


@given(st.dictionaries(st.text(min_size=1), st.text() | st.integers(-(10**30), 10**30) | st.booleans() | st.floats()))
def test_what_a_dump_writes_reads_back_as_the_same_type(data: dict[str, Any]) -> None:
    class Document:
        def document(self) -> dict[str, Any]:
            return data

    read = parse_yaml(dump("key", Document()), "f")["key"]
    assert repr(read) == repr(data)


def test_aliases_and_merge_keys_are_read() -> None:
    text = "base: &b {x: 1, y: 2}\none: *b\ntwo: {<<: *b, y: 3}\nthree: {<<: [{x: 5}, *b]}"
    assert parse_yaml(text, "f") == {
        "base": {"x": 1, "y": 2}, "one": {"x": 1, "y": 2}, "two": {"x": 1, "y": 3}, "three": {"x": 5, "y": 2}
    }  # fmt: skip


def test_keys_are_text_whatever_they_look_like() -> None:
    assert parse_yaml("4090: 1\ntrue: 2\n'<<': 3", "f") == {"4090": 1, "true": 2, "<<": 3}


@pytest.mark.parametrize("name", ["r.json", "r.JSON", "r.txt", "r", "r.yaml"])
def test_json_is_read_under_any_name(name: str, tmp_path: Path) -> None:
    data = {"request": {"model": "m", "prompt": 'caf\u00e9 \\ "', "output_tokens": 1}}
    assert read_document(write(tmp_path / name, json.dumps(data, ensure_ascii=False))) == data


def test_json_escapes_outside_the_basic_plane_are_read(tmp_path: Path) -> None:
    assert read_document(write(tmp_path / "r.json", '{"a": "\\ud83d\\ude00"}')) == {"a": "\U0001f600"}


def test_a_byte_order_mark_is_left_out(tmp_path: Path) -> None:
    assert load_request(write(tmp_path / "r.yaml", b"\xef\xbb\xbf" + REQUEST.encode())).output_tokens == 64


def test_a_float_of_three_hundred_digits_is_not_spelt_out(tmp_path: Path) -> None:
    text = REQUEST.replace("output_tokens: 64", "output_tokens: 1.0e+308")
    with pytest.raises(SpecError, match=r"output_tokens: 1e\+308: expected a whole number$"):
        load_request(write(tmp_path / "r.yaml", text))


def test_windows_line_ends_are_read(tmp_path: Path) -> None:
    text = "request:\r\n  model: m\r\n  prompt_tokens: 1\r\n  output_tokens: 1\r\n"
    assert load_request(write(tmp_path / "r.yaml", text)).model == "m"


def test_blocks_beside_a_request_are_part_of_it(tmp_path: Path) -> None:
    text = REQUEST + "dag_constraints: {max_depth: 3}\nkv_transfer_config: {compression: int8}\nfallback_policy: {}\n"
    request = load_request(write(tmp_path / "r.yaml", text))
    assert request.dag_constraints.max_depth == 3
    assert request.kv_transfer_config is not None
    assert request.kv_transfer_config.compression == "int8"
    assert request.fallback_policy is not None


def test_blocks_beside_a_cluster_are_part_of_it_and_round_trip(tmp_path: Path) -> None:
    text = """
kv_transfer_config: {chunk_size: 64MB}
execution_path_registry:
  - {model: m, variants: [{precision: fp16, backend: CUDA, compatible_devices: [L4]}]}
cluster:
  devices: [{id: a, model: L4, queue: {depth: 2}}, {id: b, model: L4, count: 4, price: 0.80$/h}]
  links: {host: {latency: 5us, bandwidth: 32GB/s}, rack: rdma-100g}
  gangs: [{devices: [b-0, b-3]}]
"""
    cluster = load_cluster(write(tmp_path / "c.yaml", text))
    assert cluster.kv_transfer_config is not None
    assert cluster.kv_transfer_config.chunk_size == 64 * 10**6
    assert cluster.execution_path_registry is not None
    assert cluster.execution_path_registry[0].model == "m"
    assert load_cluster(write(tmp_path / "again.yaml", dump("cluster", cluster))) == cluster


def test_the_key_comes_with_the_spec(tmp_path: Path) -> None:
    key, spec = load_document(write(tmp_path / "r.yaml", REQUEST), "request", "graph")
    assert key == "request"
    assert isinstance(spec, RequestSpec)


def test_any_document_will_do_where_none_is_named(tmp_path: Path) -> None:
    assert load_document(write(tmp_path / "r.yaml", "fallback_policy: {}"))[0] == "fallback_policy"


def test_two_documents_in_one_file_are_refused(tmp_path: Path) -> None:
    path = write(tmp_path / "r.yaml", "node: {id: a, type: tool}\ndevice: {id: a, model: b}\n")
    with pytest.raises(SpecError, match=r"device: not part of a node file. Expected node alone"):
        load_document(path)


def test_an_alias_of_an_edge_field_is_named_as_in_the_file(tmp_path: Path) -> None:
    text = "graph: {stages: [{id: a, type: tool}], edges: [{from: a b, to: a}]}"
    with pytest.raises(SpecError) as refusal:
        load_document(write(tmp_path / "g.yaml", text))
    assert refusal.value.where == "graph.edges.0.from"


def test_every_document_has_a_spec() -> None:
    assert set(DOCUMENTS) >= {"node", "device", "cluster", "request", "graph", "model", "device_card", "link", "path"}
