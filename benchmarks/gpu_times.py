"""The check for GPUs, times: prefills and decode steps over a grid, against the cost model before and after fitting."""

from __future__ import annotations

import datetime
from collections.abc import Callable, Sequence
from statistics import median
from typing import Any

import numpy as np
import torch

from benchmarks.fit_profiles import held_out, least_squares
from benchmarks.gpu_engines import Setup, prompt, run
from iegopt.cost.demand import demand
from iegopt.cost.profile import decode_fit_seconds, prefill_fit_seconds
from iegopt.cost.roofline import device_capacity, stage_time
from iegopt.errors import InputError
from iegopt.spec.profile import DecodeFit, HeldOut, Measurement, PrefillFit, Profile
from iegopt.spec.stage import StageKind, StageSpec, TokenWork
from iegopt_runtime.lm.engine import LmEngine


def measure_times(setup: Setup, engine: LmEngine) -> dict[str, dict[int, float]]:
    """Median seconds of a prefill by its tokens, and of a decode step by the tokens it begins with."""
    for n in setup.prompts:  # what is set up once, for each shape of a pass, is not measured
        run(setup, engine, prompt(setup, n, -1), 1 + setup.steps)
    prefill = {
        n: median(run(setup, engine, prompt(setup, n, r), 1).prefill_seconds for r in range(setup.repeats))
        for n in setup.prompts
    }
    decode = {}
    for n in setup.contexts:
        runs = [run(setup, engine, prompt(setup, n, 100 + r), 1 + setup.steps) for r in range(setup.repeats)]
        decode[n] = median(result.decode_seconds / setup.steps for result in runs)
    return {"prefill": prefill, "decode": decode}


def fit(setup: Setup, times: dict[str, dict[int, float]]) -> tuple[Profile, dict[str, Any]]:
    """Coefficients from three configurations in four; errors of roofline and fit on the fourth."""
    capacity = device_capacity(setup.card, setup.precision)
    if capacity is None:
        raise InputError(f"{setup.card.name} has no rate for {setup.precision}")
    name = f"{setup.llm.name.lower()}-{setup.card.name.lower()}-torch"
    peaks = Profile(
        name=name, model=setup.llm.name, precision=setup.precision, device=setup.card.name, peak_flops=capacity.flops,
        peak_bandwidth=capacity.bandwidth,
        measurements=(Measurement(kind=StageKind.PREFILL, degrees=(1,), prefill=PrefillFit(fixed=0, compute=1)),),
        notes=f"Coefficients fitted by benchmarks/gpu_check.py to medians of {setup.repeats} runs of iegopt_runtime's "
        f"torch worker, one sequence at a time, passes of {setup.block_tokens} tokens; three configurations in four "
        "were fitted.",
        sources={"measurements": f"measured on {setup.card.name}, torch {torch.__version__}, {datetime.date.today()}"},
    )  # fmt: skip

    def need(kind: StageKind, tokens: TokenWork) -> Any:
        return demand(StageSpec(id="stage", type=kind, model=setup.llm.name, tokens=tokens), setup.llm, setup.precision)

    prefills = [(n, need(StageKind.PREFILL, TokenWork(new=n))) for n in sorted(times["prefill"])]
    middle = setup.steps // 2
    steps = [need(StageKind.DECODE, TokenWork(context=n + middle, output=1)) for n in sorted(times["decode"])]

    def prefill_seconds(c: Sequence[float]) -> list[float]:
        fitted = PrefillFit(fixed=c[0], compute=c[1], per_token=c[2])
        return [prefill_fit_seconds(fitted, work, n, 1, peaks) for n, work in prefills]

    def decode_seconds(c: Sequence[float]) -> list[float]:
        fitted = DecodeFit(fixed=c[0], weights=c[1], kv=c[2])
        return [decode_fit_seconds(fitted, work, 1, peaks) for work in steps]

    def fitted(kind: str, seconds: Callable[[Sequence[float]], list[float]]) -> tuple[list[float], HeldOut]:
        measured = np.array([times[kind][n] for n in sorted(times[kind])])
        coefficients = least_squares(seconds, 3, measured)
        return coefficients, held_out(seconds(coefficients), measured)

    p, p_error = fitted("prefill", prefill_seconds)
    d, d_error = fitted("decode", decode_seconds)
    before = {
        kind: held_out(
            [stage_time(work, capacity).seconds for work in works],
            np.array([times[kind][n] for n in sorted(times[kind])]),
        )
        for kind, works in (("prefill", [work for _, work in prefills]), ("decode", steps))
    }
    measurements = (
        Measurement(
            kind=StageKind.PREFILL, degrees=(1,), held_out=p_error,
            prefill=PrefillFit(fixed=p[0], compute=p[1], per_token=p[2]),
        ),
        Measurement(
            kind=StageKind.DECODE, degrees=(1,), held_out=d_error,
            decode=DecodeFit(fixed=d[0], weights=d[1], kv=d[2]),
        ),
    )  # fmt: skip
    errors = {
        "roofline": {kind: error.model_dump() for kind, error in before.items()},
        "fit": {"prefill": p_error.model_dump(), "decode": d_error.model_dump()},
    }
    return peaks.model_copy(update={"measurements": measurements}), errors
