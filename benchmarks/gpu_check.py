"""The torch worker on one CUDA device, in under five minutes.

``python benchmarks/gpu_check.py [--device CARD] [--write]`` makes a random model in the shape of Llama-3.2-1B (bf16)
and tells, part by part as they end,

- whether a prefill on one engine, moved in chunks and decoded on another, gives the tokens of one uninterrupted run;
- times of prefills and decode steps over a small grid, against the cost model before and after fitting (``--write``
  keeps the fit as a profile in ``models/profiles``);
- how fast KV goes to the host, to files, and back;
- what int8 does to its KV, how fast it is made and undone, and how fast KV gets to another engine with and without it.

A part that fails does not keep the others from running. Without a CUDA device it says so and ends. Exit 1 where a part
fails or tokens differ.
"""

from __future__ import annotations

import argparse
import datetime
import queue
import random
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "runtime"))
sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import numpy as np
import torch
import transformers
from transformers import LlamaConfig

from benchmarks.fit_profiles import held_out, least_squares
from benchmarks.record import record
from iegopt import library
from iegopt.cost.demand import demand
from iegopt.cost.profile import decode_fit_seconds, prefill_fit_seconds
from iegopt.cost.roofline import device_capacity, stage_time
from iegopt.errors import InputError
from iegopt.spec.device import DeviceCard
from iegopt.spec.llm import LlmCard
from iegopt.spec.load import dump
from iegopt.spec.policy import KvTransferConfig
from iegopt.spec.profile import DecodeFit, HeldOut, Measurement, PrefillFit, Profile
from iegopt.spec.stage import Precision, StageKind, StageSpec, TokenWork
from iegopt.spec.variant import Backend, ExecutionPath, Variant
from iegopt_runtime.kv.codec import decode, encode, encoded_bytes, measure
from iegopt_runtime.kv.fetch import KvFetcher
from iegopt_runtime.kv.files import BlockFiles
from iegopt_runtime.kv.memory import DeviceMemory
from iegopt_runtime.kv.push import KvSender
from iegopt_runtime.kv.server import KvServer
from iegopt_runtime.kv.store import KvStore
from iegopt_runtime.kv.tiers import Tier, TierPolicy
from iegopt_runtime.lm.engine import LmEngine
from iegopt_runtime.lm.jobs import Done, Event, Failed, Generate, Generated, Stop
from iegopt_runtime.lm.model_host import ModelHost
from iegopt_runtime.models.registry import Registry
from iegopt_runtime.models.tiny import llama_folder

ROOT = Path(__file__).resolve().parent.parent
SECRET = b"gpu check"
FREE = Stop(eos=False, calls="never")
NEEDED = 20 * 10**9
"""Bytes of device memory: two engines with weights of their own, KV, and room to copy it."""


@dataclass(frozen=True)
class Setup:
    """What is checked where: a shape in a precision, the cards that stand for it, and the grid."""

    device: str
    shape: LlamaConfig
    precision: Precision
    llm: LlmCard
    card: DeviceCard
    prompts: Sequence[int]
    contexts: Sequence[int]
    steps: int
    block_tokens: int
    kv_bytes: int
    repeats: int


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


