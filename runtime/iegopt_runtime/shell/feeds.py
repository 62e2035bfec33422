"""What clients hear: per request its tokens as they come and its one answer, from the first on, however often asked."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from typing import Any

from iegopt.control.documents import document, read
from iegopt.control.messages import Answer, Stream
from iegopt_runtime.errors import RuntimeFault

__all__ = ["Feeds"]


@dataclass
class _Feed:
    said: list[Stream | Answer] = field(default_factory=list)
    tokens: dict[str, int] = field(default_factory=dict)
    answered: bool = False
    followers: int = 0
    waiting: list[asyncio.Future[None]] = field(default_factory=list)

    def say(self, message: Stream | Answer) -> None:
        self.said.append(message)
        self.wake()

    def wake(self) -> None:
        """Have all who wait look again."""
        for future in self.waiting:
            if not future.done():
                future.set_result(None)
        self.waiting.clear()


class Feeds:
    """Kept until the controller has them dropped."""

    def __init__(self) -> None:
        self._feeds: dict[str, _Feed] = {}
        self._ended: str | None = None

    def stream(self, message: Stream) -> None:
        """Tokens of a stage; what was said before is not said again."""
        feed = self._feeds.setdefault(message.request_id, _Feed())
        if feed.answered or message.offset != feed.tokens.get(message.stage, 0):
            return
        feed.tokens[message.stage] = message.offset + len(message.tokens)
        feed.say(message)

    def answer(self, message: Answer) -> None:
        feed = self._feeds.setdefault(message.request_id, _Feed())
        if not feed.answered:
            feed.answered = True
            feed.say(message)

    def end(self, reason: str) -> None:
        """Nothing more will be said: whoever follows hears why, by the first reason."""
        self._ended = self._ended or reason
        for feed in self._feeds.values():
            feed.wake()

    def forget_answer(self, request_id: str) -> None:
        """What was said of a request that is answered; one that goes on is left as it is."""
        feed = self._feeds.get(request_id)
        if feed is not None and feed.answered:
            del self._feeds[request_id]

    def snapshot(self) -> dict[str, list[dict[str, Any]]]:
        """All that was said, by request, piece by piece: who heard some of the pieces goes on with the next."""
        return {name: [document(message) for message in feed.said] for name, feed in self._feeds.items() if feed.said}

    def restore(self, said: dict[str, list[dict[str, Any]]]) -> None:
        """Say again what a snapshot holds.

        Raises
        ------
        InputError
            Where it is none.
        """
        for number, frame in enumerate(frame for frames in said.values() for frame in frames):
            message = read(frame, f"what was said, message {number}")
            if isinstance(message, Stream):
                self.stream(message)
            elif isinstance(message, Answer):
                self.answer(message)

    async def follow(self, request_id: str) -> AsyncIterator[Stream | Answer]:
        """All that is said about a request, up to its answer; one that is not known yet is waited for.

        Raises
        ------
        RuntimeFault
            The controller ends before.
        """
        feed = self._feeds.setdefault(request_id, _Feed())
        feed.followers += 1
        heard = 0
        try:
            while True:
                while heard < len(feed.said):
                    message = feed.said[heard]
                    heard += 1
                    yield message
                    if isinstance(message, Answer):
                        return
                if self._ended is not None:
                    raise RuntimeFault(self._ended)
                future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
                feed.waiting.append(future)
                await future
        finally:
            feed.followers -= 1
            if not feed.said and not feed.followers and self._feeds.get(request_id) is feed:
                del self._feeds[request_id]  # nobody waits any more for a request that nobody knows
