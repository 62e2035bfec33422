"""What executors without a KV cache have in common."""

from __future__ import annotations

from iegopt_runtime.workers.executor import StageFailed, WorkerState

__all__ = ["PlainExecutor"]


class PlainExecutor:
    """Holds no KV cache, keeps no variants, and knows nothing of a request beyond its stages."""

    def reserve(self, request_id: str, stage: str, size: int) -> None:
        raise StageFailed("refused", "this worker holds no KV cache")

    def release(self, kv_id: str) -> None:
        return

    def forget(self, request_id: str) -> None:
        return

    def holds(self) -> set[str]:
        return set()

    def kv(self) -> set[str]:
        return set()

    def state(self) -> WorkerState:
        return WorkerState()

    def addresses(self) -> dict[str, str]:
        return {}

    async def close(self) -> None:
        return
