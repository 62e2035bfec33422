"""Messages to tokens by the chat template of a model, and later only what is new.

A round of an agent appends to what the KV holds already: the end of the model's turn, results of tools, the beginning
of its next turn. The template is rendered with a mark in place of what the model wrote, and what follows the mark is
the increment, so that tokens the model has written are never written again in another way.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from iegopt_runtime.errors import ModelError
from iegopt_runtime.lm.tokenizers import FolderTokenizer

__all__ = ["Chat", "Message"]

Message = Mapping[str, Any]
MARK = "@@what-the-model-wrote@@"


class Chat:
    """The chat of one model.

    Parameters
    ----------
    tokenizer
        Of the model, with a chat template.
    """

    def __init__(self, tokenizer: FolderTokenizer) -> None:
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
            There is no template, or it refuses the messages.
        """
        return self._tokenizer.encode(self._tokenizer.render(messages, tools))

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
        text = self._tokenizer.render([*messages, {"role": "assistant", "content": MARK}, *new], tools)
        if text.count(MARK) != 1:
            raise ModelError("the chat template does not keep what the model writes as it is")
        rest = text.partition(MARK)[2]
        if written:
            rest = rest.removeprefix(self._tokenizer.special(written[-1]) or "")
        return self._tokenizer.encode(rest)
