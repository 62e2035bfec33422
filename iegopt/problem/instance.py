"""Instance files, ``iegopt-instance/1``: the solver-neutral form of a compiled problem.

::

    file ──read_instance──▶ Instance ──to_problem──▶ Problem
    file ◀─write_instance── Instance ◀─from_problem── Problem
"""

from __future__ import annotations

import gzip
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from iegopt.errors import InputError
from iegopt.files import write_whole
from iegopt.problem import instance_document, instance_problem
from iegopt.problem.arrays import Problem
from iegopt.problem.instance_check import FORMAT, check_instance
from iegopt.problem.json_reader import load_json

__all__ = ["FORMAT", "Instance", "from_problem", "parse_instance", "read_instance", "to_problem", "write_instance"]


@dataclass(frozen=True)
class Instance:
    """A checked document, and the file it came from."""

    document: dict[str, Any]
    file: str


def read_instance(path: str | Path) -> Instance:
    """Read and check ``.json`` or ``.json.gz``.

    Raises
    ------
    SpecError
        One line: the file, the path inside it, what stood there, what was expected.
    """
    return parse_instance(load_json(Path(path)), str(path))


def parse_instance(document: object, file: str = "instance") -> Instance:
    """Check a document that is in memory already; raises as ``read_instance``."""
    return Instance(check_instance(document, file), file)


def to_problem(instance: Instance | dict[str, Any]) -> Problem:
    """Compile what ``read_instance`` read, or a document that is in memory, which is checked first.

    Raises
    ------
    SpecError
        The document is wrong, or a sum would leave int64.
    InputError
        What is given is neither.
    """
    if isinstance(instance, dict):
        instance = parse_instance(instance)
    if not isinstance(instance, Instance):
        name = type(instance).__name__
        raise InputError(f"to_problem: expected an instance, not {name}: to_problem(read_instance(path)) reads a file")
    return instance_problem.to_problem(instance.document, instance.file)


def from_problem(problem: Problem) -> Instance:
    """The document of a problem; ``to_problem`` of it has the same objective and the same feasible choices."""
    return Instance(instance_document.to_document(problem), problem.name or "problem")


def write_instance(problem: Problem, path: str | Path) -> Instance:
    """Write a problem to ``.json``, or compressed to ``.json.gz``."""
    instance = from_problem(problem)
    raw = json.dumps(instance.document, allow_nan=False, separators=(",", ":")).encode()
    target = Path(path)
    # No time stamp in the gzip header: equal problems give equal files.
    write_whole(target, gzip.compress(raw, mtime=0) if target.suffix == ".gz" else raw)
    return instance
