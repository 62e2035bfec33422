"""The tables of a plan of a queue as words, the same on a terminal and on a page."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from iegopt.cli.format import NONE, data, percent, seconds
from iegopt.cli.rows import Rows

if TYPE_CHECKING:
    from iegopt.batch_plans import BatchPlan, QueuedDecision

__all__ = [
    "FIRST_ROWS", "by_reason", "changes", "counts", "cut", "instances", "levels", "placed", "tenants", "waiting",
]  # fmt: skip

FIRST_ROWS = 20
"""Rows of a table that are shown where nobody asked for all."""

_ACTIONS = {"preempt": "preempted", "migrate": "migrated", "requeue": "queued again"}


def counts(plan: BatchPlan) -> str:
    """What happens to how many: ``10 requests: 6 placed, 3 held, 1 refused; 5 running: 5 kept``."""
    queue: Counter[str] = Counter(decision.status for decision in plan.queue)
    running: Counter[str] = Counter(decision.action for decision in plan.running)
    words = f"{len(plan.queue):,} queued"
    if queue:
        words += ": " + ", ".join(f"{queue[s]:,} {s}" for s in ("placed", "held", "refused") if queue[s])
    words += f"; {len(plan.running):,} running"
    if running:
        names = {"keep": "kept", **_ACTIONS}
        words += ": " + ", ".join(f"{running[action]:,} {name}" for action, name in names.items() if running[action])
    return words


def levels(plan: BatchPlan) -> Rows:
    """Per priority what the plan is worth, and how far from the best it may be."""
    cells = [
        (
            f"P{level.priority}", f"{level.utility:.4g}", f"{level.loss:.4g}", f"{level.objective:.4g}",
            NONE if level.bound is None else f"{level.bound:.4g}", percent(level.gap), level.proof or NONE,
        )
        for level in plan.levels
    ]  # fmt: skip
    heads = ("priority", "utility|", "loss|", "objective|", "bound|", "gap|", "proved by")
    return Rows("Priorities", heads, tuple(cells))


def placed(plan: BatchPlan) -> Rows:
    """Requests that start: where, what they reuse, when they answer."""
    cells = [
        (
            q.id, q.tenant, f"P{q.priority}", _where(q), _path(q), _reuse(q), seconds(q.start), seconds(q.first_token),
            seconds(q.finish), seconds(q.pace), f"{q.utility:.3g}",
        )
        for q in plan.queue
        if q.status == "placed"
    ]  # fmt: skip
    heads = (
        "request", "tenant", "priority", "instance", "KV cache moves", "reused tokens", "starts|", "first token|",
        "ends|", "pace|", "utility|",
    )  # fmt: skip
    return Rows("Placed", heads, tuple(cells))


def waiting(plan: BatchPlan) -> Rows:
    """Requests that do not start, with the reason."""
    cells = [
        (q.id, q.tenant, f"P{q.priority}", q.status, q.reason.rule, q.reason.sentence)
        for q in plan.queue
        if q.reason is not None
    ]
    return Rows("Held and refused", ("request", "tenant", "priority", "what", "reason", "because"), tuple(cells))


def by_reason(plan: BatchPlan) -> Rows:
    """How many requests are held or refused for which reason, with the first one's sentence."""
    groups: dict[tuple[str, str], list[QueuedDecision]] = {}
    for q in plan.queue:
        if q.reason is not None:
            groups.setdefault((q.status, q.reason.rule), []).append(q)
    ordered = sorted(groups.items(), key=lambda group: (group[0][0], -len(group[1])))
    cells = [
        (status, rule, f"{len(group):,}", group[0].id, group[0].reason.sentence if group[0].reason else NONE)
        for (status, rule), group in ordered
    ]
    return Rows("Held and refused, by reason", ("what", "reason", "requests|", "such as", "because"), tuple(cells))


def changes(plan: BatchPlan) -> Rows:
    """Running stages that do not stay, and what that costs."""
    how = {"swap": "to the host and back", "recompute": "computed again"}
    cells = []
    for r in plan.running:
        if r.action != "keep":
            price = (NONE, NONE) if r.action == "requeue" else (data(r.bytes), seconds(r.seconds))
            late = "yes" if r.misses else "no"
            kept = how.get(r.how or "", NONE)
            about = (r.id, _ACTIONS[r.action], r.instance, r.to or NONE, r.by or NONE, kept)
            cells.append((*about, *price, late, f"{r.loss:.3g}"))
    heads = (
        "stage", "what", "from", "to", "in favour of", "KV cache", "bytes|", "costs|", "misses a limit", "loss|",
    )  # fmt: skip
    return Rows("Running stages that change", heads, tuple(cells))


def instances(plan: BatchPlan) -> Rows:
    """Pace, shares of time, memory and batch of every instance."""
    cells = [
        (
            use.id, seconds(use.pace), percent(use.decode_share), percent(use.other_share),
            seconds(use.prefill_seconds), data(use.memory), percent(use.memory / use.free if use.free else None),
            f"{use.sequences:,}",
        )
        for use in plan.instances
    ]  # fmt: skip
    heads = (
        "instance", "pace|", "decodes|", "other work|", "prefills|", "KV caches|", "of its memory|", "sequences|",
    )  # fmt: skip
    return Rows("Instances", heads, tuple(cells))


def tenants(plan: BatchPlan) -> Rows:
    """Per tenant and priority: requests, shares of memory and time, whether more waits, and what is placed is worth."""
    cells = [
        (
            use.id, f"P{use.priority}", f"{use.requests:,}", percent(use.memory_share), percent(use.time_share),
            f"{use.waiting:,}", f"{use.utility:.4g}",
        )
        for use in plan.tenants
    ]  # fmt: skip
    heads = ("tenant", "priority", "running and placed|", "of memory|", "of time|", "still waiting|", "utility|")
    return Rows("Tenants", heads, tuple(cells))


def cut(rows: Rows, most: int = FIRST_ROWS) -> Rows:
    """The first rows, and in the title of how many."""
    if len(rows.cells) <= most:
        return rows
    return Rows(f"{rows.title} (first {most} of {len(rows.cells):,})", rows.heads, rows.cells[:most])


def _where(q: QueuedDecision) -> str:
    return f"{q.prefill}" if q.prefill == q.decode else f"{q.prefill} → {q.decode}"


def _path(q: QueuedDecision) -> str:
    return NONE if q.prefill == q.decode else f"{data(q.transferred)}, {q.path}"


def _reuse(q: QueuedDecision) -> str:
    if not q.reused:
        return NONE
    if q.reused_from == "plan":
        return f"{q.reused:,} of this plan"
    if q.reused_from == q.prefill:
        return f"{q.reused:,} held"
    return f"{q.reused:,} of {q.reused_from} ({data(q.fetched)})"
