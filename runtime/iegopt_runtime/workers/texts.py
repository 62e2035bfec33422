"""Tokenizers of models, loaded when they are first asked for; without weights."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import Any

from iegopt.errors import InputError
from iegopt.units import shown
from iegopt_runtime.lm.chat import Chat
from iegopt_runtime.lm.tokenizers import FolderTokenizer
from iegopt_runtime.models.registry import Registry

__all__ = ["Text", "Texts"]

_ROLES = ("system", "user", "assistant", "tool")
_ANY = ({"role": "user", "content": "?"},)
"""Stands for the conversation before, which what is added to it does not depend on."""


class Text:
    """Prompts of one model as tokens, and what results of tools add to them."""

    def __init__(self, tokenizer: FolderTokenizer) -> None:
        self._tokenizer = tokenizer
        self._chat = Chat(tokenizer) if tokenizer.template is not None else None

    def of_prompt(self, text: str) -> list[int]:
        """What a user says to a model that chats, else the text as it is."""
        if self._chat is not None:
            return self._chat.prompt([{"role": "user", "content": text}])
        return self._tokenizer.encode(text)

    def of_messages(self, messages: Sequence[Any]) -> list[int]:
        """A conversation up to where the model speaks.

        Raises
        ------
        InputError
            Naming the message that is none, or the template's refusal.
        """
        for number, message in enumerate(messages):
            if not isinstance(message, dict) or message.get("role") not in _ROLES:
                expected = f"an object with role ({', '.join(_ROLES)}) and content"
                raise InputError(f"messages.{number}: {shown(message)}: expected {expected}")
            _check_content(number, message)
        if self._chat is None:
            raise InputError("the model has no chat template: expected text or tokens in place of messages")
        return self._chat.prompt(messages)

    def added(self, tokens: Sequence[int], results: Sequence[dict[str, Any]]) -> list[int]:
        """What results add to a sequence in which the model spoke last.

        Parameters
        ----------
        results
            ``{role: tool, name, content}`` and ``{role: documents, documents}``, as ``iegopt.control.work`` has them.
        """
        if not results:
            return []
        messages = [_message(entry) for entry in results]
        if self._chat is not None:
            return self._chat.increment(_ANY, tokens[-1:], messages)
        return self._tokenizer.encode("".join(f"\n{message['content']}" for message in messages) + "\n")


def _check_content(number: int, message: dict[str, Any]) -> None:
    """Text, or parts where the model's template knows them; a model that calls tools need say nothing."""
    content = message.get("content")
    calls = message["role"] == "assistant" and bool(message.get("tool_calls"))
    if not isinstance(content, str | list) and not (content is None and calls):
        told = shown(content) if "content" in message else "missing"
        raise InputError(f"messages.{number}.content: {told}: expected text")


def _message(entry: dict[str, Any]) -> dict[str, Any]:
    """A message of role ``tool``, which every template with tools knows; documents are what a tool found."""
    if entry.get("role") == "documents":
        texts = [str(document.get("text", "")) for document in entry["documents"]]
        content = "\n".join(f"[{number}] {text}" for number, text in enumerate(texts, 1))
        return {"role": "tool", "name": "documents", "content": content}
    return {"role": "tool", "name": entry["name"], "content": entry["content"]}


class Texts:
    """Finds tokenizers by the name of their model; from any thread."""

    def __init__(self, registry: Registry) -> None:
        self._registry, self._texts = registry, dict[str, Text]()
        self._lock = threading.Lock()

    def of(self, model: str | None) -> Text:
        """
        Raises
        ------
        InputError
            No model is named, or none that has an artifact here.
        """
        if model is None:
            raise InputError("no model is named, whose tokenizer would be meant")
        with self._lock:
            if model not in self._texts:
                self._texts[model] = Text(FolderTokenizer.read(self._registry.find(model).folder()))
            return self._texts[model]
