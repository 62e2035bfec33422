"""Capacities of instances, deadlines and quotas in the CP-SAT model of ``cpsat_model``."""

from __future__ import annotations

from collections.abc import Iterable
from math import ceil, floor, inf
from typing import Any

import numpy as np

from iegopt.batch.cpsat_model import GRID, SHARE, Variables
from iegopt.batch.links import transfer_seconds

__all__ = ["add_limits"]

STEP = 10**9
"""Parts of a second in which steps are counted."""
MOMENT = 10**4
"""Parts of a second in which deadlines are counted; work is in parts of MOMENT · SHARE."""
QUOTA = 10**7
"""Parts of a second per second in which shares of tenants are counted."""

Due = tuple[float, float, Any]
"""Deadline, seconds of work, and whether it is so."""


def add_limits(v: Variables) -> None:
    """All that binds what is placed."""
    for j in range(v.model.J):
        _memory(v, j)
        _batch(v, j)
        _time(v, j)
    _quotas(v)


def _here(v: Variables, j: int) -> list[tuple[int, Any]]:
    """Running stages that may decode on an instance, and whether they do."""
    stay = [(r, v.keep[r]) for r in np.flatnonzero(v.model.running.decode == j).tolist()]
    return stay + [(r, v.move[r, j]) for r in v.moves_to[j]]


def _memory(v: Variables, j: int) -> None:
    queue, running = v.model.queue, v.model.running
    total: list[Any] = [int(queue.kv_full[i]) * v.decode[i, j] for i in v.at_decode[j]]
    total += [int(queue.kv_prompt[i]) * (v.prefill[i, j] - v.both.get((i, j), 0)) for i in v.at_prefill[j]]
    total += [int(running.kv_there[r]) * x for r, x in _here(v, j)]
    apart = np.flatnonzero((running.instance == j) & (running.decode != j)).tolist()
    total += [int(running.kv_here[r]) * v.keep[r] for r in apart]
    at = v.model.instances
    v.cp.add(sum(total) <= int(at.free[j]))
    if at.free_for_more[j] < at.free[j]:
        more = [v.prefill[i, j] for i in v.at_prefill[j]] + [v.decode[i, j] for i in v.at_decode[j]]
        for x in (*more, *(v.move[r, j] for r in v.moves_to[j])):
            v.cp.add(sum(total) <= int(at.free_for_more[j])).only_enforce_if(x)


def _batch(v: Variables, j: int) -> None:
    """Sequences, and the share of the time that a step of all of them takes at the pace."""
    model, queue, running = v.model, v.model.queue, v.model.running
    kind, cp = int(model.instances.kind[j]), v.cp
    decoding = [(i, v.decode[i, j]) for i in v.at_decode[j] if queue.output[i]]
    here = [(r, x) for r, x in _here(v, j) if running.sequences[r]]
    count = [int(queue.sequences[i]) * x for i, x in decoding] + [int(running.sequences[r]) * x for r, x in here]
    cp.add(sum(count) <= int(model.instances.max_batch[j]))
    if model.instances.batch_for_more[j] < model.instances.max_batch[j]:
        for x in (*(x for _, x in decoding), *(v.move[r, j] for r in v.moves_to[j])):
            cp.add(sum(count) <= int(model.instances.batch_for_more[j])).only_enforce_if(x)
    rungs = [v.pace[j, t] for t in range(len(model.paces))]
    for _, x in (*decoding, *here):
        cp.add(sum(rungs) >= x)
    for base, mine, theirs in (
        (model.kinds.base_compute[kind], queue.step_compute[:, kind], running.step_compute[:, kind]),
        (model.kinds.base_read[kind], queue.step_read[:, kind], running.step_read[:, kind]),
    ):
        row = ceil(float(base) * STEP)
        parts = [ceil(float(mine[i]) * STEP) * x for i, x in decoding]
        parts += [ceil(float(theirs[r]) * STEP) * x for r, x in here]
        for t, tau in enumerate(model.paces.tolist()):
            # step / τ ≤ φ; an instance that decodes nothing needs no pace, and pays nothing.
            cp.add(SHARE * (row + sum(parts)) <= floor(tau * STEP) * v.phi[j]).only_enforce_if(v.pace[j, t])
    other = ceil(float(model.instances.other[j]) * SHARE)
    if other < SHARE:
        cp.add(v.phi[j] <= SHARE - other)
    for rung in rungs:
        cp.add(sum(x for _, x in (*decoding, *here)) >= rung)


def _time(v: Variables, j: int) -> None:
    """Σ P of what is due by D ≤ (1 − φ − ρ)·D for every deadline D."""
    model = v.model
    due = [*_running_due(v, j), *(one for i in v.at_prefill[j] for one in _due(v, i, j))]
    due = [one for one in due if one[0] < inf]
    if not due:
        return
    moments = sorted({floor(when * MOMENT) for when, _, _ in due})
    if len(moments) > GRID:
        cuts = np.linspace(0, len(moments) - 1, GRID).round().astype(int)
        moments = [moments[c] for c in cuts.tolist()]
    for when, _, literal in due:
        if floor(when * MOMENT) < max(moments[0], 0):
            v.cp.add(literal == 0)
    left = SHARE - ceil(float(model.instances.other[j]) * SHARE) - v.phi[j]
    done: Any = 0
    for n, moment in enumerate(moments):
        until = moments[n + 1] if n + 1 < len(moments) else inf
        mine = [
            ceil(work * MOMENT * SHARE) * literal
            for when, work, literal in due
            if moment <= floor(when * MOMENT) < until
        ]
        done = done + sum(mine)
        if moment >= 0:
            v.cp.add(done <= moment * left)


