"""The retrieval role: the documents nearest to a query, from the worker's collection or from those of the request."""

from __future__ import annotations

import asyncio

from iegopt.errors import InputError
from iegopt_runtime.workers.executor import Attempt, Document, StageFailed
from iegopt_runtime.workers.plain import PlainExecutor
from iegopt_runtime.workers.retrieval_index import DocumentIndex, documents_of

__all__ = ["RetrievalExecutor"]


class RetrievalExecutor(PlainExecutor):
    """Finds documents; ``index`` is the worker's own collection, if it has one."""

    def __init__(self, index: DocumentIndex | None) -> None:
        self._index = index

    async def run(self, kind: str, work: Document, attempt: Attempt) -> Document:
        """``work``: ``query`` (text), ``vector`` or null, ``k``, ``documents`` of the request or null."""
        try:
            return {"documents": await asyncio.to_thread(self._find, work)}
        except InputError as error:
            raise StageFailed("refused", str(error)) from error

    def _find(self, work: Document) -> list[Document]:
        index = self._index
        if work.get("documents") is not None:
            index = DocumentIndex(documents_of(work["documents"], "documents"))
        if index is None:
            raise InputError(
                "there are no documents here: expected some in the request, or a worker that has a file of them"
            )
        return index.find(str(work.get("query", "")), work.get("vector"), int(work.get("k", 4)))
