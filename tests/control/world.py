"""A small world around a controller: workers, a planner and clients on one virtual clock, with faults by seed.

The model is a rule that gives the next token of any sequence, so what every request must answer is known; a worker
keeps KV caches only by name. Messages of one worker arrive in order, after a delay; of the ends that it could not hand
over while it had no connection it tells all or the newest when it registers, the others when they are asked for.
"""

from __future__ import annotations

import heapq
import itertools
import json
import random
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from iegopt import library
from iegopt.control.controller import Controller
from iegopt.control.documents import document, read
from iegopt.control.messages import (
    Accepted,
    Acknowledged,
    Answer,
    AttemptKey,
    Command,
    Disconnected,
    Event,
    Failed,
    Finished,
    Forget,
    Heartbeat,
    MakePlan,
    Planned,
    Preempted,
    Progress,
    Registered,
    Release,
    Restarted,
    Resumed,
    Start,
    Stop,
    Stream,
    Submitted,
    Ticked,
    Waiting,
    WakeAt,
)
from iegopt.control.policy import ControlPolicy

from .hand import place_of
from .invariants import Watch

POLICY = ControlPolicy(
    heartbeat=0.2, lost_after=3, grace=0.15, restart_grace=1.0, fault_window=0.2, max_retries=50, max_losses=50,
    retry_delay=0.01, slow_factor=10.0, slow_floor=1.0, stop_grace=0.5, plan_patience=60.0, max_in_flight=6,
    keep_copy="L2", preemption={"preemption_overhead": 0.0},
)  # fmt: skip
RACKS = {
    "gpu-a": ("d0", "r0"),
    "gpu-b": ("d0", "r0"),
    "gpu-c": ("d0", "r1"),
    "host": ("d1", "r2"),
    "host2": ("d1", "r2"),
}


def next_token(tokens: list[int]) -> int:
    return (31 * sum(tokens) + 7 * len(tokens)) % 997


def rounds_of(request_id: str) -> int:
    """How many rounds of tools a request of this name makes its model ask for."""
    return int(request_id.partition("-")[2] or 0)


def own_round(stage: str) -> int:
    return int(stage.partition("-")[2] or 0)


@dataclass
class Job:
    start: Start
    tokens: list[int] = field(default_factory=list)
    own: list[int] = field(default_factory=list)
    stopping: str | None = None
    accepted: bool = False


@dataclass
class FakeWorker:
    name: str
    epoch: int = 1
    alive: bool = True
    connected: bool = False
    frozen_until: float = 0.0
    arrives: float = 0.0
    jobs: dict[AttemptKey, Job] = field(default_factory=dict)
    ended: dict[AttemptKey, Event] = field(default_factory=dict)
    seen: set[AttemptKey] = field(default_factory=set)
    kv: set[str] = field(default_factory=set)

    @property
    def device(self) -> str:
        return self.name.split(".")[0]

    @property
    def role(self) -> str:
        return self.name.split(".")[1]


