"""Run a suite: one instance after the other, and on each every limit, seed and repetition, solver beside solver.

Neighbouring runs differ in the solver alone, so that whatever slows the machine down for a while slows all of them.
A hint counts as a plan that was there from the start. Every plan is checked and priced by the verifier here.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from iegopt.bench.engines import engine, missing
from iegopt.bench.environment import environment
from iegopt.bench.instances import BenchInstance, expand
from iegopt.bench.journal import Document, Journal
from iegopt.bench.lock import RunLock
from iegopt.bench.patterns import fitting, run_name
from iegopt.bench.process import EngineProcess, Outcome, Point, by_signal
from iegopt.bench.rows import failed, row_of
from iegopt.errors import IegoptError, InputError
from iegopt.problem.arrays import Problem
from iegopt.solvers.result import Params
from iegopt.solvers.timetable import timetable
from iegopt.spec.suite import SolverEntry, SuiteSpec

__all__ = ["Task", "run_suite", "tasks_of"]

Observer = Callable[[int, int, "Task", Document | None], None]
"""Called with (number from 1, total, task, its row, or ``None`` as it starts)."""


@dataclass(frozen=True)
class Task:
    """One run."""

    instance: BenchInstance
    entry: SolverEntry
    limit: float
    seed: int
    repetition: int

    @property
    def key(self) -> tuple[Any, ...]:
        return (self.instance.name, self.entry.name, self.limit, self.seed, self.repetition)

    @property
    def hint_key(self) -> tuple[Any, ...]:
        """The key of the run whose plan it starts from."""
        return (self.instance.name, self.entry.hint, self.limit, self.seed, self.repetition)

    def __str__(self) -> str:
        return run_name(self.instance.name, self.entry.name, self.limit)


def tasks_of(suite: SuiteSpec, base: Path, patterns: Sequence[str] = ()) -> list[Task]:
    """All runs in their order; with ``patterns`` those whose ``instance:solver:limit`` fits one of them.

    Raises
    ------
    InputError
        An unknown solver, or a pattern that fits no run.
    """
    for entry in suite.solvers:
        engine(entry.solver)
    tasks = [*_ordered(suite, expand(suite, base))]
    return [task for task, fits in zip(tasks, fitting([str(task) for task in tasks], patterns), strict=True) if fits]


def _ordered(suite: SuiteSpec, instances: list[BenchInstance]) -> Iterator[Task]:
    limits = sorted({limit for entry in suite.solvers for limit in entry.limits or suite.limits})
    for instance in instances:
        for limit in limits:
            for seed in suite.seeds:
                for repetition in range(suite.repetitions):
                    for entry in suite.solvers:
                        if limit in (entry.limits or suite.limits):
                            yield Task(instance, entry, limit, seed, repetition)


def run_suite(
    suite: SuiteSpec,
    base: Path,
    results: Path,
    *,
    resume: bool = False,
    force: bool = False,
    patterns: Sequence[str] = (),
    command: str = "",
    observe: Observer = lambda *_: None,
) -> Document:
    """Run what is not done yet and return the finished document: all rows that are there and those of ``patterns``.

    ``resume`` and ``force`` as in ``Journal``; runs that a signal ended are not done.

    Raises
    ------
    InputError
        As ``tasks_of``, ``Journal`` and ``RunLock``; or a hint is needed from results that are compact.
    """
    tasks = tasks_of(suite, base, patterns)
    session = {"command": command, **environment()}
    processes: dict[str, EngineProcess] = {}
    with (
        RunLock(results),
        Journal(
            results, suite.model_dump(mode="json"), session, resume=resume, force=force, kept=partial(_kept, tasks)
        ) as journal,
    ):
        done = {_key(row): row for row in journal.rows}
        _check_hints(tasks, done, results)
        loaded: tuple[str, Problem | None, bytes, str | None] = ("", None, b"", None)
        try:
            for number, task in enumerate(tasks, 1):
                if task.key in done:
                    continue
                observe(number, len(tasks), task, None)
                if loaded[0] != task.instance.name:
                    loaded = _load(task.instance)
                row = _row(task, suite, loaded, done, processes)
                done[task.key] = row
                journal.append(row)
                observe(number, len(tasks), task, row)
        finally:
            for process in processes.values():
                process.stop()
        return journal.finish()


def _key(row: Document) -> tuple[Any, ...]:
    return (row["instance"], row["solver"], row["limit"], row["seed"], row["repetition"])


def _kept(tasks: Sequence[Task], rows: list[Document]) -> list[Document]:
    """All rows but those of tasks that a signal ended, and of those that hence had no plan to start from."""
    before = {_key(row): row for row in rows}
    again = set()
    for task in tasks:
        row = before.get(task.key)
        if row is None:
            continue
        if by_signal(row["status"], row["reason"]) or (row["status"] == "skipped" and task.hint_key in again):
            again.add(task.key)
    return [row for row in rows if _key(row) not in again]


def _check_hints(tasks: Sequence[Task], done: dict[tuple[Any, ...], Document], results: Path) -> None:
    """Compact results have no plans that a solver could start from; says so before anything runs."""
    for task in tasks:
        if task.entry.hint is None or task.key in done:
            continue
        before = done.get(task.hint_key)
        if before is not None and before["objective"] is not None and before.get("choice") is None:
            raise InputError(
                f"{results.name}: holds no plans, and {task} would start from one: resume the full results"
            )


def _load(instance: BenchInstance) -> tuple[str, Problem | None, bytes, str | None]:
    """The problem, pickled before anything in it is cached, or why it cannot be had."""
    if instance.missing is not None:
        return instance.name, None, b"", instance.missing
    try:
        problem = instance.load()
    except IegoptError as error:
        return instance.name, None, b"", " ".join(str(error).split())
    return instance.name, problem, pickle.dumps(problem, protocol=pickle.HIGHEST_PROTOCOL), None


def _row(
    task: Task,
    suite: SuiteSpec,
    loaded: tuple[str, Problem | None, bytes, str | None],
    done: dict[tuple[Any, ...], Document],
    processes: dict[str, EngineProcess],
) -> Document:
    _, problem, pickled, absent = loaded
    published = task.instance.published
    base: Document = {
        "instance": task.instance.name,
        "family": task.instance.family,
        "solver": task.entry.name,
        "engine": task.entry.solver,
        "hint": task.entry.hint,
        "limit": task.limit,
        "threads": suite.threads,
        "seed": task.seed,
        "repetition": task.repetition,
        "published": None if published is None else published.ticks,
        "published_optimal": published is not None and published.optimal,
    }
    if problem is None:
        return failed(base, "skipped", absent or "")
    base |= {"stages": problem.V, "sites": problem.topology.S}
    name = task.entry.solver
    reason = missing(name)
    if reason is not None:
        return failed(base, "missing", reason)
    reason = engine(name).supports(problem)
    if reason is not None:
        return failed(base, "unsupported", reason)
    hint = None
    if task.entry.hint is not None:
        before = done.get(task.hint_key)
        if before is None or before["choice"] is None:
            return failed(base, "skipped", f"{task.entry.hint} left no plan to start from")
        hint = np.array(before["choice"], dtype=np.int64)
    params = Params(time_limit=task.limit, threads=suite.threads, seed=task.seed)
    process = processes.setdefault(name, EngineProcess(name, suite.threads))
    outcome: Outcome = process.run(pickled, params, hint, suite.grace)
    if hint is not None and outcome.failure is None:
        start = timetable(problem, hint).start if problem.no_overlap else None
        outcome.points.insert(0, Point(0.0, hint, None, None, start))
    return row_of(base, problem, outcome)
