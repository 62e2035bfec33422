"""A controller that begins, or that was away and has replayed its journal: what may not have left is asked for again.

What stages did meanwhile is not known yet, so that the time does not count against them; a request's own time-out does.
"""

from __future__ import annotations

from iegopt.control import planning
from iegopt.control.core import Core
from iegopt.control.messages import Answer, Configured, Restarted, Stream
from iegopt.control.policy import ControlPolicy
from iegopt.spec.explain_error import validate

__all__ = ["configured", "restarted"]

_PAUSED = ("slow", "block", "stop", "compute", "grace", "patience")


def configured(core: Core, event: Configured) -> None:
    """Go by another policy from here on; know which workers may still come up."""
    core.policy = validate(ControlPolicy, event.policy, "policy")
    core.pool.expect({name: str(role) for name, role in event.workers.items()}, core.now)


def restarted(core: Core, event: Restarted) -> None:
    """Ask again for plans, tokens and answers; workers, whose stages run on, get a time of grace to come back."""
    core.woken = None
    core.settle = True  # the policy of now may let more begin than the one before
    _stop_the_clock(core, core.now - core.before)
    for worker in core.pool.known():
        worker.away_since = worker.heard = core.now
        core.timers.set(("worker", worker.id), core.now + core.policy.restart_grace)
    for run in core.runs.values():
        if run.answer is not None:
            core.send(Answer(run.id, run.answer))
            continue
        for stage in run.decodes():
            if stage.emitted:
                core.send(Stream(run.id, stage.id, 0, stage.emitted, stage.text))
        graph = planning.remaining_graph(core, run) if run.planning is not None else None
        if graph is not None:
            core.send(planning.make_plan(core, run, graph, "the controller was away"))


def _stop_the_clock(core: Core, away: float) -> None:
    """Stages have not run, waited or been slow for the seconds that the controller was away."""
    for key, at in list(core.timers.times.items()):
        if key[0] in _PAUSED:
            core.timers.set(key, at + away)
    core.pool.shift(away)
    for run in core.runs.values():
        if run.unplanned_since is not None:
            run.unplanned_since += away
        for stage in run.live():
            if stage.runs_since is not None:
                stage.runs_since += away
            stage.stop_by += away
