"""Getting KV from whoever has it: a worker's memory or files, through its server, or the files of one that is gone."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from iegopt.spec.policy import KvTransferConfig
from iegopt_runtime.errors import TransferError
from iegopt_runtime.kv.address import connect
from iegopt_runtime.kv.auth import enter
from iegopt_runtime.kv.blocks import KvManifest
from iegopt_runtime.kv.channel import Channel
from iegopt_runtime.kv.codec import grade_of
from iegopt_runtime.kv.files import BlockFiles
from iegopt_runtime.kv.incoming import Incoming
from iegopt_runtime.kv.pieces import PieceReceiver
from iegopt_runtime.kv.store import KvStore
from iegopt_runtime.kv.tiers import Tier

__all__ = ["Fetched", "KvFetcher"]


@dataclass(frozen=True)
class Fetched:
    """What is held now under the manifest's ``kv_id``; ``received`` bytes of KV came in, ``failures`` say which
    sources did not help and why."""

    manifest: KvManifest
    received: int
    failures: tuple[str, ...]


class KvFetcher:
    """Fetches into one store. Its methods wait for the transfer; from any thread."""

    def __init__(
        self, store: KvStore, secret: bytes, clock: Callable[[], float], timeout: float = 30.0
    ) -> None:  # fmt: skip
        self._store, self._secret, self._clock, self._timeout = store, secret, clock, timeout

    def fetch(
        self, wanted: KvManifest, sources: Sequence[str], config: KvTransferConfig, timeout: float | None = None
    ) -> Fetched:
        """Ask the sources in turn for what is missing of ``wanted``, and hold what there is under its ``kv_id`` until
        that is forgotten.

        Parameters
        ----------
        wanted
            Blocks as they were computed (grade ``exact``), or as compressed before.
        sources
            Addresses (``kv.address``).
        config
            Its ``compression`` decides the grade of what is held in the end.
        timeout
            Seconds that a source may take for a message; by default those of this fetcher.
        """
        goal = wanted.as_grade(grade_of(config.compression))
        incoming = self._store.incoming()
        received, failures = 0, []
        try:
            files = [source for source in sources if source.startswith("file:")]
            for source in (*sources, *files):  # files again, for what comes after what others had
                there = goal.indices(incoming.held(goal.blocks))
                if len(there) == len(goal.blocks):
                    break
                try:
                    if source.startswith("file:"):
                        received += self._read_files(Path(source.removeprefix("file:")), wanted, goal, incoming)
                    else:
                        request = {"wanted": wanted.document(), "have": there}
                        received += self._pull(source, request, config, incoming, timeout)[1]
                except TransferError as error:
                    failures.append(f"{source}: {error}")
            incoming.held(goal.blocks)
            return Fetched(incoming.commit(goal), received, tuple(failures))
        finally:
            incoming.discard()

    def fetch_held(self, kv_id: str, source: str, config: KvTransferConfig, timeout: float | None = None) -> Fetched:
        """All that the worker at ``source`` holds under ``kv_id``, held here under the same.

        Raises
        ------
        TransferError
            It holds none, or does not answer; then nothing is kept.
        """
        incoming = self._store.incoming()
        try:
            manifest, received = self._pull(source, {"kv_id": kv_id}, config, incoming, timeout)
            return Fetched(incoming.commit(manifest), received, ())
        finally:
            incoming.discard()

    def _pull(
        self, source: str, request: Mapping[str, object], config: KvTransferConfig, incoming: Incoming,
        timeout: float | None,
    ) -> tuple[KvManifest, int]:  # fmt: skip
        channel = connect(source, timeout or self._timeout)
        arriving = self._store.incoming()
        try:
            enter(channel, self._secret)
            channel.send({"op": "pull", "config": config.model_dump(mode="json"), **request})
            coming = _coming(channel)
            most = sum(self._store.budget(tier) for tier in Tier)
            receiver = PieceReceiver(channel, coming.layout, arriving, most)
            while (manifest := receiver.receive(self._clock())) is None:
                pass
            channel.send({"held": True})
            incoming.held(manifest.blocks)
            return manifest, receiver.taken
        finally:
            arriving.discard()
            channel.close()

    def _read_files(self, folder: Path, wanted: KvManifest, goal: KvManifest, incoming: Incoming) -> int:
        """Read from files what is missing, exact KV standing in for compressed, up to the first block not there; the
        bytes read."""
        files, received = BlockFiles(folder), 0
        for block, name in zip(wanted.blocks, goal.blocks, strict=True):
            if incoming.held([name]):
                continue
            tensor = next((t for t in map(files.find, (name.key, block.key)) if t is not None), None)
            if tensor is None or tensor.shape != wanted.layout.shape(block.tokens):
                break
            incoming.add(name, tensor, self._clock(), owned=True)
            received += tensor.nbytes
        return received


def _coming(channel: Channel) -> KvManifest:
    """What the holder says that it will send."""
    header, _ = channel.receive()
    if "sending" not in header:
        raise TransferError(f"the holder: {header.get('error', 'an answer that was not expected')}")
    try:
        return KvManifest.read(header["sending"])
    except (TypeError, ValueError) as error:
        raise TransferError(str(error)) from None
