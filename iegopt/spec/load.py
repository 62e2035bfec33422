"""Documents: files with one top-level key, each read as its spec, and written back.

A request file and a cluster file may hold policy blocks beside their own key, exactly as the source
document writes them; they are read as if they stood inside it. A block that the reader of a file
would not look at is refused, never ignored.
"""

from __future__ import annotations

import re
from os import PathLike
from pathlib import Path
from typing import Any

import yaml

from iegopt.errors import SpecError
from iegopt.spec.batch_policy import BatchPolicy
from iegopt.spec.cluster import ClusterSpec, LinkCard
from iegopt.spec.device import DeviceCard, DeviceSpec
from iegopt.spec.explain_error import nearest, validate
from iegopt.spec.graph import GraphSpec
from iegopt.spec.json_reader import parse_json
from iegopt.spec.llm import LlmCard
from iegopt.spec.policy import (
    DagConstraints,
    FallbackPolicy,
    KvTransferConfig,
    PreemptionConfig,
    ProfilingMatrix,
    StateTransitions,
)
from iegopt.spec.profile import Profile
from iegopt.spec.request import RequestSpec
from iegopt.spec.snapshot import SnapshotSpec
from iegopt.spec.stage import StageSpec
from iegopt.spec.suite import SuiteSpec
from iegopt.spec.text import MAX_NODES, MAX_SNAPSHOT_NODES, file_name, read_text
from iegopt.spec.variant import ExecutionPath, PathCard
from iegopt.spec.yaml_reader import parse_yaml
from iegopt.units import shown

__all__ = [
    "DOCUMENTS", "SIBLINGS", "dump", "load_cluster", "load_document", "load_policy", "load_request", "load_snapshot",
    "read_document",
]  # fmt: skip

DOCUMENTS: dict[str, Any] = {
    "node": StageSpec,
    "device": DeviceSpec,
    "dag_constraints": DagConstraints,
    "execution_path_registry": tuple[ExecutionPath, ...],
    "fallback_policy": FallbackPolicy,
    "kv_transfer_config": KvTransferConfig,
    "preemption_config": PreemptionConfig,
    "profiling_matrix": ProfilingMatrix,
    "state_transitions": StateTransitions,
    "cluster": ClusterSpec,
    "request": RequestSpec,
    "graph": GraphSpec,
    "model": LlmCard,
    "device_card": DeviceCard,
    "link": LinkCard,
    "path": PathCard,
    "profile": Profile,
    "suite": SuiteSpec,
    "snapshot": SnapshotSpec,
    "batch_policy": BatchPolicy,
}
"""Top-level key of a document -> the spec (or tuple of specs) it holds."""

SIBLINGS = {
    "request": ("dag_constraints", "kv_transfer_config", "fallback_policy"),
    "cluster": ("execution_path_registry", "kv_transfer_config", "fallback_policy"),
    "batch_policy": ("preemption_config", "kv_transfer_config"),
}
"""Blocks that may stand beside the key of a file, and are then part of its spec."""

_LINE_ENDS = re.compile("[\r\x85\u2028\u2029\ufeff]")
_READ_BY = {
    "preemption_config": "it belongs in the batch policy file",
    "profiling_matrix": "profiling reads it",
    "state_transitions": "the runtime reads it",
    "dag_constraints": "it belongs in the request file",
    "execution_path_registry": "it belongs in the cluster file",
}


def read_document(path: str | PathLike[str], nodes: int = MAX_NODES) -> dict[str, Any]:
    """The mapping a YAML or JSON file holds, as plain data.

    A name that ends in ``.json`` is JSON, in ``.yaml`` or ``.yml`` YAML; any other file is JSON where it
    begins with a brace.

    Raises
    ------
    SpecError
        The file cannot be read (``iegopt.spec.text``), or is not one YAML or JSON mapping.
    """
    text = read_text(path)
    file = file_name(path)
    suffix = Path(path).suffix.lower()
    as_json = suffix == ".json" or (suffix not in (".yaml", ".yml") and text.lstrip().startswith("{"))
    data = parse_json(text, file, nodes) if as_json else parse_yaml(text, file, nodes)
    if not isinstance(data, dict):
        raise SpecError(file, "", f"{shown(data)}: expected a mapping with a key such as request or cluster")
    return data