def shape_of(llm: LlmCard) -> LlamaConfig:
    """A Llama of the card's shape; its feed-forward is as wide as the parameters leave room for."""
    assert llm.kv_heads is not None
    assert llm.head_dim is not None
    attention = 2 * llm.hidden_size * llm.head_dim * (llm.attention_heads + llm.kv_heads)
    rest = (llm.parameters - llm.vocabulary * llm.hidden_size) / llm.layers - attention
    return LlamaConfig(
        hidden_size=llm.hidden_size, intermediate_size=int(rest / (3 * llm.hidden_size)) // 64 * 64 or 64,
        num_hidden_layers=llm.layers, num_attention_heads=llm.attention_heads, num_key_value_heads=llm.kv_heads,
        head_dim=llm.head_dim, vocab_size=llm.vocabulary, max_position_embeddings=min(llm.max_context, 16384),
        tie_word_embeddings=True, dtype="bfloat16",
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


@contextmanager
def engines(setup: Setup, scratch: Path) -> Iterator[tuple[LmEngine, LmEngine]]:
    """Two engines on the device, each with weights and KV of its own."""
    llama_folder(folder := scratch / "model", setup.shape, device=setup.device)
    variant = Variant(
        precision=setup.precision, backend=Backend.CUDA, compatible_devices=("any",), artifact_path=str(folder)
    )  # fmt: skip
    registry = Registry.of([ExecutionPath(model="checked", variants=(variant,))], cache=scratch)
    memory = DeviceMemory(setup.device)
    made = []
    for _ in range(2):
        store = KvStore(memory, TierPolicy({Tier.L0: 4 * setup.kv_bytes, Tier.L1: setup.kv_bytes}))
        made.append(LmEngine(ModelHost(registry, memory), store, block_tokens=setup.block_tokens).start())
    try:
        yield made[0], made[1]
    finally:
        for engine in made:
            engine.close()


def run(setup: Setup, engine: LmEngine, tokens: Sequence[int], n: int, **options: Any) -> Generated:
    events: queue.Queue[Event] = queue.Queue()
    job = Generate(
        f"j{time.monotonic_ns()}", "checked", tuple(tokens), setup.precision, max_tokens=n, stop=FREE, **options
    )
    engine.submit(job, events.put)
    while not isinstance(event := events.get(timeout=180), Done):
        assert not isinstance(event, Failed), event
    return event.result


def prompt(setup: Setup, length: int, seed: int) -> list[int]:
    return random.Random(f"{length} {seed}").choices(range(min(256, setup.shape.vocab_size)), k=length)


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


def kv_rates(setup: Setup, memory: DeviceMemory, scratch: Path) -> dict[str, float]:
    """GB/s of KV from the device to the host, to files, and back."""
    kv = torch.randn(setup.kv_bytes // 2, device=memory.device, dtype=torch.float32).to(torch.bfloat16)
    files, key = BlockFiles(scratch / "blocks"), "0" * 32
    host = memory.to_host(kv)

    def rate(act: Callable[[], object]) -> float:
        synchronise(memory)
        began = time.perf_counter()
        act()
        synchronise(memory)
        return kv.nbytes / (time.perf_counter() - began) / 1e9

    return {
        "to_host_gb_per_s": median(rate(lambda: memory.to_host(kv)) for _ in range(setup.repeats)),
        "to_device_gb_per_s": median(rate(lambda: memory.to_device(host)) for _ in range(setup.repeats)),
        "to_files_gb_per_s": rate(lambda: files.write(key, host)),
        "from_files_gb_per_s": rate(lambda: files.read(key)),
    }


def synchronise(memory: DeviceMemory) -> None:
    if memory.cuda:
        torch.cuda.synchronize(memory.device)


def int8(setup: Setup, engine: LmEngine) -> dict[str, float]:
    """Relative error and bytes ratio of int8 on KV that the model made; GB/s of KV from the device into bytes, and from
    bytes to the host."""
    tokens = prompt(setup, setup.block_tokens, 7)
    run(setup, engine, tokens, 1)
    wanted = engine.wanted(prefilled(setup, tokens))
    block = engine.store.read(wanted.blocks[0], time.monotonic())
    error = measure(block, wanted.layout, "int8")
    shape = (block.shape[0], block.shape[3])
    data = memoryview(bytearray(encoded_bytes(wanted.layout, *shape, "int8")))
    back = torch.empty(block.shape, dtype=block.dtype)

    def rate(act: Callable[[], object]) -> float:
        synchronise(engine.store.memory)
        began = time.perf_counter()
        act()  # ends in copies that are waited for
        return float(block.nbytes / (time.perf_counter() - began) / 1e9)

    return {
        "int8_relative_error": error.relative,
        "int8_bytes": error.ratio,
        "int8_encode_gb_per_s": median(rate(lambda: encode(block, "int8", data)) for _ in range(setup.repeats)),
        "int8_decode_gb_per_s": median(
            rate(lambda: decode(data, wanted.layout, *shape, "int8", back)) for _ in range(setup.repeats)
        ),
    }


def prefilled(setup: Setup, tokens: Sequence[int]) -> Generate:
    """A job that would go on from the KV of these tokens."""
    return Generate(
        f"f{time.monotonic_ns()}", "checked", tuple(tokens), setup.precision, segments=(("prefill", len(tokens)),)
    )


@contextmanager
def serving(engine: LmEngine) -> Iterator[list[str]]:
    """Its KV, through shared memory and through TCP."""
    addresses = [f"unix:@iegopt-gpu-{time.monotonic_ns()}", "tcp:127.0.0.1:0"]
    server = KvServer(engine.store, SECRET, addresses, time.monotonic)
    try:
        yield server.addresses
    finally:
        server.close()


def transfers(setup: Setup, one: LmEngine, other: LmEngine) -> dict[str, float]:
    """GB/s of KV from engine to engine, by transport, exact and as int8; the KV of the longest prompt."""
    tokens = prompt(setup, max(setup.prompts), 8)
    run(setup, one, tokens, 1, kv_id="transfers")
    wanted, figures = one.wanted(prefilled(setup, tokens)), {}
    with serving(one) as addresses:
        for address in addresses:
            for compression in ("none", "int8"):
                config = KvTransferConfig(chunk_size=8 * 10**6, pipeline_depth=4, compression=compression)
                store = KvStore(other.store.memory, TierPolicy({Tier.L0: 4 * setup.kv_bytes}))
                fetcher = KvFetcher(store, SECRET, time.monotonic)
                began = time.perf_counter()
                got = fetcher.fetch(wanted, [address], config)
                seconds = time.perf_counter() - began
                assert (got.failures, got.manifest.tokens) == ((), len(tokens)), got
                figures[f"{address.partition(':')[0]}_{compression}_gb_per_s"] = wanted.bytes / seconds / 1e9
    one.store.forget("transfers")
    return figures


def identity(setup: Setup, one: LmEngine, other: LmEngine) -> dict[str, Any]:
    """How many prompts decode to the same tokens after their KV has moved, and at which token the others part."""
    config = KvTransferConfig(chunk_size=8 * 10**6, pipeline_depth=4, overlap_compute=True)
    parted: dict[int, int] = {}
    with serving(other) as addresses:
        for number, n in enumerate(setup.prompts):
            tokens = prompt(setup, n, 1000 + number)
            whole = run(setup, one, tokens, setup.steps).tokens
            sender = KvSender(addresses[number % len(addresses)], SECRET, config, one.store.memory)
            first = run(setup, one, tokens, 1, sink=sender)
            assert sender.pushed.result(60).tokens == n
            moved = run(
                setup, other, [*tokens, *first.tokens], setup.steps, segments=first.segments, generated=1
            )  # fmt: skip
            assert moved.reused == n, f"{moved.reused} tokens of KV were used: expected {n}"
            if moved.tokens != whole:
                parted[n] = next(i for i, pair in enumerate(zip(moved.tokens, whole, strict=True)) if len({*pair}) > 1)
    compared = len(setup.prompts)
    return {"identical": compared - len(parted), "compared": compared, "parted": parted}


if __name__ == "__main__":
    sys.exit(main())
