"""Bad rows: the rows for which a function raises, separated from the others.

User functions and expressions are evaluated for many rows at once, and raise if one of the rows is bad.
`separate_bad_rows` finds the bad rows and evaluates the function for the others.

An exception may list the bad rows in an attribute `bad_rows`, a `BadRows`. Otherwise they are found by bisection: the
function is evaluated for each half of the rows, then for the halves of a half that fails, and so on.

Contract: the function treats each row by itself. An exception that no single row causes (a function that returns
columns of a wrong type, no memory left, a bug that only shows for several rows together) is raised.

Cost: nothing if the function does not raise. Otherwise, with k bad rows of n, about k log n calls; `MAX_BAD_ROWS`
bounds k.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

import numpy as np

from ikebana.encoding.lanes import Lane
from ikebana.errors import IkebanaError, SchemaError

T = TypeVar("T")

MAX_BAD_ROWS = 10_000
"""Bisection gives up at this number of bad rows: the error of the whole function is raised."""

_NOT_CAUSED_BY_A_ROW = (SchemaError, MemoryError)


@dataclass(frozen=True, slots=True, eq=False)
class BadRows:
    """The bad ones of the rows that a function was given; `why` returns the exception of the bad row at a position."""

    rows: Lane
    why: Callable[[int], Exception]


@dataclass(frozen=True, slots=True)
class RowFailure:
    """A row for which a function has no value, and the reason."""

    row: int
    reason: str


def separate_bad_rows(
    function: Callable[[Lane], T], count: int, nothing: Callable[[], T]
) -> tuple[T, Lane, list[RowFailure]]:
    """Return the result of a function of row positions for the good rows, the good rows, and the failures.

    If all rows are bad, the result is that of `nothing`: functions are not called without rows.
    """
    good, failures = np.arange(count), list[RowFailure]()
    while True:
        try:
            return function(good) if len(good) else nothing(), good, failures
        except _NOT_CAUSED_BY_A_ROW:
            raise
        except Exception as error:
            new = _bad_rows(function, good, error, MAX_BAD_ROWS)
            if not new:
                raise
            failures += new
            good = np.setdiff1d(good, [failure.row for failure in new], assume_unique=True)


def _bad_rows(function: Callable[[Lane], object], rows: Lane, error: Exception, most: int) -> list[RowFailure]:
    """Return the rows that cause an error."""
    bad: BadRows | None = getattr(error, "bad_rows", None)
    if bad is not None:
        return [RowFailure(int(rows[row]), reason_of(bad.why(at))) for at, row in enumerate(bad.rows.tolist())]
    if len(rows) == 1:
        return [RowFailure(int(rows[0]), reason_of(error))]
    failures: list[RowFailure] = []
    for part in np.array_split(rows, 2):
        try:
            function(part)
        except _NOT_CAUSED_BY_A_ROW:
            raise
        except Exception as inner:
            failures += _bad_rows(function, part, inner, most - len(failures))
            if len(failures) >= most:
                raise error from None
    return failures


def reason_of(error: Exception) -> str:
    """Return the message of an exception in one line."""
    if not isinstance(error, IkebanaError):
        return f"{type(error).__name__}: {error}"
    return f"{error.what}: {error.detail}" if error.detail else error.what
