"""Arrays of a problem as all that works on them takes them, whatever they were made from."""

from __future__ import annotations

from operator import index
from typing import Any

import numpy as np
import numpy.typing as npt

from iegopt.errors import InputError

__all__ = ["Unpickled", "check_shape", "hold", "hold_ints", "nothing_in", "whole"]


class Unpickled:
    """Takes arrays out of a pickle as its own: those that share memory with others come read-only."""

    def __setstate__(self, state: dict[str, Any]) -> None:
        for name, value in state.items():
            object.__setattr__(self, name, _own(value))


def _own(value: Any) -> Any:
    if isinstance(value, tuple):
        return tuple(map(_own, value))
    return np.require(value, None, ["W"]) if isinstance(value, np.ndarray) else value


def hold(owner: object, dtype: npt.DTypeLike, *names: str) -> None:
    """Make arrays, and tuples of them, that a frozen dataclass was given ``whole``; ``None`` stays.

    Raises
    ------
    InputError
        If one is of a type that would lose something.
    """
    for name in names:
        given = getattr(owner, name)
        if given is None:
            continue
        where = f"{type(owner).__name__}.{name}"
        if isinstance(given, tuple):
            if nothing_in(given):
                continue
            held: Any = tuple(None if each is None else whole(each, dtype, where) for each in given)
        else:
            held = whole(given, dtype, where)
        if held is not given:
            object.__setattr__(owner, name, held)


def nothing_in(values: tuple[object, ...]) -> bool:
    """Whether a tuple holds nothing but ``None``, at a glance: those of many edges do."""
    return set(map(type, values)) <= _NOTHING


_NOTHING = {type(None)}


def check_shape(owner: object, shape: tuple[int, ...], of: str, *names: str) -> None:
    """Refuse arrays of a dataclass that are of another shape, ``of`` saying what they count; ``None`` will do.

    Raises
    ------
    InputError
        For the first one.
    """
    for name in names:
        array = getattr(owner, name)
        if array is not None and array.shape != shape:
            where = f"{type(owner).__name__}.{name}"
            raise InputError(f"{where}: shape {array.shape}, expected {shape}, one for every {of}")


def hold_ints(owner: object, *names: str) -> None:
    """Make whole numbers, and tuples of them, that a frozen dataclass was given Python's: numpy's overflow.

    Raises
    ------
    InputError
        If one is no whole number.
    """
    for name in names:
        given = getattr(owner, name)
        if type(given) is int:
            continue
        try:
            held: Any = tuple(map(index, given)) if isinstance(given, (tuple, list)) else index(given)
        except TypeError:
            raise InputError(f"{type(owner).__name__}.{name}: whole numbers expected, not {given!r:.80}") from None
        object.__setattr__(owner, name, held)


def whole(values: npt.ArrayLike, dtype: npt.DTypeLike, where: str) -> npt.NDArray[Any]:
    """An array of a type, contiguous and writable: compiled loops take no other."""
    if type(values) is np.ndarray and values.dtype == dtype and values.flags.carray:
        return values
    try:
        array = np.asarray(values)
    except ValueError:  # rows of different lengths
        raise InputError(f"{where}: {np.dtype(dtype)} expected, not lists of different lengths") from None
    if not np.can_cast(array.dtype, dtype, "same_kind") and array.size:
        raise InputError(f"{where}: {np.dtype(dtype)} expected, not {array.dtype}")
    return np.require(array, dtype, ["C", "W"])
