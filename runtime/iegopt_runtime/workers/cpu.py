"""The cpu role: tokenize, output, router and agent_decision."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from iegopt.errors import InputError
from iegopt_runtime.workers.executor import Attempt, Document, StageFailed
from iegopt_runtime.workers.plain import PlainExecutor
from iegopt_runtime.workers.texts import Texts

__all__ = ["CpuExecutor"]


class CpuExecutor(PlainExecutor):
    """Texts to tokens and back, and decisions.

    Parameters
    ----------
    texts
        Finds the tokenizer of a model.
    """

    def __init__(self, texts: Texts) -> None:
        self._texts = texts

    async def run(self, kind: str, work: Document, attempt: Attempt) -> Document:
        """``work`` as ``iegopt.control.work`` has it for these kinds."""
        try:
            return await asyncio.to_thread(_KINDS[kind], self, work)
        except InputError as error:
            raise StageFailed("refused", str(error)) from error

    def _tokenize(self, work: Document) -> Document:
        if "tokens" in work:
            return {"tokens": work["tokens"]}
        text = self._texts.of(work.get("model"))
        if "messages" in work:
            return {"tokens": text.of_messages(work["messages"])}
        return {"tokens": text.of_prompt(str(work.get("text", "")))}

    def _output(self, work: Document) -> Document:
        """The text as it was streamed: what a tokenizer makes of all tokens at once is the same."""
        return {"text": str(work.get("text", ""))}

    def _decide(self, work: Document) -> Document:
        """What an agent's last decode leaves to do: ``continue`` where it asks for tools, else ``stop``."""
        return {"decision": "continue" if work.get("calls") else "stop"}

    def _route(self, work: Document) -> Document:
        """The first of the request's routes whose word stands in the text before, else its default.

        ``context``: ``{"routes": {word: decision}, "default": decision}``; without one the text itself decides.
        """
        context = work.get("context")
        text = str(work.get("text", ""))
        if not isinstance(context, dict):
            return {"decision": text.strip() or "continue"}
        routes = context.get("routes", {})
        found = next((str(to) for word, to in routes.items() if str(word).casefold() in text.casefold()), None)
        return {"decision": found or str(context.get("default", "continue"))}


_KINDS: dict[str, Callable[[CpuExecutor, Document], Document]] = {
    "tokenize": CpuExecutor._tokenize,
    "output": CpuExecutor._output,
    "agent_decision": CpuExecutor._decide,
    "router": CpuExecutor._route,
}
