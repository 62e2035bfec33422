"""KV of stages on its way: fetched before a stage runs, pushed on while it does, kept by stages of its own."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from iegopt.spec.explain_error import validate
from iegopt.spec.policy import KvTransferConfig
from iegopt_runtime.errors import KvLost, NoRoom, TransferError
from iegopt_runtime.kv.blocks import KvManifest
from iegopt_runtime.kv.fetch import KvFetcher
from iegopt_runtime.kv.push import KvSender, Pushed
from iegopt_runtime.kv.server import KvServer
from iegopt_runtime.kv.tiers import Tier
from iegopt_runtime.lm.engine import LmEngine
from iegopt_runtime.lm.jobs import Generate
from iegopt_runtime.workers.executor import Attempt, Document

__all__ = ["KvTraffic"]


@dataclass(frozen=True)
class KvTraffic:
    """The data plane of one worker's engine. ``files`` is the folder of its store's files, if it has any."""

    engine: LmEngine
    server: KvServer
    fetcher: KvFetcher
    secret: bytes
    files: Path | None

    async def fetched(self, work: Document, attempt: Attempt, job: Generate) -> tuple[Generate, int]:
        """Get what others hold and this store does not; its bytes. What nobody has, the engine computes again.

        Returns
        -------
        tuple
            The job, to go on from KV of the grade that came in where that is more than was here; bytes received.
        """
        sources = self._elsewhere(work)
        if not sources:
            return job, 0
        most = max(source["tokens"] for source in work["kv"]["sources"])
        lists = await asyncio.to_thread(self._wanted, job, most)
        reach, received, grade = self._reach(lists), 0, job.grade
        if reach >= most:
            return job, 0
        attempt.waiting("kv")
        patience = work["kv"]["patience"]
        for wanted in lists:
            if reach >= most:
                break
            with contextlib.suppress(NoRoom, TransferError):
                got = await asyncio.to_thread(self.fetcher.fetch, wanted, sources, _transfer(work), patience)
                received += got.received
                if got.manifest.tokens > reach:
                    reach, grade = got.manifest.tokens, got.manifest.grade
        attempt.resumed()
        return replace(job, grade=grade), received

    def _wanted(self, job: Generate, most: int) -> list[KvManifest]:
        """What to ask others for: what they had when the controller last heard of it, ``most`` tokens. Files of one
        that is gone may reach further, by whole blocks, which are then asked for before."""
        known, all_of_it = self.engine.wanted(job, most), self.engine.wanted(job)
        further = len(all_of_it.blocks) > len(known.blocks)
        return [all_of_it, known] if further else [known]

    def _reach(self, lists: list[KvManifest]) -> int:
        """How many of the first tokens are held here."""
        reaches = [wanted.blocks[: self.engine.store.match(wanted.blocks)] for wanted in lists]
        return max((blocks[-1].end for blocks in reaches if blocks), default=0)

    def _elsewhere(self, work: Document, *, files: bool = True) -> list[str]:
        """Addresses of others that hold the KV to continue, best first."""
        found = [reachable(source["addresses"], files=files) for source in work["kv"]["sources"]]
        return [address for address in found if address is not None and address not in self.server.addresses]

    def sender(self, push: Document | None) -> KvSender | None:
        """A transfer to the worker that will go on, ``None`` where there is none or it cannot be reached."""
        address = reachable(push["addresses"], files=False) if push is not None else None
        if push is None or address is None:
            return None
        config = validate(KvTransferConfig, push["transfer"], "push", "transfer")
        return KvSender(address, self.secret, config, self.engine.store.memory, push["patience"])

    async def pushed(self, sender: KvSender | None) -> Pushed | None:
        """What came of a transfer; where the other worker has not got all, it can still fetch it from here."""
        if sender is None:
            return None
        try:
            return await asyncio.wrap_future(sender.pushed)
        except TransferError:
            return None

    async def kept(self, work: Document) -> Document:
        """Hold KV that another stage wrote under a name of its own, on the tier that ``work`` names, and where copies
        are kept.

        Raises
        ------
        KvLost
            Nobody has it.
        NoRoom
            There is no room for it.
        """
        manifest, received = await asyncio.to_thread(self._keep, work)
        return {"kv": self.document(work, manifest, received)}

    def _keep(self, work: Document) -> tuple[KvManifest, int]:
        store, source, received = self.engine.store, work["kv"]["from"], 0
        manifest = store.manifest(source)
        if manifest is None:
            servers = self._elsewhere(work, files=False)  # of files nobody can be asked what is held by a name
            manifest, received = self._got(source, servers, _transfer(work), work["kv"]["patience"])
        own = replace(manifest, kv_id=work["kv"]["id"], blocks=tuple(store.acquire(manifest.blocks)))
        store.enter(own)
        for tier in {work["tier"], work.get("keep_copy") or work["tier"]}:
            self.put_down(own, Tier[tier])
        if received:
            store.forget(source)
        return own, received

    def put_down(self, manifest: KvManifest, tier: Tier) -> None:
        """Have a copy of held KV on a lower tier; raises as ``kept``."""
        store = self.engine.store
        for block in manifest.blocks if tier is not Tier.L0 else ():
            store.put(block, store.read(block, time.monotonic()), time.monotonic(), copy=tier)

    def _got(self, kv_id: str, sources: list[str], config: KvTransferConfig, patience: float) -> tuple[KvManifest, int]:
        failures = []
        for source in sources:
            try:
                got = self.fetcher.fetch_held(kv_id, source, config, patience)
            except TransferError as error:
                failures.append(f"{source}: {error}")
            else:
                return got.manifest, got.received
        raise KvLost(f"KV {kv_id} is nowhere to be had: {'; '.join(failures) or 'nobody holds it'}")

    def document(
        self, work: Document, manifest: KvManifest | None, fetched: int, pushed: Pushed | None = None
    ) -> Document:
        """The ``kv`` of a result (``iegopt.control.results``)."""
        copies = []
        kept_in_files = work.get("keep_copy") == "L2" or work.get("tier") == "L2"
        if kept_in_files and self.files is not None and manifest is not None:
            copies.append({"tier": "L2", "addresses": {"file": f"file:{self.files}"}})
        return {
            "id": work["kv"]["id"], "tokens": manifest.tokens if manifest else 0,
            "bytes": manifest.bytes if manifest else 0, "copies": copies,
            "pushed": pushed is not None and pushed.tokens > 0,
            "moved": fetched + (pushed.sent if pushed is not None else 0),
        }  # fmt: skip


def _transfer(work: Document) -> KvTransferConfig:
    """How KV comes in from others."""
    return validate(KvTransferConfig, work["kv"]["transfer"], "kv", "transfer")


def reachable(addresses: Mapping[str, Any], *, files: bool = True) -> str | None:
    """The best address of a worker from here: its socket, or its ``files``, on this host, else its port."""
    for kind in ("unix", "file") if files else ("unix",):
        address = addresses.get(kind)
        if isinstance(address, str) and (address.startswith("unix:@") or Path(address.partition(":")[2]).exists()):
            return address
    address = addresses.get("tcp")
    return address if isinstance(address, str) else None
