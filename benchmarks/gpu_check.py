"""The torch worker on one CUDA device, in under five minutes.

``python benchmarks/gpu_check.py [--device CARD] [--write]`` makes a random model in the shape of Llama-3.2-1B (bf16)
and tells, part by part as they end,

- whether a prefill on one engine, moved in chunks and decoded on another, gives the tokens of one uninterrupted run,
  and whether a worker does, put together as a cluster's words have it;
- times of prefills and decode steps over a small grid, against the cost model before and after fitting (``--write``
  keeps the fit as a profile in ``models/profiles``);
- how fast KV goes to the host, to files, and back;
- what int8 does to its KV, how fast it is made and undone, and how fast KV gets to another engine with and without it.

A part that fails does not keep the others from running. Without a CUDA device it says so and ends. Exit 1 where a part
fails or tokens differ.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "runtime"))
sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import torch
import transformers

from benchmarks.gpu_engines import Setup, engines, shape_of
from benchmarks.gpu_kv import identity, int8, kv_rates, transfers, worker
from benchmarks.gpu_times import fit, measure_times
from benchmarks.record import record
from iegopt import library
from iegopt.errors import InputError
from iegopt.spec.device import DeviceCard
from iegopt.spec.load import dump
from iegopt.spec.profile import Profile
from iegopt.spec.stage import Precision
from iegopt_runtime.lm.engine import LmEngine

ROOT = Path(__file__).resolve().parent.parent
NEEDED = 24 * 10**9
"""Bytes of device memory: three times the weights, KV, and room to copy it."""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", help="card of the device (default: by the name that the driver gives)")
    parser.add_argument("--write", action="store_true", help="keep the fit in models/profiles")
    arguments = parser.parse_args()
    found = cuda_device()
    if found is None:
        print("skipped: no CUDA device here")
        return 0
    name, free = found
    try:
        card = library.device(arguments.device or name.removeprefix("NVIDIA "))
    except InputError as error:
        print(f"{error}; name its card with --device", file=sys.stderr)
        return 1
    if free < NEEDED:
        print(f"{name}: {free / 1e9:.1f} GB are free: expected at least {NEEDED / 1e9:g} GB", file=sys.stderr)
        return 1
    figures, profile = check(full_setup(card))
    system = {"torch": str(torch.__version__), "cuda": torch.version.cuda, "transformers": transformers.__version__}
    record("gpu_check", {"device": name, **system, **figures})
    if arguments.write and profile is not None:
        file = ROOT / "models/profiles" / f"{profile.name}.yaml"
        file.write_text(dump("profile", profile), encoding="utf-8")
        print(f"written: {file.relative_to(ROOT)}")
    return 0 if not figures["failed"] and figures["identical"] == figures["compared"] else 1


def cuda_device() -> tuple[str, int] | None:
    """Name and free bytes of the device, ``None`` where there is none."""
    if not torch.cuda.is_available():
        return None
    return torch.cuda.get_device_name(), torch.cuda.mem_get_info()[0]


def full_setup(card: DeviceCard) -> Setup:
    llm = library.llm("Llama-3.2-1B")
    return Setup(
        device="cuda", shape=shape_of(llm), precision=Precision.BF16, llm=llm, card=card,
        prompts=(64, 128, 256, 512, 768, 1024, 2048, 4096), contexts=(64, 256, 1024, 2048, 3072, 4096, 6144, 8000),
        steps=32, block_tokens=1024, kv_bytes=10**9, repeats=5,
    )  # fmt: skip


def check(setup: Setup) -> tuple[dict[str, Any], Profile | None]:
    """All parts, their figures printed as they end; all figures, and the profile that fits the times."""
    figures: dict[str, Any] = {"failed": []}
    profiles: list[Profile] = []

    def times(one: LmEngine) -> dict[str, Any]:
        measured = measure_times(setup, one)
        profile, errors = fit(setup, measured)
        profiles.append(profile)
        return {"times": measured, "errors": errors}

    with tempfile.TemporaryDirectory() as scratch, engines(setup, Path(scratch)) as (one, other):
        parts: dict[str, Callable[[], dict[str, Any]]] = {
            "identity": lambda: identity(setup, one, other),
            "worker": lambda: worker(setup, one, Path(scratch)),
            "times": lambda: times(one),
            "kv rates": lambda: kv_rates(setup, one.store.memory, Path(scratch)),
            "int8": lambda: int8(setup, one),
            "transfers": lambda: transfers(setup, one, other),
        }
        for name, part in parts.items():
            began = time.perf_counter()
            try:
                found = part()
            except Exception:  # noqa: BLE001 - what the others tell is wanted all the same
                found = {}
                figures["failed"].append(name)
                traceback.print_exc()
            figures |= found
            print(f"{name}, {time.perf_counter() - began:.1f} s", *(f"  {k}: {v}" for k, v in found.items()), sep="\n")
            sys.stdout.flush()
    return figures, profiles[0] if profiles else None


if __name__ == "__main__":
    sys.exit(main())
