"""The JSON schemas say what the specs say."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from iegopt.spec.load import DOCUMENTS, SIBLINGS, read_document
from iegopt.spec.schema import schema, schemas

BLOCKS = sorted((Path(__file__).resolve().parent / "blocks").iterdir())


def mismatches(value: Any, rule: dict[str, Any], root: dict[str, Any]) -> list[str]:
    """The checks of JSON Schema that the specs make use of, in a few lines."""
    if "$ref" in rule:
        return mismatches(value, root["$defs"][rule["$ref"].rsplit("/", 1)[1]], root)
    if "anyOf" in rule:
        branches = [mismatches(value, branch, root) for branch in rule["anyOf"]]
        return [] if [] in branches else branches[0]
    if "enum" in rule and value not in rule["enum"]:
        return [f"{value!r} is none of {rule['enum']}"]
    kinds = {"object": dict, "array": list, "string": str, "integer": int, "number": (int, float), "boolean": bool}
    kind = rule.get("type")
    if kind == "null":
        return [] if value is None else [f"{value!r} is not null"]
    if kind is not None and not isinstance(value, kinds[kind]):
        return [f"{value!r} is no {kind}"]
    found = []
    if isinstance(value, dict):
        found += [f"{key} missing" for key in rule.get("required", []) if key not in value]
        for key, inner in value.items():
            if key in rule.get("properties", {}):
                found += mismatches(inner, rule["properties"][key], root)
            elif isinstance(rule.get("additionalProperties"), dict):
                found += mismatches(inner, rule["additionalProperties"], root)
            elif rule.get("additionalProperties") is False:
                found.append(f"{key} unknown")
    if isinstance(value, list) and "items" in rule:
        found += [problem for entry in value for problem in mismatches(entry, rule["items"], root)]
    return found


@pytest.mark.parametrize("path", BLOCKS, ids=lambda path: path.stem)
def test_a_block_of_the_source_fits_the_schema(path: Path) -> None:
    data = read_document(path)
    whole = schema()
    fitting = [file for file in whole["oneOf"] if not mismatches(data, file, whole)]
    assert [file["required"] for file in fitting] == [[path.stem]]
    own = schemas()[path.stem]
    assert mismatches(data[path.stem], own, own) == []


def test_the_schema_refuses_what_the_spec_refuses() -> None:
    own = schemas()["node"]
    assert mismatches({"id": "a"}, own, own) == ["type missing"]
    assert mismatches({"id": "a", "type": "tool", "latency_slo": "1s"}, own, own) == ["latency_slo unknown"]
    assert mismatches({"id": "a", "type": "tol"}, own, own) != []


def test_every_mapping_of_a_spec_is_closed() -> None:
    for definition in schema()["$defs"].values():
        if "properties" in definition:
            assert definition["additionalProperties"] is False, definition["title"]


def test_required_keys_are_the_file_s_own_words() -> None:
    definitions = schema()["$defs"]
    assert definitions["StageSpec"]["required"] == ["id", "type"]
    assert definitions["EdgeSpec"]["required"] == ["from", "to"]
    assert "lambda" in definitions["Weights"]["properties"]
    assert set(definitions["DeviceSpec"]["required"]) == {"id", "model"}


def test_a_file_has_one_key_and_the_blocks_beside_it() -> None:
    whole = schema()
    assert whole["$schema"] == "https://json-schema.org/draft/2020-12/schema"
    assert [file["required"] for file in whole["oneOf"]] == [[key] for key in DOCUMENTS]
    for file in whole["oneOf"]:
        (key,) = file["required"]
        assert file["additionalProperties"] is False
        assert list(file["properties"]) == [key, *SIBLINGS.get(key, ())]


def test_schemas_are_plain_json_and_name_every_reference() -> None:
    for key, body in {**schemas(), "file": schema()}.items():
        text = json.dumps(body)
        names = {part.split('"')[0] for part in text.split("#/$defs/")[1:]}
        assert names <= set(body.get("$defs", {})), key
