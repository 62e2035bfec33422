"""From a suite to its instances, in the order of the suite; each is made or read only when its turn comes."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import partial
from importlib.util import find_spec
from itertools import product
from pathlib import Path

import iegopt
from iegopt.bench.public import ctap, gap, gqap, stg
from iegopt.bench.public.assignment import Published
from iegopt.bench.public.saga_random import random_task_graph
from iegopt.bench.related import on_related_machines
from iegopt.errors import InputError
from iegopt.problem.arrays import Problem
from iegopt.problem.families import generate
from iegopt.problem.instance import read_instance, to_problem
from iegopt.spec.suite import GenerateSpec, InstancesSpec, PublicSpec, SagaSpec, SuiteSpec

__all__ = ["BenchInstance", "expand", "shared_data"]


@dataclass(frozen=True)
class BenchInstance:
    """A named problem, its family in the tables, and its published value.

    ``load`` makes it; ``missing`` says why that cannot be done here.
    """

    name: str
    family: str
    load: Callable[[], Problem]
    published: Published | None = None
    missing: str | None = None


def expand(suite: SuiteSpec, base: Path) -> list[BenchInstance]:
    """All instances of a suite; patterns of files are relative to ``base``.

    Raises
    ------
    InputError
        A pattern that fits no file, or one name for two instances.
    """
    found = [instance for source in suite.instances for instance in _from(source, base)]
    names: set[str] = set()
    for instance in found:
        if instance.name in names:
            raise InputError(f"instance {instance.name} stands twice in the suite")
        names.add(instance.name)
    return found


def shared_data() -> Path:
    """Where public sets lie unless a suite says so: ``data`` of ``IEGOPT_SHARED``, else of ``../shared``."""
    beside = Path(iegopt.__file__).resolve().parent.parent.parent / "shared"
    return Path(os.environ.get("IEGOPT_SHARED", beside)) / "data"


def _from(source: InstancesSpec, base: Path) -> Iterator[BenchInstance]:
    if source.generate is not None:
        yield from _generated(source.generate, source.family)
    elif source.saga is not None:
        yield from _saga(source.saga, source.family)
    elif source.files is not None:
        yield from _files(source.files, base, source.family or "files")
    elif source.public is not None:
        yield from _public(source.public, base, source.family)


def _generated(spec: GenerateSpec, family: str | None) -> Iterator[BenchInstance]:
    shapes = product(spec.family, spec.stages, spec.sites, spec.memory, spec.seeds)
    for kind, stages, sites, memory, seed in shapes:
        made = partial(generate, kind, stages, sites, memory, seed, gangs=spec.gangs)
        if spec.objective == "makespan":
            group, name = f"{kind}-{stages}x{sites}-makespan", f"{kind}-{stages}x{sites}-makespan-s{seed}"
            yield BenchInstance(name, family or group, partial(_with_makespan, made))
            continue
        group = f"{kind}-{stages}x{sites}-{memory}{'-gangs' if spec.gangs else ''}"
        name = f"{kind}-{stages}x{sites}-{memory}-s{seed}{'-gangs' if spec.gangs else ''}"
        yield BenchInstance(name, family or group, made)


def _with_makespan(made: Callable[[], Problem]) -> Problem:
    return on_related_machines(made())


def _saga(spec: SagaSpec, family: str | None) -> Iterator[BenchInstance]:
    missing = "saga is not installed: pip install 'iegopt[peers]'" if find_spec("saga") is None else None
    for graph, weights, nodes, seed in product(spec.graphs, spec.weights, spec.nodes, spec.seeds):
        group = f"saga-{graph}-{weights}-n{nodes}"
        made = partial(random_task_graph, graph, weights, nodes, seed)
        yield BenchInstance(f"{group}-s{seed}", family or group, made, missing=missing)


def _files(patterns: tuple[str, ...], base: Path, family: str) -> Iterator[BenchInstance]:
    for pattern in patterns:
        path = base / pattern
        files = [path] if path.is_file() else sorted(path.parent.glob(path.name))
        if not files:
            raise InputError(f"no file fits {pattern}, seen from the folder of the suite")
        for file in files:
            name = file.name.removesuffix(".gz").removesuffix(".json")
            yield BenchInstance(name, family, partial(_read, file))


def _read(file: Path) -> Problem:
    return to_problem(read_instance(file))


_FOLDERS = {
    "ctap": ("ctap_elloumi", "*.dat"),
    "gqap": ("gqap_cordeau", "[0-9]*.txt"),
    "gap": ("gap_orlib/chu1997", "*"),
    "stg": ("stg", "*.stg"),
}
"""Folder under the shared data, and the files in it that are instances."""
_READERS = {"ctap": ctap, "gqap": gqap, "gap": gap}


def _public(spec: PublicSpec, base: Path, family: str | None) -> Iterator[BenchInstance]:
    folder, pattern = _FOLDERS[spec.set]
    place = shared_data() / folder if spec.folder is None else base / spec.folder
    if not place.is_dir():
        yield _absent(spec.set, family, "its folder is absent: set IEGOPT_SHARED, or folder in the suite")
        return
    files = [file for file in sorted(place.glob(pattern)) if any(fnmatchcase(file.stem, name) for name in spec.names)]
    if not files:
        yield _absent(spec.set, family, f"no file of its folder fits {', '.join(spec.names)}")
    for file in files:
        if spec.set == "stg":
            for processors in stg.PROCESSORS:
                name = f"stg-{file.stem}-p{processors}"
                made = partial(stg.load, file, processors)
                yield BenchInstance(name, family or f"stg-p{processors}", made, stg.published(file, processors))
        else:
            reader = _READERS[spec.set]
            group = family or spec.set
            yield BenchInstance(f"{spec.set}-{file.stem}", group, partial(reader.load, file), reader.published(file))


def _absent(name: str, family: str | None, reason: str) -> BenchInstance:
    def refuse() -> Problem:
        raise InputError(f"{name}: {reason}")

    return BenchInstance(name, family or name, refuse, missing=reason)
