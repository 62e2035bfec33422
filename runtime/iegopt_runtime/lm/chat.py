"""Messages to tokens by the chat template of a model, and later only what is new.

A round of an agent appends to what the KV holds already: the end of the model's turn, results of tools, the beginning
of its next turn. The template is rendered with a mark in place of what the model wrote, and what follows the mark is
the increment, so that tokens the model has written are never written again in another way.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from jinja2.exceptions import TemplateError

from iegopt_runtime.errors import ModelError

__all__ = ["Chat", "Message"]

Message = Mapping[str, Any]
MARK = "@@what-the-model-wrote@@"


class Chat:
    """The chat of one model.

    Parameters
    ----------
    tokenizer
        Of Hugging Face, with a chat template.
    """

    def __init__(self, model: str, tokenizer: Any) -> None:
        if not getattr(tokenizer, "chat_template", None):
            raise ModelError(f"{model} has no chat template: give the prompt as text")
        self._model = model
        self._tokenizer = tokenizer

    def prompt(self, messages: Sequence[Message], tools: Sequence[Mapping[str, Any]] = ()) -> list[int]:
        """Tokens of a conversation up to where the model's turn begins.

        Parameters
        ----------
        tools
            Functions as the chat API of OpenAI describes them.

        Raises
        ------
        ModelError
            The template refuses the messages.
        """
        return self._tokens(self._render(messages, tools))

    def increment(
        self,
        messages: Sequence[Message],
        written: Sequence[int],
        new: Sequence[Message],
        tools: Sequence[Mapping[str, Any]] = (),
    ) -> list[int]:
        """Tokens to append after what the model wrote in answer to ``messages``, so that ``new`` messages follow and
        its next turn begins.

        Parameters
        ----------
        written
            The model's tokens, which may or may not end with the token that ends a turn.

        Raises
        ------
        ModelError
            The template refuses the messages, or changes what the model writes so that it cannot be found again.
        """
        text = self._render([*messages, {"role": "assistant", "content": MARK}, *new], tools)
        if text.count(MARK) != 1:
            raise ModelError(f"{self._model}: its chat template does not keep what the model writes as it is")
        rest = text.partition(MARK)[2]
        if written:
            rest = rest.removeprefix(self._special(written[-1]))
        return self._tokens(rest)

    def _render(self, messages: Sequence[Message], tools: Sequence[Mapping[str, Any]]) -> str:
        try:
            text: str = self._tokenizer.apply_chat_template(
                [dict(message) for message in messages],
                tools=[dict(tool) for tool in tools] or None,
                add_generation_prompt=True,
                tokenize=False,
            )
        except (TemplateError, TypeError, ValueError, KeyError) as error:
            raise ModelError(f"{self._model}: its chat template refuses the messages: {error}") from None
        return text

    def _tokens(self, text: str) -> list[int]:
        tokens: list[int] = self._tokenizer.encode(text, add_special_tokens=False)
        return tokens

    def _special(self, token: int) -> str:
        """The text of a token where it is a special one, such as the end of a turn."""
        if token not in self._tokenizer.all_special_ids and token not in self._tokenizer.added_tokens_decoder:
            return ""
        return str(self._tokenizer.decode([token], skip_special_tokens=False))
