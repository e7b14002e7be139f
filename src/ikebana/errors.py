"""The exceptions of Ikebana.

Every error that Ikebana raises deliberately is an `IkebanaError` and has three parts:
*what* failed (with the name that the user gave it), *detail* (the reason) and *hint*
(what to do about it). They are printed one below the other:

    cannot read trace "edges" at (3, 0)
      detail: its handle's frontier is {(5, 0)}
      hint: read at or after (5, 0), or keep a handle with an earlier frontier

The hierarchy:

    IkebanaError
    ├── SchemaError     columns that do not fit: of other lengths or types, missing, null in a column that is not null
    ├── TimeError       a time of the wrong shape, behind a frontier, or a frontier that moves backwards
    ├── DroppedError    a handle or an operator used after it was dropped
    ├── DataflowError   a dataflow that failed or does not exist
    ├── ChangeError     changes that a table rejects: inserting a duplicate key, deleting a row that does not exist
    ├── SqlError        a query that cannot be maintained, with the unsupported part
    ├── DatalogError    a Datalog program or a facts file that is not valid, with the place in it
    ├── MotifError      a motif of a graph that is not valid, with the place in it
    ├── WaitTimeoutError  a call that took longer than its `timeout`; a TimeoutError too
    ├── MemoryBudgetError   a dataflow that exceeds its memory limit
    ├── StorageError    a storage directory that cannot be read or written
    │   ├── CorruptionError     a stored file that is damaged, with the file and what is lost
    │   ├── StorageInUseError   a storage directory that another session uses, with its process and machine
    │   ├── FencedError         a storage directory that another session has taken over
    │   └── SignatureError      a stored object that was not signed with the owner's secret
    └── EvaluationError an expression that has no value for a row: an overflow, a division by zero, a failed cast

`ConstantRowsWarning` is a warning about a view that is probably not what its author intended.

An object that raises an error is unchanged: validation comes before any change.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any


class IkebanaError(Exception):
    """The base class of all deliberate errors, with the attributes `what`, `detail` and `hint`."""

    def __init__(self, what: str, *, detail: str = "", hint: str = "") -> None:
        self.what, self.detail, self.hint = what, detail, hint
        super().__init__(what, detail, hint)

    def __reduce__(self) -> Any:
        return _unpickled, (type(self), self.what, self.detail, self.hint)

    def __str__(self) -> str:
        lines = [self.what]
        if self.detail:
            lines.append(f"  detail: {self.detail}")
        if self.hint:
            lines.append(f"  hint: {self.hint}")
        return "\n".join(lines)


def _unpickled(kind: type[IkebanaError], what: str, detail: str, hint: str) -> IkebanaError:
    """Return an unpickled error."""
    return kind(what, detail=detail, hint=hint)


class SchemaError(IkebanaError):
    """Columns do not fit the schema."""


class TimeError(IkebanaError):
    """A time or frontier is malformed, or on the wrong side of another."""


class DroppedError(IkebanaError):
    """Something was used after it was dropped or closed."""


class DataflowError(IkebanaError):
    """A dataflow failed, was retired, or never existed."""


class WorkerLostError(DataflowError):
    """A worker has died, and what the workers held is gone. A transaction that raises this was not applied."""


class ChangeError(IkebanaError):
    """A table rejects changes. No change of their transaction was applied."""


class SqlError(IkebanaError):
    """A query cannot be maintained. Nothing was installed."""


class DatalogError(IkebanaError):
    """A Datalog program, query or facts file is not valid. Nothing was installed or applied.

    `position` is the place in the program (`ikebana.datalog.syntax.Position`), if there is one.
    """

    position: Any = None


class MotifError(IkebanaError):
    """A motif of a graph is not valid. Nothing was installed."""


class WaitTimeoutError(IkebanaError, TimeoutError):
    """A call exceeded its `timeout`. Its effects either take place later or were undone; none is left half done."""


class ConstantRowsWarning(UserWarning):
    """A view has rows that never change, because they were computed before the view was created."""


class MemoryBudgetError(IkebanaError):
    """A dataflow exceeds its memory limit. Only this dataflow fails."""


class StorageError(IkebanaError):
    """A storage directory cannot be read or written: no access, a full disk, an unknown format."""


class CorruptionError(StorageError):
    """A stored file, at `path` in the storage directory, is damaged or missing. Nothing of it was returned."""

    path: str = ""


class StorageInUseError(StorageError):
    """Another session, or a worker of an earlier one, uses the storage directory."""


class FencedError(StorageError):
    """Another session has taken over the storage directory. Nothing was written."""


class SignatureError(StorageError):
    """A stored object was not signed with the owner's secret. It was not unpickled."""


class EvaluationError(IkebanaError):
    """An expression has no value for some row: a view of it cannot be read while the row exists.

    Inside workers, `bad_entries` lists the bad entries of a function's arguments, if they are known, and `bad_rows`
    (`ikebana.encoding.bad_rows`) the bad rows.
    """

    bad_entries: BadEntries | None = None
    bad_rows: Any = None


@dataclass(frozen=True, slots=True, eq=False)
class BadEntries:
    """The entries, of `count`, for which a function has no value; `why` returns the error of one of them."""

    entries: Any  # a NumPy array of positions
    count: int
    why: Callable[[int], EvaluationError]