def _due(v: Variables, i: int, j: int) -> Iterable[Due]:
    """A request's prefill here, by what its pace and its way leave of its end."""
    queue, x, work = v.model.queue, v.prefill[i, j], v.work[i, j]
    if not np.isfinite(queue.e2e[i]):
        yield float(queue.prefill_by[i]), work, x
        return
    here = v.both.get((i, j), 0)
    rungs = list(enumerate(v.model.paces.tolist())) if (i, 0) in v.slow else [(-1, 0.0)]
    for t, tau in rungs:
        for apart, way in ((False, 0.0), (True, v.away(i, j))):
            place = (x - here) if apart else here
            if isinstance(place, int):
                continue
            late = float(queue.e2e[i]) - way - int(queue.output[i]) * tau
            if t < 0:
                yield min(float(queue.prefill_by[i]), late), work, place
                continue
            so = v.cp.new_bool_var(f"due {i} {j} {t} {apart}")
            v.cp.add(so >= place + v.slow[i, t] - 1)
            yield min(float(queue.prefill_by[i]), late), work, so


def _running_due(v: Variables, j: int) -> Iterable[Due]:
    """Prefills that run here, by what the pace of their decode leaves of their end."""
    model, running = v.model, v.model.running
    config = model.policy.kv_transfer_config
    for r in np.flatnonzero(running.is_prefill & (running.instance == j)).tolist():
        by, end, q = float(running.prefill_by[r]), float(running.finish_by[r]), int(running.decode[r])
        if end == inf or not running.sequences[r]:
            yield min(by, end), float(running.prefill[r]), v.keep[r]
            continue
        way = float(
            transfer_seconds(model.instances, config, j, q, int(running.wire_end[r]), float(running.prefill[r]))
        )
        for t, tau in enumerate(model.paces.tolist()):
            so = v.cp.new_bool_var(f"due {r} {t}")
            v.cp.add(so >= v.keep[r] + v.pace[q, t] - 1)
            yield min(by, end - way - int(running.remaining[r]) * tau), float(running.prefill[r]), so


def _quotas(v: Variables) -> None:
    """What a tenant may hold where anything of it is placed; a decode's share of time at the pace of its instance."""
    model, cp, queue, running = v.model, v.cp, v.model.queue, v.model.running
    for t in range(model.T):
        mine = np.flatnonzero(queue.tenant == t).tolist()
        stays = [(r, 1 - v.aside[r]) for r in np.flatnonzero(running.tenant == t).tolist()]
        limits = model.quota_requests[t], model.quota_memory[t], model.quota_time[t]
        if not mine or not any(np.isfinite(limit) for limit in limits):
            continue
        some = cp.new_bool_var(f"some of {t}")
        for i in mine:
            cp.add_implication(v.placed[i], some)
        if np.isfinite(limits[0]):
            count = sum(v.placed[i] for i in mine) + sum(x for _, x in stays)
            cp.add(count <= floor(limits[0])).only_enforce_if(some)
        if np.isfinite(limits[1]):
            held = [int(queue.kv_full[i]) * v.placed[i] for i in mine]
            for i in mine:
                apart = v.placed[i] - sum(v.both[i, j] for j in v.boths[i])
                held.append(int(queue.kv_prompt[i]) * apart)
            held += [int(running.kv_there[r]) * x for r, x in stays]
            held += [int(running.kv_here[r]) * v.keep[r] for r, _ in stays if running.instance[r] != running.decode[r]]
            cp.add(sum(held) <= floor(limits[1])).only_enforce_if(some)
        if np.isfinite(limits[2]):
            _time_quota(v, mine, [r for r, _ in stays], floor(float(limits[2]) * QUOTA), some)


def _time_quota(v: Variables, mine: list[int], stays: list[int], most: int, some: Any) -> None:
    model, queue, running, window = v.model, v.model.queue, v.model.running, v.model.policy.window
    kind = model.instances.kind
    total: list[Any] = [
        ceil(max(v.work[i, j], v.own_work(i, j)) / window * QUOTA) * v.prefill[i, j]
        for i in mine
        for j in range(model.J)
        if (i, j) in v.prefill
    ]
    total += [ceil(float(running.prefill[r]) / window * QUOTA) * v.keep[r] for r in stays]
    places: list[tuple[Any, int, Any, int]]
    decoding = {i for i in mine if queue.output[i]}
    places = [(x, j, queue, i) for (i, j), x in v.decode.items() if i in decoding]
    places += [(v.keep[r], int(running.decode[r]), running, r) for r in stays if running.sequences[r]]
    places += [(v.move[r, j], j, running, r) for r in stays for j in v.moves[r]]
    for place, j, of, n in places:
        part = max(float(of.step_compute[n, kind[j]]), float(of.step_read[n, kind[j]]))
        for t, tau in enumerate(model.paces.tolist()):
            so = v.cp.new_bool_var("")
            v.cp.add(so >= place + v.pace[j, t] - 1)
            total.append(ceil(part / tau * QUOTA) * so)
    v.cp.add(sum(total) <= most).only_enforce_if(some)
