"""A queue routed by a rule as its original does: every request goes out at once, whether or not it can be in time.

What an engine has no memory or batch for waits there, and so does what a tenant's quota keeps back. Prefills that end
late are worth nothing, but they take the time of the others all the same.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from iegopt.batch.loads import loads
from iegopt.batch.model import BatchModel
from iegopt.batch.outcome import Outcome
from iegopt.batch.placement import Placement
from iegopt.batch.rules.admitted import first_come
from iegopt.batch.rules.scores import RULES
from iegopt.batch.rules.traffic import Traffic
from iegopt.batch.schedule import evaluate
from iegopt.batch.tenancy import Tenancy

__all__ = ["charged", "send_out"]

Floats = npt.NDArray[np.float64]


def send_out(model: BatchModel, rule: str, *, speeds: bool = False) -> Placement:
    """The rule's placement, every instance at the pace at which it is worth most.

    Parameters
    ----------
    rule
        One of ``RULES``.
    speeds
        Whether the router knows how fast and how large its instances are.
    """
    plan, traffic, score = Placement.empty(model), Traffic(model, speeds=speeds), RULES[rule]
    tenancy, queue = Tenancy(model, plan), model.plain
    now = loads(model, plan)
    at = model.instances
    memory, sequences = at.free_for_more - now.memory, at.batch_for_more - now.sequences
    for i in first_come(model, refused=True):
        reach = traffic.reach(i)
        if not len(reach.instance):
            continue
        p = int(reach.instance[int(np.argmin(score(traffic, i, reach)))])
        others = traffic.decoders(p)
        q = p if model.instances.decodes[p] or not queue["output"][i] else int(others[0]) if len(others) else -1
        if q < 0:
            continue
        traffic.send(i, p, q)
        count = queue["sequences"][i] if queue["output"][i] else 0
        here = queue["kv_prompt"][i] if p != q else 0
        if queue["kv_full"][i] > memory[q] or here > memory[p] or count > sequences[q]:
            continue
        if tenancy.limited:
            tau = float(model.paces[-1])
            held = tenancy.of_queued(i, p, q, tau, float(traffic.work[i, model.instances.kind[p]]))
            if not tenancy.allows(held):
                continue
            tenancy.add(held)
        memory[q] -= queue["kv_full"][i]
        memory[p] -= here
        sequences[q] -= count
        plan.prefill[i], plan.decode[i] = p, q
    return _paced(model, plan)


def charged(model: BatchModel, outcome: Outcome) -> Floats:
    """(L,) what a placement is worth by level if what runs and is made to miss a limit is worth nothing any more."""
    return np.asarray(outcome.objective - _lost(model, outcome).sum(axis=1))


def _lost(model: BatchModel, outcome: Outcome) -> Floats:
    """(L, J) weights of running stages that miss a limit, where they decode."""
    late = {violation.where for violation in outcome.violations if violation.rule in ("ttft", "e2e", "itl")}
    running, found = model.running, np.zeros((len(outcome.levels), model.J))
    rows = [r for r, name in enumerate(running.ids) if name in late]
    np.add.at(
        found, (np.searchsorted(outcome.levels, running.priority[rows]), running.decode[rows]), running.weight[rows]
    )
    return found


def _paced(model: BatchModel, plan: Placement) -> Placement:
    """The plan with every instance that decodes at its best pace, the slower one among equals."""
    busy = np.flatnonzero(loads(model, plan).sequences > 0)
    here = np.flatnonzero(plan.prefill >= 0)
    values = []
    for rung in range(len(model.paces)):
        plan.pace[busy] = rung
        outcome = evaluate(model, plan)
        worth = -_lost(model, outcome)
        level = np.searchsorted(outcome.levels, model.queue.priority[here])
        np.add.at(worth, (level, plan.decode[here]), outcome.utility[here])
        values.append(np.round(worth, 9))
    for j in busy.tolist():
        plan.pace[j] = max(range(len(model.paces)), key=lambda rung: (*values[rung][:, j].tolist(), rung))
    return plan
