"""Tokenizer and chat template of a model, read from its folder as transformers would, without loading torch.

Stages that only read and write text run in processes of their own, which start in a fraction of a second this way.
Chat templates are code from elsewhere: they are rendered in Jinja's sandbox, with the helpers that templates expect.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any, NoReturn

from jinja2 import nodes
from jinja2.exceptions import TemplateError
from jinja2.ext import Extension, loopcontrols
from jinja2.parser import Parser
from jinja2.sandbox import ImmutableSandboxedEnvironment
from tokenizers import Tokenizer

from iegopt_runtime.errors import ModelError
from iegopt_runtime.models.registry import Artifact

__all__ = ["FolderTokenizer", "TokenizerShelf"]


class FolderTokenizer:
    """A fast tokenizer.

    Parameters
    ----------
    words
        What a template may name: ``eos_token``, ``bos_token`` and others, as text.
    """

    def __init__(self, core: Tokenizer, template: str | None, words: Mapping[str, str]) -> None:
        self.template = template
        self._core = core
        self._words = dict(words)
        self._special = {number: token.content for number, token in core.get_added_tokens_decoder().items()}

    @classmethod
    def read(cls, folder: Path) -> FolderTokenizer:
        """From ``tokenizer.json``, ``tokenizer_config.json`` and ``chat_template.jinja``.

        Raises
        ------
        ModelError
            There is none, or it cannot be read.
        """
        try:
            core = Tokenizer.from_file(str(folder / "tokenizer.json"))
            config_file, template_file = folder / "tokenizer_config.json", folder / "chat_template.jinja"
            config = json.loads(config_file.read_text(encoding="utf-8")) if config_file.is_file() else {}
            template = config.get("chat_template")
            if template_file.is_file():
                template = template_file.read_text(encoding="utf-8")
        except Exception as error:  # noqa: BLE001 - tokenizers raises bare Exception
            raise ModelError(f"{folder}: expected tokenizer.json of a fast tokenizer ({error})") from None
        if isinstance(template, list):  # several by name
            template = next((entry["template"] for entry in template if entry["name"] == "default"), None)
        words = {key: value.get("content") if isinstance(value, dict) else value for key, value in config.items()}
        return cls(core, template, {k: v for k, v in words.items() if k.endswith("_token") and isinstance(v, str)})

    @property
    def eos_token_id(self) -> int | None:
        """The token that the configuration ends output with."""
        word = self._words.get("eos_token")
        found: int | None = self._core.token_to_id(word) if word is not None else None
        return found

    def encode(self, text: str) -> list[int]:
        """Tokens of a text; special tokens that it spells out are taken as such, none are added."""
        tokens: list[int] = self._core.encode(text, add_special_tokens=False).ids
        return tokens

    def decode(self, token_ids: Sequence[int], *, skip_special_tokens: bool = False) -> str:
        text: str = self._core.decode(list(token_ids), skip_special_tokens=skip_special_tokens)
        return text

    def special(self, token: int) -> str | None:
        """The text of a special token such as the end of a turn; ``None`` for ordinary ones."""
        return self._special.get(token)

    def render(self, messages: Sequence[Mapping[str, Any]], tools: Sequence[Mapping[str, Any]]) -> str:
        """The conversation as text, up to where the model's turn begins.

        Raises
        ------
        ModelError
            There is no template, or it refuses the messages.
        """
        if self.template is None:
            raise ModelError("the model has no chat template: give the prompt as text")
        try:
            return (
                _environment()
                .from_string(self.template)
                .render(
                    messages=[dict(message) for message in messages],
                    tools=[dict(tool) for tool in tools] or None,
                    add_generation_prompt=True,
                    **self._words,
                )
            )
        except (TemplateError, TypeError, ValueError, KeyError, ArithmeticError, RecursionError) as error:
            raise ModelError(f"the chat template refuses the messages: {error}") from None


class TokenizerShelf:
    """Every tokenizer is read once."""

    def __init__(self) -> None:
        self._read: dict[str, FolderTokenizer] = {}

    def get(self, artifact: Artifact) -> FolderTokenizer:
        """The tokenizer of a model; ``ModelError`` where its folder has none."""
        if artifact.identity not in self._read:
            self._read[artifact.identity] = FolderTokenizer.read(artifact.folder())
        return self._read[artifact.identity]


class _Generation(Extension):
    """``{% generation %}`` marks what a model wrote, for training; here it changes nothing."""

    tags = {"generation"}  # noqa: RUF012 - as Jinja has it

    def parse(self, parser: Parser) -> list[nodes.Node]:
        next(parser.stream)
        return parser.parse_statements(("name:endgeneration",), drop_needle=True)


def _environment() -> ImmutableSandboxedEnvironment:
    environment = ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=[_Generation, loopcontrols]
    )
    environment.filters["tojson"] = _to_json
    environment.globals["raise_exception"] = _refuse
    environment.globals["strftime_now"] = lambda form: datetime.now().strftime(form)
    return environment


def _to_json(
    value: Any, ensure_ascii: bool = False, indent: int | None = None, separators: Any = None, sort_keys: bool = False
) -> str:
    """Without the escapes for HTML that Jinja's own has."""
    return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)


def _refuse(message: str) -> NoReturn:
    raise TemplateError(message)
