"""A benchmark suite: which instances, which solvers, how long, how often.

::

    suite:
      name: tight
      instances:
        - {generate: {family: [chain, agent], stages: 20, sites: [256, 1024], memory: tight, seeds: 0..4}}
        - {files: [../../instances/problems/*.json]}
        - {public: {set: ctap, names: [tassc*]}}
      solvers: [auto, cpsat, {solver: toulbar2, hint: auto}]
      limits: [1s, 10s]
"""

from __future__ import annotations

import re
from typing import Annotated, Any, Literal, Self

from pydantic import BeforeValidator, Field, WithJsonSchema, model_validator

from iegopt.spec.base import Name, Spec
from iegopt.spec.quantities import Seconds, SmallInt

__all__ = [
    "GenerateSpec",
    "InstancesSpec",
    "PublicSpec",
    "SagaGraph",
    "SagaSpec",
    "SagaWeights",
    "SolverEntry",
    "SuiteSpec",
]

_RANGE = re.compile(r"(\d{1,9})\.\.(\d{1,9})")
_MOST = 10_000
"""Numbers in one range."""


def _listed(value: object) -> object:
    """One entry stands for a list of one."""
    return [value] if isinstance(value, str | int | float | dict) and not isinstance(value, bool) else value


def _whole_numbers(value: object) -> object:
    """A number, a list, or a range in text, ``0..9`` with both ends."""
    if isinstance(value, str) and (match := _RANGE.fullmatch(value.strip())):
        first, last = int(match[1]), int(match[2])
        if last < first or last - first >= _MOST:
            raise ValueError(f"expected a range upwards of at most {_MOST:,} numbers, such as 0..9")
        return list(range(first, last + 1))
    if isinstance(value, str):
        raise ValueError("expected whole numbers: one, a list, or a range such as 0..9")
    return _listed(value)


def _solver_entry(value: object) -> object:
    """A bare name is a solver without a hint."""
    return {"solver": value} if isinstance(value, str) else value


def _numbers_schema(least: int) -> dict[str, Any]:
    number = {"type": "integer", "minimum": least}
    return {"anyOf": [number, {"type": "string"}, {"type": "array", "items": number}]}


_Sizes = Annotated[
    tuple[Annotated[int, Field(strict=True, ge=1, le=100_000)], ...],
    BeforeValidator(_whole_numbers),
    Field(min_length=1),
    WithJsonSchema(_numbers_schema(1)),
]
_Seeds = Annotated[
    tuple[Annotated[int, Field(strict=True, ge=0, lt=2**31)], ...],
    BeforeValidator(_whole_numbers),
    Field(min_length=1),
    WithJsonSchema(_numbers_schema(0)),
]
_Names = Annotated[
    tuple[Name, ...], BeforeValidator(_listed, json_schema_input_type=Name | tuple[Name, ...]), Field(min_length=1)
]
_Family = Literal["chain", "agent", "fanout", "layered", "joins"]
_Memory = Literal["slack", "tight", "part_full"]
_Limit = Annotated[Seconds, Field(gt=0)]
_Families = Annotated[
    tuple[_Family, ...],
    BeforeValidator(_listed, json_schema_input_type=_Family | tuple[_Family, ...]),
    Field(min_length=1),
]
_Memories = Annotated[
    tuple[_Memory, ...],
    BeforeValidator(_listed, json_schema_input_type=_Memory | tuple[_Memory, ...]),
    Field(min_length=1),
]
_Limits = Annotated[
    tuple[_Limit, ...],
    BeforeValidator(_listed, json_schema_input_type=_Limit | tuple[_Limit, ...]),
    Field(min_length=1),
]


SagaGraph = Literal["in-trees", "out-trees", "chains"]
SagaWeights = Literal["clipped", "constant"]
_SagaGraphs = Annotated[
    tuple[SagaGraph, ...],
    BeforeValidator(_listed, json_schema_input_type=SagaGraph | tuple[SagaGraph, ...]),
    Field(min_length=1),
]
_SagaWeightings = Annotated[
    tuple[SagaWeights, ...],
    BeforeValidator(_listed, json_schema_input_type=SagaWeights | tuple[SagaWeights, ...]),
    Field(min_length=1),
]