class World:
    """``pace`` is the seconds of a token; faults are methods, ``disturb`` calls them at random."""

    def __init__(self, seed: int, pace: float = 0.01, policy: ControlPolicy = POLICY) -> None:
        self.random = random.Random(seed)
        self.policy, self.pace = policy, pace
        self.controller = Controller(policy, library.llm)
        self.watch = Watch()
        self.now = 0.0
        self.count = itertools.count()
        self.heap: list[tuple[float, int, Callable[[], None]]] = []
        self.journal: list[Event] = []
        self.saved, self.saved_at = "", 0
        self.up = True
        self.life = 0
        self.answers: dict[str, dict[str, Any]] = {}
        self.streams: dict[str, dict[str, list[int]]] = {}
        self.failing = 0.0
        names = [
            "gpu-a.lm",
            "gpu-b.lm",
            "gpu-c.lm",
            "host.cpu",
            "host.tool",
            "host.retrieval",
            "host2.cpu",
            "host2.tool",
        ]
        self.workers = {name: FakeWorker(name) for name in names}
        for worker in self.workers.values():
            self.connect(worker)
            self.beat(worker, worker.epoch)

    # --- the clock ---

    def after(self, seconds: float, act: Callable[[], None]) -> None:
        heapq.heappush(self.heap, (self.now + seconds, next(self.count), act))

    def step(self) -> bool:
        if not self.heap:
            return False
        self.now, _, act = heapq.heappop(self.heap)
        act()
        return True

    def run_until(self, done: Callable[[], bool], limit: float) -> None:
        while not done() and self.now < limit and self.step():
            pass

    # --- the controller and its shell ---

    def give(self, event: Event) -> None:
        if not self.up:
            return
        event = read(document(event))  # type: ignore[assignment]
        self.journal.append(event)
        self.watch.before(self.controller, event)
        commands = self.controller.handle(event)
        self.watch.check(self.controller, event, commands)
        for command in commands:
            self.carry_out(command)

    def carry_out(self, command: Command) -> None:
        life = self.life
        if isinstance(command, MakePlan):
            self.after(self.random.uniform(0.001, 0.05), lambda: self.planned(command, life))
        elif isinstance(command, WakeAt):
            self.after(max(0.0, command.at - self.now), lambda: self.tick(life))
        elif isinstance(command, Stream):
            tokens = self.streams.setdefault(command.request_id, {}).setdefault(command.stage, [])
            tokens[command.offset :] = [*command.tokens, *tokens[command.offset + len(command.tokens) :]]
        elif isinstance(command, Answer):
            self.answers[command.request_id] = command.answer
        elif isinstance(command, Start | Stop | Release | Forget):
            if isinstance(command, Start):
                self._check_sources(command)
            worker = self.workers[command.worker]
            if worker.alive and worker.connected:
                epoch = worker.epoch
                self.after(0.001, lambda: self.receive(worker, epoch, command))

    def tick(self, life: int) -> None:
        if life == self.life:
            self.give(Ticked(self.now))

    def planned(self, command: MakePlan, life: int) -> None:
        if life != self.life:
            return
        kinds = ("prefill", "re_prefill", "decode")
        places = {kind: self.random.choice(["gpu-a", "gpu-b", "gpu-c"]) for kind in kinds}
        plan = place_of(command.graph, command.live, places)
        self.give(Planned(self.now, command.request_id, command.generation, plan or None, "nobody serves"))

    def restart_controller(self, away: float) -> None:
        """It is killed; later another one replays the journal, is in the same state, and goes on."""
        if not self.up:
            return
        self.up = False
        self.life += 1
        for worker in self.workers.values():
            worker.connected = False
        self.after(away, self._come_back)

    def save(self) -> None:
        """The state so far is written down, in place of the events before."""
        if self.up:
            self.saved, self.saved_at = json.dumps(self.controller.snapshot(), allow_nan=False), len(self.journal)

    def _come_back(self) -> None:
        old = self.controller
        self.controller = replay(self.policy, self.journal[self.saved_at :], self.saved)
        assert self.controller.core == old.core, "a replayed journal gives another state"
        self.up = True
        self.give(Restarted(self.now))
        for worker in self.workers.values():
            self.after(self.random.uniform(0.0, 0.3), lambda worker=worker: self.connect(worker))  # type: ignore[misc]

    def submit(self, name: str, priority: int) -> None:
        if not self.up:  # the client tries again
            self.after(0.1, lambda: self.submit(name, priority))
            return
        agent = {"tools": [{"name": "clock"}], "retrieval": {}, "max_rounds": 3, "lookahead": self.random.randint(0, 2)}
        limits = {"max_depth": 20, "max_compute_time": "1h", "termination_policy": {"timeout": "1h"}}
        request = {
            "model": "Llama-3.1-8B", "prompt": name, "output_tokens": 12, "agent": agent, "dag_constraints": limits,
        }  # fmt: skip
        tokens = [len(name), *map(ord, name)]
        self.give(Submitted(self.now, name, request, {"tokens": tokens}, priority))

    def heal(self) -> None:
        """No more faults, and all workers there."""
        self.failing = 0.0
        if not self.up:
            self.run_until(lambda: self.up, self.now + 10.0)
        for worker in self.workers.values():
            self.revive(worker)
            self.connect(worker)

    def acknowledge_all(self) -> None:
        for name in self.answers:
            self.give(Acknowledged(self.now, name))

    # --- workers ---

    def connect(self, worker: FakeWorker) -> None:
        if not worker.alive or worker.connected or not self.up:
            return
        worker.connected = True
        centre, rack = RACKS[worker.device]
        told = list(worker.ended.values())[self.random.choice([0, -1]) :]  # what is not told is asked for
        finished = tuple(_without_time(event) for event in told)
        self.send(worker, Registered(
            self.now, worker.name, worker.device, worker.role, {"datacenter": centre, "rack": rack, "host": "h"},
            str(worker.epoch), {"unix": worker.name}, 3, ("v",), 10**9, tuple(worker.jobs), finished,
            kv=tuple(sorted(worker.kv)),
        ))  # fmt: skip

    def beat(self, worker: FakeWorker, epoch: int) -> None:
        if worker.epoch != epoch:
            return
        if worker.alive and worker.connected and self.now >= worker.frozen_until:
            self.send(worker, Heartbeat(self.now, worker.name, str(epoch), tuple(worker.jobs), 10, ("v",), 0.1))
        self.after(0.2, lambda: self.beat(worker, epoch))

    def send(self, worker: FakeWorker, event: Event, key: AttemptKey | None = None) -> None:
        """Deliver in order; what ends an attempt is kept until it is delivered."""
        if key is not None:
            worker.ended[key] = event
        if not worker.connected:
            return
        worker.arrives = max(worker.arrives, self.now + self.random.uniform(0.0005, 0.003), worker.frozen_until)
        epoch, life = worker.epoch, self.life

        def deliver() -> None:
            if not worker.connected or worker.epoch != epoch or self.life != life:
                return
            if isinstance(event, Registered):
                for finished in event.finished:
                    worker.ended.pop(AttemptKey(finished["request_id"], finished["stage"], finished["attempt"]), None)
            worker.ended.pop(key, None) if key is not None else None
            self.give(_stamped(event, self.now))
            if self.random.random() < self.failing:
                self.give(_stamped(event, self.now))  # it arrives twice

        self.after(worker.arrives - self.now, deliver)

    def receive(self, worker: FakeWorker, epoch: int, command: Start | Stop | Release | Forget) -> None:
        if not worker.alive or worker.epoch != epoch:
            return
        if isinstance(command, Start):
            self.begin(worker, command)
        elif isinstance(command, Stop):
            job = worker.jobs.get(AttemptKey(command.request_id, command.stage, command.attempt))
            if job is not None:
                job.stopping = command.how
        elif isinstance(command, Release):
            worker.kv.discard(command.kv_id)
        else:
            worker.kv = {name for name in worker.kv if not name.startswith(command.request_id + "/")}
            worker.ended = {key: event for key, event in worker.ended.items() if key.request_id != command.request_id}

    def begin(self, worker: FakeWorker, start: Start) -> None:
        key = AttemptKey(start.request_id, start.stage, start.attempt)
        if key in worker.ended:
            self.send(worker, worker.ended[key], key)
        if key in worker.seen:
            return
        worker.seen.add(key)
        job = worker.jobs[key] = Job(start)
        self.after(0.001, lambda: self.work(worker, worker.epoch, key, job))

    def work(self, worker: FakeWorker, epoch: int, key: AttemptKey, job: Job) -> None:
        """One step of a job: accept it, emit a token, or end it."""
        if worker.epoch != epoch or not worker.alive or key not in worker.jobs:
            return
        if self.now < worker.frozen_until:
            self.after(worker.frozen_until - self.now, lambda: self.work(worker, epoch, key, job))
            return
        about = (self.now, worker.name, *key)
        start = job.start
        if job.stopping is not None and (job.stopping == "cancel" or start.kind == "decode"):
            event: Event = Failed(*about, "cancelled", "", True)
            if job.stopping != "cancel":
                worker.kv.add(start.work["kv"]["id"])
                event = Preempted(*about, self.kv(start, len(start.work["tokens"])))
            self.end(worker, key, event)
            return
        if not job.accepted:
            job.accepted = True
            self.send(worker, Accepted(*about))
            if self.random.random() < self.failing:
                self.send(worker, Waiting(*about, "memory"))
                self.send(worker, Resumed(*about))
            job.tokens = list(start.work.get("tokens", ()))
            job.own = job.tokens[len(job.tokens) - start.work.get("generated", 0) :] if start.kind == "decode" else []
        elif self.random.random() < self.failing:
            cause = self.random.choice(["error", "oom", "timeout", "kv_lost"])
            self.end(worker, key, Failed(*about, cause, "by chance", True))
            return
        elif start.kind == "decode" and not self.ended(start, job):
            token = next_token(job.tokens)
            job.tokens.append(token)
            job.own.append(token)
            self.send(worker, Progress(*about, len(job.own) - 1, (token,), f"{token} "))
        else:
            self.end(worker, key, Finished(*about, self.result(worker, start, job)))
            return
        self.after(self.pace, lambda: self.work(worker, epoch, key, job))

    def ended(self, start: Start, job: Job) -> bool:
        return len(job.own) >= (4 if self.calls(start) else start.work["max_tokens"])

    def calls(self, start: Start) -> bool:
        return own_round(start.stage) < rounds_of(start.request_id)

    def end(self, worker: FakeWorker, key: AttemptKey, event: Event) -> None:
        del worker.jobs[key]
        self.send(worker, event, key)

    def kv(self, start: Start, tokens: int) -> dict[str, Any]:
        pushed = bool(start.work.get("push")) and self.workers[start.work["push"]["worker"]].alive
        if pushed:
            self.workers[start.work["push"]["worker"]].kv.add(start.work["kv"]["id"])
        copies = [{"tier": "L2", "addresses": {"file": start.work["kv"]["id"]}}]
        return {"id": start.work["kv"]["id"], "tokens": tokens, "bytes": tokens, "copies": copies, "pushed": pushed}

    def _check_sources(self, start: Start) -> None:
        """What the controller takes a worker to hold in memory it holds, while it is the same process."""
        for source in start.work.get("kv", {}).get("sources", ()):
            holder = self.workers[source["worker"]]
            known = self.controller.core.pool.workers.get(holder.name)
            if source["tier"] == "L0" and holder.alive and known is not None and known.epoch == str(holder.epoch):
                assert source["id"] in holder.kv or known.lost_at is not None, f"{holder.name} never had {source['id']}"

    def result(self, worker: FakeWorker, start: Start, job: Job) -> dict[str, Any]:
        work = start.work
        if start.kind == "tokenize":
            return {"tokens": work["tokens"]}
        if start.kind in ("prefill", "re_prefill"):
            worker.kv.add(work["kv"]["id"])
            appended = [token for part in work["append"] for token in _tokens_of(part)]
            tokens = work["tokens"] + appended
            first = next_token(tokens)
            return {"first": first, "text": f"{first} ", "appended": appended, "computed": len(tokens), "reused": 0,
                    "kv": self.kv(start, len(tokens))}  # fmt: skip
        if start.kind == "decode":
            worker.kv.add(work["kv"]["id"])
            calls = [{"name": "clock", "arguments": {}}] if self.calls(start) else []
            text = "".join(f"{token} " for token in job.own)
            return {"tokens": job.own, "text": text, "calls": calls, "stop": "call" if calls else "eos", "computed": 0,
                    "reused": 0, "kv": self.kv(start, len(job.tokens) - 1)}  # fmt: skip
        if start.kind == "tool":
            return {"content": f"noon of {work['key']}", "cached": False, "truncated": False}
        if start.kind == "retrieval":
            return {"documents": [{"text": f"about {work['query']}"}]}
        return {"text": work["text"]} if start.kind == "output" else {"decision": "finish"}

    # --- faults ---

    def kill(self, worker: FakeWorker, back_after: float | None) -> None:
        """The process ends; its socket closes; another one may take its place."""
        if not worker.alive:
            return
        self.disconnect(worker, None)
        worker.alive = False
        worker.jobs, worker.ended, worker.kv = {}, {}, set()
        if back_after is not None:
            self.after(back_after, lambda: self.revive(worker))

    def revive(self, worker: FakeWorker) -> None:
        if worker.alive:
            return
        worker.alive, worker.epoch, worker.seen = True, worker.epoch + 1, set()
        worker.frozen_until = 0.0
        self.connect(worker)
        self.beat(worker, worker.epoch)

    def disconnect(self, worker: FakeWorker, back_after: float | None) -> None:
        if not worker.alive or not worker.connected:
            return
        worker.connected = False
        self.give(Disconnected(self.now, worker.name, str(worker.epoch)))
        if back_after is not None:
            self.after(back_after, lambda: self.connect(worker))

    def freeze(self, worker: FakeWorker, seconds: float) -> None:
        """Neither works nor speaks for a while, as after SIGSTOP."""
        worker.frozen_until = max(worker.frozen_until, self.now + seconds)

    def disturb(self) -> None:
        """One fault by chance."""
        chance, worker = self.random, self.random.choice(list(self.workers.values()))
        fault = chance.choice(["kill", "kill", "disconnect", "freeze", "rack", "controller"])
        if fault == "kill":
            self.kill(worker, chance.uniform(0.01, 1.0))
        elif fault == "disconnect":
            self.disconnect(worker, chance.uniform(0.01, 0.4))
        elif fault == "freeze":
            self.freeze(worker, chance.uniform(0.1, 1.5))
        elif fault == "rack":
            for other in self.workers.values():
                if RACKS[other.device] == RACKS[worker.device]:
                    self.kill(other, chance.uniform(0.5, 1.5))
        else:
            self.restart_controller(chance.uniform(0.05, 0.5))


def replay(policy: ControlPolicy, journal: list[Event], saved: str = "") -> Controller:
    """A controller that has seen a journal, after a snapshot where there is one."""
    controller = (
        Controller.restored(policy, library.llm, json.loads(saved)) if saved else Controller(policy, library.llm)
    )
    for event in journal:
        controller.handle(event)
    return controller


def _tokens_of(part: dict[str, Any]) -> list[int]:
    text = part["content"] if part["role"] == "tool" else part["documents"][0]["text"]
    return [len(text), sum(map(ord, text)) % 997]


def _without_time(event: Event) -> dict[str, Any]:
    """As a worker keeps it: the time is the controller's."""
    return {name: value for name, value in document(event).items() if name != "at"}


def _stamped(event: Event, at: float) -> Event:
    data = document(event) | {"at": at}
    return read(data)  # type: ignore[return-value]
