"""The base of every spec: frozen, closed to unknown keys, no NaN, no infinity."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, StringConstraints

__all__ = ["Identifier", "Name", "Spec"]

Identifier = Annotated[
    str, StringConstraints(min_length=1, max_length=200, pattern=r"^[A-Za-z0-9_][A-Za-z0-9_.:/@+\-]*$")
]
"""What a stage, a device or a site is called: letters, digits and ``_ . : / @ + -``."""

Name = Annotated[str, StringConstraints(min_length=1, max_length=200)]


class Spec(BaseModel):
    """A validated, immutable document or part of one.

    ``model_dump(mode="json", by_alias=True, exclude_unset=True)`` gives back what a person
    would write, with quantities rendered in human units; loading that gives an equal spec.
    """

    model_config = ConfigDict(
        frozen=True, extra="forbid", allow_inf_nan=False, populate_by_name=True, ser_json_inf_nan="constants"
    )

    def document(self) -> dict[str, Any]:
        """The spec as plain data in the words of its file, only what was set."""
        return self.model_dump(mode="json", by_alias=True, exclude_unset=True)
