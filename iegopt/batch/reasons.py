"""Why a request is held or refused, as data: the limit or the scarce resource, with its numbers.

Refused is what could not keep its limits even alone on an idle cluster from the next replan on. Of what is held the
first that holds is named: no instance that takes it, its tenant's quota, fairness, memory, sequences, then time: of the
instance that comes closest, and whether requests of a higher priority have it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from iegopt.batch.instance_load import InstanceLoad
from iegopt.batch.model import BatchModel
from iegopt.batch.outcome import Outcome
from iegopt.batch.placement import Placement
from iegopt.batch_plans import Reason

__all__ = ["reasons"]

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]
Bools = npt.NDArray[np.bool_]


def reasons(model: BatchModel, placement: Placement, outcome: Outcome) -> dict[int, tuple[str, Reason]]:
    """Request -> (``held`` or ``refused``, why), of all that are not placed."""
    missing = np.flatnonzero(placement.prefill < 0)
    refused = model.alone.refused[missing]
    found = {int(i): ("refused", _refusal(model, int(i))) for i in missing[refused]}
    held = missing[~refused]
    if len(held):
        found.update((i, ("held", reason)) for i, reason in _held(model, placement, outcome, held).items())
    return found


def _refusal(model: BatchModel, i: int) -> Reason:
    """The first limit that it cannot keep; those in time with what is left at the next replan."""
    queue, alone, period = model.queue, model.alone, model.policy.period
    nowhere = _nowhere(model, i)
    if nowhere is not None:
        return nowhere
    for rule, what, need, have in (
        ("ttft", "its first token takes", float(alone.prefill[i]), float(queue.ttft[i]) - period),
        ("e2e", "all of it takes", float(alone.finish[i]), float(queue.e2e[i]) - period),
    ):
        if need > have:
            left = f"{have:.3g} s are left" if have > 0 else "none is left"
            return Reason(rule, None, need, have, f"{what} at least {need:.3g} s, and {left} at the next replan")
    if alone.itl[i] > queue.itl[i]:
        need, have = float(alone.itl[i]), float(queue.itl[i])
        return Reason("itl", None, need, have, f"a token takes at least {need:.3g} s, and may take {have:.3g} s")
    need, have = float(queue.kv_full[i]), float(alone.memory[i])
    sentence = f"its KV cache takes {need / 1e9:.4g} GB, and no instance of its model has more than {have / 1e9:.4g} GB"
    return Reason("memory", None, need, have, sentence)


def _nowhere(model: BatchModel, i: int) -> Reason | None:
    """Where no instance prefills or decodes it at all, whatever its limits."""
    alone = model.alone
    if np.isinf(alone.prefill[i]):
        return Reason("no instance", None, None, None, "no instance of its model and precision prefills")
    if np.isinf(alone.itl[i]):
        slowest = model.policy.paces[-1]
        sentence = f"no instance of its model that decodes gives a token every {slowest:.3g} s, the slowest pace"
        return Reason("itl", None, None, slowest, sentence)
    if np.isinf(alone.finish[i]):
        sentence = "no instance that prefills for it can hand its KV cache to one that decodes"
        return Reason("no instance", None, None, None, sentence)
    return None


@dataclass(frozen=True, eq=False)
class _Rows:
    """Time: what held requests need on every kind (H, K), the freest instance of a kind (K,), what every instance has
    (J,), and what requests of the priorities above each level have of it (L + 1, J)."""

    needs: Floats
    best: Ints
    spare: Floats
    above: Floats
    fits: Callable[[int, int], bool]


def _held(model: BatchModel, placement: Placement, outcome: Outcome, held: Ints) -> dict[int, Reason]:
    queue, instances = model.queue, model.instances
    usable = instances.open & instances.decodes
    kinds = np.zeros(model.K, dtype=bool)
    kinds[instances.kind[usable]] = True
    runs = model.prefill.runs[held] & kinds[None, :]
    room = np.where(usable, instances.free_for_more - outcome.memory, -1)
    seats = np.where(usable, instances.batch_for_more - outcome.sequences, -1)
    roomiest, freest = _best_of_kind(model, room), _best_of_kind(model, seats)
    rows = _time(model, placement, outcome, held, usable)
    quota, fair = _quotas(model, outcome), _fairness(model, outcome)
    found: dict[int, Reason] = {}
    for n, i in enumerate(held.tolist()):
        if not runs[n].any():
            sentence = "every instance of its model takes nothing new: draining, fully used, or not heard of lately"
            found[i] = Reason("no instance", None, None, None, sentence)
            continue
        k = np.flatnonzero(runs[n])
        there = roomiest[k[np.argmax(room[roomiest[k]])]]
        seat = freest[k[np.argmax(seats[freest[k]])]]
        least = float(rows.needs[n, k].min())
        found[i] = (
            quota(i, least)
            or fair(i, least)
            or _short(int(queue.kv_full[i]), int(room[there]), instances.ids[there])
            or _full(int(queue.sequences[i]) if queue.output[i] else 0, int(seats[seat]), instances.ids[seat])
            or _busy(model, rows, outcome, n, i, k)
        )
    return found


def _best_of_kind(model: BatchModel, amount: npt.NDArray[Any]) -> Ints:
    """(K,) the instance of every kind with the most of something, −1 without an instance."""
    order = np.lexsort((np.arange(model.J), -amount, model.instances.kind))
    first = np.full(model.K, -1)
    first[model.instances.kind[order[::-1]]] = order[::-1]
    return first


def _time(model: BatchModel, placement: Placement, outcome: Outcome, held: Ints, usable: Bools) -> _Rows:
    """Shares of time: what each request needs on every kind, and what the freest instance of the kind has."""
    queue, window = model.queue, model.policy.window
    spare = 1.0 - outcome.decode_share - model.instances.other - outcome.prefill_seconds / window
    best = _best_of_kind(model, np.where(usable, spare, -np.inf))
    work = model.prefill.seconds(held[:, None], np.arange(model.K)[None, :])
    rung = np.where(placement.pace[best] >= 0, model.paces[placement.pace[best]], model.paces[-1])
    part = np.maximum(queue.step_compute[held], queue.step_read[held])
    base = np.maximum(model.kinds.base_compute, model.kinds.base_read)
    idle = np.where((outcome.sequences[best] == 0)[None, :], base[None, :], 0.0)
    decode = np.where((queue.output[held] > 0)[:, None], (part + idle) / rung[None, :], 0.0)
    needs = work / np.maximum(1e-9, np.minimum(window, queue.prefill_by[held]))[:, None] + decode
    return _Rows(needs, best, spare, _taken_above(model, placement, outcome), _trials(model, placement))


def _trials(model: BatchModel, placement: Placement) -> Callable[[int, int], bool]:
    """Whether a request would fit on an instance, prefill and decode, at its pace (at any, where nothing decodes)."""
    loads: dict[int, InstanceLoad] = {}

    def fits(i: int, j: int) -> bool:
        if not (model.instances.prefills[j] and model.instances.decodes[j]):
            return False
        if j not in loads:
            loads[j] = InstanceLoad.of(model, placement, j)
        load = loads[j]
        rungs = [load.pace] if load.pace >= 0 else range(len(model.paces))
        return any(load.fits(load.job(i, j, float(model.paces[rung])), i, rung) for rung in rungs)

    return fits


def _taken_above(model: BatchModel, placement: Placement, outcome: Outcome) -> Floats:
    """(L + 1, J) share of every instance's time that placed requests of the priorities before each level take."""
    queue, J, kind = model.queue, model.J, model.instances.kind
    here = np.flatnonzero(placement.prefill >= 0)
    level = np.searchsorted(outcome.levels, queue.priority[here])
    q = placement.decode[here]
    pace = np.where(placement.pace[q] >= 0, model.paces[placement.pace[q]], np.inf)
    part = np.maximum(queue.step_compute[here, kind[q]], queue.step_read[here, kind[q]]) / pace
    L = len(outcome.levels)
    taken = np.bincount(level * J + placement.prefill[here], outcome.work[here] / model.policy.window, L * J)
    taken = (taken + np.bincount(level * J + q, part, L * J)).reshape(L, J)
    return np.concatenate([np.zeros((1, J)), np.cumsum(taken, axis=0)])


