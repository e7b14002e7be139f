"""What can go wrong, and what to do about it.

Every error that Ikebana raises on purpose is an `IkebanaError` and carries three parts:
*what* failed (naming the thing the user named), *detail* (the fact that made it fail) and *hint*
(what to do about it). They print one below the other:

    cannot read trace "edges" at (3, 0)
      detail: its handle's frontier is {(5, 0)}
      hint: read at or after (5, 0), or keep a handle that has not advanced so far

The tree, so that a caller can catch as much or as little as it means to:

    IkebanaError
    ├── SchemaError     columns that do not fit: ragged, missing, of a wrong type, null where none may be
    ├── TimeError       a time of the wrong shape, behind a frontier, or a frontier that moves backwards
    ├── DroppedError    a handle or an operator used after it was dropped
    ├── DataflowError   a dataflow that failed, or is not there
    ├── ChangeError     changes that a table refuses: a key that exists already, a row to delete that does not
    ├── SqlError        a query that cannot be maintained: what is not supported, and where it stands
    ├── WaitTimeoutError  a call that took longer than its `timeout`; a TimeoutError too
    ├── MemoryBudgetError   a dataflow that would use more memory than it may
    └── EvaluationError an expression that has no value for a row: an overflow, a division by zero, a failed cast

`ConstantRowsWarning` is a warning, given where a view is probably not what its author meant.

Raising one leaves the object that raised it as it was: validation comes before any change.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any


class IkebanaError(Exception):
    """Base of all errors raised on purpose; `what`, `detail` and `hint` are also attributes."""

    def __init__(self, what: str, *, detail: str = "", hint: str = "") -> None:
        self.what, self.detail, self.hint = what, detail, hint
        super().__init__(what, detail, hint)

    def __reduce__(self) -> Any:
        return _remade, (type(self), self.what, self.detail, self.hint)

    def __str__(self) -> str:
        lines = [self.what]
        if self.detail:
            lines.append(f"  detail: {self.detail}")
        if self.hint:
            lines.append(f"  hint: {self.hint}")
        return "\n".join(lines)


def _remade(kind: type[IkebanaError], what: str, detail: str, hint: str) -> IkebanaError:
    """An error again, in another process."""
    return kind(what, detail=detail, hint=hint)


class SchemaError(IkebanaError):
    """Columns that do not fit the schema they are offered to."""


class TimeError(IkebanaError):
    """A time or frontier that is malformed, or on the wrong side of another."""


class DroppedError(IkebanaError):
    """Something was used after it was dropped or closed."""


class DataflowError(IkebanaError):
    """A dataflow failed, was retired, or never existed."""


class ChangeError(IkebanaError):
    """Changes that a table refuses. Nothing of their transaction was applied."""


class SqlError(IkebanaError):
    """A query that cannot be maintained. Nothing was installed."""


class WaitTimeoutError(IkebanaError, TimeoutError):
    """A call took longer than its `timeout`. What it has begun goes on or was taken back; nothing is half done."""


class ConstantRowsWarning(UserWarning):
    """A view has rows that never change, since they were computed before it was made."""


class MemoryBudgetError(IkebanaError):
    """A dataflow would use more memory than it may. It fails alone."""


class EvaluationError(IkebanaError):
    """An expression has no value for some row: a view of it has no answer while the row is there.

    Inside workers: `bad_entries` says which entries of a function's arguments are to blame, if it knows, and `bad_rows`
    (`ikebana.encoding.bad_rows`) which rows are.
    """

    bad_entries: BadEntries | None = None
    bad_rows: Any = None


@dataclass(frozen=True, slots=True, eq=False)
class BadEntries:
    """Entries, of so many, for which a function has no value, and the error of each."""

    entries: Any  # a NumPy array of positions
    count: int
    why: Callable[[int], EvaluationError]
