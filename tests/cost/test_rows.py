"""Rates of kinds of sites that threads ask for at the same time."""

from __future__ import annotations

from threading import Event, Thread
from typing import Any

import pytest

from iegopt.cost.rows import Kind, KindRates
from iegopt.planner import Planner
from iegopt.spec.figures import PlainFigures, plain_figures
from iegopt.spec.stage import StageSpec
from tests.test_planner_deadlines import cluster


def test_no_thread_sees_a_row_that_another_is_working_out(monkeypatch: pytest.MonkeyPatch) -> None:
    kinds: list[Kind] = [(Planner(cluster(8))._cluster.devices[0].kind, 1, True)]
    stage = StageSpec.model_validate({"id": "s", "type": "prefill"}, context={"document": True})
    figures, rates, seen = plain_figures([stage]), KindRates(kinds, (0.9, 0.7)), Event()
    rows: list[tuple[int, int]] = []

    def ask(asked: PlainFigures) -> None:
        number, stacked = rates.known(asked)
        rows.append((int(number[0]), len(stacked)))
        seen.set()

    other, offer = Thread(target=ask, args=(figures,)), rates._offer

    def offered(*arguments: Any) -> tuple[float, float, float]:
        if not other.is_alive() and not rows:
            other.start()
        seen.wait(0.05)
        return offer(*arguments)

    monkeypatch.setattr(rates, "_offer", offered)
    ask(figures)
    other.join()
    assert rows == [(0, 1), (0, 1)]
