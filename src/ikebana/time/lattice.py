"""Times and the lattice they form.

A time is a tuple `(epoch, round, ...)`: the epoch of the input, then one coordinate for each
enclosing loop. Times are ordered coordinate by coordinate, so two times may be incomparable, but
any two have a least upper bound, their `join`, and a greatest lower bound, their `meet`.

Invariants: `join` and `meet` are associative, commutative, idempotent and distribute over each
other. The lexicographic order of tuples extends this order: sorting times visits each after all
times before it.

Cost: a few hundred nanoseconds a call. Loops over many times belong in the kernels.

Not guaranteed: coordinates are not checked. The engine uses non-negative integers that fit into 64
bits. Only times of different length raise an error.
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


def join(a: Time, b: Time) -> Time:
    """Return the least time that is at or after both.

    >>> join((0, 3), (2, 1))
    (2, 3)
    """
    if len(a) != len(b):
        raise mismatch(a, b)
    return tuple(map(max, a, b))


def meet(a: Time, b: Time) -> Time:
    """Return the greatest time that is at or before both.

    >>> meet((0, 3), (2, 1))
    (0, 1)
    """
    if len(a) != len(b):
        raise mismatch(a, b)
    return tuple(map(min, a, b))


def minimum(dimensions: int) -> Time:
    """Return the first time: a tuple of `dimensions` zeros.

    >>> minimum(2)
    (0, 0)
    """
    if dimensions < 1:
        raise TimeError(
            f"cannot create a time with {dimensions} coordinates",
            detail="a time has an epoch and one coordinate per enclosing loop",
            hint="use at least 1 coordinate",
        )
    return (0,) * dimensions


def advance(time: Time, frontier: Iterable[Time]) -> Time:
    """Return the representative of `time` for readers that only read at times beyond `frontier`.

    It is the meet, over the elements `f` of the frontier, of `join(time, f)` (appendix A of the paper).
    It is *correct*: for every `u` beyond the frontier, `time <= u` exactly if the representative is.
    It is *optimal*: times that no such `u` distinguishes have the same representative.

    No time, and so no reader, is beyond the empty frontier, and every choice is correct: the time
    is returned unchanged. (Optimality requires a frontier with at least one element.)

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
    """Return the error for two times of different length."""
    return TimeError(
        f"cannot combine the times {a} and {b}",
        detail=f"the first has {len(a)} coordinates, the second {len(b)}",
        hint="a time has an epoch and one coordinate per enclosing loop: enter or leave the loop first",
    )
