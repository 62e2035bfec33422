"""What compressing KV on its way does to the tokens that follow.

``python benchmarks/kv_loss.py [--model tiny|smollm2] [--prompts N] [--tokens N]`` prefills prompts on one engine,
pushes their KV to another, and decodes there. Decoding is forced along the tokens of an undisturbed run, and the
share of positions where the likeliest token is another is told: after the first that differs, free runs part for
good, which says little. Tiny gets random bytes, SmolLM2 questions in its chat template. Beside it the error of the
KV itself and the bytes sent. Exit 1 where uncompressed KV changes a token, or int8 more than 5 % of them.
"""

from __future__ import annotations

import argparse
import queue
import random
import sys
import time
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "runtime"))
sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import torch

from benchmarks.record import record
from iegopt.spec.policy import KvTransferConfig
from iegopt_runtime.kv.codec import COMPRESSIONS, Compression, grade_of, measure
from iegopt_runtime.kv.memory import DeviceMemory
from iegopt_runtime.kv.push import KvSender
from iegopt_runtime.kv.server import KvServer
from iegopt_runtime.kv.store import KvStore
from iegopt_runtime.kv.tiers import Tier, TierPolicy
from iegopt_runtime.lm.chat import Chat
from iegopt_runtime.lm.engine import LmEngine
from iegopt_runtime.lm.jobs import Done, Event, Failed, Generate, Generated, Stop
from iegopt_runtime.lm.model_host import ModelHost
from iegopt_runtime.lm.tokenizers import TokenizerShelf
from iegopt_runtime.models.registry import Registry

SECRET = b"benchmark"
FREE = Stop(eos=False, calls="never")
MOST_INT8 = 0.05
QUESTIONS = (
    "What is the capital of France?", "Why is the sky blue?", "Write a haiku about the sea.",
    "Explain what a hash table is to a child.", "Name three rivers in Africa.", "How do I boil an egg?",
    "What is the difference between a virus and a bacterium?", "Summarise the story of Cinderella.",
    "Give me a recipe for pancakes.", "What did Isaac Newton discover?",
)  # fmt: skip


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", choices=("tiny", "smollm2"), default="tiny")
    parser.add_argument("--prompts", type=int, default=40)
    parser.add_argument("--tokens", type=int, default=64, help="of output for each prompt (default %(default)s)")
    arguments = parser.parse_args()
    registry = Registry.of()
    here, there = engine(registry), engine(registry)
    server = KvServer(there.store, SECRET, [f"unix:@iegopt-loss-{time.monotonic_ns()}"], time.monotonic)
    differing = dict.fromkeys(COMPRESSIONS, 0)
    errors: dict[str, list[tuple[float, float]]] = {compression: [] for compression in COMPRESSIONS}
    positions = 0
    for number, prompt in enumerate(prompts(arguments.model, registry, arguments.prompts)):
        whole = run(here, job(f"w{number}", arguments.model, prompt, arguments.tokens))
        positions += arguments.tokens - 1
        for compression in COMPRESSIONS:
            name = f"{compression}{number}"
            config = KvTransferConfig(overlap_compute=True, compression=compression)
            sender = KvSender(server.addresses[0], SECRET, config, here.store.memory)
            first = run(here, job(f"p{name}", arguments.model, prompt, 1, sink=sender))
            assert sender.pushed.result(60).tokens == len(prompt)
            forced = run(
                there,
                job(
                    f"d{name}", arguments.model, (*prompt, *first.tokens), arguments.tokens, segments=first.segments,
                    generated=1, script=whole.tokens, score=True, grade=grade_of(compression),
                ),
            )  # fmt: skip
            assert forced.reused == len(prompt)
            differing[compression] += sum(a != b for a, b in zip(forced.predicted, whole.tokens[1:], strict=True))
            errors[compression].append(kv_error(here, arguments.model, prompt, compression))
    server.close()
    here.close()
    there.close()
    return report(arguments.model, positions, differing, errors)


def report(
    model: str, positions: int, differing: dict[Compression, int], errors: dict[str, list[tuple[float, float]]]
) -> int:  # fmt: skip
    figures: dict[str, Any] = {"positions": positions, "share_differing": {}, "relative_error": {}, "bytes_ratio": {}}
    for compression, count in differing.items():
        relative, ratio = (sum(values) / len(values) for values in zip(*errors[compression], strict=True))
        figures["share_differing"][compression] = count / positions
        figures["relative_error"][compression], figures["bytes_ratio"][compression] = relative, ratio
        print(
            f"{model} {compression:5} {count:5} of {positions} tokens differ ({100 * count / positions:.2f} %), "
            f"error of KV {100 * relative:.2f} %, {100 * ratio:.1f} % of the bytes"
        )
    record(f"kv_loss_{model}", figures)
    return 1 if differing["none"] or differing["int8"] > MOST_INT8 * positions else 0


def prompts(model: str, registry: Registry, count: int) -> list[tuple[int, ...]]:
    if model == "tiny":
        draw = random.Random(3)
        return [tuple(draw.choices(range(256), k=draw.randint(16, 200))) for _ in range(count)]
    chat = Chat(TokenizerShelf().get(registry.find(model)))
    return [tuple(chat.prompt([{"role": "user", "content": question}])) for question in QUESTIONS[:count]]


def engine(registry: Registry) -> LmEngine:
    memory = DeviceMemory("cpu")
    return LmEngine(ModelHost(registry, memory), KvStore(memory, TierPolicy({Tier.L0: 10**9}))).start()


def job(name: str, model: str, tokens: tuple[int, ...], n: int, **options: Any) -> Generate:
    return Generate(name, model, tokens, "fp32", max_tokens=n, stop=FREE, **options)


def run(engine: LmEngine, wanted: Generate) -> Generated:
    events: queue.Queue[Event] = queue.Queue()
    engine.submit(wanted, events.put)
    while not isinstance(event := events.get(timeout=600), Done):
        assert not isinstance(event, Failed), event
    return event.result


def kv_error(engine: LmEngine, model: str, prompt: tuple[int, ...], compression: Compression) -> tuple[float, float]:
    """Relative error of the prompt's first block, and its bytes sent over those held."""
    block = engine.wanted(job("e", model, prompt, 1)).blocks[:1] or engine.wanted(
        job("e", model, prompt, 1, segments=(("prefill", len(prompt)),))
    ).blocks[:1]  # fmt: skip
    tensor = engine.store.read(block[0], time.monotonic())
    layout, _ = engine.host.shape(engine.host.registry.find(model))
    measured = measure(tensor.to(torch.float32), layout, compression)
    return measured.relative, measured.ratio


if __name__ == "__main__":
    sys.exit(main())
