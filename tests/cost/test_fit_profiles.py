"""The committed coefficients are what the fit gives, and their stated errors are true."""

from __future__ import annotations

import pytest

from benchmarks.fit_profiles import DEVICES, TABLE, fit_profile, read_configurations
from iegopt import library
from iegopt.spec.profile import Profile
from tests.conftest import shared_dir


def _committed(device: str) -> Profile:
    return next(p for p in library.profiles() if p.device == device)


@pytest.mark.parametrize("hardware", DEVICES)
def test_refit_gives_the_committed_coefficients(hardware: str) -> None:
    table = shared_dir() / TABLE
    if not table.is_file():
        pytest.skip(f"no {TABLE} in the shared data")
    again, _ = fit_profile(table, hardware)
    committed = _committed(DEVICES[hardware])
    for new, old in zip(again.measurements, committed.measurements, strict=True):
        assert (new.prefill is None) == (old.prefill is None)
        one = (new.prefill or new.decode or old).model_dump()
        two = (old.prefill or old.decode or old).model_dump()
        assert one == pytest.approx(two, rel=1e-6)
        assert new.held_out is not None
        assert old.held_out is not None
        assert new.held_out.median <= old.held_out.median + 1e-4
        assert new.held_out.p90 <= old.held_out.p90 + 1e-4


@pytest.mark.parametrize("hardware", DEVICES)
def test_batches_that_ran_in_turns_are_left_out(hardware: str) -> None:
    table = shared_dir() / TABLE
    if not table.is_file():
        pytest.skip(f"no {TABLE} in the shared data")
    rows = read_configurations(table, hardware)
    assert {(r.degree, r.batch) for r in rows if r.batch == 64} == {(4, 64), (8, 64)}
    assert {r.degree for r in rows} == {2, 4, 8}