def _quotas(model: BatchModel, outcome: Outcome) -> Callable[[int, float], Reason | None]:
    """Whether one more request would exceed its tenant's quota."""
    shares, queue = outcome.tenants, model.queue
    requests, memory, time = shares.requests.sum(axis=0), shares.memory.sum(axis=0), shares.time.sum(axis=0)
    whole = max(1.0, float(model.instances.free.sum()))

    def check(i: int, least: float) -> Reason | None:
        t = int(queue.tenant[i])
        name = model.tenants[t]
        for what, need, have in (
            ("requests", float(requests[t] + 1), float(model.quota_requests[t])),
            ("of the memory", float(memory[t] + queue.kv_full[i]) / whole, float(model.quota_memory[t]) / whole),
            ("of the time", (float(time[t]) + least) / model.J, float(model.quota_time[t]) / model.J),
        ):
            if need > have:
                sentence = f"with it tenant {name} would hold {need:.3g} {what}, and its quota is {have:.3g}"
                return Reason("quota", name, need, have, sentence)
        return None

    return check


def _fairness(model: BatchModel, outcome: Outcome) -> Callable[[int, float], Reason | None]:
    """Whether one more request would take its tenant too far ahead of one that still waits."""
    shares, queue, threshold = outcome.tenants, model.queue, model.policy.fairness
    whole = max(1.0, float(model.instances.free.sum()))

    def check(i: int, least: float) -> Reason | None:
        if threshold is None:
            return None
        t, level = int(queue.tenant[i]), int(np.searchsorted(outcome.levels, queue.priority[i]))
        waits = np.flatnonzero(shares.waiting[level] > 0)
        others = waits[waits != t]
        if not len(others):
            return None
        memory = (float(shares.memory[level, t]) + float(queue.kv_full[i])) / whole
        need = max(memory, (float(shares.time[level, t]) + least) / max(1, model.J))
        behind = int(others[np.argmin(shares.dominant[level, others])])
        have = float(shares.dominant[level, behind]) + threshold
        if need <= have:
            return None
        sentence = (
            f"with it tenant {model.tenants[t]} would hold a share of {need:.3g}, more than {threshold:.3g} ahead of "
            f"tenant {model.tenants[behind]}, which still waits"
        )
        return Reason("fairness", model.tenants[t], need, have, sentence)

    return check


