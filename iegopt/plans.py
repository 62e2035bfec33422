"""A plan in the user's words: which site and variant runs every stage, what it costs, how good it is.

Seconds, bytes and dollars; ``None`` where something is absent. ``Plan.document()`` is the JSON
object of ``iegopt plan --json`` (the second contract of the file formats).
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from math import isfinite
from typing import Any, Protocol, TypeVar

__all__ = ["CostSplit", "NoPlan", "Parts", "Plan", "StagePlan", "TransferPlan", "WeightsUsed", "made"]

T = TypeVar("T")


def made(kind: type[T], fields: dict[str, Any]) -> T:
    """An instance of one of the frozen classes here with all of its fields, of which the dict becomes a part: a quarter
    of the time of its own constructor, which sets each through ``object.__setattr__``. A deadline of a millisecond has
    a hundred of them to make.
    """
    new = object.__new__(kind)
    object.__setattr__(new, "__dict__", fields)
    return new


@dataclass(frozen=True)
class WeightsUsed:
    """α, β, γ, λ that the plan was made with; ``makespan`` prices the end of the last stage (critical path only)."""

    alpha: float
    beta: float
    gamma: float
    lambda_: float
    makespan: float = 0.0

    def document(self) -> dict[str, float]:
        each = {"alpha": self.alpha, "beta": self.beta, "gamma": self.gamma, "lambda": self.lambda_}
        return each | ({"makespan": self.makespan} if self.makespan else {})


@dataclass(frozen=True)
class CostSplit:
    """The terms of C(p), unweighted, in seconds, and the same money in dollars.

    L = Σ T0, T = Σ T, M = Σ price·T0 / reference price, D = Σ exposed transfer.
    """

    L: float
    T: float
    M: float
    D: float
    dollars: float


@dataclass(frozen=True)
class StagePlan:
    """One placed stage.

    ``t0`` is its idle service time (load time of a variant that was not resident included),
    ``time`` the time under the device's load, ``memory`` bytes it holds over the whole site,
    ``capacity_ratio`` the share of the site's free memory that is; ``artifact`` where the variant lies.
    """

    id: str
    kind: str
    site: str
    devices: tuple[str, ...]
    device_model: str
    variant: str
    artifact: str | None
    t0: float
    time: float
    load_time: float
    bottleneck: str
    time_source: str
    start: float
    finish: float
    memory: int
    capacity_ratio: float
    sla: float | None
    cost: CostSplit


@dataclass(frozen=True)
class TransferPlan:
    """One edge as it is carried out: ``path`` is the level of the topology it crosses."""

    source: str
    target: str
    kind: str
    path: str
    bytes: float
    raw: float
    exposed: float
    cost: float


class Parts(Protocol):
    """Stages and transfers of a plan that are written out when one asks for them."""

    def stages(self) -> tuple[StagePlan, ...]: ...
    def transfers(self) -> tuple[TransferPlan, ...]: ...


@dataclass(frozen=True)
class Plan:
    """The answer to one request on one cluster; ``verify.plan.check`` recomputes all of it.

    ``objective`` and ``bound`` are seconds of weighted cost; ``proof`` names what proved the bound.
    ``termination`` is what the request asks of its executor when a limit is reached. ``tier`` is the fallback
    step that had to be opened (``"preferred"``, or a step's name; ``None`` where no device was preferred).
    ``explanation`` is filled by ``iegopt.explain``.

    A plan that was ``made`` with ``Parts`` as its field ``parts``, in place of ``stages`` and ``transfers``, has these
    when they are first read: a deadline of a millisecond is over before a hundred objects are made.
    """

    request: str
    cluster: str
    status: str
    objective: float
    bound: float | None
    gap: float | None
    proof: str | None
    solver: str
    seconds: float
    note: str
    makespan: float
    deadline: float | None
    termination: dict[str, Any]
    tier: str | None
    stages: tuple[StagePlan, ...]
    transfers: tuple[TransferPlan, ...]
    cost: CostSplit
    penalties: float
    weights: WeightsUsed
    reference_price: float
    explanation: dict[str, Any] = field(default_factory=dict)

    def __getstate__(self) -> dict[str, Any]:
        """For copies and pickles: with all parts, without what they are made from."""
        return {name: getattr(self, name) for name in type(self).__dataclass_fields__}

    @property
    def placement(self) -> dict[str, dict[str, str]]:
        """Stage id -> site and variant."""
        return {stage.id: {"site": stage.site, "variant": stage.variant} for stage in self.stages}

    def stage(self, name: str) -> StagePlan:
        """The placed stage of this id; ``KeyError`` where there is none."""
        for stage in self.stages:
            if stage.id == name:
                return stage
        raise KeyError(name)

    def document(self) -> dict[str, Any]:
        """The plan as one JSON object, keys in the order of the contract."""
        return {
            "status": self.status,
            "objective": self.objective,
            "bound": self.bound,
            "gap": self.gap if self.gap is not None and isfinite(self.gap) else None,
            "solver": self.solver,
            "seconds": self.seconds,
            "placement": self.placement,
            "makespan": self.makespan,
            "request": self.request,
            "cluster": self.cluster,
            "proof": self.proof,
            "note": self.note,
            "deadline": self.deadline,
            "termination": self.termination,
            "tier": self.tier,
            "stages": [asdict(stage) for stage in self.stages],
            "transfers": [asdict(transfer) for transfer in self.transfers],
            "cost": asdict(self.cost),
            "penalties": self.penalties,
            "weights": self.weights.document(),
            "reference_price": self.reference_price,
            "explanation": self.explanation,
        }


class _WhenRead:
    """Stages or transfers of a plan made with ``Parts``: read once, they are its own."""

    def __init__(self, name: str) -> None:
        self.name = name

    def __get__(self, plan: Plan | None, owner: type[Plan]) -> Any:
        own = {} if plan is None else plan.__dict__
        parts: Parts | None = own.get("parts")
        if parts is not None:
            own.setdefault(self.name, getattr(parts, self.name)())
            if "stages" in own and "transfers" in own:
                own.pop("parts", None)
        if self.name not in own:  # where another thread has read both meanwhile, it is
            raise AttributeError(f"{owner.__name__} has no {self.name}")
        return own[self.name]


for _name in ("stages", "transfers"):
    setattr(Plan, _name, _WhenRead(_name))  # after the fact: to a dataclass it would be the field's default


@dataclass(frozen=True)
class NoPlan:
    """Why there is no plan: proven ``infeasible``, or ``unknown`` where the time ran out.

    ``proof`` names what proved that, or the bound. ``conflicts`` is a minimal set of constraints that cannot hold
    together, each with its rule, place, the numbers (requested, used, capacity) and a sentence; empty where the status
    is unknown.
    """

    request: str
    cluster: str
    status: str
    bound: float | None
    proof: str | None
    solver: str
    seconds: float
    note: str
    tier: str | None
    conflicts: tuple[dict[str, Any], ...]

    def document(self) -> dict[str, Any]:
        """The answer as one JSON object: the keys of ``Plan.document``, null where they speak of a plan."""
        return {
            "status": self.status,
            "objective": None,
            "bound": self.bound,
            "gap": None,
            "solver": self.solver,
            "seconds": self.seconds,
            "placement": None,
            "makespan": None,
            "request": self.request,
            "cluster": self.cluster,
            "proof": self.proof,
            "note": self.note,
            "deadline": None,
            "termination": None,
            "tier": self.tier,
            "stages": None,
            "transfers": None,
            "cost": None,
            "penalties": None,
            "weights": None,
            "reference_price": None,
            "explanation": {"conflicts": list(self.conflicts)},
        }
