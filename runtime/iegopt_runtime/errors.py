"""What goes wrong with real workers, as one tree below ``iegopt.errors.IegoptError``.

::

    IegoptError
    ├── InputError
    │   └── ModelError        a model, variant or folder that cannot be served, a prompt beyond the context
    └── RuntimeFault
        ├── NoRoom            a byte budget is full: of weights, of KV, of a tier
        ├── KvLost            KV that was counted on is nowhere to be had
        ├── TransferError     a peer that is gone, does not prove the secret, or sends what it should not
        ├── WireError         bytes that are no frame: broken, too long, not a map
        └── Refused           the other side does not take us: protocol version, secret
"""

from __future__ import annotations

import errno

from iegopt.errors import IegoptError, InputError

__all__ = [
    "KvLost", "ModelError", "NoRoom", "Refused", "RuntimeFault", "TransferError", "WireError", "is_out_of_memory",
]  # fmt: skip

_OUT_OF_MEMORY = (
    "out of memory", "can't allocate memory", "CUBLAS_STATUS_ALLOC_FAILED", "can't start new thread",
)  # fmt: skip
"""What a ``RuntimeError`` says of it: of CUDA, of torch's allocator on the CPU, of cuBLAS, of a thread's stack."""


class ModelError(InputError):
    """A model that is not known or cannot be served as asked; one line, with what is known."""


class RuntimeFault(IegoptError):
    """Something that can happen to a sound request while it runs; another try may succeed."""


class NoRoom(RuntimeFault):
    """A budget is full.

    Parameters
    ----------
    what
        The budget: ``weights``, ``L0``, ``L1``, ``L2``.
    needed, free
        Bytes.
    """

    def __init__(self, what: str, needed: int, free: int) -> None:
        self.what = what
        self.needed = needed
        self.free = free
        super().__init__(f"{what}: {needed} bytes are needed, {max(free, 0)} can be had")


class KvLost(RuntimeFault):
    """KV of a sequence is held by nobody who was asked."""


class TransferError(RuntimeFault):
    """A transfer did not come to its end; nothing of it was kept."""


class WireError(RuntimeFault):
    """Bytes that are no frame of this protocol."""


class Refused(RuntimeFault):
    """The handshake failed; the message says which side expected what."""


def is_out_of_memory(error: BaseException) -> bool:
    """Whether an exception of any library says that memory was short, which may be over at the next try."""
    if isinstance(error, OSError):
        return error.errno == errno.ENOMEM
    told = isinstance(error, RuntimeError) and any(words in str(error) for words in _OUT_OF_MEMORY)
    return told or isinstance(error, MemoryError)
