"""What every solver must agree on, about one small random problem; used by the tests and by the benchmark."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from functools import lru_cache
from typing import Any
from unittest import mock

import numpy as np
import numpy.typing as npt

from iegopt.problem.arrays import Problem
from iegopt.problem.instance import parse_instance, to_problem
from iegopt.solvers.api import SOLVERS, solve
from iegopt.solvers.result import Params, Result, Status
from iegopt.verify.instance import check_placement
from tests.solvers.random_problems import random_instance

AUTO_WITHOUT_BRUTE = "auto-no-brute"
"""``auto`` with its enumeration off: on small problems it ends in brute force, and would be compared with itself."""
AUTO_WITH_ENGINE = "auto-engine"
"""The same without prices, which prove most small problems before CP-SAT is asked."""
VARIANTS_OF_AUTO = (AUTO_WITHOUT_BRUTE, AUTO_WITH_ENGINE, "auto")
COMPARED = [name for name in SOLVERS if name not in ("auto", "brute")] + list(VARIANTS_OF_AUTO)

LIMIT_EXACT = 60.0
LIMIT_HEURISTIC = 0.02
"""Seconds. A heuristic may use all of its time."""


def placement(problem: Problem, choice: npt.NDArray[np.int64]) -> dict[str, dict[str, str]]:
    """A choice in the words of the instance format."""
    options = problem.options
    return {
        stage: {
            "site": problem.topology.sites[options.site[o]],
            "variant": problem.variants[options.variant[o]],
        }
        for stage, o in zip(problem.stages, choice.tolist(), strict=True)
    }


Instances = Callable[[int], dict[str, Any]]
"""Seed -> an ``iegopt-instance/1`` document, small enough for brute force."""


@lru_cache(maxsize=4096)
def oracle(seed: int, instances: Instances = random_instance) -> tuple[dict[str, Any], Problem, Result]:
    """Document, problem and proven answer of a seed."""
    document = instances(seed)
    problem = to_problem(parse_instance(document, f"seed {seed}"))
    return document, problem, solve(problem, "brute")


def short_search() -> AbstractContextManager[object]:
    """``auto`` with a hundredth of a second of local search, not two seconds before it proves infeasibility."""
    return mock.patch("iegopt.solvers.auto._SEARCH_MOST", 0.01)


def is_exact(name: str) -> bool:
    return SOLVERS["auto" if name in VARIANTS_OF_AUTO else name].exact


@lru_cache(maxsize=8192)
def answer(seed: int, name: str, instances: Instances = random_instance) -> Result | None:
    """A solver's verified answer to the problem of a seed, ``None`` where it does not support it."""
    problem = oracle(seed, instances)[1]
    params = Params(time_limit=LIMIT_EXACT if is_exact(name) else LIMIT_HEURISTIC)
    if name == AUTO_WITHOUT_BRUTE:
        with short_search(), mock.patch("iegopt.solvers.auto._ENUMERATED", -1):
            return solve(problem, "auto", params)
    if name == AUTO_WITH_ENGINE:
        no_prices = mock.patch("iegopt.solvers.root_prices.unpriceable", return_value="left out")
        with short_search(), mock.patch("iegopt.solvers.auto._ENUMERATED", -1), no_prices:
            return solve(problem, "auto", params)
    with short_search():
        return None if SOLVERS[name].supports(problem) is not None else solve(problem, name, params)


def disagreement(seed: int, result: Result, instances: Instances = random_instance) -> str | None:
    """How an answer contradicts the oracle or the verifier of documents, ``None`` where it does not."""
    document, problem, truth = oracle(seed, instances)
    if result.choice is not None:
        report = check_placement(document, placement(problem, result.choice))
        if not report.ok:
            return f"breaks {report.violations[0]}"
    if result.status is Status.INFEASIBLE and truth.objective is not None:
        return f"infeasible, but there is a plan of {truth.objective}"
    if truth.objective is None:
        return None if result.choice is None else "a plan where there is none"
    if result.objective is not None and result.objective < truth.objective:
        return f"objective {result.objective} below the optimum {truth.objective}"
    if result.bound is not None and result.bound > truth.objective:
        return f"bound {result.bound} above the optimum {truth.objective}"
    return None


def incomplete(seed: int, result: Result, instances: Instances = random_instance) -> str | None:
    """How an exact solver fell short of the oracle's answer, ``None`` where it did not."""
    truth = oracle(seed, instances)[2]
    if result.status is not truth.status:
        return f"{result.status}, the oracle says {truth.status}"
    if result.objective is None or truth.objective is None or result.objective == truth.objective:
        return None
    if (result.objective - truth.objective) <= 1e-6 * abs(truth.objective):
        return None
    return f"objective {result.objective}, the optimum is {truth.objective}"
