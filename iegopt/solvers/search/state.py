"""A plan under search: which option every stage has, what that costs, and what every other option would.

For every stage v the state keeps

    potential[v][o] = cost(o) + Σ over edges to placed neighbours of the edge's cost from o to where they stand

so the exact change of the objective of moving v anywhere is a difference of two entries, for all options at
once. Hard constraints become a measure of violation (0 where all hold): overload as a fraction of the
device's capacity, time beyond a limit as a fraction of the limit, and broken pairs of required affinities.
A stage may be unplaced (choice −1): it then weighs nothing.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from iegopt.errors import InternalError
from iegopt.problem.arrays import NO_LIMIT, Affinity, Problem
from iegopt.solvers.evaluate import affinity_holds, objective
from iegopt.solvers.exact.messages import Messages
from iegopt.solvers.search.broken_rules import broken_pairs, penalty
from iegopt.solvers.search.held_memory import HeldMemory

__all__ = ["Offers", "State"]

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]

_ROWS = 4_000_000
"""Elements of cached rows before the cache is emptied."""


@dataclass(frozen=True, eq=False)
class Offers:
    """What every option of one stage would change, the other stages staying.

    ``cost`` (n,) ticks against the stage's own contribution now (or against nothing, where it is unplaced);
    ``violation`` (n,) of the constraints that the stage takes part in, infinite where an option is not allowed.
    """

    cost: Ints
    violation: Floats


class State:
    """Mutable; ``place`` is the only thing that changes the plan.

    Parameters
    ----------
    check
        Recompute the objective in full after every change and raise ``InternalError`` on a difference.
    """

    def __init__(self, problem: Problem, messages: Messages, check: bool = False) -> None:
        self.problem = problem
        self.messages = messages
        self.check = check
        options = problem.options
        self.ptr = messages.ptr
        self.choice = [-1] * problem.V
        self.value = 0
        self.potential = [options.cost[options.of(v)].copy() for v in range(problem.V)]
        self.memory = HeldMemory(problem)
        self._rules: list[list[Affinity]] = [[r for r in problem.affinities if v in r.stages] for v in range(problem.V)]
        self._around: list[list[tuple[int, int, bool]]] = [[] for _ in range(problem.V)]
        for e, (u, w) in enumerate(zip(messages.source, messages.target, strict=True)):
            self._around[u].append((e, w, True))
            self._around[w].append((e, u, False))
        self._rows: dict[tuple[int, int, bool, bool], Ints] = {}
        self._cached = 0
        self._limit = [min(int(limit), problem.deadline) for limit in problem.finish_by]
        self._head = [0] * problem.V
        self._slack_end = list(self._limit)

    # -- reading -----------------------------------------------------------------------------

    def plan(self) -> Ints:
        """(V,) option indices."""
        return np.array(self.choice, dtype=np.int64)

    def neighbours(self, stage: int) -> list[int]:
        """Stages joined to a stage by an edge, without repeats."""
        return list(dict.fromkeys(w for _, w, _ in self._around[stage]))

    def offers(self, stage: int) -> Offers:
        """Cost and violation of every option of a stage."""
        problem, options = self.problem, self.problem.options
        span = options.of(stage)
        now = self.choice[stage]
        cost = self.potential[stage].copy()
        sites = options.site[span]
        violation = np.where(problem.allowed[span], self.memory.overload(span, now), np.inf)
        for rule in self._rules[stage]:
            broken = broken_pairs(problem.topology, rule, self._sites_of(rule, stage), sites)
            if rule.required:
                violation += broken
            else:
                cost += np.where(broken > 0, rule.penalty, 0)
        if problem.budget < NO_LIMIT and stage in problem.budget_stages:
            others = sum(
                int(options.time[self.choice[w]]) for w in problem.budget_stages if w != stage and self.choice[w] >= 0
            )
            violation += np.maximum(0, options.time[span] + (others - problem.budget)) / max(problem.budget, 1)
        if problem.has_path_limits:
            violation += self._lateness(stage, span)
        if now >= 0:
            cost -= cost[now - span.start]
        return Offers(cost, violation)

    def violation(self) -> float:
        """How much the plan breaks hard constraints; exactly 0 where it breaks none."""
        problem, options = self.problem, self.problem.options
        total = self.memory.excess
        plan = self.plan()
        for rule in problem.affinities:
            if rule.required and all(self.choice[v] >= 0 for v in rule.stages):
                total += not affinity_holds(problem, rule, plan)
        if problem.budget < NO_LIMIT:
            used = sum(int(options.time[self.choice[v]]) for v in problem.budget_stages if self.choice[v] >= 0)
            total += max(0, used - problem.budget) / max(problem.budget, 1)
        if problem.has_path_limits:
            for v, option in enumerate(self.choice):
                if option >= 0:
                    finish = self._head[v] + int(options.time[option])
                    total += max(0, finish - self._limit[v]) / max(self._limit[v], 1)
        return total

    def culprits(self) -> list[int]:
        """Stages that take part in a broken constraint."""
        problem, options = self.problem, self.problem.options
        found: set[int] = set()
        over = self.memory.over
        if over.any():
            for v, option in enumerate(self.choice):
                if option >= 0 and over[problem.topology.devices_of(int(options.site[option]))].any():
                    found.add(v)
        plan = self.plan()
        for rule in problem.affinities:
            if rule.required and not affinity_holds(problem, rule, plan):
                found.update(rule.stages)
        if problem.budget < NO_LIMIT:
            members = list(problem.budget_stages)
            if int(options.time[plan[members]].sum()) > problem.budget:
                found.update(members)
        if problem.has_path_limits:
            for v, option in enumerate(self.choice):
                if self._head[v] + int(options.time[option]) > self._slack_end[v]:
                    found.add(v)
        return sorted(found)

    def potential_without(self, stage: int, others: tuple[int, ...]) -> Ints:
        """(n,) the potential of a stage less its edges to some placed stages."""
        potential = self.potential[stage].copy()
        for e, w, forward in self._around[stage]:
            if w in others:
                potential -= self._row(e, self.choice[w], not forward, False)
        return potential

    def value_between(self, stages: tuple[int, ...]) -> int:
        """Ticks of the edges among some placed stages."""
        total = 0
        for v in stages:
            for e, w, forward in self._around[v]:
                if forward and w in stages:
                    total += int(self._row(e, self.choice[v], True, False)[self.choice[w] - self.ptr[w]])
        return total

    def free_without(self, stages: tuple[int, ...]) -> Ints:
        """(S,) free memory on the fullest device of every site once some stages have left (shared weights stay)."""
        return self.memory.free_without([self.choice[v] for v in stages])

    # -- changing ----------------------------------------------------------------------------

    def place(self, stage: int, option: int) -> int:
        """Give a stage an option (−1: take it off); returns the change of the objective in ticks."""
        before = self.choice[stage]
        if before == option:
            return 0
        start = self.ptr[stage]
        potential = self.potential[stage]
        delta = (int(potential[option - start]) if option >= 0 else 0) - (
            int(potential[before - start]) if before >= 0 else 0
        )
        penalties = self._penalties(stage) if self._rules[stage] else 0
        if before >= 0:
            self.memory.bear(before, -1)
        if option >= 0:
            self.memory.bear(option, 1)
        for e, w, forward in self._around[stage]:
            if before >= 0:
                self.potential[w] -= self._row(e, before, forward, False)
            if option >= 0:
                self.potential[w] += self._row(e, option, forward, False)
        self.choice[stage] = option
        if self._rules[stage]:
            delta += self._penalties(stage) - penalties
        self.value += delta
        if self.problem.has_path_limits:
            self._time_paths()
        if self.check and min(self.choice) >= 0 and self.value != objective(self.problem, self.plan()):
            raise InternalError(
                f"search: objective {self.value} by deltas, {objective(self.problem, self.plan())} in full"
            )
        return delta

    def adopt(self, plan: Ints | list[int]) -> None:
        """Move every stage to where a plan has it."""
        for v, option in enumerate(plan.tolist() if isinstance(plan, np.ndarray) else plan):
            self.place(v, option)

    # -- parts -------------------------------------------------------------------------------

    def _sites_of(self, rule: Affinity, but: int = -1) -> list[int]:
        """Sites of the placed stages of a rule, all but one."""
        site = self.problem.options.site
        return [int(site[self.choice[w]]) for w in rule.stages if w != but and self.choice[w] >= 0]

    def _penalties(self, stage: int) -> int:
        """Penalties of the broken preferred affinities of a stage, among the placed stages."""
        topology = self.problem.topology
        return sum(penalty(topology, rule, self._sites_of(rule)) for rule in self._rules[stage] if not rule.required)

    def _row(self, edge: int, option: int, forward: bool, time: bool) -> Ints:
        key = (edge, option, forward, time)
        row = self._rows.get(key)
        if row is None:
            if self._cached > _ROWS:
                self._rows.clear()
                self._cached = 0
            row = self._rows[key] = self.messages.row(edge, option, forward, time)
            self._cached += len(row)
        return row

    def _time_paths(self) -> None:
        """Earliest start of every stage, and the finish from which on a limit downstream breaks."""
        options, choice = self.problem.options, self.choice
        order = self.problem.order.tolist()
        head = [0] * self.problem.V
        due = list(self._limit)
        for v in order:
            if choice[v] < 0:
                continue
            finish = head[v] + int(options.time[choice[v]])
            for e, w, forward in self._around[v]:
                if forward and choice[w] >= 0:
                    head[w] = max(head[w], finish + int(self._row(e, choice[v], True, True)[choice[w] - self.ptr[w]]))
        for v in reversed(order):
            if choice[v] < 0:
                continue
            for e, w, forward in self._around[v]:
                if forward and choice[w] >= 0 and due[w] < NO_LIMIT:
                    transfer = int(self._row(e, choice[v], True, True)[choice[w] - self.ptr[w]])
                    due[v] = min(due[v], due[w] - int(options.time[choice[w]]) - transfer)
        self._head, self._slack_end = head, due

    def _lateness(self, stage: int, span: slice) -> Floats:
        """(n,) time by which the worst path through the stage breaks a limit, as a fraction of the limit."""
        options, choice = self.problem.options, self.choice
        start = np.zeros(span.stop - span.start, dtype=np.int64)
        for e, w, forward in self._around[stage]:
            if not forward and choice[w] >= 0:
                arrival = self._head[w] + int(options.time[choice[w]])
                start = np.maximum(start, arrival + self._row(e, choice[w], True, True))
        finish = start + options.time[span]
        late = np.zeros(len(finish), dtype=np.int64)
        scale = self._limit[stage]
        if scale < NO_LIMIT:
            late = np.maximum(late, finish - scale)
        for e, w, forward in self._around[stage]:
            if forward and choice[w] >= 0 and self._slack_end[w] < NO_LIMIT:
                room = self._slack_end[w] - int(options.time[choice[w]])
                late = np.maximum(late, finish + self._row(e, choice[w], False, True) - room)
                scale = min(scale, max(1, self._limit[w]))
        return late / max(1, min(scale, int(max(1, finish.max(initial=1)))))
