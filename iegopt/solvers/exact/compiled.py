"""When the compiled kernels (``kernels.py``, the extra ``fast``) take the place of numpy.

Loading numba takes about a second and compiling the kernels many more, so that neither may happen while somebody waits
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

import numpy as np
import numpy.typing as npt

from iegopt.errors import InputError
from iegopt.verify.assignment import check_assignment, quicken

__all__ = ["Warmup", "as_ints", "kernels", "warmup"]


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


def as_ints(values: npt.ArrayLike) -> npt.NDArray[np.int64]:
    """An array as kernels take it: int64, contiguous, writable; itself where it is one."""
    return np.require(values, np.int64, ["C", "W"])


def warmup(compile: bool = True) -> Warmup:
    """Load the kernels into this process, and compile those that the cache does not hold.

    Parameters
    ----------
    compile
        ``False``: never compile; if the cache lacks a kernel, or numba is not installed, numpy stays.

    A file of the cache that cannot be read, or holds no kernel, counts as missing, and gives way to what is compiled.

    Raises
    ------
    InputError
        If kernels are to be compiled and numba is missing, or switched off by ``NUMBA_DISABLE_JIT``.
    """
    global _ready
    start = time.perf_counter()
    loaded: list[str] = []
    compiled: list[str] = []
    known, reason = _registered()
    if reason is None:
        with _past_damage():
            for name, (dispatcher, signature) in known.items():
                if dispatcher.signatures or _from_cache(dispatcher, signature):
                    loaded.append(name)
                elif compile:
                    dispatcher.compile(signature)
                    compiled.append(name)
                else:
                    reason = "the cache lacks kernels for this processor and these versions: run iegopt warmup"
                    break
        if reason is None:
            for dispatcher, _ in known.values():
                dispatcher.disable_compile()
            if _ready is None:
                _ready = SimpleNamespace(**{name: dispatcher for name, (dispatcher, _) in known.items()})
                _call_each()
    elif compile:
        raise InputError(reason)
    seconds = time.perf_counter() - start
    return Warmup("numpy" if reason else "numba", tuple(loaded), tuple(compiled), seconds, reason)


def _registered() -> tuple[dict[str, tuple[Any, str]], str | None]:
    """All kernels, or why they cannot be used at all; loads numba."""
    try:
        import numba
    except ImportError as error:
        return {}, f"compiled kernels need numba: pip install 'iegopt[fast]' ({error})"
    if numba.config.DISABLE_JIT:
        return {}, "numba is switched off: NUMBA_DISABLE_JIT is set"
    try:
        from iegopt.solvers.exact import (
            beam_kernels,
            branch_kernels,
            edge_kernels,
            exchange_kernel,
            kernels,
            link_kernels,
            node_kernels,
            place_kernel,
            price_kernels,
            table_kernel,
        )
        from iegopt.solvers.search import chain_kernel, first_kernel, quick_kernel
        from iegopt.solvers.search import kernels as in_search
        from iegopt.solvers.timed import dispatching, openings, reinsertion, schedule_tree
        from iegopt.solvers.timed import kernels as in_time
        from iegopt.verify import sound
    except RuntimeError as error:  # numba looks for a folder for its cache as soon as a function is defined
        return {}, f"numba has nowhere to keep kernels, set NUMBA_CACHE_DIR to a folder ({error})"
    of_prices = beam_kernels, place_kernel, branch_kernels, edge_kernels, exchange_kernel
    for also in (*of_prices, link_kernels, node_kernels, price_kernels, table_kernel):
        assert all(name in kernels.KERNELS for name in also.__all__)
    searches = in_search, chain_kernel, first_kernel, quick_kernel
    timed = in_time, openings, dispatching, reinsertion, schedule_tree
    modules = kernels, *searches, *timed, sound
    return {name: known for module in modules for name, known in module.KERNELS.items()}, None


def _call_each() -> None:
    """Call every kernel on a toy: the first call looks up the types of its arguments, some milliseconds."""
    import random

    from iegopt.problem.families import generate
    from iegopt.solvers.clock import Clock
    from iegopt.solvers.exact.batch import relaxations
    from iegopt.solvers.exact.best_plan import BestPlan
    from iegopt.solvers.exact.branching import propagate
    from iegopt.solvers.exact.candidates import candidates
    from iegopt.solvers.exact.exchange import exchange_stages
    from iegopt.solvers.exact.links import LevelLink, TableLink
    from iegopt.solvers.exact.messages import UNREACHABLE
    from iegopt.solvers.exact.pricing import Pricing, no_split
    from iegopt.solvers.exact.relaxation import relaxation
    from iegopt.solvers.exact.site_tree import SiteTree
    from iegopt.solvers.search.compiled_rebuild import CompiledRebuild
    from iegopt.solvers.search.quick import quick_plan
    from iegopt.solvers.timed.pricer import Pricer
    from iegopt.solvers.timed.walk import Walk

    gangs, toy = generate("chain", 2, 8, gangs=True), generate("chain", 2, 4)
    of_gangs = candidates(gangs, gangs.allowed)
    first = of_gangs.option[[part.start for part in of_gangs.of]]
    exchange_stages(of_gangs, BestPlan(gangs, (0, first), 0), Clock(1.0))
    relaxed = relaxation(toy)
    relaxed.prune(0)
    CompiledRebuild(relaxed, (0, toy.options.ptr[:-1]), random.Random(0), check=False).go(1.0, 2, 1)
    relaxations(toy, toy.options.cost[None])
    quick_plan(toy, Clock(1.0))
    assert _ready is not None
    quicken(_ready.sound)
    check_assignment(toy, toy.options.ptr[:-1].tolist())
    one, none, ends = np.ones(1), np.zeros(0), np.zeros(0, dtype=np.int64)
    site = np.zeros(1, dtype=np.int64), np.ones(1, dtype=np.int64), np.arange(2), np.zeros(1, dtype=np.int64)
    _ready.first_plan(
        np.ones((1, 5)), site[0], np.ones((1, 3, 1)), one, site[0], ends, ends, none, site, one, np.zeros((1, 2, 1)),
        one, site[1], np.ones(4), site[0].copy(), np.empty((7, 1)), none,
    )  # fmt: skip
    _ready.chains(
        np.arange(2), site[0], site[0], site[0], one, one.copy(), site[1].copy(), site[0].copy(),
        site[3].copy(), np.zeros(3, dtype=np.int64), 1, np.ones(1, dtype=np.int64), np.ones(1, dtype=np.uint64),
    )  # fmt: skip
    tree, sites = SiteTree(toy.topology), np.arange(4)
    free = tuple(np.zeros(1, dtype=np.int64) for _ in tree.levels)
    LevelLink(tree, free, sites, sites, np.zeros(4, dtype=np.bool_)).send(sites[:, None], True)
    c = candidates(toy, toy.allowed)
    propagate(c, np.ones(len(c.option), dtype=np.bool_))
    TableLink(np.zeros((4, 4), dtype=np.int64)).send(sites[:, None], True)
    pricing = Pricing(c, np.ones((len(c.option), 1), dtype=np.bool_), np.zeros((len(c.capacity), 1)), no_split(c, 1))
    pricing.run(lambda: UNREACHABLE, 2, 1.0, lambda plan: None, lambda ahead: False)
    _call_beams(_ready)
    walk = Walk(Pricer(toy), [1.0, 1.0], random.Random(0))
    walk.best(Clock(1.0), 0, 1)
    for take in walk.turns:
        take(0.0, 1)


def _call_beams(core: SimpleNamespace) -> None:
    """Call the kernels of beams on zeros, with tables as they come: along rows, along columns, and of several nodes."""

    def zeros(*shape: int) -> Any:
        return np.zeros(shape, dtype=np.int64)

    tree, apart = (zeros(1),) * 5, np.zeros(1, dtype=np.bool_)
    core.needs_later(zeros(1), zeros(1, 1), np.arange(2), zeros(1), zeros(1), zeros(1, 1))
    for table in (zeros(2, 2), zeros(2, 2).T, zeros(2, 2, 2)[:, :, 0]):
        core.rise_by_table(zeros(1, 2), zeros(1, 1), zeros(1), 0, table, zeros(2), zeros(2))
        core.rise_between(zeros(1, 2), zeros(1, 1), zeros(1), 0, 0, table)
        core.spend_by_table(zeros(1), zeros(1, 1), zeros(1), zeros(1), 0, table)
    core.rise_by_tree(zeros(1, 1), zeros(1, 1), zeros(1), 0, zeros(1), zeros(1), tree, apart, zeros(1), zeros(1))
    core.spend_by_tree(zeros(1), zeros(1, 1), zeros(1), zeros(1), 0, zeros(1), zeros(1), tree, apart)
    core.extend_plans(
        zeros(1, 1), zeros(1), zeros(1), 1, zeros(1, 1), zeros(1), zeros(1, 1), 0, zeros(1), zeros(1, 1), 1, 1
    )
    core.place_stage(
        zeros(1, 1), zeros(1), zeros(1), zeros(1), 0, zeros(1), zeros(1), zeros(1), zeros(1, 1), zeros(1, 1),
        zeros(1), zeros(1), zeros(1, 1), 0, zeros(1), zeros(1),
    )  # fmt: skip


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


@contextmanager
def _past_damage() -> Iterator[None]:
    """Numba takes files of its cache on trust and stops at one that was cut short: count it as missing.

    For every function, since the helpers that kernels call have files of their own. A damaged kernel is written
    over; a damaged index, which names the kernels of one function, is begun anew.
    """
    from numba.core.caching import Cache

    load, save = Cache.load_overload, Cache.save_overload

    def load_sound(cache: Any, *key: Any) -> Any:
        try:
            return load(cache, *key)
        except Exception:  # noqa: BLE001  # whatever strange bytes make of pickle
            return None

    def save_anyway(cache: Any, *entry: Any) -> None:
        try:
            save(cache, *entry)
        except Exception:  # noqa: BLE001  # as above, of the index
            cache.flush()
            save(cache, *entry)

    Cache.load_overload, Cache.save_overload = load_sound, save_anyway
    try:
        yield
    finally:
        Cache.load_overload, Cache.save_overload = load, save
