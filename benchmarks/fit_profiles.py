"""Fit profile coefficients to the measurements of Splitwise, and say how far off they are.

``python benchmarks/fit_profiles.py [--write]`` reads ``data/splitwise_perf/perf_model.csv`` of the shared data (folder
``IEGOPT_SHARED``, else ``../shared``), fits ``PrefillFit`` and ``DecodeFit`` per device, prints the errors of roofline
and fit, and with ``--write`` replaces the files of ``models/profiles``.

Each configuration is the median of its repetitions. Least squares on the relative error, coefficients kept
non-negative; every fourth configuration, in sorted order, is held out and never fitted. Left out are configurations
whose end-to-end time is far above prefill + steps: there the batch did not fit and ran in turns.
"""

from __future__ import annotations

import argparse
import csv
import os
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median

import numpy as np
import numpy.typing as npt

from iegopt import library
from iegopt.cost.demand import Demand, demand
from iegopt.cost.gang import gang_capacity
from iegopt.cost.profile import decode_fit_seconds, prefill_fit_seconds
from iegopt.cost.roofline import device_capacity, stage_time
from iegopt.spec.load import dump
from iegopt.spec.profile import DecodeFit, HeldOut, Measurement, PrefillFit, Profile
from iegopt.spec.stage import Parallelism, Precision, StageKind, StageSpec, TokenWork

Floats = npt.NDArray[np.float64]

ROOT = Path(__file__).resolve().parent.parent
TABLE = Path("data/splitwise_perf/perf_model.csv")
MODEL = "Llama-2-70B"
DEVICES = {"a100-80gb": "A100-80GB", "h100-80gb": "H100"}
"""Hardware of the table -> device card."""
SOURCE = "Splitwise artifact perf_model.csv (Patel et al., ISCA 2024), commit 8f99e7dc"
PASS_TOKENS = 2048
"""Tokens beyond which a prefill slows down on every gang of the table."""
PARALLEL_EFFICIENCY = 0.9


@dataclass(frozen=True)
class Configuration:
    """Medians over the repetitions of one row: seconds of the prefill and of a decode step."""

    degree: int
    prompt: int
    batch: int
    generated: int
    prefill: float
    step: float


def shared_table() -> Path | None:
    """The measured table, ``None`` where the shared data is absent."""
    path = Path(os.environ.get("IEGOPT_SHARED", ROOT.parent / "shared")) / TABLE
    return path if path.is_file() else None


def read_configurations(table: Path, hardware: str) -> list[Configuration]:
    """The configurations of one device, sorted; times of the file are milliseconds."""
    runs: dict[tuple[int, int, int, int], list[tuple[float, float, float]]] = defaultdict(list)
    with table.open(encoding="utf-8", newline="") as file:
        for row in csv.DictReader(file):
            if row["model"] == "llama2-70b" and row["hardware"] == hardware:
                key = ("tensor_parallel", "prompt_size", "batch_size", "token_size")
                times = ("prompt_time", "token_time", "e2e_time")
                k, n, b, o = (int(row[name]) for name in key)
                p, t, e = (float(row[name]) / 1e3 for name in times)
                runs[k, n, b, o].append((p, t, e))
    found = []
    for (k, n, b, asked), times_of in sorted(runs.items()):
        prefill, step, total = (median(column) for column in zip(*times_of, strict=True))
        if total <= 1.5 * (prefill + step * asked):
            # A generation that met its end of text is shorter than asked for.
            generated = max(1, min(asked, round((total - prefill) / step)))
            found.append(Configuration(k, n, b, generated, prefill, step))
    return found


