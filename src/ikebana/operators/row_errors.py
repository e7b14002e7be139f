"""Errors as data: for which rows of a dataflow an expression raises, and since when.

A row for which an expression or a user's function raises is left out of the operator's output. It becomes a `RowError`
in the `ErrorLog` of its dataflow, with the row's multiplicity: when the row is deleted, the operator computes the row
once more, for its retraction, and the error is retracted too. So the log is a collection like any other, and the result
of a dataflow is exact at an epoch if and only if the log is empty at that epoch.

A reduction has an error where its function raises for a group: from that time on until the group changes.

Each worker has a log of its own. An error that one worker has added may be retracted by another (rows of streams come
to any worker), so only the sum over all workers is meaningful.

Readers see a log as of an epoch. History that no reader can distinguish any more is added up.

Loops. A row that fails at some round is missing at the next round, where its error is retracted with it: the loop would
end without the row and without the error. So errors in loops keep their rounds, and an error at any round is an error
of the result (`result_errors`).

Cost: nothing while there are no errors; a Python object for each error.
"""

from __future__ import annotations

import itertools
import weakref
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from operator import le
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from ikebana.encoding.bad_rows import RowFailure
from ikebana.errors import EvaluationError
from ikebana.operators.changes import Changes

BINDING = "ikebana.binding"
"""The column with the execution of a prepared statement that a row belongs to; an error concerns that execution only.

Joins have several such columns, with equal values; their names start with this name.
"""

_SHOWN_CHARACTERS = 300
"""The number of characters of a row that an error shows."""


class RowError(NamedTuple):
    """Why an expression raises for a row; with the prepared statement's execution and the rounds of loops, if any."""

    binding: int | None
    reason: str
    row: str
    rounds: tuple[int, ...] = ()


Errors = Counter[RowError]
"""Errors with their multiplicities."""


class ErrorLog:
    """The errors of one dataflow on one worker, by the epochs at which they appear and disappear."""

    def __init__(self) -> None:
        self.epochs: dict[int, Errors] = {}
        """What changes at each epoch: empty as long as there were no errors."""
        self._readers: list[weakref.ref[ErrorReader]] = []

    def __len__(self) -> int:
        return sum(map(len, self.epochs.values())) if self.epochs else 0

    def add(self, error: RowError, epoch: int, diff: int) -> None:
        """Add an error at an epoch, or retract it with a negative diff."""
        errors = self.epochs.setdefault(epoch, Counter())
        errors[error] += diff
        if not errors[error]:
            del errors[error]

    def add_rows(self, changes: Changes, failures: Sequence[RowFailure]) -> None:
        """Add the errors of the rows of some changes that failed."""
        if failures:
            rows = changes.take(np.array([failure.row for failure in failures]))
            times, diffs = rows.times[rows.tix].tolist(), rows.diffs[0].tolist()
            for error, (epoch, *rounds), diff in zip(row_errors(failures, rows.named), times, diffs, strict=True):
                self.add(error._replace(rounds=tuple(rounds)), epoch, diff)

    def reader(self) -> ErrorReader:
        """A new reader, which sees the log from its beginning."""
        reader = ErrorReader(self)
        self._readers.append(weakref.ref(reader, self._readers.remove))
        return reader

    def since(self, first: int, upper: int) -> Iterator[tuple[int, Errors]]:
        """The changes at epochs in [first, upper), in order."""
        return iter(sorted((epoch, errors) for epoch, errors in self.epochs.items() if first <= epoch < upper))

    def changed_since(self, epoch: int) -> bool:
        """Whether errors change at an epoch or later."""
        return any(epoch <= changed for changed in self.epochs)

    def compact(self) -> None:
        """Add up the epochs that no reader can distinguish any more."""
        readers = [reader for reference in self._readers if (reader := reference()) is not None]
        if not readers:
            return
        least = min([reader.since for reader in readers])
        old = [epoch for epoch in self.epochs if epoch <= least]
        if len(old) > 1 or any(not self.epochs[epoch] for epoch in old):
            total = _sum(self.epochs.pop(epoch) for epoch in old)
            if total:
                self.epochs[max(old)] = total


