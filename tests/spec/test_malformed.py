"""Every malformed file gives one line that names the file and says what is wrong."""

from __future__ import annotations

import pytest

from iegopt.errors import SpecError
from iegopt.spec.load import DOCUMENTS, load_document

from ..corpus import MalformedCase, malformed_cases


def test_malformed_file_is_refused_in_one_line(malformed_case: MalformedCase) -> None:
    with pytest.raises(SpecError) as refusal:
        load_document(malformed_case.path, malformed_case.key)
    line = str(refusal.value)
    assert line.startswith(f"{malformed_case.path}: ")
    assert malformed_case.expected in line
    assert line.isprintable()
    assert len(line) < len(str(malformed_case.path)) + 400


def test_the_corpus_and_its_table_agree() -> None:
    cases = malformed_cases()
    folder = cases[0].path.parent.parent
    files = {path for path in folder.rglob("*.*") if path.parent.name in DOCUMENTS}
    assert files == {case.path for case in cases}
    assert len(files) >= 100
    assert {case.key for case in malformed_cases("cluster")} == {"cluster"}
