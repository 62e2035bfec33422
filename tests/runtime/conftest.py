"""The tiny model, made once for all tests of the runtime, and engines that serve it."""

from __future__ import annotations

import queue
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from iegopt_runtime.kv.memory import DeviceMemory
from iegopt_runtime.kv.store import KvStore
from iegopt_runtime.kv.tiers import Tier, TierPolicy
from iegopt_runtime.lm.engine import LmEngine
from iegopt_runtime.lm.jobs import Done, Event, Failed, Generated, Job, Preempted, Vectors
from iegopt_runtime.lm.model_host import ModelHost
from iegopt_runtime.models.registry import Registry

MB = 10**6


class Client:
    """Submits to an engine and waits for events."""

    def __init__(self, engine: LmEngine) -> None:
        self.engine = engine
        self.events: list[Event] = []
        self._new: queue.Queue[Event] = queue.Queue()

    def submit(self, job: Job) -> None:
        self.engine.submit(job, self._new.put)

    def next(self) -> Event:
        event = self._new.get(timeout=60)
        self.events.append(event)
        return event

    def until(self, what: Callable[[Event], bool]) -> Event:
        while not what(event := self.next()):
            pass
        return event

    def end(self, job_id: str | None = None) -> Event:
        """The last event of a job (of the next one that ends)."""
        return self.until(
            lambda e: isinstance(e, Done | Failed | Preempted | Vectors) and job_id in (None, e.job_id)
        )  # fmt: skip

    def run(self, job: Job) -> Generated:
        self.submit(job)
        event = self.end(job.job_id)
        assert isinstance(event, Done | Preempted), event
        return event.result


@pytest.fixture(scope="session")
def model_cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("models")


@pytest.fixture(scope="session")
def registry(model_cache: Path) -> Registry:
    return Registry.of(cache=model_cache)


@pytest.fixture
def make_client(registry: Registry, tmp_path: Path) -> Iterator[Callable[..., Client]]:
    """Engines with a store of their own; options of ``LmEngine``, budgets of tiers, bytes for weights."""
    engines: list[LmEngine] = []

    def make(
        budgets: tuple[int, int, int] = (8 * MB, 8 * MB, 0),
        weights: int | None = None,
        registry: Registry = registry,
        **options: int,
    ) -> Client:
        memory = DeviceMemory("cpu")
        folder = tmp_path / f"kv{len(engines)}" if budgets[2] else None
        store = KvStore(memory, TierPolicy(dict(zip(Tier, budgets, strict=True))), folder)
        engine = LmEngine(ModelHost(registry, memory, weights), store, **options).start()
        engines.append(engine)
        return Client(engine)

    yield make
    for engine in engines:
        engine.close()


@pytest.fixture
def client(make_client: Callable[..., Client]) -> Client:
    return make_client()
