"""JSON Schema (2020-12) of every document, for editors and for checks in other languages.

The schema says which keys there are, which are required and what type each value has. What a
schema cannot say (units, cycles, ids given twice) is checked on loading alone.
"""

from __future__ import annotations

from typing import Any

from pydantic import TypeAdapter

from iegopt.spec.load import DOCUMENTS, SIBLINGS

__all__ = ["schema", "schemas"]

_DIALECT = "https://json-schema.org/draft/2020-12/schema"


def schemas() -> dict[str, dict[str, Any]]:
    """Top-level key of a document -> the schema of what stands under it."""
    return {
        key: {"$schema": _DIALECT, **TypeAdapter(spec).json_schema(by_alias=True, mode="validation")}
        for key, spec in DOCUMENTS.items()
    }


def schema() -> dict[str, Any]:
    """The schema of a whole file: one top-level key, and the blocks that may stand beside it."""
    inputs = [(key, "validation", TypeAdapter(spec)) for key, spec in DOCUMENTS.items()]
    bodies, shared = TypeAdapter.json_schemas(inputs, by_alias=True)  # type: ignore[arg-type]
    files = []
    for key in DOCUMENTS:
        keys = (key, *SIBLINGS.get(key, ()))
        properties = {name: bodies[name, "validation"] for name in keys}
        files.append({"type": "object", "properties": properties, "required": [key], "additionalProperties": False})
    return {"$schema": _DIALECT, "title": "iegopt document", "oneOf": files, **shared}
