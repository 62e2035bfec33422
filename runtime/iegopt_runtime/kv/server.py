"""The data plane of a worker: a server that other workers push KV to and fetch KV from. No KV passes the controller.

Every connection is one transfer, in a thread of its own, after both ends have proved that they know the shared secret.
"""

from __future__ import annotations

import contextlib
import os
import socket
import threading
from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any

from iegopt.spec.policy import KvTransferConfig
from iegopt_runtime.errors import RuntimeFault, TransferError
from iegopt_runtime.kv.address import bound, channel_on
from iegopt_runtime.kv.auth import admit
from iegopt_runtime.kv.blocks import EXACT, Block, KvManifest, graded
from iegopt_runtime.kv.channel import Channel
from iegopt_runtime.kv.codec import Compression, grade_of
from iegopt_runtime.kv.pieces import PieceReceiver, PieceSender
from iegopt_runtime.kv.store import KvStore
from iegopt_runtime.kv.tiers import Tier

__all__ = ["KvServer"]

MOST_CONNECTIONS = 64


class KvServer:
    """Serves a store at one or several addresses, from construction to ``close``.

    Parameters
    ----------
    addresses
        As ``kv.address`` has them; ``addresses`` are those that others can reach it at.
    timeout
        Seconds that a peer may take for each message.
    towards
        A host from which others come, for an address that means all of this machine (``tcp:0.0.0.0:0``).
    """

    def __init__(
        self,
        store: KvStore,
        secret: bytes,
        addresses: Iterable[str],
        clock: Callable[[], float],
        timeout: float = 30.0,
        towards: str | None = None,
    ) -> None:
        self._store, self._secret, self._clock, self._timeout = store, secret, clock, timeout
        self._lock = threading.Lock()
        self._channels: set[Channel] = set()
        self._free = threading.Semaphore(MOST_CONNECTIONS)
        self._closing = False
        self._listeners: list[socket.socket] = []
        self.addresses: list[str] = []
        try:
            for address in addresses:
                listener, got = bound(address, towards)
                self._listeners.append(listener)
                self.addresses.append(got)
        except BaseException:
            self.close()
            raise
        for listener in self._listeners:
            threading.Thread(target=self._accept, args=(listener,), name="kv-server", daemon=True).start()

    def close(self) -> None:
        """Break off what is going on and stop listening."""
        self._closing = True
        for listener, address in zip(self._listeners, self.addresses, strict=True):
            with contextlib.suppress(OSError):
                listener.shutdown(socket.SHUT_RDWR)
            listener.close()
            kind, _, path = address.partition(":")
            if kind == "unix" and not path.startswith("@"):
                with contextlib.suppress(FileNotFoundError):
                    os.unlink(path)
        with self._lock:
            for channel in self._channels:
                channel.close()

    def _accept(self, listener: socket.socket) -> None:
        while not self._closing:
            try:
                connection, _ = listener.accept()
            except OSError:
                return
            self._free.acquire()
            channel = channel_on(connection, self._timeout)
            with self._lock:
                self._channels.add(channel)
            try:
                threading.Thread(target=self._serve, args=(channel,), name="kv-transfer", daemon=True).start()
            except RuntimeError:  # no memory for one more: the peer goes elsewhere
                self._ended(channel)

    def _serve(self, channel: Channel) -> None:
        """One connection. What is wrong with it is said to the peer, as far as there still is one."""
        try:
            try:
                admit(channel, self._secret)
            except TransferError:  # which it was told, if there still is one
                return
            request, _ = channel.receive()
            serve = {"push": self._push, "pull": self._pull}.get(str(request.get("op")))
            if serve is None:
                raise TransferError(f"{request.get('op')!r}: expected push or pull")
            serve(channel, request)
        except RuntimeFault as error:
            _say(channel, str(error))
        except (KeyError, TypeError, ValueError) as error:
            _say(channel, f"no such request: {error!r}")
        finally:
            self._ended(channel)

    def _ended(self, channel: Channel) -> None:
        channel.close()
        with self._lock:
            self._channels.discard(channel)
        self._free.release()

    def _push(self, channel: Channel, request: dict[str, Any]) -> None:
        planned = KvManifest.read(request["planned"])
        incoming = self._store.incoming()
        try:
            channel.send({"have": planned.indices(incoming.held(planned.blocks))})
            most = sum(self._store.budget(tier) for tier in Tier)
            receiver = PieceReceiver(channel, planned.layout, incoming, most)
            while (manifest := receiver.receive(self._clock())) is None:
                pass
            held = incoming.commit(manifest)
        finally:
            incoming.discard()
        channel.send({"held": held.tokens})

    def _pull(self, channel: Channel, request: dict[str, Any]) -> None:
        config = KvTransferConfig.model_validate(request["config"])
        wanted = KvManifest.read(request["wanted"]) if "wanted" in request else None
        manifest = wanted or self._store.manifest(str(request["kv_id"]))
        if manifest is None:
            raise TransferError(f"KV {request['kv_id']!r} is not held here")
        there = set(request.get("have", ()))
        grade = grade_of(config.compression) if manifest.grade == EXACT else EXACT
        chosen = list(self._choose(manifest, there, grade))
        with self._store.leased([held for _, held in chosen], self._clock(), promote=False) as leased:
            most = max((block.tokens for block in manifest.blocks), default=1)
            sender = PieceSender(channel, manifest.layout, most, config)
            reached = _prefix(manifest, there, len(leased)).as_grade(grade)
            sender.begin({"sending": reached.document()})
            for (index, _), held in zip(chosen, leased, strict=False):
                compression: Compression = "none" if held.key == reached.blocks[index].key else config.compression
                sender.send(reached.blocks[index], self._store.read(held, self._clock()), compression)
            sender.end(reached)
        channel.receive()

    def _choose(self, manifest: KvManifest, there: set[int], grade: str) -> Iterable[tuple[int, Block]]:
        """What to send for each block that is missing at the other end, up to the first that is not here: KV that was
        compressed before, as it is, or else the exact one."""
        for index, block in enumerate(manifest.blocks):
            if index in there:
                continue
            held = next((b for b in (graded(block, grade), block) if self._store.match([b])), None)
            if held is None:
                return
            yield index, held


def _prefix(manifest: KvManifest, there: set[int], count: int) -> KvManifest:
    """The blocks that the other end has when it has got ``count`` more."""
    left = count
    for index in range(len(manifest.blocks)):
        if index not in there:
            if not left:
                return replace(manifest, blocks=manifest.blocks[:index])
            left -= 1
    return manifest


def _say(channel: Channel, error: str) -> None:
    with contextlib.suppress(TransferError):
        channel.send({"error": error})