class GenerateSpec(Spec):
    """Every combination of these, as ``iegopt.problem.families.generate`` makes it.

    A number of stages or sites and a seed may be one, a list, or a range such as ``0..9``. ``objective: makespan`` asks
    for the end of the last stage alone, on related machines (``iegopt.bench.related``).
    """

    family: _Families
    stages: _Sizes
    sites: _Sizes
    memory: _Memories = ("slack",)
    seeds: _Seeds = (0,)
    gangs: bool = False
    objective: Literal["cost", "makespan"] = "cost"

    @model_validator(mode="after")
    def _machines_are_related(self) -> Self:
        if self.objective == "makespan" and self.gangs:
            raise ValueError("objective makespan with gangs: expected one or the other")
        return self


class SagaSpec(Spec):
    """Random task graphs on random networks from the generators of anrg-saga (``iegopt.bench.public.saga_random``)."""

    graphs: _SagaGraphs = ("in-trees", "out-trees", "chains")
    weights: _SagaWeightings = ("clipped",)
    nodes: _Sizes
    seeds: _Seeds = (0,)


class PublicSpec(Spec):
    """A public set: which, the folder it lies in (``IEGOPT_SHARED``/data otherwise), and patterns of names."""

    set: Literal["ctap", "gqap", "gap", "stg"]
    folder: Name | None = None
    names: _Names = ("*",)


class InstancesSpec(Spec):
    """One source of instances: exactly one of the four. ``files`` are patterns, relative to the suite."""

    generate: GenerateSpec | None = None
    saga: SagaSpec | None = None
    files: _Names | None = None
    public: PublicSpec | None = None
    family: Name | None = None

    @model_validator(mode="after")
    def _one_source(self) -> Self:
        given = [name for name in ("generate", "saga", "files", "public") if getattr(self, name) is not None]
        if len(given) != 1:
            raise ValueError(f"{' and '.join(given) or 'no source'}: expected one of generate, saga, files, public")
        return self


class SolverEntry(Spec):
    """A solver or peer, and the entry before it whose plan of the same round it starts from.

    ``limits`` are its own, where it does not run with those of the suite: a reference may have more time.
    """

    solver: Name
    hint: Name | None = None
    label: Name | None = None
    limits: _Limits | None = None

    @property
    def name(self) -> str:
        """What tables call it: its label, else ``solver`` or ``solver+hint``."""
        return self.label or (self.solver if self.hint is None else f"{self.solver}+{self.hint}")


_Solver = Annotated[SolverEntry, BeforeValidator(_solver_entry, json_schema_input_type=Name | SolverEntry)]


class SuiteSpec(Spec):
    """A benchmark suite.

    ``limits`` are seconds for each run; ``seeds`` go to the solvers, ``repetitions`` repeat each seed. ``grace``
    is how long after its limit a solver is killed.
    """

    name: Name
    instances: Annotated[tuple[InstancesSpec, ...], Field(min_length=1)]
    solvers: Annotated[tuple[_Solver, ...], Field(min_length=1)]
    limits: _Limits
    threads: Annotated[SmallInt, Field(ge=1)] = 1
    repetitions: Annotated[SmallInt, Field(ge=1)] = 1
    seeds: _Seeds = (0,)
    grace: Seconds = 2.0

    @model_validator(mode="after")
    def _hints_come_first(self) -> Self:
        known: dict[str, tuple[float, ...]] = {}
        for entry in self.solvers:
            if entry.name in known:
                raise ValueError(f"solver {entry.name} stands twice: give one a label")
            if entry.hint is not None and entry.hint not in known:
                raise ValueError(f"hint {entry.hint} of {entry.solver}: expected a solver that stands before it")
            limits = entry.limits or self.limits
            if entry.hint is not None and not set(limits) <= set(known[entry.hint]):
                raise ValueError(f"limits of {entry.name}: expected some of those of {entry.hint}, its hint")
            known[entry.name] = limits
        return self
