"""A controller driven by hand: each event a call, each command in view, and every invariant checked in between."""

from __future__ import annotations

from typing import Any

from iegopt import library
from iegopt.control.controller import Controller
from iegopt.control.messages import (
    Accepted,
    Answer,
    Command,
    Event,
    Failed,
    Finished,
    MakePlan,
    Planned,
    Registered,
    Start,
    Stream,
    Submitted,
    Ticked,
)
from iegopt.control.policy import ControlPolicy
from iegopt.control.request_run import RequestRun
from iegopt.control.stage_run import StageRun
from iegopt.spec.kinds import role_of
from iegopt.spec.stage import StageKind

from .invariants import Watch

CHAT = {"model": "Llama-2-7B", "prompt": "Hello there", "output_tokens": 8}
AGENT = CHAT | {"agent": {"tools": [{"name": "search"}, {"name": "clock"}], "max_rounds": 3, "lookahead": 1}}
DEVICES = {"gpu-a": ("lm",), "gpu-b": ("lm",), "host": ("cpu", "tool", "retrieval")}
PLACES = {"prefill": "gpu-a", "re_prefill": "gpu-a", "decode": "gpu-b", "embedding": "gpu-a", "rerank": "gpu-a"}


def place_of(graph: dict[str, Any], live: dict[str, Any], places: dict[str, str] = PLACES) -> dict[str, Any]:
    """A plan: every kind of stage on its device where that is live, bound stages where they are bound."""
    stages = {}
    for spec in graph["stages"]:
        wanted = spec.get("affinity", {}).get("device") or places.get(spec["id"]) or places.get(spec["type"], "host")
        role = role_of(StageKind(spec["type"]))
        able = [device for device, roles in sorted(live.items()) if role in roles]
        if not able:
            return {}
        device = wanted if wanted in able else able[0]
        stages[spec["id"]] = {"device": device, "variant": "v", "time": 0.1, "memory": 1000, "start": 0.0}
    return {"stages": stages, "transfers": []}


