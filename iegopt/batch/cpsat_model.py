"""Replanning as one CP-SAT model: every request, instance, pace and running stage at once.

Amounts are integers, and all rounding is on the safe side, so that what the model allows ``evaluate`` allows too. It
knows less than the evaluation, and never more:

- what an earlier prefill of the plan leaves to a later one is not seen (it only shortens prefills);
- reading or fetching a prefix counts as work of its instance, though it only delays the start; where a request
  prefills is decided, and the fetch is the one that is then best;
- a prefill that decodes elsewhere is charged the slowest way from its instance within the family where it has an end;
- deadlines are rounded down to a grid of ``GRID`` values where there are more;
- a plan under a threshold of fairness is not modelled at all: ``unsupported`` says so.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt
from ortools.sat.python import cp_model

from iegopt.batch.links import transfer_seconds
from iegopt.batch.losses import preemption_costs
from iegopt.batch.model import BatchModel

__all__ = ["GRID", "SHARE", "UTILITY", "Variables", "losses", "make_variables", "unsupported"]

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]
Literal = Any
"""``IntVar`` or a constant 0/1, which the solver's expressions take alike."""

GRID = 48
SHARE = 10**6
"""An instance's whole time."""
UTILITY = 10**6
"""One unit of utility."""


def unsupported(model: BatchModel) -> str | None:
    """What of a model cannot be said in it."""
    if model.policy.fairness is not None:
        return "a threshold of fairness is not modelled"
    return None


@dataclass
class Variables:
    """The variables of a model.

    Attributes
    ----------
    prefill, decode
        (request, instance) -> whether it stands there; only where it may.
    both
        (request, instance) -> whether both do.
    pace
        (instance, rung) -> whether the instance decodes at it; none where nothing decodes.
    slow
        (request, rung) -> the pace that a request is taken to have: its instance's, or a slower one.
    keep, aside, move
        Of running stages; ``move`` by (stage, instance).
    late
        (stage, instance) -> whether a stage that moves there misses its end.
    phi
        Share of an instance's time that decode takes, in parts of ``SHARE``.
    """

    model: BatchModel
    cp: cp_model.CpModel = field(default_factory=cp_model.CpModel)
    prefill: dict[tuple[int, int], Literal] = field(default_factory=dict)
    decode: dict[tuple[int, int], Literal] = field(default_factory=dict)
    both: dict[tuple[int, int], Literal] = field(default_factory=dict)
    pace: dict[tuple[int, int], Literal] = field(default_factory=dict)
    slow: dict[tuple[int, int], Literal] = field(default_factory=dict)
    placed: list[Literal] = field(default_factory=list)
    keep: list[Literal] = field(default_factory=list)
    aside: list[Literal] = field(default_factory=list)
    move: dict[tuple[int, int], Literal] = field(default_factory=dict)
    late: dict[tuple[int, int], Literal] = field(default_factory=dict)
    phi: list[Literal] = field(default_factory=list)
    fetch: dict[tuple[int, int], int] = field(default_factory=dict)
    work: dict[tuple[int, int], float] = field(default_factory=dict)

    @cached_property
    def at_prefill(self) -> list[list[int]]:
        """(J,) requests that may prefill on every instance."""
        return _grouped([(j, i) for i, j in self.prefill], self.model.J)

    @cached_property
    def at_decode(self) -> list[list[int]]:
        return _grouped([(j, i) for i, j in self.decode], self.model.J)

    @cached_property
    def moves(self) -> list[list[int]]:
        """(R,) instances that a stage may move to."""
        return _grouped(self.move, self.model.R)

    @cached_property
    def moves_to(self) -> list[list[int]]:
        """(J,) stages that may move to every instance."""
        return _grouped([(j, r) for r, j in self.move], self.model.J)

    @cached_property
    def boths(self) -> list[list[int]]:
        """(N,) instances that may both prefill and decode a request."""
        return _grouped(self.both, self.model.N)

    def paced(self, i: int) -> bool:
        """Whether a request's pace matters beyond its limit: it has an end, or is worth its pace."""
        queue = self.model.queue
        return bool(queue.output[i] > 0 and (np.isfinite(queue.e2e[i]) or queue.throughput[i]))

    def away(self, i: int, p: int) -> float:
        """The slowest way of a prompt's KV cache from an instance to another of its family."""
        model = self.model
        family = model.kinds.family[model.instances.kind]
        there = np.flatnonzero((family == family[p]) & model.instances.decodes & model.instances.open)
        there = there[there != p]
        if not len(there):
            return 0.0
        size = float(np.ceil(model.queue.wire_per_token[i] * model.queue.prompt[i]))
        made = min(self.own_work(i, p), self.work[i, p])
        way = transfer_seconds(model.instances, model.policy.kv_transfer_config, p, there, size, made)
        return float(way.max())

    def own_work(self, i: int, p: int) -> float:
        """Seconds of the prefill with what the instance holds itself."""
        model = self.model
        held, _ = model.holdings.one(i, p, int(model.queue.prompt[i]))
        return model.prefill.one(i, int(model.instances.kind[p]), held)


