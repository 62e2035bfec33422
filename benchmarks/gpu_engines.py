"""What the check for GPUs runs on: two engines with a random model in the shape of a card."""

from __future__ import annotations

import queue
import random
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from transformers import LlamaConfig

from iegopt.spec.device import DeviceCard
from iegopt.spec.llm import LlmCard
from iegopt.spec.stage import Precision
from iegopt.spec.variant import Backend, ExecutionPath, Variant
from iegopt_runtime.kv.memory import DeviceMemory
from iegopt_runtime.kv.store import KvStore
from iegopt_runtime.kv.tiers import Tier, TierPolicy
from iegopt_runtime.lm.engine import LmEngine
from iegopt_runtime.lm.jobs import Done, Event, Failed, Generate, Generated, Stop
from iegopt_runtime.lm.model_host import ModelHost
from iegopt_runtime.models.registry import Registry
from iegopt_runtime.models.tiny import llama_folder

SECRET = b"gpu check"
FREE = Stop(eos=False, calls="never")


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


def model_in(setup: Setup, scratch: Path) -> ExecutionPath:
    """Where the model lies, by the name of ``checked``."""
    variant = Variant(
        precision=setup.precision, backend=Backend.CUDA, compatible_devices=("any",),
        artifact_path=str(scratch / "model"),
    )  # fmt: skip
    return ExecutionPath(model="checked", variants=(variant,))


@contextmanager
def engines(setup: Setup, scratch: Path) -> Iterator[tuple[LmEngine, LmEngine]]:
    """Two engines on the device, each with weights and KV of its own."""
    llama_folder(scratch / "model", setup.shape, device=setup.device)
    registry = Registry.of([model_in(setup, scratch)], cache=scratch)
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


def prefilled(setup: Setup, tokens: Sequence[int]) -> Generate:
    """A job that would go on from the KV of these tokens."""
    return Generate(
        f"f{time.monotonic_ns()}", "checked", tuple(tokens), setup.precision, segments=(("prefill", len(tokens)),)
    )


def synchronise(memory: DeviceMemory) -> None:
    if memory.cuda:
        torch.cuda.synchronize(memory.device)
