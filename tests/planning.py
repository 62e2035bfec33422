"""Clusters, requests and plans from the words of their documents, for tests."""

from __future__ import annotations

from typing import Any

from iegopt.planner import Planner
from iegopt.plans import Plan
from iegopt.spec.cluster import ClusterSpec
from iegopt.spec.explain_error import validate
from iegopt.spec.request import RequestSpec


def cluster(*devices: dict[str, Any], **fields: Any) -> ClusterSpec:
    spec: ClusterSpec = validate(ClusterSpec, {"name": "test", "devices": list(devices), **fields}, "cluster.yaml")
    return spec


def request(**fields: Any) -> RequestSpec:
    spec: RequestSpec = validate(RequestSpec, fields, "request.yaml")
    return spec


def planned(asked: RequestSpec, on: ClusterSpec, **how: Any) -> Plan:
    answer = Planner(on).plan(asked, **how)
    assert isinstance(answer, Plan), answer
    return answer
