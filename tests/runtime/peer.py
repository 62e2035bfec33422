"""A second worker for tests: an engine with its data plane, in a process of its own, told what to do line by line."""

from __future__ import annotations

import json
import queue
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
SECRET = b"of the tests"


class Peer:
    """The other process, seen from here."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process
        self.addresses: list[str] = json.loads(self._line())["addresses"]

    def ask(self, **request: Any) -> dict[str, Any]:
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(request) + "\n")
        self._process.stdin.flush()
        answer: dict[str, Any] = json.loads(self._line())
        return answer

    def _line(self) -> str:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        assert line, "the peer has ended"
        return line


@contextmanager
def peer(model_cache: Path) -> Iterator[Peer]:
    """Start it, and end it whatever happens."""
    process = subprocess.Popen(
        [sys.executable, __file__, str(model_cache)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )  # fmt: skip
    with process:
        try:
            yield Peer(process)
        finally:
            process.kill()


def tell(answer: dict[str, Any]) -> None:
    sys.stdout.write(json.dumps(answer) + "\n")
    sys.stdout.flush()


def main() -> None:
    """Serve requests from standard input until it ends."""
    sys.path[:0] = [str(ROOT), str(ROOT / "runtime")]
    from dataclasses import asdict
    from functools import partial

    from iegopt.spec.policy import KvTransferConfig
    from iegopt_runtime.kv.fetch import KvFetcher
    from iegopt_runtime.kv.history import read_segments
    from iegopt_runtime.kv.memory import DeviceMemory
    from iegopt_runtime.kv.server import KvServer
    from iegopt_runtime.kv.store import KvStore
    from iegopt_runtime.kv.tiers import Tier, TierPolicy
    from iegopt_runtime.lm.engine import LmEngine
    from iegopt_runtime.lm.jobs import Done, Event, Generate, Preempted, Stop, Streamed
    from iegopt_runtime.lm.model_host import ModelHost
    from iegopt_runtime.models.registry import Registry

    memory = DeviceMemory("cpu")
    store = KvStore(memory, TierPolicy({Tier.L0: 200 * 10**6, Tier.L1: 200 * 10**6}))
    addresses = [f"unix:@iegopt-test-{time.monotonic_ns()}", "tcp:127.0.0.1:0"]
    server = KvServer(store, SECRET, addresses, time.monotonic)
    fetcher = KvFetcher(store, SECRET, time.monotonic)
    engine = LmEngine(ModelHost(Registry.of(cache=Path(sys.argv[1])), memory), store).start()

    def hear(events: queue.Queue[Event], job_id: str, last: int | None, event: Event) -> None:
        if isinstance(event, Streamed) and event.offset == last:  # in the engine's thread, before its next token
            engine.stop(job_id, "preempt")
        events.put(event)

    tell({"addresses": server.addresses})
    for line in sys.stdin:
        request = json.loads(line)
        options = request["job"]
        options |= {"tokens": tuple(options["tokens"]), "segments": read_segments(options["segments"])}
        job = Generate(stop=Stop(eos=False, calls="never"), **options)
        fetcher.fetch(engine.wanted(job), request["sources"], KvTransferConfig.model_validate(request["config"]))
        events: queue.Queue[Event] = queue.Queue()
        engine.submit(job, partial(hear, events, job.job_id, request["preempt_at"]))
        while not isinstance(event := events.get(timeout=60), Done | Preempted):
            if not hasattr(event, "job_id") or "cause" in asdict(event):
                raise SystemExit(f"{event}")
        store.forget(job.job_id)
        result = event.result
        answer = {
            "tokens": result.tokens,
            "segments": result.segments,
            "reused": result.reused,
            "preempted": result.stop == "preempted",
        }
        tell(answer)


if __name__ == "__main__":
    main()
