"""``iegopt models embed``: documents with the vectors that a model makes of them."""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

from iegopt.cli.output import check_outputs, document_path, show, writing
from iegopt.errors import InputError
from iegopt.files import write_whole
from iegopt_runtime.cli.extra import needs_runtime

__all__ = ["add_action"]


def add_action(actions: Any) -> None:
    parser = actions.add_parser(
        "embed",
        help="give documents the vectors of a model",
        description="Write documents (JSONL, a text each) with the vectors that a model makes of them, to be found by "
        "queries that an embedding stage of the same model reads. Vectors that are there are replaced.",
    )
    parser.add_argument("model", metavar="MODEL", help="smollm2, tiny, or one of the cluster's")
    parser.add_argument("documents", metavar="DOCUMENTS", help="JSONL of documents")
    parser.add_argument("-o", "--output", required=True, metavar="FILE", help="JSONL with vectors")
    parser.add_argument("--variant", metavar="NAME", help="precision, such as bf16 (default: the model's first)")
    parser.add_argument(
        "--cluster", metavar="CLUSTER", help="file or name; where execution_path_registry has the model"
    )
    parser.set_defaults(run=_embed)


@needs_runtime
def _embed(arguments: argparse.Namespace) -> int:
    from iegopt.spec.load import load_cluster
    from iegopt_runtime.lm.embedding import embedded
    from iegopt_runtime.models.registry import Registry
    from iegopt_runtime.workers.retrieval_index import read_documents

    check_outputs([arguments.output], [arguments.documents])
    paths = None
    if arguments.cluster is not None:
        paths = load_cluster(document_path(arguments.cluster, "clusters")).execution_path_registry
    registry = Registry.of(paths or ())
    registry.find(arguments.model, arguments.variant)
    documents = read_documents(Path(arguments.documents))
    empty = next((document.id for document in documents if not document.text), None)
    if not documents or empty is not None:
        what = "there are none" if empty is None else f"document {empty}: an empty text"
        raise InputError(f"{arguments.documents}: {what}: expected documents with text")
    rows = embedded(registry, arguments.model, [document.text for document in documents], arguments.variant)
    lines = []
    for document, row in zip(documents, rows, strict=True):
        vector = [float(f"{number:.8g}") for number in row]  # as many digits as a float32 has
        lines.append(json.dumps({"id": document.id, "text": document.text, "vector": vector}, ensure_ascii=False))
    with writing(arguments.output):
        write_whole(arguments.output, "".join(f"{line}\n" for line in lines))
    show(f"{arguments.output}: {len(rows)} documents, vectors of {len(rows[0])} numbers")
    return 0
