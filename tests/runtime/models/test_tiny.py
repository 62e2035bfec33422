"""The tiny model is the same wherever it is made, and its tokenizer loses no byte."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from safetensors.torch import load_file
from transformers import AutoConfig, AutoTokenizer, PreTrainedTokenizerFast

from iegopt_runtime.models.tiny import byte_tokenizer, tiny_folder

TOKENIZER = byte_tokenizer()


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_folder(tmp_path_factory.mktemp("cache"))


def test_it_is_made_the_same_twice(folder: Path, tmp_path: Path) -> None:
    again = load_file(tiny_folder(tmp_path) / "model.safetensors")
    first = load_file(folder / "model.safetensors")
    assert first.keys() == again.keys()
    assert all(first[name].equal(again[name]) for name in first)


def test_its_heads_share_keys_and_values(folder: Path) -> None:
    config = AutoConfig.from_pretrained(folder)
    assert (config.num_attention_heads, config.num_key_value_heads, config.num_hidden_layers) == (4, 2, 2)


@given(st.text())
def test_every_text_comes_back(text: str) -> None:
    tokens = TOKENIZER.encode(text, add_special_tokens=False)
    assert TOKENIZER.decode(tokens) == text


@given(st.text().filter(lambda text: "<|" not in text))
def test_tokens_are_bytes(text: str) -> None:
    assert TOKENIZER.encode(text, add_special_tokens=False) == list(text.encode())


def test_the_template_writes_tools_and_calls(folder: Path) -> None:
    tokenizer = AutoTokenizer.from_pretrained(folder)
    assert isinstance(tokenizer, PreTrainedTokenizerFast)
    text = tokenizer.apply_chat_template(
        [
            {"role": "user", "content": "hi"},
            {"role": "assistant", "content": "", "tool_calls": [{"function": {"name": "f", "arguments": {"a": 1}}}]},
            {"role": "tool", "content": "42"},
        ],
        tools=[{"type": "function", "function": {"name": "f"}}],
        add_generation_prompt=True,
        tokenize=False,
    )
    assert text == (
        "<|im_start|>system\nYou may call these functions, each call as "
        '<tool_call>{"name": ..., "arguments": {...}}</tool_call>:\n'
        '{"type": "function", "function": {"name": "f"}}<|im_end|>\n'
        "<|im_start|>user\nhi<|im_end|>\n"
        '<|im_start|>assistant\n<tool_call>\n{"name": "f", "arguments": {"a": 1}}\n</tool_call><|im_end|>\n'
        "<|im_start|>tool\n42<|im_end|>\n<|im_start|>assistant\n"
    )
