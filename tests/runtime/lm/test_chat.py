"""Increments continue what the model wrote exactly as the template would have written it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from transformers import AutoTokenizer

from iegopt_runtime.errors import ModelError
from iegopt_runtime.lm.chat import Chat
from iegopt_runtime.lm.tokenizers import TokenizerShelf
from iegopt_runtime.models.registry import Registry
from iegopt_runtime.models.tiny import byte_tokenizer

USER = {"role": "user", "content": "hi"}
RESULT = {"role": "tool", "content": "42"}
TOOLS = [{"type": "function", "function": {"name": "f", "parameters": {}}}]
LLAMA3 = (
    "{{ '<|begin_of_text|>' }}{% for m in messages %}{{ '<|start_header_id|>' + m.role + '<|end_header_id|>\n\n' }}"
    "{{ m.content | trim }}{{ '<|eot_id|>' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|start_header_id|>assistant<|end_header_id|>\n\n' }}{% endif %}"
)
STRICT = (
    "{% for m in messages %}{% if m.role == 'tool' %}{{ raise_exception('no role tool') }}{% endif %}"
    "{{ m.content }}{% endfor %}"
)


def tokenizer(template: str | None = None) -> Any:
    made = byte_tokenizer()
    made.add_special_tokens({"additional_special_tokens": ["<|eot_id|>"]})
    if template is not None:
        made.chat_template = template
    return made


@pytest.mark.parametrize("template", [None, LLAMA3], ids=["chatml", "llama3"])
@pytest.mark.parametrize("tools", [[], TOOLS], ids=["no tools", "tools"])
@pytest.mark.parametrize("ended", [True, False], ids=["ended", "cut"])
def test_prompt_answer_and_increment_are_the_whole(template: str | None, tools: list[Any], ended: bool) -> None:
    read = tokenizer(template)
    chat = Chat("m", read)
    answer = "I will call f."
    written = read.encode(answer, add_special_tokens=False)
    if ended:
        written += read.encode("<|im_end|>" if template is None else "<|eot_id|>", add_special_tokens=False)
    tokens = [*chat.prompt([USER], tools), *written, *chat.increment([USER], written, [RESULT], tools)]
    assert tokens == chat.prompt([USER, {"role": "assistant", "content": answer}, RESULT], tools)


def test_nothing_new_is_the_end_of_a_turn_and_the_next_ones_beginning() -> None:
    read = tokenizer()
    assert read.decode(Chat("m", read).increment([USER], [65], [USER])) == (
        "<|im_end|>\n<|im_start|>user\nhi<|im_end|>\n<|im_start|>assistant\n"
    )


def test_what_a_template_refuses_is_said() -> None:
    chat = Chat("m", tokenizer(STRICT))
    with pytest.raises(ModelError, match="m: its chat template refuses the messages: no role tool"):
        chat.increment([USER], [65], [RESULT])
    with pytest.raises(ModelError, match="does not keep"):
        Chat("m", tokenizer("{{ messages[0].content }}")).increment([USER], [65], [RESULT])


def test_without_a_template_text_is_asked_for() -> None:
    read = tokenizer()
    read.chat_template = None
    with pytest.raises(ModelError, match="has no chat template"):
        Chat("m", read)


def test_tokenizers_are_read_once(registry: Registry, tmp_path: Path) -> None:
    shelf = TokenizerShelf()
    artifact = registry.find("tiny")
    read = shelf.get(artifact)
    assert shelf.get(artifact) is read
    assert read.get_vocab() == AutoTokenizer.from_pretrained(artifact.folder()).get_vocab()
