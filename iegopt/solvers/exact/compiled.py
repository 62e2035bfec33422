"""When the compiled kernels (``kernels.py``, the extra ``fast``) take the place of numpy.

Loading numba takes half a second and compiling the kernels many more, so that neither may happen while somebody waits
for a plan. Both happen in ``warmup`` alone: the command ``iegopt warmup`` compiles once per machine and leaves the
machine code in numba's cache; a long-lived process calls ``iegopt.warmup()`` when it starts. Until then, and
wherever the extra is missing, numpy does the same work to the same bit. Once loaded, a kernel cannot compile again: a
call with other types than those it was compiled for raises.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

from iegopt.errors import InputError

__all__ = ["Warmup", "kernels", "warmup"]


@dataclass(frozen=True)
class Warmup:
    """Which core runs the messages of this process from now on.

    Attributes
    ----------
    core
        ``numba`` or ``numpy``.
    loaded, compiled
        Names of kernels that came from the cache, and of those compiled now.
    seconds
        What it took.
    reason
        Why it is numpy; ``None`` with numba.
    """

    core: str
    loaded: tuple[str, ...]
    compiled: tuple[str, ...]
    seconds: float
    reason: str | None


_ready: SimpleNamespace | None = None


def kernels() -> SimpleNamespace | None:
    """The kernels by name where this process has loaded them, else ``None``: numpy."""
    return _ready


def warmup(compile: bool = True) -> Warmup:
    """Load the kernels into this process, and compile those that the cache does not hold.

    Parameters
    ----------
    compile
        ``False``: never compile; if the cache lacks a kernel, or numba is not installed, numpy stays.

    Raises
    ------
    InputError
        If kernels are to be compiled and numba is missing, or switched off by ``NUMBA_DISABLE_JIT``.
    """
    global _ready
    start = time.perf_counter()
    loaded: list[str] = []
    compiled: list[str] = []
    reason = _unavailable()
    if reason is None:
        known = _registered()
        for name, (dispatcher, signature) in known.items():
            if dispatcher.signatures or _from_cache(dispatcher, signature):
                loaded.append(name)
            elif compile:
                dispatcher.compile(signature)
                compiled.append(name)
            else:
                reason = "the cache lacks kernels for this processor and these versions: run iegopt warmup"
                break
        else:
            for dispatcher, _ in known.values():
                dispatcher.disable_compile()
            _ready = SimpleNamespace(**{name: dispatcher for name, (dispatcher, _) in known.items()})
    elif compile:
        raise InputError(reason)
    seconds = time.perf_counter() - start
    return Warmup("numpy" if reason else "numba", tuple(loaded), tuple(compiled), seconds, reason)


def _registered() -> dict[str, tuple[Any, str]]:
    """All kernels; loads numba."""
    from iegopt.solvers.exact import kernels, link_kernels
    from iegopt.solvers.timed import kernels as in_time

    assert link_kernels.send_columns.__name__ in kernels.KERNELS
    return {**kernels.KERNELS, **in_time.KERNELS}


def _unavailable() -> str | None:
    """Why kernels cannot be used at all, or ``None``."""
    try:
        import numba
    except ImportError as error:
        return f"compiled kernels need numba: pip install 'iegopt[fast]' ({error})"
    if numba.config.DISABLE_JIT:
        return "numba is switched off: NUMBA_DISABLE_JIT is set"
    return None


class _NotCachedError(Exception):
    """Raised in place of a compilation."""


def _from_cache(dispatcher: Any, signature: str) -> bool:
    """Load a kernel if numba's cache holds it."""
    try:
        with _no_compilation():
            dispatcher.compile(signature)
    except _NotCachedError:
        return False
    return True


@contextmanager
def _no_compilation() -> Iterator[None]:
    """Numba looks into its cache first and announces a compilation only where that fails: refuse it then."""
    from numba.core import event

    class Refuse(event.Listener):  # type: ignore[misc]
        def on_start(self, event: Any) -> None:
            raise _NotCachedError

        def on_end(self, event: Any) -> None:
            """Nothing is left to undo."""

    with event.install_listener("numba:compile", Refuse()):
        yield
