"""A runtime in a thread of its own, for tests that are plain functions."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Coroutine, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, TypeVar

from iegopt.control.messages import Stream
from iegopt.spec.cluster import ClusterSpec
from iegopt.spec.request import RequestSpec
from iegopt_runtime.runtime import Run, Runtime

__all__ = ["Hosted", "hosted"]

T = TypeVar("T")
_LONGEST = 120.0


class Hosted:
    """Its methods wait for what the runtime does in its own thread."""

    def __init__(self, runtime: Runtime, loop: asyncio.AbstractEventLoop) -> None:
        self.runtime, self._loop = runtime, loop

    def wait(self, coroutine: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(coroutine, self._loop).result(_LONGEST)

    def answers(self, requests: Sequence[tuple[RequestSpec, dict[str, Any]]]) -> list[dict[str, Any]]:
        """Answers to requests that are submitted at once."""

        async def all_of_them() -> list[dict[str, Any]]:
            runs = [self.runtime.run(request, inputs) for request, inputs in requests]
            return list(await asyncio.gather(*(run.answer() for run in runs)))

        return self.wait(all_of_them())

    def answer(self, request: RequestSpec, **inputs: Any) -> dict[str, Any]:
        return self.answers([(request, inputs)])[0]

    def heard(self, request: RequestSpec, **inputs: Any) -> tuple[list[Stream], dict[str, Any], list[str]]:
        """What was streamed, the answer, and the request's story."""

        async def listen() -> tuple[list[Stream], dict[str, Any], list[str]]:
            run = self.runtime.run(request, inputs)
            story: list[str] = []
            pieces = []
            async for piece in run:
                pieces.append(piece)
                story = run.story()
            return pieces, await run.answer(), story

        return self.wait(listen())

    def cancelled(self, request: RequestSpec, after: int, **inputs: Any) -> dict[str, Any]:
        """The answer to a request that is cancelled after so many pieces."""

        async def cancel() -> dict[str, Any]:
            run: Run = self.runtime.run(request, inputs)
            heard = 0
            async for _ in run:
                heard += 1
                if heard == after:
                    run.cancel("not wanted any more")
            return await run.answer()

        return self.wait(cancel())


@contextmanager
def hosted(cluster: ClusterSpec, **options: Any) -> Iterator[Hosted]:
    """Start a runtime, and end it with the block."""
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, name="runtime", daemon=True)
    thread.start()

    async def enter() -> Runtime:
        return await Runtime(cluster, **options).__aenter__()

    runtime = asyncio.run_coroutine_threadsafe(enter(), loop).result(240)
    try:
        yield Hosted(runtime, loop)
    finally:
        asyncio.run_coroutine_threadsafe(runtime.__aexit__(None, None, None), loop).result(60)
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()
