"""Errors as data: which rows of a dataflow have no value, and since when.

A row for which an expression or a function of the user's raises is left out of what the operator puts out, and becomes
a `RowError` in the `ErrorLog` of its dataflow, with the row's own multiplicity: when the row is deleted the operator
computes it once more, for its retraction, and the error is taken away again. So the log is a collection like any other,
and a dataflow's result is exact exactly when the log is empty, at each epoch.

A reduction has an error where its function raises for a group: from that time on until the group changes.

Each worker has the log of its own share. What one worker has added another may take away (rows of streams come to any
worker), so only the sum over all workers counts.

Readers see a log as of an epoch. History that no reader looks at any more is added up.

Loops. A row without a value at some round is missing in the next, where its error goes away with it: the loop would end
without either. So errors in loops keep their rounds, and an error at any round is one of the result (`present`).

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

from ikebana.encoding.bad_rows import Failure
from ikebana.errors import EvaluationError
from ikebana.operators.changes import Changes

BINDING = "ikebana.opening"
"""The column that says to which opening of a prepared statement a row belongs; its errors are that opening's alone.

In joins such columns, which agree, have names that begin so.
"""

_LONGEST = 300
"""So many characters of a row are shown."""


class RowError(NamedTuple):
    """Why a row has no value; the opening of a prepared statement and the rounds of loops it belongs to, if any."""

    opening: int | None
    reason: str
    row: str
    rounds: tuple[int, ...] = ()


Errors = Counter[RowError]
"""Errors, and how often each is there."""


class ErrorLog:
    """The errors of one dataflow on one worker, by the epochs at which they come and go."""

    def __init__(self) -> None:
        self._epochs: dict[int, Errors] = {}
        self._readers: weakref.WeakSet[ErrorReader] = weakref.WeakSet()

    def __len__(self) -> int:
        return sum(map(len, self._epochs.values()))

    def add(self, error: RowError, epoch: int, diff: int) -> None:
        """An error comes (or goes, with a negative diff)."""
        errors = self._epochs.setdefault(epoch, Counter())
        errors[error] += diff
        if not errors[error]:
            del errors[error]

    def add_rows(self, changes: Changes, failures: Sequence[Failure]) -> None:
        """Rows of some changes have no value."""
        if failures:
            rows = changes.take(np.array([failure.row for failure in failures]))
            times, diffs = rows.times[rows.tix].tolist(), rows.diffs[0].tolist()
            for error, (epoch, *rounds), diff in zip(row_errors(failures, rows.named), times, diffs, strict=True):
                self.add(error._replace(rounds=tuple(rounds)), epoch, diff)

    def reader(self) -> ErrorReader:
        """A new reader, which has yet to see everything."""
        reader = ErrorReader(self)
        self._readers.add(reader)
        return reader

    def since(self, first: int, upper: int) -> Iterator[tuple[int, Errors]]:
        """What changes at epochs from `first` up to, and without, `upper`; in order."""
        return iter(sorted((epoch, errors) for epoch, errors in self._epochs.items() if first <= epoch < upper))

    def changed_since(self, epoch: int) -> bool:
        """Whether errors come or go at an epoch or later."""
        return any(epoch <= each for each in self._epochs)

    def compact(self) -> None:
        """Add up what no reader tells apart any more."""
        least = min((reader.since for reader in self._readers), default=None)
        if least is None:
            return
        old = [epoch for epoch in self._epochs if epoch <= least]
        if len(old) > 1 or any(not self._epochs[epoch] for epoch in old):
            total = _sum(self._epochs.pop(epoch) for epoch in old)
            if total:
                self._epochs[max(old)] = total


class ErrorReader:
    """One who reads the errors of a dataflow, at its own pace."""

    def __init__(self, log: ErrorLog) -> None:
        self.log, self.since = log, -1
        """Epochs from `since` on can be told apart."""

    def clone(self) -> ErrorReader:
        """Another reader at the same epoch."""
        reader = self.log.reader()
        reader.since = self.since
        return reader

    def at(self, epoch: int) -> Errors:
        """The errors that are there at an epoch."""
        return _sum(errors for _, errors in self.log.since(-1, epoch + 1)) if len(self.log) else Counter()

    def forget(self, epoch: int) -> None:
        """Epochs before `epoch` need not be told apart any more."""
        self.since = max(self.since, epoch)
        if len(self.log):
            self.log.compact()


def errors_at(readers: Sequence[ErrorReader], epoch: int) -> Errors:
    """The errors of several dataflows at an epoch."""
    return _sum(reader.at(epoch) for reader in readers if len(reader.log))


def present(errors: Errors, opening: int | None = None) -> Errors:
    """The errors of a result, given all that are left when those of all workers are added up.

    With `opening`, those of one opening of a prepared statement, and those that concern all.
    """
    if opening is not None:
        errors = Counter({error: diff for error, diff in errors.items() if error.opening in (None, opening)})
    plain: Errors = Counter()
    in_loops: dict[RowError, dict[tuple[int, ...], int]] = {}
    for error, diff in errors.items():
        if error.rounds:
            in_loops.setdefault(error._replace(rounds=()), {})[error.rounds] = diff
        else:
            plain[error] += diff
    plain.update(error for error, history in in_loops.items() if _is_ever_there(history))
    return plain


def _is_ever_there(history: Mapping[tuple[int, ...], int]) -> bool:
    """Whether what has these diffs at these rounds is there at some round."""
    for at in itertools.product(*({rounds[depth] for rounds in history} for depth in range(len(next(iter(history)))))):
        if sum(diff for rounds, diff in history.items() if all(map(le, rounds, at))):
            return True
    return False


def exception_of(view: str, errors: Errors) -> EvaluationError:
    """What a reader of a view is told while there are errors."""
    first = min(errors, key=lambda error: (error.reason, error.row))
    more = f"; and {len(errors) - 1} more like that or for other reasons" if len(errors) > 1 else ""
    return EvaluationError(
        f"view {view!r} has no answer: {first.reason}",
        detail=f"in the row {first.row}{more}" if first.row else more.removeprefix("; "),
        hint="correct or delete the row, and the view answers again by itself; errors() lists all such rows",
    )


def raise_present(view: str, parts: Iterable[Errors], opening: int | None = None) -> None:
    """Raise if a view has errors, given those of each worker."""
    errors = total(parts)
    there = present(errors, opening) if errors else errors
    if there:
        raise exception_of(view, there)


def total(parts: Iterable[Errors]) -> Errors:
    """The errors that are left when those of several workers are added up."""
    return _sum(part for part in parts if part)


def _sum(parts: Iterable[Errors]) -> Errors:
    total: Errors = Counter()
    for part in parts:
        total.update(part)
    return Counter({error: diff for error, diff in total.items() if diff})


def row_errors(failures: Sequence[Failure], columns: Mapping[str, pa.Array]) -> list[RowError]:
    """The errors of some rows, of which the columns are given."""
    values = {name: column.to_pylist() for name, column in columns.items()}
    openings = [None] * len(failures)
    for name in [name for name in values if name.startswith(BINDING)]:
        openings = values.pop(name)
    errors = []
    for at, (failure, opening) in enumerate(zip(failures, openings, strict=True)):
        row = ", ".join(f"{name} = {column[at]!r}" for name, column in values.items())
        errors.append(RowError(opening, failure.reason, row if len(row) <= _LONGEST else f"{row[:_LONGEST]}..."))
    return errors