def fit_profile(table: Path, hardware: str) -> tuple[Profile, list[str]]:
    """The profile of a device, and lines that compare it with the roofline."""
    card, device = library.llm(MODEL), library.device(DEVICES[hardware])
    capacity = device_capacity(device, Precision.FP16)
    assert capacity is not None
    rows = read_configurations(table, hardware)
    peaks = Profile(
        name=f"{MODEL.lower()}-{DEVICES[hardware].lower()}",
        model=card.name,
        precision=Precision.FP16,
        device=device.name,
        peak_flops=capacity.flops,
        peak_bandwidth=capacity.bandwidth,
        measurements=(Measurement(kind=StageKind.PREFILL, degrees=(1,), prefill=PrefillFit(fixed=0, compute=1)),),
        notes="Coefficients fitted by benchmarks/fit_profiles.py to medians of the repetitions; three configurations "
        "in four were fitted, the others give held_out. Measured with batches up to 64 and prompts up to 8192.",
        sources={"measurements": SOURCE},
    )

    def need(kind: StageKind, tokens: TokenWork) -> Demand:
        return demand(StageSpec(id="stage", type=kind, model=card.name, tokens=tokens), card, Precision.FP16)

    def roofline(work: Demand, degree: int) -> float:
        return stage_time(work, gang_capacity(capacity, Parallelism(degree=degree), PARALLEL_EFFICIENCY)).seconds

    # The same prefill stands under several output lengths.
    times: dict[tuple[int, int, int], list[float]] = defaultdict(list)
    for row in rows:
        times[row.degree, row.prompt, row.batch].append(row.prefill)
    prefills = [(k, n * b, need(StageKind.PREFILL, TokenWork(new=n, batch=b))) for k, n, b in sorted(times)]
    measured = np.array([median(times[key]) for key in sorted(times)])

    def prefill_seconds(fit: PrefillFit) -> list[float]:
        return [prefill_fit_seconds(fit, work, tokens, k, peaks) for k, tokens, work in prefills]

    def prefill_fit(c: Sequence[float]) -> PrefillFit:
        return PrefillFit(fixed=c[0], compute=c[1], per_token=c[2], excess_token=c[3], excess_from=PASS_TOKENS)

    steps = [
        (r.degree, need(StageKind.DECODE, TokenWork(context=r.prompt + r.generated // 2, output=1, batch=r.batch)))
        for r in rows
    ]
    step_times = np.array([row.step for row in rows])

    def step_seconds(fit: DecodeFit) -> list[float]:
        return [decode_fit_seconds(fit, work, k, peaks) for k, work in steps]

    def decode_fit(c: Sequence[float]) -> DecodeFit:
        return DecodeFit(fixed=c[0], sync=c[1], weights=c[2], kv=c[3], per_sequence=c[4])

    prefill = prefill_fit(least_squares(lambda c: prefill_seconds(prefill_fit(c)), 4, measured))
    decode = decode_fit(least_squares(lambda c: step_seconds(decode_fit(c)), 5, step_times))
    degrees = tuple(sorted({row.degree for row in rows}))
    held = [held_out(prefill_seconds(prefill), measured), held_out(step_seconds(decode), step_times)]
    before = [
        held_out([roofline(work, k) for k, _, work in prefills], measured),
        held_out([roofline(work, k) for k, work in steps], step_times),
    ]
    lines = [
        f"{device.name:10} {phase:8} held out {after.configurations:3}   roofline {_shown(old)}   fit {_shown(after)}"
        for phase, old, after in zip(("prefill", "decode"), before, held, strict=True)
    ]
    measurements = (
        Measurement(kind=StageKind.PREFILL, degrees=degrees, prefill=prefill, held_out=held[0]),
        Measurement(kind=StageKind.DECODE, degrees=degrees, decode=decode, held_out=held[1]),
    )
    return peaks.model_copy(update={"measurements": measurements}), lines


def least_squares(predict: Callable[[Sequence[float]], list[float]], size: int, measured: Floats) -> list[float]:
    """Non-negative coefficients of a linear prediction, least squares of relative errors over the fitted rows.

    A coefficient that comes out negative is pinned to 0 and the others are fitted again.
    """
    design = np.column_stack([predict(list(unit)) for unit in np.eye(size)]) / measured[:, None]
    design = design[~_is_held_out(len(measured))]
    kept = list(range(size))
    while True:
        solution = np.linalg.lstsq(design[:, kept], np.ones(len(design)), rcond=None)[0]
        if (solution >= 0.0).all():
            break
        kept.pop(int(np.argmin(solution * design[:, kept].mean(axis=0))))
    coefficients = np.zeros(size)
    coefficients[kept] = solution
    return [float(f"{c:.8g}") for c in coefficients]


def _is_held_out(count: int) -> npt.NDArray[np.bool_]:
    return np.asarray(np.arange(count) % 4 == 3)


def held_out(predicted: list[float], measured: Floats) -> HeldOut:
    """Relative errors on the held-out rows, to four digits."""
    held = _is_held_out(len(measured))
    errors = np.abs(np.array(predicted) / measured - 1.0)[held]
    return HeldOut(
        configurations=int(held.sum()),
        median=round(float(np.median(errors)), 4),
        p90=round(float(np.quantile(errors, 0.9)), 4),
    )


def _shown(errors: HeldOut) -> str:
    return f"median {errors.median:6.1%} p90 {errors.p90:6.1%}"


def main() -> None:
    """Fit, print, and write where asked to."""
    parser = argparse.ArgumentParser(description="Fit profile coefficients to the Splitwise measurements.")
    parser.add_argument("--write", action="store_true", help="replace the files of models/profiles")
    write = parser.parse_args().write
    table = shared_table()
    if table is None:
        print(f"skipped: no {TABLE} in the shared data; set IEGOPT_SHARED")
        return
    for hardware in DEVICES:
        profile, lines = fit_profile(table, hardware)
        print("\n".join(lines))
        if write:
            (ROOT / "models/profiles" / f"{profile.name}.yaml").write_text(dump("profile", profile), encoding="utf-8")


if __name__ == "__main__":
    main()
