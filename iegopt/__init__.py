"""iegopt: which device of a mixed cluster runs which stage of an LLM request, with a proof.

>>> import iegopt
>>> cluster = iegopt.load_cluster("cluster.yaml")          # doctest: +SKIP
>>> plan = iegopt.plan(iegopt.load_request("request.yaml"), cluster)  # doctest: +SKIP

Names are imported when they are first used, so that ``import iegopt`` stays quick.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from iegopt.batch_plans import BatchPlan as BatchPlan
    from iegopt.errors import IegoptError as IegoptError
    from iegopt.errors import InputError as InputError
    from iegopt.graph.builder import build_graph as build_graph
    from iegopt.planner import Planner as Planner
    from iegopt.planner import plan as plan
    from iegopt.planner import replan as replan
    from iegopt.plans import NoPlan as NoPlan
    from iegopt.plans import Plan as Plan
    from iegopt.problem.instance import read_instance as read_instance
    from iegopt.problem.instance import to_problem as to_problem
    from iegopt.problem.instance import write_instance as write_instance
    from iegopt.solvers.api import SOLVERS as SOLVERS
    from iegopt.solvers.api import solve as solve
    from iegopt.solvers.exact.compiled import warmup as warmup
    from iegopt.solvers.result import Params as Params
    from iegopt.solvers.result import Result as Result
    from iegopt.solvers.result import Status as Status
    from iegopt.spec.batch_policy import BatchPolicy as BatchPolicy
    from iegopt.spec.cluster import ClusterSpec as ClusterSpec
    from iegopt.spec.graph import GraphSpec as GraphSpec
    from iegopt.spec.load import load_cluster as load_cluster
    from iegopt.spec.load import load_document as load_document
    from iegopt.spec.load import load_policy as load_policy
    from iegopt.spec.load import load_request as load_request
    from iegopt.spec.load import load_snapshot as load_snapshot
    from iegopt.spec.request import RequestSpec as RequestSpec
    from iegopt.spec.snapshot import SnapshotSpec as SnapshotSpec

__version__ = "0.1.0"

_HOME = {
    "BatchPolicy": "iegopt.spec.batch_policy",
    "ClusterSpec": "iegopt.spec.cluster",
    "GraphSpec": "iegopt.spec.graph",
    "IegoptError": "iegopt.errors",
    "InputError": "iegopt.errors",
    "NoPlan": "iegopt.plans",
    "Params": "iegopt.solvers.result",
    "Plan": "iegopt.plans",
    "BatchPlan": "iegopt.batch_plans",
    "Planner": "iegopt.planner",
    "RequestSpec": "iegopt.spec.request",
    "Result": "iegopt.solvers.result",
    "SOLVERS": "iegopt.solvers.api",
    "SnapshotSpec": "iegopt.spec.snapshot",
    "Status": "iegopt.solvers.result",
    "build_graph": "iegopt.graph.builder",
    "load_cluster": "iegopt.spec.load",
    "load_document": "iegopt.spec.load",
    "load_policy": "iegopt.spec.load",
    "load_request": "iegopt.spec.load",
    "load_snapshot": "iegopt.spec.load",
    "plan": "iegopt.planner",
    "replan": "iegopt.planner",
    "read_instance": "iegopt.problem.instance",
    "solve": "iegopt.solvers.api",
    "to_problem": "iegopt.problem.instance",
    "warmup": "iegopt.solvers.exact.compiled",
    "write_instance": "iegopt.problem.instance",
}

__all__ = [*_HOME, "__version__"]


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'iegopt' has no attribute {name!r}")
    value = getattr(import_module(_HOME[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