class ErrorReader:
    """Reads the errors of a dataflow at its own pace."""

    def __init__(self, log: ErrorLog) -> None:
        self.log, self.since = log, -1
        """The reader can distinguish the epochs from `since` on."""

    def clone(self) -> ErrorReader:
        """Another reader at the same epoch."""
        reader = self.log.reader()
        reader.since = self.since
        return reader

    def at(self, epoch: int) -> Errors:
        """The errors at an epoch."""
        return _sum(errors for _, errors in self.log.since(-1, epoch + 1)) if len(self.log) else Counter()

    def forget(self, epoch: int) -> None:
        """Give up distinguishing the epochs before `epoch`."""
        self.since = max(self.since, epoch)
        if len(self.log):
            self.log.compact()


def errors_at(readers: Sequence[ErrorReader], epoch: int) -> Errors:
    """The errors of several dataflows at an epoch."""
    logged = [reader for reader in readers if len(reader.log)]
    return _sum(reader.at(epoch) for reader in logged) if logged else Counter()


def result_errors(errors: Errors, binding: int | None = None) -> Errors:
    """The errors of a result, given the sum of the errors of all workers.

    With `binding`, only errors of these parameter values of a prepared statement, and errors that concern all values.
    """
    if binding is not None:
        errors = Counter({error: diff for error, diff in errors.items() if error.binding in (None, binding)})
    plain: Errors = Counter()
    in_loops: dict[RowError, dict[tuple[int, ...], int]] = {}
    for error, diff in errors.items():
        if error.rounds:
            in_loops.setdefault(error._replace(rounds=()), {})[error.rounds] = diff
        else:
            plain[error] += diff
    plain.update(error for error, history in in_loops.items() if _is_ever_present(history))
    return plain


def _is_ever_present(history: Mapping[tuple[int, ...], int]) -> bool:
    """Whether an error with these diffs by rounds is present at some round."""
    for at in itertools.product(*({rounds[depth] for rounds in history} for depth in range(len(next(iter(history)))))):
        if sum(diff for rounds, diff in history.items() if all(map(le, rounds, at))):
            return True
    return False


def exception_of(view: str, errors: Errors) -> EvaluationError:
    """The exception for readers of a view with errors."""
    first = min(errors, key=lambda error: (error.reason, error.row))
    more = f"; and {len(errors) - 1} more like that or for other reasons" if len(errors) > 1 else ""
    return EvaluationError(
        f"view {view!r} has no answer: {first.reason}",
        detail=f"in the row {first.row}{more}" if first.row else more.removeprefix("; "),
        hint="correct or delete the row, and the view answers again by itself; errors() lists all such rows",
    )


def raise_errors(view: str, parts: Iterable[Errors], binding: int | None = None) -> None:
    """Raise an exception if a view has errors, given the errors of each worker."""
    errors = total_errors(parts)
    remaining = result_errors(errors, binding) if errors else errors
    if remaining:
        raise exception_of(view, remaining)


def total_errors(parts: Iterable[Errors]) -> Errors:
    """The sum of the errors of several workers."""
    return _sum(part for part in parts if part)


def _sum(parts: Iterable[Errors]) -> Errors:
    total: Errors = Counter()
    for part in parts:
        total.update(part)
    return Counter({error: diff for error, diff in total.items() if diff})


def row_errors(failures: Sequence[RowFailure], columns: Mapping[str, pa.Array]) -> list[RowError]:
    """The errors of some failed rows, given the columns of these rows."""
    values = {name: column.to_pylist() for name, column in columns.items()}
    bindings = [None] * len(failures)
    for name in [name for name in values if name.startswith(BINDING)]:
        bindings = values.pop(name)
    errors = []
    for at, (failure, binding) in enumerate(zip(failures, bindings, strict=True)):
        row = ", ".join(f"{name} = {column[at]!r}" for name, column in values.items())
        errors.append(
            RowError(binding, failure.reason, row if len(row) <= _SHOWN_CHARACTERS else f"{row[:_SHOWN_CHARACTERS]}...")
        )
    return errors
