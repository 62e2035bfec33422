"""A tiny random Llama with grouped-query attention and a byte-level tokenizer, made here and the same everywhere.

It says nothing sensible; it is real in all else: 2 layers, 4 heads on 2 KV heads, rotary positions, a chat template
in ChatML with tools. Weights are drawn wide, so that its greedy output varies and reacts to every bit of its KV.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from iegopt_runtime.models.cache import made

if TYPE_CHECKING:  # whoever only looks for the folder needs no torch
    from transformers import LlamaConfig, PreTrainedTokenizerFast

__all__ = ["CHATML", "NAME", "byte_tokenizer", "llama_folder", "tiny_folder"]

NAME = "tiny"
CONTEXT = 4096
"""Tokens that its positions are made for."""
REVISION = 1
"""Counted up when what is made here changes, so that an old cache is not taken for it."""

SPECIAL = ("<|pad|>", "<|endoftext|>", "<|im_start|>", "<|im_end|>")

CHATML = """\
{%- if tools %}<|im_start|>system
{{ messages[0].content + '\n' if messages and messages[0].role == 'system' else '' -}}
You may call these functions, each call as <tool_call>{"name": ..., "arguments": {...}}</tool_call>:
{%- for tool in tools %}
{{- '\n' + tool | tojson }}
{%- endfor %}<|im_end|>
{% endif %}
{%- for message in messages %}
{%- if not (loop.first and tools and message.role == 'system') %}<|im_start|>{{ message.role }}
{{ message.content or '' }}
{%- for call in message.tool_calls or [] %}
{{- '\n' if message.content or not loop.first }}<tool_call>
{{ (call.function or call) | tojson }}
</tool_call>
{%- endfor %}<|im_end|>
{% endif %}
{%- endfor %}
{%- if add_generation_prompt %}<|im_start|>assistant
{% endif %}"""
"""ChatML as Qwen and SmolLM write it, with tool calls in Hermes tags."""


def tiny_folder(cache: Path | None = None) -> Path:
    """The folder of the tiny model, made on the first call (a second or less)."""
    return made(f"{NAME}-{REVISION}", _make, cache)


def _make(draft: Path) -> None:
    from transformers import LlamaConfig

    config = LlamaConfig(
        hidden_size=64,
        intermediate_size=128,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        vocab_size=256 + len(SPECIAL),
        max_position_embeddings=CONTEXT,
        initializer_range=0.35,
        tie_word_embeddings=False,
        eos_token_id=256 + SPECIAL.index("<|im_end|>"),
        bos_token_id=None,
        pad_token_id=256,
    )
    llama_folder(draft, config)


def llama_folder(folder: Path, config: LlamaConfig, seed: int = 20, device: str = "cpu") -> None:
    """Fill ``folder`` with a Llama of this shape and dtype (fp32 where the configuration has none), random weights
    drawn with ``seed`` on ``device``, and the byte tokenizer."""
    import torch
    from transformers import LlamaForCausalLM

    from iegopt_runtime.models.quiet import quiet

    with torch.random.fork_rng(devices=[]), torch.device(device):
        torch.manual_seed(seed)
        model = LlamaForCausalLM(config).to(config.dtype or torch.float32).cpu()
    with quiet():
        model.save_pretrained(folder)
        byte_tokenizer().save_pretrained(folder)


def byte_tokenizer() -> PreTrainedTokenizerFast:
    """Token ``b`` is the byte ``b``; above 255 stand the special tokens."""
    from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    letters = _letters_of_bytes()
    core = Tokenizer(models.BPE(vocab={letter: byte for byte, letter in enumerate(letters)}, merges=[]))
    core.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    core.decoder = decoders.ByteLevel()
    core.add_special_tokens([AddedToken(text, normalized=False, special=True) for text in SPECIAL])
    return PreTrainedTokenizerFast(
        tokenizer_object=core,
        pad_token="<|pad|>",
        eos_token="<|im_end|>",
        chat_template=CHATML,
        model_max_length=CONTEXT,
        clean_up_tokenization_spaces=False,
    )


def _letters_of_bytes() -> list[str]:
    """The printable letter that byte-level BPE writes for each byte (Radford et al. 2019, GPT-2's encoder)."""
    printable = [*range(ord("!"), ord("~") + 1), *range(ord("¡"), ord("¬") + 1), *range(ord("®"), ord("ÿ") + 1)]
    others = [byte for byte in range(256) if byte not in printable]
    letters = {byte: chr(byte) for byte in printable} | {byte: chr(256 + i) for i, byte in enumerate(others)}
    return [letters[byte] for byte in range(256)]
