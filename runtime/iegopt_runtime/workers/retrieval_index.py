"""Documents that can be found again: texts with vectors, in a usearch index (https://github.com/unum-cloud/usearch).

Vectors are given with the documents, made by an embedding model, or, without either, by hashing words and pairs of
words into a fixed number of signed counts (feature hashing, Weinberger et al. 2009), which finds what shares words.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
from usearch.index import Index, search

from iegopt.errors import InputError
from iegopt.units import shown

__all__ = [
    "Document",
    "DocumentIndex",
    "Embedder",
    "check_documents",
    "documents_of",
    "hashed",
    "load_documents",
    "read_documents",
]

Embedder = Callable[[Sequence[str]], np.ndarray]
"""Texts to their vectors, (texts, dimension) float32."""

_HASHED = 1024
_EXACT_BELOW = 20_000
"""Documents that are compared one by one, which is exact; above that the index's graph is searched."""

_WORD = re.compile(r"\w+")


@dataclass(frozen=True)
class Document:
    id: str
    text: str
    vector: tuple[float, ...] | None


class DocumentIndex:
    """Documents of one collection.

    Parameters
    ----------
    embed
        Makes the vectors of documents without one, and of queries that are text.

    Raises
    ------
    InputError
        Vectors of unlike dimension, or a document whose vector is not finite.
    """

    def __init__(self, documents: Sequence[Document], embed: Embedder = lambda texts: hashed(texts)) -> None:
        self._documents, self._embed = tuple(documents), embed
        if not documents:
            raise InputError("no document to retrieve from: expected at least one")
        self._vectors = self._vectors_of(documents)
        self._index: Index | None = None
        if len(documents) >= _EXACT_BELOW:
            self._index = Index(ndim=self._vectors.shape[1], metric="cos", dtype="f32")
            self._index.add(np.arange(len(documents)), self._vectors, threads=1)

    def __len__(self) -> int:
        return len(self._documents)

    def find(self, query: str, vector: Sequence[float] | None, k: int) -> list[dict[str, Any]]:
        """The ``k`` nearest by cosine, best first: ``id``, ``text``, ``score`` (1 is the same direction).

        Raises
        ------
        InputError
            A vector of another dimension than the documents'.
        """
        wanted = np.asarray(vector, dtype=np.float32) if vector is not None else self._embed([query])[0]
        if wanted.shape != (self._vectors.shape[1],) or not np.isfinite(wanted).all():
            expected = f"{self._vectors.shape[1]} finite numbers, as the documents have"
            raise InputError(f"a query vector of shape {wanted.shape}: expected {expected}")
        count = min(k, len(self))
        if self._index is not None:
            found = self._index.search(wanted, count)
        else:
            found = search(self._vectors, wanted, count, metric="cos", exact=True)
        pairs = zip(found.keys.tolist(), found.distances.tolist(), strict=True)
        return [
            {"id": self._documents[i].id, "text": self._documents[i].text, "score": 1.0 - distance}
            for i, distance in pairs
        ]

    def _vectors_of(self, documents: Sequence[Document]) -> np.ndarray:
        plain = [document for document in documents if document.vector is None]
        made = iter(self._embed([document.text for document in plain])) if plain else iter(())
        rows = [next(made) if d.vector is None else np.asarray(d.vector, dtype=np.float32) for d in documents]
        for document, row in zip(documents, rows, strict=True):
            if row.shape != rows[0].shape:
                raise InputError(
                    f"document {document.id}: {row.size} numbers in its vector, others have {rows[0].size}"
                )
            if not np.isfinite(row).all():
                raise InputError(f"document {document.id}: its vector is not finite")
        return np.stack(rows).astype(np.float32)


def read_documents(path: Path) -> tuple[Document, ...]:
    """Documents of a JSONL file, a line each: ``{"text": …}``, and ``id`` and ``vector`` where they are known.

    Raises
    ------
    InputError
        Naming file, line and what was expected.
    """
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except OSError as error:
        raise InputError(f"{path}: cannot be read: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise InputError(f"{path}: byte {error.start}: expected JSON Lines in UTF-8") from error
    rows = ((number, line) for number, line in enumerate(lines, 1) if line.strip())
    return tuple(
        _document(_json(line, f"{path}: line {number}"), f"{path}: line {number}", number) for number, line in rows
    )


def load_documents(path: Path) -> DocumentIndex:
    """The index of a file's documents; raises as ``read_documents`` and ``DocumentIndex``, naming the file."""
    documents = read_documents(path)
    try:
        return DocumentIndex(documents)
    except InputError as error:
        raise InputError(f"{path}: {error}") from error


def check_documents(path: Path) -> None:
    """Raise what ``load_documents`` would, without making the vectors of all texts."""
    documents = read_documents(path)
    plain = next((document for document in documents if document.vector is None), None)
    given = [document for document in documents if document.vector is not None or document is plain]
    try:
        DocumentIndex(given)
    except InputError as error:
        raise InputError(f"{path}: {error}") from error


def documents_of(rows: Iterable[Any], where: str) -> tuple[Document, ...]:
    """Documents given as data, as ``read_documents`` reads them."""
    return tuple(_document(row, f"{where}.{number}", number) for number, row in enumerate(rows))


def _json(line: str, where: str) -> Any:
    try:
        return json.loads(line)
    except ValueError as error:
        raise InputError(f"{where}: {shown(line)}: expected a JSON object ({error})") from error


def _document(row: Any, where: str, number: int) -> Document:
    if isinstance(row, str):
        row = {"text": row}
    if not isinstance(row, dict) or not isinstance(row.get("text"), str):
        raise InputError(f"{where}: {shown(row)}: expected an object with text")
    vector = row.get("vector")
    if vector is not None and not (
        isinstance(vector, list) and vector and all(type(x) in (int, float) for x in vector)
    ):
        raise InputError(f"{where}: vector {shown(vector)}: expected a list of numbers")
    return Document(str(row.get("id", number)), row["text"], tuple(vector) if vector is not None else None)


def hashed(texts: Sequence[str]) -> np.ndarray:
    """Vectors of texts by their words and pairs of words."""
    rows = np.zeros((len(texts), _HASHED), dtype=np.float32)
    for row, text in zip(rows, texts, strict=True):
        words = [word.casefold() for word in _WORD.findall(text)]
        for term in [*words, *map(" ".join, pairwise(words))]:
            code = int.from_bytes(hashlib.blake2b(term.encode(), digest_size=8).digest(), "little")
            row[code % _HASHED] += 1.0 if code >> 63 else -1.0
        row[0] += 1e-6  # a text without words still has a direction
    return rows
