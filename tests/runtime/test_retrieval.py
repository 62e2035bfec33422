"""Documents found again: by given vectors, by hashed words, exactly and by the index's graph."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from iegopt.errors import InputError
from iegopt_runtime.workers import retrieval_index
from iegopt_runtime.workers.executor import StageFailed
from iegopt_runtime.workers.retrieval import RetrievalExecutor
from iegopt_runtime.workers.retrieval_index import (
    Document,
    DocumentIndex,
    check_documents,
    documents_of,
    hashed,
    load_documents,
    read_documents,
)

TEXTS = ("Paris is the capital of France.", "Lead aprons hang in room 12.", "The night shift ends at six.", "")


def index_of(texts: tuple[str, ...] = TEXTS) -> DocumentIndex:
    return DocumentIndex(documents_of(texts, "documents"))


@pytest.mark.parametrize(
    ("query", "best"), [("where are the lead aprons?", 1), ("capital of france", 0), ("when does the shift end", 2)]
)
def test_what_shares_words_is_found_first(query: str, best: int) -> None:
    found = index_of().find(query, None, 2)
    assert len(found) == 2
    assert found[0]["text"] == TEXTS[best]
    assert found[0]["score"] >= found[1]["score"]


def test_vectors_win_over_words() -> None:
    rows = [Document(str(n), "same text", tuple(row)) for n, row in enumerate(np.eye(4).tolist())]
    assert DocumentIndex(rows).find("", [0.0, 0.1, 1.0, 0.0], 1)[0]["id"] == "2"
    assert [found["id"] for found in DocumentIndex(rows).find("", [1.0, 0.5, 0.2, 0.1], 9)] == ["0", "1", "2", "3"]


def test_the_graph_finds_what_comparing_all_finds(monkeypatch: pytest.MonkeyPatch) -> None:
    draw = np.random.default_rng(3)
    rows = [Document(str(n), "", tuple(row)) for n, row in enumerate(draw.normal(size=(500, 16)).tolist())]
    queries = draw.normal(size=(20, 16)).tolist()
    exact = DocumentIndex(rows)
    monkeypatch.setattr(retrieval_index, "_EXACT_BELOW", 100)
    graph = DocumentIndex(rows)
    same = sum(
        len({f["id"] for f in exact.find("", query, 10)} & {f["id"] for f in graph.find("", query, 10)})
        for query in queries
    )
    assert same >= 0.95 * 200


def test_texts_without_words_have_a_direction() -> None:
    assert (np.linalg.norm(hashed(["", "…"]), axis=1) > 0).all()


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("{", "line 2.*expected a JSON object"),
        ("[1]", "line 2.*expected an object with text"),
        ('{"id": 1}', "line 2.*expected an object with text"),
        ('{"text": "a", "vector": "b"}', "line 2.*expected a list of numbers"),
        ('{"text": "a", "vector": [true]}', "line 2.*expected a list of numbers"),
    ],
)
def test_a_bad_line_is_named(tmp_path: Path, line: str, words: str) -> None:
    file = tmp_path / "documents.jsonl"
    file.write_text(json.dumps({"text": "good"}) + "\n" + line + "\n")
    with pytest.raises(InputError, match=words):
        read_documents(file)


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (None, "cannot be read: No such file"),
        (b"", "no document to retrieve from"),
        (b'{"text": "a"}\n\xff\n', "byte 14: expected JSON Lines in UTF-8"),
        (b'{"text": "a", "vector": [1]}\n{"text": "b"}\n', "document 2: 1024 numbers in its vector, others have 1"),
        (b'{"text": "a", "vector": [1]}\n{"text": "b", "vector": [1, 2]}\n', "document 2: 2 numbers in its vector"),
    ],
)
def test_a_bad_file_is_told_before_and_when_it_is_loaded(tmp_path: Path, content: bytes | None, words: str) -> None:
    file = tmp_path / "documents.jsonl"
    if content is not None:
        file.write_bytes(content)
    for read in (check_documents, load_documents):
        with pytest.raises(InputError, match=rf"documents\.jsonl: {words}"):
            read(file)


@pytest.mark.parametrize(
    ("documents", "words"),
    [
        ([], "no document"),
        ([{"text": "a", "vector": [1]}, {"text": "b", "vector": [1, 2]}], "document 1: 2 numbers in its vector"),
        ([{"text": "a", "vector": [float("inf")]}], "document 0: its vector is not finite"),
    ],
)
def test_a_bad_collection_is_refused(documents: list[Any], words: str) -> None:
    with pytest.raises(InputError, match=words):
        DocumentIndex(documents_of(documents, "documents"))


def test_a_stage_is_told_what_is_wrong() -> None:
    executor = RetrievalExecutor(index_of())

    def run(**work: Any) -> Any:
        return asyncio.run(executor.run("retrieval", {"query": "aprons", "vector": None, "k": 1} | work, None))  # type: ignore[arg-type]

    assert run()["documents"][0]["text"] == TEXTS[1]
    assert run(documents=["aprons elsewhere"])["documents"][0]["text"] == "aprons elsewhere"
    with pytest.raises(StageFailed, match="a query vector of shape"):
        run(vector=[1.0])
    with pytest.raises(StageFailed, match=r"documents\.0"):
        run(documents=[3])
    with pytest.raises(StageFailed, match="no documents here"):
        asyncio.run(RetrievalExecutor(None).run("retrieval", {"query": "x"}, None))  # type: ignore[arg-type]