def _short(need: int, have: int, name: str) -> Reason | None:
    if need <= have:
        return None
    left = f"instance {name}, which has the most, has {max(0, have) / 1e9:.4g} GB left"
    return Reason("memory", name, float(need), float(have), f"its KV cache takes {need / 1e9:.4g} GB, and {left}")


def _full(need: int, have: int, name: str) -> Reason | None:
    if need <= have:
        return None
    what = "one sequence does" if need == 1 else f"{need} sequences do"
    sentence = f"its {what} not fit the batch of any instance: {name} has room for {max(0, have)}"
    return Reason("batch", name, float(need), float(have), sentence)


def _busy(model: BatchModel, rows: _Rows, outcome: Outcome, n: int, i: int, k: Ints) -> Reason:
    """The instance whose time comes closest to what the request needs, and who has the rest of it."""
    level = int(np.searchsorted(outcome.levels, model.queue.priority[i]))
    at = int(k[np.argmax(rows.spare[rows.best[k]] - rows.needs[n, k])])
    j, need = int(rows.best[at]), float(rows.needs[n, at])
    have, name = float(rows.spare[j]), model.instances.ids[j]
    if need <= have and rows.fits(i, j):
        return Reason(
            "search", name, need, have, f"it would fit on instance {name}: the search ended before it came to it"
        )
    if need <= have:
        sentence = (
            f"instance {name} has {have:.3g} of its time left, but not before the deadlines of what is placed there"
        )
        return Reason("capacity", name, need, have, sentence)
    sentence = f"it needs {need:.3g} of the time of instance {name}, which has {max(0.0, have):.3g} left"
    if float(rows.above[level, j]) >= need - have:
        return Reason("priority", name, need, have, f"{sentence}: requests of a higher priority have the rest")
    return Reason("capacity", name, need, have, sentence)
