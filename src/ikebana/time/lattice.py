"""Times and the lattice they form.

A time is a tuple `(epoch, round, ...)`: the epoch of the input, then one coordinate for each
enclosing loop. Times are ordered coordinate by coordinate, so two times may be incomparable, but
any two have a least upper bound, their `join`, and a greatest lower bound, their `meet`.

Invariants: `join` and `meet` are associative, commutative, idempotent and distribute over each
other. The lexicographic order of tuples extends this order: sorting times visits each after all
times before it.

Cost: a few hundred nanoseconds a call. Loops over many times belong in the kernels.

Not guaranteed: coordinates are taken as they come. The engine uses integers from 0 that fit 64
bits; nothing here checks it. Only times of different length are refused.
"""

from __future__ import annotations

from collections.abc import Iterable
from operator import le
from typing import TypeAlias

from ikebana.errors import TimeError

Time: TypeAlias = tuple[int, ...]


def less_equal(a: Time, b: Time) -> bool:
    """Is every coordinate of `a` at most that of `b`?

    >>> less_equal((0, 1), (0, 2)), less_equal((0, 1), (1, 0))
    (True, False)
    """
    if len(a) != len(b):
        raise mismatch(a, b)
    return all(map(le, a, b))


def less_than(a: Time, b: Time) -> bool:
    """Is `a` before `b`: less or equal, and not equal?

    >>> less_than((0, 1), (0, 2)), less_than((0, 1), (0, 1))
    (True, False)
    """
    return less_equal(a, b) and a != b


def join(a: Time, b: Time) -> Time:
    """The least time that is at or after both.

    >>> join((0, 3), (2, 1))
    (2, 3)
    """
    if len(a) != len(b):
        raise mismatch(a, b)
    return tuple(map(max, a, b))


def meet(a: Time, b: Time) -> Time:
    """The greatest time that is at or before both.

    >>> meet((0, 3), (2, 1))
    (0, 1)
    """
    if len(a) != len(b):
        raise mismatch(a, b)
    return tuple(map(min, a, b))


def minimum(dimensions: int) -> Time:
    """The first time: as many zeros as there are coordinates.

    >>> minimum(2)
    (0, 0)
    """
    if dimensions < 1:
        raise TimeError(
            f"cannot make a time with {dimensions} coordinates",
            detail="a time has an epoch and one coordinate per enclosing loop",
            hint="ask for at least 1 coordinate",
        )
    return (0,) * dimensions


def advance(time: Time, frontier: Iterable[Time]) -> Time:
    """The representative of `time` for readers that only look at times beyond `frontier`.

    It is the meet, over the elements `f` of the frontier, of `join(time, f)` (appendix A of the paper).
    It is *correct*: for every `u` beyond the frontier, `time <= u` exactly when the representative is.
    It is *optimal*: times that no such `u` tells apart have the same representative.

    Beyond the empty frontier there is no time and so no reader, and every choice is correct; the time
    is returned as it is. (Optimality needs a frontier with at least one element.)

    >>> advance((0, 7), [(5, 0)]), advance((9, 7), [(5, 0)])
    ((5, 7), (9, 7))
    >>> advance((0, 0), [(3, 1), (1, 3)])
    (1, 1)
    >>> advance((0, 7), [])
    (0, 7)
    """
    representative: Time | None = None
    for element in frontier:
        joined = join(time, element)
        representative = joined if representative is None else meet(representative, joined)
    return time if representative is None else representative


def mismatch(a: Time, b: Time) -> TimeError:
    """The error for two times that are not of the same shape."""
    return TimeError(
        f"cannot combine the times {a} and {b}",
        detail=f"the one has {len(a)} coordinates, the other {len(b)}",
        hint="a time has an epoch and one coordinate per enclosing loop: enter or leave the loop first",
    )
