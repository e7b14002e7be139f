"""Rows for which a function raises, set apart from the others.

Functions of users, and expressions, are computed for many rows at once, and one bad row makes them raise for all.
`set_apart` finds the rows that are to blame and computes the function for the others.

A function that knows which rows are to blame says so: its exception has an attribute `bad_rows`, a `BadRows`. Otherwise
they are found by bisection: the function is computed for halves of the rows, and halves of these.

Contract: the function treats each row by itself. An exception that no row is to blame for (a function that gives
columns of a wrong type, memory that has run out, a bug that only shows for several rows together) is raised.

Cost: nothing where nothing is raised. Else, with k bad rows of n, in the order of k log n calls; `MOST` bounds k.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

import numpy as np

from ikebana.encoding.lanes import Lane
from ikebana.errors import IkebanaError, SchemaError

T = TypeVar("T")

MOST = 10_000
"""So many bad rows are found by bisection; a function that fails for more fails as a whole."""

_NOT_OF_A_ROW = (SchemaError, MemoryError)


@dataclass(frozen=True, slots=True, eq=False)
class BadRows:
    """Which of the rows that a function was given are to blame, and why: the exception of each, by its position."""

    rows: Lane
    why: Callable[[int], Exception]


@dataclass(frozen=True, slots=True)
class Failure:
    """A row for which a function has no value, and why."""

    row: int
    reason: str


def set_apart(function: Callable[[Lane], T], count: int, nothing: Callable[[], T]) -> tuple[T, Lane, list[Failure]]:
    """What a function of row positions gives for the rows for which it does not raise; these rows; and the others.

    If it raises for all of them, that is `nothing`: functions are not called without rows.
    """
    good, failures = np.arange(count), list[Failure]()
    while True:
        try:
            return function(good) if len(good) else nothing(), good, failures
        except _NOT_OF_A_ROW:
            raise
        except Exception as error:
            found = _bad_rows(function, good, error, MOST)
            if not found:
                raise
            failures += found
            good = np.setdiff1d(good, [each.row for each in found], assume_unique=True)


def _bad_rows(function: Callable[[Lane], object], rows: Lane, error: Exception, most: int) -> list[Failure]:
    """Those of some rows that are to blame for an error."""
    bad: BadRows | None = getattr(error, "bad_rows", None)
    if bad is not None:
        return [Failure(int(rows[row]), reason_of(bad.why(at))) for at, row in enumerate(bad.rows.tolist())]
    if len(rows) == 1:
        return [Failure(int(rows[0]), reason_of(error))]
    found: list[Failure] = []
    for part in np.array_split(rows, 2):
        try:
            function(part)
        except _NOT_OF_A_ROW:
            raise
        except Exception as inner:
            found += _bad_rows(function, part, inner, most - len(found))
            if len(found) >= most:
                raise error from None
    return found


def reason_of(error: Exception) -> str:
    """An exception in one line."""
    if not isinstance(error, IkebanaError):
        return f"{type(error).__name__}: {error}"
    return f"{error.what}: {error.detail}" if error.detail else error.what
