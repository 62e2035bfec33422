"""The models that a worker has in memory: loaded on demand, the least used one unloaded where room is needed."""

from __future__ import annotations

import inspect
import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from safetensors import safe_open
from transformers import AutoConfig, AutoModelForCausalLM

from iegopt_runtime.errors import ModelError, NoRoom
from iegopt_runtime.kv.layout import KvLayout
from iegopt_runtime.kv.memory import DeviceMemory
from iegopt_runtime.lm.kv_buffer import SequenceKv
from iegopt_runtime.lm.tokenizers import FolderTokenizer
from iegopt_runtime.models.quiet import quiet
from iegopt_runtime.models.registry import Artifact, Registry

__all__ = ["LoadedModel", "ModelHost", "Resident", "cache_argument"]

DTYPES = {"fp32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}
FULL_KV = {"full_attention", "sliding_attention", "chunked_attention"}
"""Kinds of layers whose state is keys and values of every token; a window only masks some of them."""


@dataclass
class LoadedModel:
    """A model in memory. ``context`` in tokens; ``eos`` are the tokens that end its output; ``cache`` is the argument
    by which it takes KV."""

    artifact: Artifact
    model: Any
    tokenizer: FolderTokenizer
    layout: KvLayout
    context: int
    vocabulary: int
    eos: frozenset[int]
    bytes: int
    load_seconds: float
    cache: str
    users: int = 0
    used_at: float = field(default=0.0)

    def forward(self, tokens: torch.Tensor, kv: SequenceKv) -> torch.Tensor:
        """One pass over ``tokens``, shape (1, n), after what ``kv`` holds; the logits after the last, (vocabulary,)."""
        out = self.model(input_ids=tokens, use_cache=True, logits_to_keep=1, **{self.cache: kv.cache})
        logits: torch.Tensor = out.logits[0, -1]
        return logits

    def hidden(self, tokens: torch.Tensor) -> torch.Tensor:
        """Hidden states of the last layer, shape (n, hidden)."""
        states: torch.Tensor = self.model.get_decoder()(input_ids=tokens, use_cache=False).last_hidden_state[0]
        return states

    def logits(self, tokens: torch.Tensor) -> torch.Tensor:
        """Logits after every token, shape (n, vocabulary)."""
        logits: torch.Tensor = self.model(input_ids=tokens, use_cache=False).logits[0]
        return logits


@dataclass(frozen=True)
class Resident:
    """A variant in memory, for the planner."""

    model: str
    variant: str
    bytes: int
    in_use: bool


class ModelHost:
    """Models on one device.

    Parameters
    ----------
    budget
        Bytes for weights; ``None``: no limit but the machine's.
    """

    def __init__(self, registry: Registry, memory: DeviceMemory, budget: int | None = None) -> None:
        self.registry = registry
        self.memory = memory
        self.budget = budget
        self._loaded: dict[str, LoadedModel] = {}
        self._loading: dict[str, tuple[int, Future[LoadedModel]]] = {}
        self._load_times: dict[str, float] = {}
        self._shapes: dict[str, tuple[KvLayout, int]] = {}
        self._loader = ThreadPoolExecutor(1, thread_name_prefix="model-loader")

    def shape(self, artifact: Artifact) -> tuple[KvLayout, int]:
        """Layout of the KV and longest context in tokens, from the configuration alone."""
        if artifact.identity not in self._shapes:
            self._shapes[artifact.identity] = _shape(artifact)
        return self._shapes[artifact.identity]

    def take(self, artifact: Artifact, now: float, ready: Callable[[], None]) -> LoadedModel | None:
        """The model, in use until ``release``; ``None`` while it is being loaded, ``ready`` being called afterwards.

        Raises
        ------
        NoRoom
            Models in use leave too little.
        ModelError
            It cannot be loaded.
        """
        name = artifact.identity
        self._take_in(name)
        if loaded := self._loaded.get(name):
            loaded.users += 1
            loaded.used_at = now
            return loaded
        if name not in self._loading:
            size = _weight_bytes(artifact)
            self._make_room(size)
            future = self._loader.submit(self._load, artifact, size)
            self._loading[name] = (size, future)
            future.add_done_callback(lambda _: ready())
        return None

    def _take_in(self, wanted: str) -> None:
        """What has been loaded meanwhile, whoever asked for it; why the one that is wanted could not be is raised."""
        for name in [name for name, (_, future) in self._loading.items() if future.done()]:
            future = self._loading.pop(name)[1]
            if name == wanted or future.exception() is None:
                self._loaded[name] = future.result()
                self._load_times[name] = self._loaded[name].load_seconds

    def release(self, loaded: LoadedModel) -> None:
        loaded.users -= 1

    def resident(self) -> tuple[Resident, ...]:
        return tuple(
            Resident(m.artifact.model, m.artifact.variant, m.bytes, m.users > 0) for m in list(self._loaded.values())
        )

    def load_times(self) -> dict[str, float]:
        """``model/variant`` -> seconds that loading it took here, the last time; those that have left, too."""
        return dict(self._load_times)

    def used(self) -> int:
        """Bytes of weights, those being loaded included."""
        return sum(m.bytes for m in list(self._loaded.values())) + self._coming()

    def available(self) -> int | None:
        """Bytes that weights to come can have, those of models that nobody uses included; ``None`` without a budget."""
        if self.budget is None:
            return None
        used = sum(m.bytes for m in list(self._loaded.values()) if m.users)
        return max(0, self.budget - used - self._coming())

    def _coming(self) -> int:
        return sum(size for size, _ in list(self._loading.values()))

    def close(self) -> None:
        """Let go of all models; one that is being loaded is let go when it is."""
        self._loader.shutdown(wait=False, cancel_futures=True)
        self._loaded.clear()

    def _make_room(self, size: int) -> None:
        if self.budget is None:
            return
        while self.used() + size > self.budget:
            idle = [m for m in self._loaded.values() if not m.users]
            if not idle:
                raise NoRoom("weights", size, self.budget - self.used())
            del self._loaded[min(idle, key=lambda m: m.used_at).artifact.identity]
            if self.memory.cuda:
                torch.cuda.empty_cache()

    def _load(self, artifact: Artifact, size: int) -> LoadedModel:
        began = time.perf_counter()
        layout, context = self.shape(artifact)
        folder = artifact.folder()
        tokenizer = FolderTokenizer.read(folder)
        with quiet():
            model = AutoModelForCausalLM.from_pretrained(
                folder, dtype=DTYPES[artifact.precision], local_files_only=True, attn_implementation="sdpa"
            )
        model = model.to(self.memory.device).eval().requires_grad_(False)
        seconds = time.perf_counter() - began
        vocabulary = model.get_input_embeddings().num_embeddings
        eos, cache = _eos(model, tokenizer), cache_argument(artifact, model)
        return LoadedModel(artifact, model, tokenizer, layout, context, vocabulary, eos, size, seconds, cache)


def _shape(artifact: Artifact) -> tuple[KvLayout, int]:
    folder = artifact.folder()
    try:
        config = AutoConfig.from_pretrained(folder, local_files_only=True).get_text_config()
    except (OSError, ValueError, KeyError) as error:
        raise ModelError(f"{artifact.model}: {folder}: transformers cannot read its config.json ({error})") from None
    other = set(getattr(config, "layer_types", None) or ()) - FULL_KV
    if other or getattr(config, "kv_lora_rank", None) or not hasattr(config, "num_attention_heads"):
        kinds = ", ".join(sorted(other)) or "latent KV"
        raise ModelError(f"{artifact.model}: layers with {kinds}; served are those that keep keys and values of tokens")
    heads = config.num_attention_heads
    layout = KvLayout(
        layers=config.num_hidden_layers,
        heads=getattr(config, "num_key_value_heads", None) or heads,
        head_dim=getattr(config, "head_dim", None) or config.hidden_size // heads,
        dtype=str(DTYPES[artifact.precision]).removeprefix("torch."),
    )
    return layout, int(getattr(config, "max_position_embeddings", None) or 1 << 20)


def _weight_bytes(artifact: Artifact) -> int:
    """Bytes of the weights in this precision, from the headers of their files."""
    files: list[Path] = sorted(artifact.folder().glob("*.safetensors"))
    if not files:
        raise ModelError(f"{artifact.model}: {artifact.folder()}: expected weights as safetensors")
    numbers = 0
    for file in files:
        with safe_open(file, "pt") as weights:
            for name in weights.keys():  # noqa: SIM118 - no mapping
                shape = weights.get_slice(name).get_shape()
                numbers += int(torch.Size(shape).numel())
    return numbers * DTYPES[artifact.precision].itemsize


def cache_argument(artifact: Artifact, model: Any) -> str:
    """The argument of a model's ``forward`` that takes its KV cache.

    Models take what they do not know without a word, so that KV by another name would be lost.

    Raises
    ------
    ModelError
        There is none.
    """
    known = inspect.signature(model.forward).parameters
    found = next((name for name in ("cache", "past_key_values") if name in known), None)
    if found is None:
        raise ModelError(f"{artifact.model}: {type(model).__name__} takes no KV cache; served are models that do")
    return found


def _eos(model: Any, tokenizer: FolderTokenizer) -> frozenset[int]:
    configured = getattr(model.generation_config, "eos_token_id", None)
    found = configured if isinstance(configured, list) else [configured]
    return frozenset(int(token) for token in [*found, tokenizer.eos_token_id] if token is not None)
