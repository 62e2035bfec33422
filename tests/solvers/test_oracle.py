"""Every solver of the table against brute force on fixed random problems."""

from __future__ import annotations

import pytest

from iegopt.solvers.milp.backends import missing
from tests.solvers.agreement import (
    AUTO_WITH_ENGINE,
    AUTO_WITHOUT_BRUTE,
    COMPARED,
    answer,
    disagreement,
    incomplete,
    is_exact,
    oracle,
)
from tests.solvers.random_structured import KINDS, structured_instance

CHUNK = 50
SEEDS = 300


def cases(names: list[str]) -> list[tuple[str, int]]:
    return [(name, first) for name in names for first in range(0, SEEDS, CHUNK)]


@pytest.mark.parametrize(("name", "first"), cases(COMPARED))
def test_no_answer_contradicts_brute_force(name: str, first: int) -> None:
    answers = {seed: answer(seed, name) for seed in range(first, first + CHUNK)}
    if name == "milp-cbc" and (lacking := missing("CBC")):
        pytest.skip(lacking)
    supported = {seed: result for seed, result in answers.items() if result is not None}
    assert supported
    wrong = {seed: disagreement(seed, result) for seed, result in supported.items()}
    assert not {seed: why for seed, why in wrong.items() if why}


@pytest.mark.parametrize(("name", "first"), cases([name for name in COMPARED if is_exact(name)]))
def test_exact_solvers_prove_what_they_support(name: str, first: int) -> None:
    answers = {seed: answer(seed, name) for seed in range(first, first + CHUNK)}
    short = {seed: incomplete(seed, result) for seed, result in answers.items() if result is not None}
    assert not {seed: why for seed, why in short.items() if why}


@pytest.mark.parametrize("name", [name for name in COMPARED if is_exact(name) and name != "milp-cbc"])
def test_exact_solvers_prove_what_is_built_like_a_cluster(name: str) -> None:
    wrong = {}
    for seed in range(2 * len(KINDS)):
        result = answer(seed, name, structured_instance)
        if result is not None:
            wrong[seed] = disagreement(seed, result, structured_instance) or incomplete(
                seed, result, structured_instance
            )
    assert wrong
    assert not {seed: why for seed, why in wrong.items() if why}


def test_auto_without_brute_is_without_it() -> None:
    for name, proof in ((AUTO_WITHOUT_BRUTE, "capacity prices"), (AUTO_WITH_ENGINE, "CP-SAT")):
        proofs = {result.proof for seed in range(CHUNK) if (result := answer(seed, name)) is not None}
        assert proof in proofs
        assert "enumeration" not in proofs


def test_the_random_problems_cover_what_they_should() -> None:
    documents = [oracle(seed) for seed in range(SEEDS)]
    infeasible = sum(truth.objective is None for _, _, truth in documents)
    assert 0.1 * SEEDS < infeasible < 0.5 * SEEDS
    for key, least in {"deadline": 50, "affinity": 80, "extensions": 60}.items():
        assert sum(key in document for document, _, _ in documents) >= least
    for extension in ("overlap", "finish_by", "budget", "weights", "parallel_shards"):
        assert sum(extension in document.get("extensions", []) for document, _, _ in documents) >= 20
    assert sum("pairs" in document["links"] for document, _, _ in documents) >= 40
    assert sum(-1 in document["sites"]["domain"] for document, _, _ in documents) >= 40