def load_document(path: str | PathLike[str], *expected: str) -> tuple[str, Any]:
    """Read the one document of a file.

    Parameters
    ----------
    expected
        The top-level keys that will do; none means any of ``DOCUMENTS``.

    Returns
    -------
    tuple
        The top-level key, and its spec with the sibling blocks put in.

    Raises
    ------
    SpecError
        In one line: the file, the path inside it, the value, what was expected, and a guess.
    """
    file = file_name(path)
    data = read_document(path, MAX_SNAPSHOT_NODES if expected == ("snapshot",) else MAX_NODES)
    key = _own_key(data, expected or tuple(DOCUMENTS), file)
    siblings = {name: block for name, block in data.items() if name != key}
    body = data[key]
    for name, block in siblings.items():
        if isinstance(body, dict) and name in body:
            raise SpecError(file, name, f"said twice, here and in {key}.{name}: remove one")
        spec = validate(DOCUMENTS[name], block, file, name)
        if isinstance(body, dict):
            body = {**body, name: spec}
    return key, validate(DOCUMENTS[key], body, file, key)


def load_cluster(path: str | PathLike[str]) -> ClusterSpec:
    """The cluster of a file with ``cluster:`` at its top (raises as ``load_document``)."""
    spec: ClusterSpec = load_document(path, "cluster")[1]
    return spec


def load_request(path: str | PathLike[str]) -> RequestSpec:
    """The request of a file with ``request:`` at its top (raises as ``load_document``)."""
    spec: RequestSpec = load_document(path, "request")[1]
    return spec


def load_snapshot(path: str | PathLike[str]) -> SnapshotSpec:
    """The snapshot of a file with ``snapshot:`` at its top (raises as ``load_document``)."""
    spec: SnapshotSpec = load_document(path, "snapshot")[1]
    return spec


def load_policy(path: str | PathLike[str]) -> BatchPolicy:
    """The policy of replanning of a file with ``batch_policy:`` at its top (raises as ``load_document``)."""
    spec: BatchPolicy = load_document(path, "batch_policy")[1]
    return spec


def dump(key: str, spec: Any) -> str:
    """A document as YAML: quantities in human units, only what was set, keys in the order of the spec.

    Loading the text gives an equal spec.
    """
    body = [entry.document() for entry in spec] if isinstance(spec, tuple) else spec.document()
    return yaml.dump({key: body}, Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=120)


class _Dumper(yaml.SafeDumper):
    """Quotes the line ends that are none in JSON and Python, which PyYAML would write as they are."""

    def ignore_aliases(self, data: Any) -> bool:
        return True


def _represent_text(dumper: _Dumper, text: str) -> yaml.ScalarNode:
    style = '"' if _LINE_ENDS.search(text) else None
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style)


_Dumper.add_representer(str, _represent_text)


def _own_key(data: dict[str, Any], expected: tuple[str, ...], file: str) -> str:
    """The key the file is about; every other one is a block that may stand beside it."""
    for name in data:
        if name not in DOCUMENTS:
            guess = nearest(name, DOCUMENTS)
            hint = f"Maybe {guess}?" if guess else f"Expected {' or '.join(expected[:4])} at the top of the file"
            raise SpecError(file, shown(name), f"unknown key. {hint}")
    owners = [name for name in data if name in SIBLINGS] or list(data)
    own = next((name for name in owners if name in expected), None)
    if own is None:
        got = f"a {owners[0]} document" if owners else "an empty mapping"
        raise SpecError(file, owners[0] if owners else "", f"{got}: expected {' or '.join(expected)}")
    for name in data:
        if name != own and name not in SIBLINGS.get(own, ()):
            reason = f": {_READ_BY[name]}" if name in _READ_BY else ""
            expected_here = f"{own}, beside it {', '.join(SIBLINGS[own])}" if own in SIBLINGS else f"{own} alone"
            raise SpecError(file, name, f"not part of a {own} file{reason}. Expected {expected_here}")
    return own
