"""Frontiers: sets of times of which none is before another.

An antichain denotes all times that are *beyond* it: at or after some element. So a finite set describes
all future times, the times at which a reader may read, or, with two antichains,
`[lower, upper)`, the times of a batch: beyond `lower` and not beyond `upper`. No time is beyond the empty
antichain: there are no future times.

Invariants: elements are minimal (mutually incomparable), of one length, and sorted, so equal
antichains compare equal, and have the same hash and representation. Antichains are immutable: every
operation returns an antichain.

Cost: linear in the number of elements for a test, quadratic to create; frontiers are small.

Not guaranteed: that coordinates are non-negative or fit 64 bits, see `ikebana.time.lattice`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import lru_cache
from operator import index
from typing import final

from ikebana.errors import TimeError
from ikebana.time import lattice
from ikebana.time.lattice import Time


@final
class Antichain:
    """The minimal elements of some times.

    >>> Antichain([(1, 0), (0, 1), (1, 1)])
    {(0, 1), (1, 0)}
    >>> Antichain()
    {}
    """

    __slots__ = ("_times",)

    _times: tuple[Time, ...]

    def __init__(self, times: Iterable[Time] = ()) -> None:
        checked = [_checked(time) for time in times]
        if len(checked) == 1:
            self._times = (checked[0],)
            return
        for time in checked:
            if len(time) != len(checked[0]):
                raise lattice.mismatch(checked[0], time)
        self._times = _minimal(checked)

    @classmethod
    def of(cls, *times: Time) -> Antichain:
        """Return the antichain of the given times.

        >>> Antichain.of((0, 1), (1, 0))
        {(0, 1), (1, 0)}
        """
        return cls(times)

    @classmethod
    @lru_cache(maxsize=64)
    def minimum(cls, dimensions: int) -> Antichain:
        """Return the first frontier: every time is beyond it.

        >>> Antichain.minimum(2)
        {(0, 0)}
        """
        return cls((lattice.minimum(dimensions),))

    def less_equal(self, time: Time) -> bool:
        """Is `time` beyond this frontier: at or after some element?

        >>> Antichain.of((5, 0)).less_equal((5, 3)), Antichain.of((5, 0)).less_equal((4, 9))
        (True, False)
        """
        times = self._times
        if len(times) == 1:  # as nearly always
            return lattice.less_equal(times[0], time)
        return any(lattice.less_equal(element, time) for element in times)

    def precedes(self, other: Antichain) -> bool:
        """Is every time beyond `other` also beyond this frontier? A frontier may advance to those it precedes.

        This is the order on frontiers: minimum first, empty last.

        >>> Antichain.of((3, 0)).precedes(Antichain.of((5, 0))), Antichain().precedes(Antichain.of((5, 0)))
        (True, False)
        """
        own, times = self._times, other._times
        if len(times) == 1:
            if len(own) == 1 and len(own[0]) == len(times[0]) == 1:  # outside loops
                return own[0][0] <= times[0][0]
            return self.less_equal(times[0])
        return all(self.less_equal(time) for time in times)

    def meet(self, other: Antichain) -> Antichain:
        """Return the last frontier that precedes both: the times beyond it are beyond either.

        >>> Antichain.of((0, 2)).meet(Antichain.of((1, 1)))
        {(0, 2), (1, 1)}
        """
        return self if self == other else Antichain((*self._times, *other._times))

    def join(self, other: Antichain) -> Antichain:
        """Return the first frontier that both precede: the times beyond it are beyond both.

        >>> Antichain.of((0, 2)).join(Antichain.of((1, 1)))
        {(1, 2)}
        """
        return Antichain(lattice.join(a, b) for a in self._times for b in other._times)

    def enter(self) -> Antichain:
        """Return the same frontier inside a loop, at its first round.

        >>> Antichain.of((5,)).enter()
        {(5, 0)}
        """
        return Antichain((*time, 0) for time in self._times)

    @property
    def first(self) -> Time:
        """The first of its times; there must be one.

        >>> Antichain.of((5,)).first
        (5,)
        """
        return self._times[0]

    @property
    def dimensions(self) -> int | None:
        """The number of coordinates of its times; None if it is empty.

        >>> Antichain.of((5, 0)).dimensions
        2
        """
        return len(self._times[0]) if self._times else None

    def __bool__(self) -> bool:
        return bool(self._times)

    def __len__(self) -> int:
        return len(self._times)

    def __iter__(self) -> Iterator[Time]:
        return iter(self._times)

    def __contains__(self, time: object) -> bool:
        """Is `time` one of the elements? (To test whether it is beyond the frontier, use `less_equal`.)"""
        return time in self._times

    def __eq__(self, other: object) -> bool:
        return self._times == other._times if isinstance(other, Antichain) else NotImplemented

    def __hash__(self) -> int:
        return hash(self._times)

    def __repr__(self) -> str:
        return "{" + ", ".join(map(repr, self._times)) + "}"


def _checked(time: Iterable[int]) -> Time:
    """Convert a time to a tuple of Python integers."""
    try:
        return tuple(map(index, time))
    except TypeError:
        raise TimeError(
            f"not a time: {time!r}",
            detail="a time is a tuple of integers, such as (5, 0)",
            hint="pass the times as a list, or separately: Antichain.of((5, 0))",
        ) from None


def _minimal(times: Iterable[Time]) -> tuple[Time, ...]:
    """Return the minimal times, sorted."""
    minimal: list[Time] = []
    for time in sorted(set(times)):  # times before a time also sort before it
        if not any(lattice.less_equal(element, time) for element in minimal):
            minimal.append(time)
    return tuple(minimal)