def _grouped(pairs: Iterable[tuple[int, int]], count: int) -> list[list[int]]:
    """The second of all pairs, by the first."""
    found: list[list[int]] = [[] for _ in range(count)]
    for first, second in pairs:
        found[first].append(second)
    return found


def make_variables(model: BatchModel) -> Variables:
    """All variables, and what ties them together but for capacities."""
    v = Variables(model)
    cp, queue, instances = v.cp, model.queue, model.instances
    family = model.kinds.family[instances.kind]
    for j in range(model.J):
        rungs = [cp.new_bool_var(f"pace {j} {t}") for t in range(len(model.paces))]
        cp.add_at_most_one(rungs)
        v.pace.update({(j, t): rung for t, rung in enumerate(rungs)})
        v.phi.append(cp.new_int_var(0, SHARE, f"share {j}"))
    for i in range(model.N):
        v.placed.append(cp.new_bool_var(f"placed {i}"))
        runs = model.prefill.runs[i, instances.kind] & instances.open
        decodes = bool(queue.output[i] > 0)
        first = np.flatnonzero(runs & instances.prefills).tolist()
        last = np.flatnonzero(runs & (instances.decodes if decodes else instances.prefills)).tolist()
        p = {j: cp.new_bool_var(f"prefill {i} {j}") for j in first}
        q = {j: cp.new_bool_var(f"decode {i} {j}") for j in last}
        v.prefill.update({(i, j): x for j, x in p.items()})
        v.decode.update({(i, j): x for j, x in q.items()})
        for j in first:
            v.work[i, j], v.fetch[i, j] = _cheapest(model, i, j)
        _tie(v, i, p, q, family)
    _running(v)
    return v


def _tie(v: Variables, i: int, p: dict[int, Literal], q: dict[int, Literal], family: Ints) -> None:
    """A prefill and a decode of one family, or neither; both on one instance where nothing is decoded."""
    cp, queue = v.cp, v.model.queue
    cp.add(sum(p.values()) == v.placed[i])
    cp.add(sum(q.values()) == v.placed[i])
    for member in {int(family[j]) for j in p.keys() | q.keys()}:
        first = [x for j, x in p.items() if family[j] == member]
        cp.add(sum(first) == sum(x for j, x in q.items() if family[j] == member))
    for j in p.keys() & q.keys():
        both = cp.new_bool_var(f"both {i} {j}")
        cp.add_implication(both, p[j])
        cp.add_implication(both, q[j])
        cp.add_bool_or(both, ~p[j], ~q[j])
        v.both[i, j] = both
    if not queue.output[i]:
        cp.add(sum(v.both[i, j] for j in p.keys() & q.keys()) == v.placed[i])
        return
    limit = queue.itl[i] * (1.0 + 1e-9)
    for j, x in q.items():
        cp.add(sum(v.pace[j, t] for t, tau in enumerate(v.model.paces.tolist()) if tau <= limit) >= x)
    if v.paced(i):
        rungs = range(len(v.model.paces))
        v.slow.update({(i, t): cp.new_bool_var(f"slow {i} {t}") for t in rungs})
        cp.add(sum(v.slow[i, t] for t in rungs) == v.placed[i])
        for t in rungs:
            for j, x in q.items():
                cp.add(sum(v.pace[j, u] for u in range(t + 1)) >= v.slow[i, t] + x - 1)


