"""Draws follow the distribution that is left after the cuts, and belong to their position."""

from __future__ import annotations

from collections import Counter

import pytest
import torch

from iegopt_runtime.lm.sampling import Sampling, choose

LOGITS = torch.tensor([0.5, 0.3, 0.15, 0.05]).log()


def share(sampling: Sampling, draws: int = 4000) -> list[float]:
    counts = Counter(choose(LOGITS, sampling, position) for position in range(draws))
    return [counts[token] / draws for token in range(4)]


@pytest.mark.parametrize(
    ("sampling", "expected"),
    [
        (Sampling(), [1, 0, 0, 0]),
        (Sampling(temperature=1), [0.5, 0.3, 0.15, 0.05]),
        (Sampling(temperature=1, top_k=2), [0.625, 0.375, 0, 0]),
        (Sampling(temperature=1, top_p=0.85), [0.5 / 0.95, 0.3 / 0.95, 0.15 / 0.95, 0]),
        (Sampling(temperature=0.5), [0.6849, 0.2466, 0.0616, 0.0068]),
    ],
)
def test_shares_are_those_of_the_distribution(sampling: Sampling, expected: list[float]) -> None:
    assert share(sampling) == pytest.approx(expected, abs=0.03)


def test_the_same_position_and_seed_draw_the_same() -> None:
    one, other = Sampling(temperature=1, seed=1), Sampling(temperature=1, seed=2)
    draws = [[choose(LOGITS, s, position) for position in range(50)] for s in (one, one, other)]
    assert draws[0] == draws[1] != draws[2]


@pytest.mark.parametrize("wrong", [{"temperature": -1}, {"top_k": -1}, {"top_p": 0}, {"temperature": float("nan")}])
def test_what_is_no_sampling_is_refused(wrong: dict[str, float]) -> None:
    with pytest.raises(ValueError, match="expected temperature"):
        Sampling(**wrong)  # type: ignore[arg-type]
