"""Increments continue what the model wrote exactly as the template would have written it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from tokenizers import AddedToken
from transformers import AutoTokenizer

from iegopt_runtime.errors import ModelError
from iegopt_runtime.lm.chat import Chat
from iegopt_runtime.lm.tokenizers import FolderTokenizer, TokenizerShelf
from iegopt_runtime.models.registry import Registry
from iegopt_runtime.models.smollm2 import held
from iegopt_runtime.models.tiny import CHATML, byte_tokenizer

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


def tokenizer(template: str = CHATML) -> FolderTokenizer:
    core = byte_tokenizer().backend_tokenizer
    core.add_special_tokens([AddedToken("<|eot_id|>", normalized=False, special=True)])
    return FolderTokenizer(core, template, {"eos_token": "<|im_end|>"})


@pytest.mark.parametrize("template", [CHATML, LLAMA3], ids=["chatml", "llama3"])
@pytest.mark.parametrize("tools", [[], TOOLS], ids=["no tools", "tools"])
@pytest.mark.parametrize("ended", [True, False], ids=["ended", "cut"])
def test_prompt_answer_and_increment_are_the_whole(template: str, tools: list[Any], ended: bool) -> None:
    read = tokenizer(template)
    chat = Chat(read)
    answer = "I will call f."
    written = read.encode(answer)
    if ended:
        written += read.encode("<|im_end|>" if template == CHATML else "<|eot_id|>")
    tokens = [*chat.prompt([USER], tools), *written, *chat.increment([USER], written, [RESULT], tools)]
    assert tokens == chat.prompt([USER, {"role": "assistant", "content": answer}, RESULT], tools)


def test_nothing_new_is_the_end_of_a_turn_and_the_next_ones_beginning() -> None:
    read = tokenizer()
    assert read.decode(Chat(read).increment([USER], [65], [USER])) == (
        "<|im_end|>\n<|im_start|>user\nhi<|im_end|>\n<|im_start|>assistant\n"
    )


def test_what_a_template_refuses_is_said() -> None:
    chat = Chat(tokenizer(STRICT))
    with pytest.raises(ModelError, match="the chat template refuses the messages: no role tool"):
        chat.increment([USER], [65], [RESULT])
    with pytest.raises(ModelError, match="does not keep"):
        Chat(tokenizer("{{ messages[0].content }}")).increment([USER], [65], [RESULT])


def test_without_a_template_text_is_asked_for() -> None:
    read = FolderTokenizer(byte_tokenizer().backend_tokenizer, None, {})
    with pytest.raises(ModelError, match="has no chat template"):
        Chat(read).prompt([USER])


def test_templates_run_in_a_sandbox() -> None:
    with pytest.raises(ModelError, match="refuses the messages"):
        tokenizer("{{ messages.__class__.__mro__[1].__subclasses__() }}").render([USER], [])


@pytest.mark.parametrize("model", ["tiny", "smollm2"])
def test_it_is_what_transformers_reads(registry: Registry, model: str) -> None:
    if model == "smollm2" and not held():
        pytest.skip("SmolLM2 is not in the cache: iegopt models fetch smollm2")
    artifact = (registry if model == "tiny" else Registry.of()).find(model)
    ours, theirs = TokenizerShelf().get(artifact), AutoTokenizer.from_pretrained(artifact.folder())
    assert ours.eos_token_id == theirs.eos_token_id
    for text in ("Hello, wörld!\n\n  x = 1", "日本語 😀 <|im_end|> don't", " 12345\t"):
        tokens = theirs.encode(text, add_special_tokens=False)
        assert ours.encode(text) == tokens
        assert ours.decode(tokens) == theirs.decode(tokens) == text
    for tools in ((), TOOLS):
        rendered = theirs.apply_chat_template(
            [USER, {"role": "assistant", "content": "a"}, USER], tools=tools or None, add_generation_prompt=True,
            tokenize=False,
        )  # fmt: skip
        assert ours.render([USER, {"role": "assistant", "content": "a"}, USER], tools) == rendered


def test_a_folder_without_one_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match=r"expected tokenizer\.json"):
        FolderTokenizer.read(tmp_path)


def test_reading_one_loads_no_torch(registry: Registry) -> None:
    folder = registry.find("tiny").folder()
    code = f"""
import sys
sys.path[:0] = {sys.path!r}
from pathlib import Path
from iegopt_runtime.lm.chat import Chat
from iegopt_runtime.lm.tokenizers import FolderTokenizer
Chat(FolderTokenizer.read(Path({str(folder)!r}))).prompt([{USER!r}])
print(sorted(set(sys.modules) & {{"torch", "transformers"}}))
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
