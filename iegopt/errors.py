"""The exceptions of iegopt, in one tree.

::

    IegoptError
    ├── InputError            what the caller handed in is wrong (exit 1)
    │   ├── SpecError         a file or document, with the path inside it
    │   └── LimitError        a request that exceeds its own dag_constraints
    ├── UnsupportedProblem    a solver was forced onto a problem it does not state
    ├── BackendError          an engine (CP-SAT, HiGHS, CBC) is missing or broke
    └── InternalError         a bug of ours: an answer that the verifier refused

Infeasible, limit reached and unknown are values (``Status``), not exceptions.
"""

from __future__ import annotations

__all__ = [
    "BackendError",
    "IegoptError",
    "InputError",
    "InternalError",
    "LimitError",
    "SpecError",
    "UnsupportedProblem",
]


class IegoptError(Exception):
    """Root of the tree; catch it to catch everything iegopt raises on purpose."""


class InputError(IegoptError):
    """The caller's input is wrong. The message is one line and needs no traceback."""


class SpecError(InputError):
    """A document is wrong: which file, where inside it, what stood there, what was expected.

    Parameters
    ----------
    file
        Path of the file, or a name for a document that came from memory.
    where
        Dotted path inside the document, ``""`` for the whole of it.
    problem
        What is wrong: the value, the expectation and, where there is one, a guess.
    """

    def __init__(self, file: str, where: str, problem: str) -> None:
        self.file = file
        self.where = where
        self.problem = problem
        place = f"{file}: {where}" if where else file
        super().__init__(f"{place}: {problem}")


class LimitError(InputError):
    """A graph exceeds a limit of its ``dag_constraints``.

    Parameters
    ----------
    limit
        Name of the limit, as in the document (``max_depth``).
    used, allowed
        Both in the unit of the limit, already rendered for people.
    """

    def __init__(self, limit: str, used: str, allowed: str, hint: str = "") -> None:
        self.limit = limit
        self.used = used
        self.allowed = allowed
        tail = f". {hint}" if hint else ""
        super().__init__(f"dag_constraints.{limit}: the graph needs {used}, allowed {allowed}{tail}")


class UnsupportedProblem(IegoptError):
    """A solver was asked for by name and cannot state this problem; says why."""


class BackendError(IegoptError):
    """A back end (CP-SAT, HiGHS, CBC) is not installed or failed."""


class InternalError(IegoptError):
    """A bug of iegopt: an answer failed its own verification."""
