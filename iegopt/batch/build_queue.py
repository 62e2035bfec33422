"""The requests that wait as arrays.

Of an agent's rounds the present one is planned: it decodes until the call, and the least that the later rounds and
their tools take is taken off the time that is left.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from iegopt.batch.build_instances import BuiltInstances
from iegopt.batch.model import Queue
from iegopt.batch.prefill import PrefillCost
from iegopt.batch.read_queue import Waiting
from iegopt.batch.steps import mean_kv_tokens, step_parts
from iegopt.graph.templates import TOOL_CALL_TOKENS
from iegopt.spec.batch_policy import BatchPolicy
from iegopt.spec.request import AgentConfig

__all__ = ["BuiltQueue", "build_queue"]

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class BuiltQueue:
    queue: Queue
    prefill: PrefillCost


def build_queue(
    waiting: list[Waiting], built: BuiltInstances, policy: BatchPolicy, tenants: dict[str, int]
) -> BuiltQueue:  # fmt: skip
    """Arrays of the readable requests; ``tenants`` grows by those it does not know yet."""
    kinds = built.kinds.kinds
    prompt, sequences = _ints([w.prompt for w in waiting]), _ints([w.sequences for w in waiting])
    whole = _ints([w.output for w in waiting])
    rounds = np.array([_rounds(w.agent) for w in waiting], dtype=np.int64)
    output = np.where(rounds > 0, np.minimum(whole, TOOL_CALL_TOKENS), whole)
    shared = {id(w.allowed): w.allowed for w in waiting}
    place = {key: at for at, key in enumerate(shared)}
    which = np.array([place[id(w.allowed)] for w in waiting], dtype=np.int64)
    groups = list(shared.values())
    runs = np.array([g.runs for g in groups], dtype=bool).reshape(len(groups), len(kinds))[which]
    per_token = _floats([g.bytes_per_token for g in groups])[which] * sequences
    working = _floats([g.working for g in groups])[which] * sequences
    ratio = _floats([g.ratio for g in groups])[which]
    prefill = PrefillCost.of(kinds, prompt, sequences, runs)
    a, b = step_parts(kinds, sequences, mean_kv_tokens(prompt, output))
    decodes = (output > 0)[:, None]
    ttft = _floats([w.ttft for w in waiting])
    e2e = _floats([w.e2e for w in waiting]) - _later(waiting, rounds, built)
    fastest = prefill.seconds(np.arange(len(waiting))[:, None], np.arange(len(kinds))[None, :]).min(
        axis=1, initial=np.inf
    )  # fmt: skip
    arrived = np.lexsort((np.arange(len(waiting)), _floats([w.arrival for w in waiting])))
    order = np.empty(len(waiting), dtype=np.int64)
    order[arrived] = np.arange(len(waiting))
    queue = Queue(
        ids=tuple(w.id for w in waiting),
        tenant=_ints([tenants.setdefault(w.tenant, len(tenants)) for w in waiting]),
        priority=_ints([w.priority for w in waiting]),
        weight=_floats([w.weight for w in waiting]),
        throughput=np.array([w.throughput for w in waiting], dtype=bool),
        prompt=prompt,
        output=output,
        sequences=sequences,
        order=order,
        ttft=ttft,
        e2e=e2e,
        itl=np.minimum(_floats([w.itl for w in waiting]), policy.paces[-1]),
        prefill_by=np.minimum(ttft, np.maximum(policy.window, 2 * fastest)),
        kv_prompt=np.ceil(per_token * prompt).astype(np.int64),
        kv_full=np.ceil(per_token * (prompt + output) + working).astype(np.int64),
        kv_per_token=per_token,
        wire_per_token=per_token * ratio,
        step_compute=np.where(runs, decodes * a, np.inf),
        step_read=np.where(runs, decodes * b, np.inf),
        planned_prefill=_ints([w.planned[0] for w in waiting]),
        planned_decode=_ints([w.planned[1] for w in waiting]),
    )
    return BuiltQueue(queue, prefill)


def _rounds(agent: AgentConfig | None) -> int:
    """Rounds that are planned ahead."""
    return agent.lookahead if agent is not None and (agent.tools or agent.retrieval is not None) else 0


def _later(waiting: list[Waiting], rounds: Ints, built: BuiltInstances) -> Floats:
    """(N,) the least seconds that tools and later rounds take: alone on the kind that is fastest for each part."""
    found = np.zeros(len(waiting))
    owner: list[int] = []
    context: list[int] = []
    new: list[int] = []
    output: list[int] = []
    for i in np.flatnonzero(rounds).tolist():
        w = waiting[i]
        assert w.agent is not None
        call = min(w.output, TOOL_CALL_TOKENS)
        results = sum(tool.result_tokens for tool in w.agent.tools)
        results += w.agent.retrieval.result_tokens if w.agent.retrieval else 0
        found[i] = int(rounds[i]) * max((tool.latency for tool in w.agent.tools), default=0.0)
        held = w.prompt + call
        for number in range(int(rounds[i])):
            last = number == int(rounds[i]) - 1
            owner.append(i)
            context.append(held)
            new.append(max(1, results))
            output.append(w.output if last else call)
            held += results + call
    if not owner:
        return found
    kinds, L = built.kinds.kinds, len(owner)
    sequences = _ints([waiting[i].sequences for i in owner])
    runs = np.array([waiting[i].allowed.runs for i in owner], dtype=bool)
    held_tokens, tokens, steps = _ints(context), _ints(new), _ints(output)
    cost = PrefillCost.of(kinds, held_tokens + tokens, sequences, runs)
    prefill = cost.seconds(np.arange(L)[:, None], np.arange(len(kinds))[None, :], held_tokens[:, None]).min(axis=1)
    a, b = step_parts(kinds, sequences, mean_kv_tokens(held_tokens + tokens, steps))
    step = np.maximum(built.kinds.base_compute + a, built.kinds.base_read + b)
    np.add.at(found, owner, prefill + steps * np.where(runs, step, np.inf).min(axis=1))
    return found


def _ints(values: list[int]) -> Ints:
    return np.array(values, dtype=np.int64)


def _floats(values: list[float]) -> Floats:
    return np.array(values, dtype=np.float64)
