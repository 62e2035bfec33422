"""The rules by which today's routers choose: a figure for every instance in reach of a request, the least wins.

Where a router of today takes all its instances to be alike, ``Traffic.speed`` and ``Traffic.size`` are 1; with the
true figures its rule is given a knowledge that its original lacks.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import numpy.typing as npt

from iegopt.batch.rules.traffic import Reach, Traffic

__all__ = ["RULES", "Score"]

Floats = npt.NDArray[np.float64]
Score = Callable[[Traffic, int, Reach], Floats]

MATCH, ABSOLUTE, RELATIVE = 0.3, 64.0, 1.5
"""SGLang's router: the match rate from which a prompt goes where its prefix is, and what counts as out of balance."""
CACHE_WEIGHT = 0.15
"""SMG's ``least_load``: what memory in use counts beside seconds of queue."""
DEFAULT_THROUGHPUT = 2000.0
"""SMG's tokens a second of a worker that states none."""
PREFIX, QUEUE, KV = 3.0, 2.0, 2.0
"""llm-d's default weights of its scorers."""


def best_fit(traffic: Traffic, i: int, reach: Reach) -> Floats:
    """Least memory left that still holds the request; those that do not hold it last, the emptiest first."""
    need = traffic.model.plain["kv_full"][i]
    left = traffic.model.instances.free[reach.every] - traffic.memory[reach.every] - need
    return np.asarray(np.where(left >= 0.0, left, 1e18 - left))


def least_loaded(traffic: Traffic, i: int, reach: Reach) -> Floats:
    """Fewest requests in flight, for its speed."""
    return np.asarray((traffic.requests[reach.every] + 1.0) / traffic.speed[reach.every])


def least_load(traffic: Traffic, i: int, reach: Reach) -> Floats:
    """SMG: (tokens queued and in flight)/throughput + 0.15·k/(1 − k), k the share of memory in use.

    Tokens in flight are those of prompts that are not done, this one included: a router counts its own.
    """
    j, queue = reach.every, traffic.model.plain
    used = np.clip(traffic.memory[j] / np.maximum(1, traffic.model.instances.free[j]), 0.0, 0.999)
    tokens = traffic.tokens[j] + queue["prompt"][i] * queue["sequences"][i]
    return np.asarray(tokens / (DEFAULT_THROUGHPUT * traffic.speed[j]) + CACHE_WEIGHT * used / (1.0 - used))


def cache_aware(traffic: Traffic, i: int, reach: Reach) -> Floats:
    """SGLang: out of balance (max − min > 64 and max > 1.5·min) the least loaded; else where more than 0.3 of the
    prompt matches, the instance with the longest match; else the least loaded."""
    load = least_loaded(traffic, i, reach)
    requests = (traffic.requests / traffic.speed)[reach.every]
    most, least = float(requests.max(initial=0.0)), float(requests.min(initial=np.inf))
    if most - least > ABSOLUTE and most > RELATIVE * least:
        return load
    matched, _ = traffic.matched(i, reach)
    if float(matched.max(initial=0.0)) <= MATCH * traffic.model.plain["prompt"][i]:
        return load
    return np.asarray(load / (1.0 + float(load.max())) - matched)


def dynamo(traffic: Traffic, i: int, reach: Reach) -> Floats:
    """Dynamo's KV router: max(0, prefill blocks − credit) + decode blocks, its defaults.

    Prefill blocks are those queued and the request's own; the credit those it finds, 0.75 where they are in host
    memory. Decode blocks are the KV caches that the instance holds, with the request's own.
    """
    j, queue, size = reach.every, traffic.model.plain, traffic.model.holdings.block_tokens
    _, credit = traffic.matched(i, reach)
    sequences, each = queue["sequences"][i], queue["kv_per_token"][i]
    prefill = (traffic.tokens[j] + queue["prompt"][i] * sequences - credit * sequences) / size
    held = (traffic.memory[j] + queue["kv_full"][i]) / (max(1.0, each / sequences) * size)
    return np.asarray(np.maximum(0.0, prefill) / traffic.speed[j] + held / traffic.size[j])


def llm_d(traffic: Traffic, i: int, reach: Reach) -> Floats:
    """llm-d's default scorers: 3·match + 2·(most − queue)/(most − least) + 2·(1 − memory in use), the most wins."""
    j, prompt = reach.every, traffic.model.plain["prompt"][i]
    matched, _ = traffic.matched(i, reach)
    queue = (traffic.waiting / traffic.speed)[j]
    most, least = float(queue.max(initial=0.0)), float(queue.min(initial=np.inf))
    empty = (most - queue) / (most - least) if most > least else np.ones(len(queue))
    used = np.clip(traffic.memory[j] / np.maximum(1, traffic.model.instances.free[j]), 0.0, 1.0)
    return np.asarray(-(PREFIX * matched / max(1, prompt) + QUEUE * empty + KV * (1.0 - used)))


def first_token(traffic: Traffic, i: int, reach: Reach) -> Floats:
    """Mooncake's Conductor (FAST 2025, algorithm 1) without its transfers: queue and prefill, what is held taken off.

    One that does not know the speeds counts tokens.
    """
    j, queue = reach.every, traffic.model.plain
    matched, _ = traffic.matched(i, reach)
    part = 1.0 - matched / max(1, queue["prompt"][i])
    if not traffic.speeds:
        return np.asarray(traffic.tokens[j] + part * queue["prompt"][i] * queue["sequences"][i])
    speed = np.maximum(1e-3, 1.0 - traffic.model.instances.other[j])
    return np.asarray((traffic.seconds[j] + part * traffic.work[i, reach.kind]) / speed)


RULES: dict[str, Score] = {
    "best-fit": best_fit,
    "least-loaded": least_loaded,
    "least-load": least_load,
    "cache-aware": cache_aware,
    "dynamo": dynamo,
    "llm-d": llm_d,
    "first-token": first_token,
}
"""Name -> rule."""