def _cheapest(model: BatchModel, i: int, j: int) -> tuple[float, int]:
    """Least seconds of a prefill, reading or fetching counted as work, and whose blocks are fetched for it."""
    queue, instances = model.queue, model.instances
    prompt, kind = int(queue.prompt[i]), int(instances.kind[j])
    own, read = model.holdings.one(i, j, prompt)
    kv, wire = float(queue.kv_per_token[i]), float(queue.wire_per_token[i])
    ready = read * kv * own
    best = model.prefill.one(i, kind, own) + ready, -1
    family = model.kinds.family[instances.kind]
    holders, tokens, slow = model.holdings.of(i, prompt)
    for h, there, rate in zip(holders.tolist(), tokens.tolist(), slow.tolist(), strict=True):
        if h == j or there <= own or family[h] != family[j]:
            continue
        way = wire * float(instances.seconds_per_byte[h, j]) + kv * rate
        starts = max(ready, float(instances.latency[h, j]) + (there - own) * way)
        best = min(best, (model.prefill.one(i, kind, there) + starts, h))
    return best


def _running(v: Variables) -> None:
    """What may be done to running stages, by the rules of preemption and moving."""
    model, cp, policy = v.model, v.cp, v.model.policy
    running, instances, config = model.running, model.instances, policy.preemption_config
    family = model.kinds.family[instances.kind]
    for r in range(model.R):
        v.keep.append(cp.new_bool_var(f"keep {r}"))
        may = config.enabled and running.preempted[r] < config.max_preempt_per_request
        v.aside.append(cp.new_bool_var(f"aside {r}") if may else 0)
        at, to = int(running.instance[r]), int(running.decode[r])
        moves: list[Literal] = []
        if policy.migration and not running.is_prefill[r]:
            open_there = instances.open & instances.decodes & (family == family[at])
            for j in np.flatnonzero(open_there).tolist():
                if j != at:
                    v.move[r, j] = cp.new_bool_var(f"move {r} {j}")
                    moves.append(v.move[r, j])
                    _move(v, r, j)
        cp.add(v.keep[r] + v.aside[r] + sum(moves) == 1)
        if may:
            first = np.flatnonzero(model.queue.priority <= running.priority[r] - config.min_priority_gap)
            there = [v.prefill[i, j] for i in first.tolist() for j in {at, to} if (i, j) in v.prefill]
            there += [v.decode[i, j] for i in first.tolist() for j in {at, to} if (i, j) in v.decode]
            cp.add(sum(there) >= v.aside[r])
        if running.sequences[r]:
            fine = [t for t, tau in enumerate(model.paces.tolist()) if tau <= running.itl[r] * (1.0 + 1e-9)]
            cp.add(sum(v.pace[to, t] for t in fine) >= v.keep[r])


def _move(v: Variables, r: int, j: int) -> None:
    """Where a stage moves it keeps its pace, unless it misses its end anyway."""
    model, cp, running = v.model, v.cp, v.model.running
    config = model.policy.kv_transfer_config
    way = float(transfer_seconds(model.instances, config, int(running.instance[r]), j, int(running.wire_now[r])))
    v.late[r, j] = cp.new_bool_var(f"late {r} {j}")
    cp.add(sum(v.pace[j, t] for t in range(len(model.paces))) >= v.move[r, j])
    for t, tau in enumerate(model.paces.tolist()):
        if way + int(running.remaining[r]) * tau > running.finish_by[r]:
            cp.add(v.late[r, j] >= v.move[r, j] + v.pace[j, t] - 1)
        elif tau > running.itl[r] * (1.0 + 1e-9):
            cp.add(v.move[r, j] + v.pace[j, t] <= 1)


def losses(model: BatchModel) -> tuple[Floats, Floats]:
    """(R,) what is lost by putting a stage aside, and (R, J) by moving it in time."""
    running = model.running
    config = model.policy.kv_transfer_config
    to = np.arange(model.J)[None, :]
    way = transfer_seconds(model.instances, config, running.instance[:, None], to, running.wire_now[:, None])
    return preemption_costs(model).loss, running.weight[:, None] * model.policy.second_value * way
