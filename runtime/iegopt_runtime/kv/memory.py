"""Copies between the memory of a device and that of the host, the same calls with and without CUDA.

With CUDA, host memory is pinned and copies run on a stream of their own, ordered after the work that produced the data
and waited for before the result is used, so that computing goes on meanwhile.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch

__all__ = ["DeviceMemory"]


class DeviceMemory:
    """The copy engine of one device (``cpu``, ``cuda``, ``cuda:1``)."""

    def __init__(self, device: str | torch.device) -> None:
        self.device = torch.device(device)
        self.cuda = self.device.type == "cuda"
        self._stream = torch.cuda.Stream(self.device) if self.cuda else None  # type: ignore[no-untyped-call]

    def to_host(self, tensor: torch.Tensor) -> torch.Tensor:
        """A contiguous copy in host memory (pinned with CUDA) that is complete when this returns."""
        if self._stream is None:
            return tensor.detach().clone(memory_format=torch.contiguous_format)
        target = torch.empty(tensor.shape, dtype=tensor.dtype, pin_memory=True)
        self._stream.wait_stream(torch.cuda.current_stream(self.device))
        with torch.cuda.stream(self._stream):
            target.copy_(tensor, non_blocking=True)
        self._stream.synchronize()
        return target

    def to_device(self, tensor: torch.Tensor) -> torch.Tensor:
        """A contiguous copy in the device's memory; later work on its current stream waits for it."""
        target = torch.empty(tensor.shape, dtype=tensor.dtype, device=self.device)
        self.fill(target, tensor)
        return target

    def fill(self, target: torch.Tensor, source: torch.Tensor) -> None:
        """Copy ``source`` into ``target``, a view into the device's memory; later work there waits for it."""
        if self._stream is None:
            target.copy_(source)
            return
        current = torch.cuda.current_stream(self.device)
        self._stream.wait_stream(current)
        with torch.cuda.stream(self._stream):
            target.copy_(source, non_blocking=source.is_cuda or source.is_pinned())
        target.record_stream(self._stream)
        current.wait_stream(self._stream)
        if not source.is_cuda:
            # The host buffer may be given back as soon as this returns.
            self._stream.synchronize()

    def mark(self) -> torch.cuda.Event | None:
        """The point that the device's current stream has reached, for ``after``."""
        if not self.cuda:
            return None
        event = torch.cuda.Event()  # type: ignore[no-untyped-call]
        event.record(torch.cuda.current_stream(self.device))
        return event

    @contextmanager
    def after(self, mark: torch.cuda.Event | None) -> Iterator[None]:
        """What is done inside comes after ``mark``, but waits for nothing later on the stream it was taken from."""
        if mark is None or self._stream is None:
            yield
            return
        self._stream.wait_event(mark)
        with torch.cuda.stream(self._stream):
            yield

    def used(self) -> int | None:
        """Bytes that torch has taken on the device; ``None`` without CUDA, where nothing counts them."""
        return torch.cuda.memory_allocated(self.device) if self.cuda else None
