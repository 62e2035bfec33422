"""The table of engines: our solvers, and the peers with what to install for each.

Anyone's own engine is called ``package.module:name``, an object or class as ``iegopt.bench.engine`` describes it.
"""

from __future__ import annotations

import difflib
from importlib.util import find_spec

from iegopt.bench.engine import Engine
from iegopt.bench.ours import Ours
from iegopt.bench.peers.cpsat_element import CpSatElement
from iegopt.bench.peers.highs_pairs import HighsPairs
from iegopt.bench.peers.saga import HEURISTICS, Saga
from iegopt.bench.peers.toulbar2 import Toulbar2
from iegopt.errors import InputError
from iegopt.solvers.api import SOLVERS
from iegopt.solvers.worker import resolve

__all__ = ["ENGINES", "PEERS", "engine", "missing"]

PEERS: dict[str, Engine] = {
    "toulbar2": Toulbar2(),
    "cpsat-element": CpSatElement(),
    "highs-weak": HighsPairs("weak"),
    "highs-strong": HighsPairs("strong"),
    **{name: Saga(scheduler) for name, scheduler in HEURISTICS.items()},
}
_EXTRA = ": pip install 'iegopt[peers]'"
ENGINES: dict[str, Engine] = {**{name: Ours(name) for name in SOLVERS}, **PEERS}


def engine(name: str) -> Engine:
    """The engine of a name (raises ``InputError`` with the nearest known one)."""
    if ":" in name:
        return _own(name)
    if name not in ENGINES:
        close = difflib.get_close_matches(name, ENGINES, n=1)
        guess = f"Maybe {close[0]}?" if close else f"Known: {', '.join(ENGINES)}"
        raise InputError(f"no solver or peer {name!r}. {guess}")
    return ENGINES[name]


def _own(name: str) -> Engine:
    try:
        found = resolve(name)
    except (ImportError, AttributeError, ValueError) as error:
        raise InputError(f"solver {name!r}: {error}") from None
    made: Engine = found() if isinstance(found, type) else found  # type: ignore[assignment]
    return made


def missing(name: str) -> str | None:
    """What is not installed for an engine, found without importing it; ``None`` where all is there."""
    for package in engine(name).packages:
        if find_spec(package.split(".")[0]) is None:
            return f"{package.split('.')[0]} is not installed{_EXTRA if name in PEERS else ''}"
    return None
