"""``iegopt models embed``: vectors that a query of the same model finds."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from iegopt.cli.main import main
from iegopt_runtime.lm.embedding import embedded
from iegopt_runtime.models.registry import Registry
from iegopt_runtime.workers.retrieval_index import load_documents

TEXTS = ("Lead aprons hang in room 12.", "The night shift ends at six.", "zzz")


@pytest.fixture
def documents(tmp_path: Path, registry: Registry, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(Registry, "of", lambda *_, **__: registry)
    file = tmp_path / "documents.jsonl"
    file.write_text("".join(json.dumps({"id": f"d{n}", "text": text}) + "\n" for n, text in enumerate(TEXTS)))
    return file


def test_documents_are_found_by_the_vectors_of_queries(
    documents: Path, tmp_path: Path, registry: Registry, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "with.jsonl"
    assert main(["models", "embed", "tiny", str(documents), "-o", str(out), "--variant", "fp32"]) == 0
    assert "3 documents, vectors of 64 numbers" in capsys.readouterr().out
    index = load_documents(out)
    for number, vector in enumerate(embedded(registry, "tiny", TEXTS, "fp32")):
        found = index.find("", vector, 1)[0]
        assert (found["id"], found["text"]) == (f"d{number}", TEXTS[number])
        assert found["score"] == pytest.approx(1.0, abs=1e-5)


@pytest.mark.parametrize(
    ("model", "content", "words"),
    [
        ("gpt-9", '{"text": "a"}', "model 'gpt-9': no artifact is known"),
        ("tiny", "", "documents.jsonl: there are none: expected documents with text"),
        ("tiny", '{"id": "x", "text": ""}', "documents.jsonl: document x: an empty text: expected documents with text"),
        ("tiny", '{"txet": "a"}', "documents.jsonl: line 1: "),
        ("tiny", json.dumps({"text": "a" * 5000}), "tiny: a text of 5000 tokens: expected 1 to 4096"),
    ],
)
def test_what_has_no_vector_is_told(
    documents: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], model: str, content: str, words: str
) -> None:
    documents.write_text(content)
    out = tmp_path / "with.jsonl"
    assert main(["models", "embed", model, str(documents), "-o", str(out)]) == 1
    assert words in capsys.readouterr().err
    assert not out.exists()
