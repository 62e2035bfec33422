"""Partial plans that others dominate: which cost no less, and leave no more of any memory, with the same stages ahead.

Plans are sorted by cost, and each is compared with the few that are next cheaper: all plans at once, by 64 bits each
that say of which devices they leave less than others do, and in full where these allow it.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from iegopt.problem.hashing import hash_factors

__all__ = ["undominated"]

Ints = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]

_COMPARED = 32
"""With how many next cheaper plans each is compared."""
_EARLIER = np.tri(_COMPARED + 1, k=-1, dtype=np.bool_)
"""Pairs of a plan and one before it."""
_MANY_FALL = 0.25
"""Share of the plans from which on those that are left are compared again."""
_LONG = 1_500
"""Plans from which on steps that look at all of them once are quicker than fewer that look at several at a time."""
_FIRST_PAIRS, _FIRST_CELLS = 64, 1 << 14
"""Pairs of plans at least, and cells of their memory, that are compared before others that their result may spare."""
_NUMBER_AT, _INVERSE_AT = np.uint64(52), np.uint64(58)
_DEVICES, _NUMBER, _ALL = np.uint64((1 << 52) - 1), np.uint64((1 << 6) - 1), np.uint64((1 << 64) - 1)
"""Bits of a mark: the devices', then the last six of a group's number, which differ within ``_COMPARED`` plans,
and their inverse."""


def undominated(ahead: Ints, free: Ints, spent: Ints) -> tuple[Ints, Ints, Ints]:
    """Of plans with equal rows ``ahead`` (N, K), those that leave more memory than each of a few next cheaper ones.

    More of some device that is: a plan falls where one of them leaves no less of any. Where many fall, those that are
    left are compared again, with the next cheaper ones that are left.

    Parameters
    ----------
    free (N, F), spent (N,)
        Free memory of devices, and cost so far.

    Returns
    -------
    Their indices, equal rows next to each other; the group of every one of them, and the first of every group.
    Rows are sorted by a hash, then by cost, memory left, and place, and compared in full to the one before.
    """
    if len(spent) == 1:
        one = np.zeros(1, dtype=np.int64)
        return one, one, one
    room = free.sum(axis=1)
    by = _sorted(ahead @ hash_factors(ahead.shape[1]), spent, room)
    ahead, room = ahead[by], room[by]
    new = np.ones(len(by), dtype=np.bool_)
    new[1:] = (ahead[1:] != ahead[:-1]).any(axis=1)
    group = np.cumsum(new) - 1
    if group[-1] == len(by) - 1:
        return by, group, group
    if len(by) <= _COMPARED + 1:
        cheaper = (group[:, None] == group) & _EARLIER[: len(by), : len(by)]
        kept = np.ones(len(by), dtype=np.bool_)
        _drop(kept, by, free, room, *np.nonzero(cheaper))
        return by[kept], group[kept], np.flatnonzero(new[kept])
    mark, many = _marks(free)[by], True
    while many:
        kept = _not_fallen(by, free, room, group, mark)
        many = bool(len(by) - kept.sum() >= _MANY_FALL * len(by))
        by, room, group, mark = by[kept], room[kept], group[kept], mark[kept]
    return by, group, np.flatnonzero(np.diff(group, prepend=-1))


def _sorted(key: Ints, spent: Ints, room: Ints) -> Ints:
    """Places (N,) by key, then cost, then memory left, the most first, then place."""
    if len(key) < _LONG:
        return np.asarray(np.lexsort((-room, spent, key)))
    # Two quick sorts and the few ties take a third of the time of three stable ones.
    by = np.argsort(key)
    by_cost = spent[by] - spent.min()
    rank = np.cumsum(np.diff(key[by], prepend=key[by[0]]) != 0)
    bits = int(by_cost.max()).bit_length()
    if int(rank[-1]).bit_length() + bits > 62:
        return np.asarray(np.lexsort((-room, spent, key)))
    both = (rank << bits) | by_cost
    order = np.argsort(both)
    by, both = by[order], both[order]
    tied = np.zeros(len(by) + 1, dtype=np.bool_)
    tied[1:-1] = both[1:] == both[:-1]
    at = np.flatnonzero(tied[1:] | tied[:-1])
    some = by[at]
    by[at] = some[np.lexsort((some, -room[some], both[at]))]
    return by


def _not_fallen(by: Ints, free: Ints, room: Ints, group: Ints, mark: npt.NDArray[np.uint64]) -> Bools:
    """(N,) which plans leave more of something than each of the few before in their group.

    Parameters
    ----------
    by, room, group, mark (N,)
        Their rows in ``free``, sorted by group and cost; memory left in all; and ``_marks``.
    """
    n, far = len(by), min(_COMPARED, len(by) - 1)
    # A plan that a mark may fall for has all of its bits: those of the group, by number, are set or clear in both.
    number = group.astype(np.uint64)
    own = np.full(far + n, _ALL)
    own[far:] = mark | (number & _NUMBER) << _NUMBER_AT | (~number & _NUMBER) << _INVERSE_AT
    other, kept = ~own[far:], np.ones(n, dtype=np.bool_)
    if n < _LONG:
        before = np.ndarray((far, n), np.uint64, own, strides=(own.itemsize, own.itemsize))
        at = np.flatnonzero((before & other) == 0)[::-1]
        step, later = at // n, at % n
        _drop(kept, by, free, room, later, later + step - far)
        return kept
    for back in range(1, far + 1):
        later = np.flatnonzero((own[far - back : far - back + n] & other) == 0)
        _drop(kept, by, free, room, later, later - back)
    return kept


def _drop(kept: Bools, by: Ints, free: Ints, room: Ints, plans: Ints, cheaper: Ints) -> None:
    """Take from ``kept`` (N,) those of ``plans`` (P,), places in ``by``, of which cheaper ones leave as much of all."""
    maybe = kept[plans] & (room[cheaper] >= room[plans])
    plans, cheaper = plans[maybe], cheaper[maybe]
    some = max(_FIRST_PAIRS, _FIRST_CELLS // max(1, free.shape[1]))
    for start in range(0, len(plans), some):
        own, other = plans[start : start + some], cheaper[start : start + some]
        if start:  # some that fell need no second look
            left = kept[own]
            own, other = own[left], other[left]
        kept[own[(free[by[other]] >= free[by[own]]).all(axis=1)]] = False


def _marks(free: Ints) -> npt.NDArray[np.uint64]:
    """(N,) bits of devices of which a plan leaves less than others do; devices may share one."""
    bits = np.packbits(free < free.max(axis=0), axis=1)
    padded = np.zeros((len(free), -(-bits.shape[1] // 8) * 8), dtype=np.uint8)
    padded[:, : bits.shape[1]] = bits
    words = padded.view(np.uint64)
    word = words[:, 0] if words.shape[1] == 1 else np.bitwise_or.reduce(words, axis=1)
    return np.asarray(word & _DEVICES | word >> _NUMBER_AT)