class Hand:
    """Time goes only where a call says so. ``commands`` are those of the last event, ``sent`` all of them."""

    def __init__(self, places: dict[str, str] = PLACES, plans: bool = True, **policy: Any) -> None:
        self.controller = Controller(ControlPolicy(**policy), library.llm)
        self.watch = Watch()
        self.now, self.places, self.plans = 0.0, dict(places), plans
        self.journal: list[Event] = []
        self.commands: tuple[Command, ...] = ()
        self.sent: list[Command] = []

    def give(self, event: Event) -> tuple[Command, ...]:
        """An event; a plan that is asked for comes at once where ``plans`` is on."""
        self.journal.append(event)
        self.watch.before(self.controller, event)
        self.commands = self.controller.handle(event)
        self.sent += self.commands
        self.watch.check(self.controller, event, self.commands)
        if self.plans:
            for command in self.commands:
                if isinstance(command, MakePlan):
                    mine = self.commands
                    self.plan(command)
                    self.commands = mine + self.commands
        return self.commands

    def plan(self, command: MakePlan, places: dict[str, str] | None = None) -> tuple[Command, ...]:
        plan = place_of(command.graph, command.live, self.places if places is None else places)
        return self.give(Planned(self.now, command.request_id, command.generation, plan or None, "no worker"))

    def workers(self, devices: dict[str, tuple[str, ...]] = DEVICES, **fields: Any) -> None:
        """A worker for each role of each device, called ``gpu-a.lm``."""
        for device, roles in devices.items():
            for role in roles:
                self.register(f"{device}.{role}", **fields)

    def register(self, name: str, epoch: str = "1", rack: str = "r0", centre: str = "d0", **fields: Any) -> None:
        device, role = name.split(".")[:2]
        values: dict[str, Any] = {"slots": 2, "running": (), "finished": (), "holds": (), "kv": ()} | fields
        addresses = values.get("addresses", {"unix": f"/{name}"})
        self.give(
            Registered(
                self.now, name, device, role, {"datacenter": centre, "rack": rack, "host": device}, epoch,
                addresses, values["slots"], ("v",), 10**9, tuple(values["running"]),
                tuple(values["finished"]), tuple(values["holds"]), kv=tuple(values["kv"]),
            )
        )  # fmt: skip

    def submit(
        self, name: str = "r", request: dict[str, Any] = CHAT, priority: int | None = None, **inputs: Any
    ) -> None:
        self.give(Submitted(self.now, name, dict(request), inputs, priority))

    def tick(self, seconds: float) -> tuple[Command, ...]:
        self.now += seconds
        return self.give(Ticked(self.now))

    def run(self, name: str = "r") -> RequestRun:
        return self.controller.core.runs[name]

    def stage(self, stage: str, name: str = "r") -> StageRun:
        return self.run(name).stages[stage]

    def about(self, stage: str, name: str = "r") -> tuple[float, str, str, str, int]:
        """What a worker's message about the present attempt begins with."""
        found = self.stage(stage, name)
        assert found.worker is not None, f"{stage} of {name} is on no worker: {found.state}"
        return self.now, found.worker, name, stage, found.attempt

    def accept(self, stage: str, name: str = "r") -> tuple[Command, ...]:
        return self.give(Accepted(*self.about(stage, name)))

    def finish(self, stage: str, name: str = "r", **result: Any) -> tuple[Command, ...]:
        """Finish a stage with a plausible result of its kind, changed by ``result``."""
        found = self.stage(stage, name)
        return self.give(Finished(*self.about(stage, name), a_result(found, f"{name}/{stage}") | result))

    def fail(
        self, stage: str, cause: str, name: str = "r", transient: bool = True, said: str = "it broke"
    ) -> tuple[Command, ...]:
        return self.give(Failed(*self.about(stage, name), cause, said, transient))

    def until(self, *stages: str, name: str = "r") -> None:
        """Accept and finish these stages, one after the other."""
        for stage in stages:
            self.accept(stage, name)
            self.finish(stage, name)

    def of(self, kind: type[Any]) -> list[Any]:
        """The commands of a kind that the last event made."""
        return [command for command in self.commands if isinstance(command, kind)]

    def start_of(self, stage: str) -> Start:
        """The last start of a stage."""
        return next(c for c in reversed(self.sent) if isinstance(c, Start) and c.stage == stage)

    def answer(self, name: str = "r") -> dict[str, Any]:
        (found,) = [c.answer for c in self.sent if isinstance(c, Answer) and c.request_id == name]
        return found

    def streamed(self, name: str = "r") -> list[int]:
        return [token for c in self.sent if isinstance(c, Stream) and c.request_id == name for token in c.tokens]

    def story(self, stage: str | None = None, name: str = "r") -> str:
        return "\n".join(self.controller.story(name, stage))


def kv(name: str, tokens: int = 4, copies: tuple[dict[str, Any], ...] = (), pushed: bool = False) -> dict[str, Any]:
    return {"id": name, "tokens": tokens, "bytes": 100 * tokens, "copies": list(copies), "pushed": pushed}


def a_result(stage: StageRun, name: str) -> dict[str, Any]:
    kind = str(stage.kind)
    if kind == "tokenize":
        return {"tokens": [1, 2, 3, 4]}
    if kind in ("prefill", "re_prefill"):
        appended = [] if kind == "prefill" else [20, 21]
        return {"first": 9, "text": "i", "appended": appended, "computed": 4, "reused": 0, "kv": kv(name)}
    if kind == "decode":
        tokens = [*stage.emitted, 10, 11]
        return {"tokens": tokens, "text": stage.text + "jk", "calls": [], "stop": "eos", "computed": 0, "reused": 4,
                "kv": kv(name, 4 + len(tokens) - 1)}  # fmt: skip
    if kind == "tool":
        return {"content": "sunny", "cached": False, "truncated": False}
    if kind in ("retrieval", "rerank"):
        return {"documents": [{"id": "d1", "text": "a text", "score": 0.5}]}
    if kind == "embedding":
        return {"vectors": [[0.1, 0.2]]}
    if kind == "output":
        return {"text": "ijk"}
    return {"decision": "finish"}
