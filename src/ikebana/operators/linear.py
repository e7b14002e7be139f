"""Linear operators: map, filter, flat_map, negate, explode, inspect, concat and others. They keep no state.

A *step* is a function from changes to changes. `Linear` runs a chain of steps in one operator, so that a chain costs no
more than its functions. Users' functions work on whole columns: they take columns by name, and return columns.

Contract: a step treats each update by itself, and does not change times. A row for which a step raises is left out, and
is an error of the dataflow (`ikebana.operators.row_errors`).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Protocol, runtime_checkable

import numpy as np
import pyarrow as pa

from ikebana.encoding.bad_rows import RowFailure, separate_bad_rows
from ikebana.errors import SchemaError
from ikebana.kernels import opcodes
from ikebana.operators.changes import Changes, Fields, checked_columns
from ikebana.operators.grouping import added_up, few_groups
from ikebana.operators.pacing import Pace
from ikebana.operators.program import ProgramBuilder
from ikebana.operators.protocol import Operator
from ikebana.operators.registers import ColumnSlots, Rows
from ikebana.operators.row_errors import ErrorLog
from ikebana.operators.span import Span
from ikebana.operators.streams import Stream
from ikebana.trace.views import row_flags

Columns = dict[str, pa.Array]


class Step(ABC):
    """A function from changes to changes."""

    @property
    def label(self) -> str:
        """What `explain` calls it."""
        return type(self).__name__.lower()

    @property
    def calls_users(self) -> bool:
        """Whether it calls functions of the user's, which may be slow."""
        return False

    @abstractmethod
    def fields(self, given: Fields) -> Fields:
        """The columns of the result, for changes with the columns `given`."""

    @abstractmethod
    def __call__(self, changes: Changes) -> Changes:
        """The result for some changes."""

    def lanes_of(self, given: int) -> int:
        """The number of diff lanes of the result, for changes that have so many."""
        return given

    def lower(self, program: ProgramBuilder, rows: Rows) -> Rows | None:
        """Write the step as instructions of a program; return the register of the result, or None if it cannot be.

        Unless it says how, programs call a step that calls no functions of the user's.
        """
        return None if self.calls_users else self.called(program, rows)

    def called(self, program: ProgramBuilder, rows: Rows) -> Rows:
        """Write the step as a call."""
        return program.called(rows, self.fields(rows.fields), self, self.lanes_of(len(rows.diffs)))

    is_selective: ClassVar[bool] = False
    """Whether it leaves out rows, and does nothing else to their number."""

    def origin(self, name: str) -> str | None:
        """The column whose values a column of the result has; None if they are computed, or the rows are others."""
        return None


class ColumnsKept(Step):
    """A step that leaves the values of all columns as they are, as far as the result has them."""

    def origin(self, name: str) -> str | None:
        return name


@dataclass(frozen=True)
class Map(Step):
    """The columns replaced by those that `function` computes from them."""

    outputs: Fields
    function: Callable[[Columns], Mapping[str, Any]]

    calls_users = True

    def fields(self, given: Fields) -> Fields:
        return self.outputs

    def __call__(self, changes: Changes) -> Changes:
        columns = checked_columns(self.function(changes.named), self.outputs, len(changes), "map")
        return changes.with_columns(self.outputs, columns)

    def lower(self, program: ProgramBuilder, rows: Rows) -> Rows | None:
        if not isinstance(self.function, LoweredColumns):
            return None
        columns = self.function.lower(program, rows)
        return self.called(program, rows) if columns is None else replace(rows, fields=self.outputs, columns=columns)


@runtime_checkable
class LoweredColumns(Protocol):
    """A function of ours for `Map`, which can be written as instructions of a program."""

    def lower(self, program: ProgramBuilder, rows: Rows) -> dict[str, ColumnSlots] | None:
        """The slots of the columns; None if they cannot be written, so that programs call the function."""
        ...


@dataclass(frozen=True)
class Select(Step):
    """Some of the columns, as pairs (new name, present name)."""

    names: tuple[tuple[str, str], ...]

    def fields(self, given: Fields) -> Fields:
        fields = {field.name: field for field in given}
        return tuple(fields[source].with_name(name) for name, source in self.names)

    def __call__(self, changes: Changes) -> Changes:
        return self.bound(changes.fields, self.fields(changes.fields))(changes)

    def bound(self, given: Fields, result: Fields) -> Callable[[Changes], Changes]:
        """The step from the columns `given` to the columns `result`, whose positions are looked up once."""
        at = {field.name: position for position, field in enumerate(given)}
        positions = [at[source] for _, source in self.names]
        return lambda changes: changes.with_columns(result, [changes.columns[position] for position in positions])

    def origin(self, name: str) -> str | None:
        return dict(self.names)[name]

    def lower(self, program: ProgramBuilder, rows: Rows) -> Rows | None:
        columns = {name: rows.columns[source] for name, source in self.names}
        return replace(rows, fields=self.fields(rows.fields), columns=columns)


@dataclass(frozen=True)
class Declare(ColumnsKept):
    """The same columns with other fields, which differ only in whether they may be null."""

    outputs: Fields

    def fields(self, given: Fields) -> Fields:
        return self.outputs

    def __call__(self, changes: Changes) -> Changes:
        return changes.with_columns(self.outputs, changes.columns)

    def lower(self, program: ProgramBuilder, rows: Rows) -> Rows | None:
        given = (rows.columns[field.name] for field in rows.fields)
        columns = {field.name: column for field, column in zip(self.outputs, given, strict=True)}
        return replace(rows, fields=self.outputs, columns=columns)


@dataclass(frozen=True)
class Filter(ColumnsKept):
    """The rows for which `predicate` is true, and not null."""

    predicate: Callable[[Columns], Any]

    calls_users = True
    is_selective = True

    def fields(self, given: Fields) -> Fields:
        return given

    def __call__(self, changes: Changes) -> Changes:
        return changes.where(row_flags(self.predicate(changes.named), len(changes)))


@dataclass(frozen=True)
class FlatMap(Step):
    """Each row replaced by any number of rows.

    `function` takes the columns and the number of rows. It returns, for each output row, the position of the input row
    that it comes from (in any order), and the output columns.
    """

    outputs: Fields
    function: Callable[[Columns, int], tuple[Sequence[int], Mapping[str, Any]]]

    calls_users = True

    def fields(self, given: Fields) -> Fields:
        return self.outputs

    def __call__(self, changes: Changes) -> Changes:
        rows, outputs = self.function(changes.named, len(changes))
        origin = np.asarray(rows, np.int64)
        columns = checked_columns(outputs, self.outputs, len(origin), "flat_map")
        if len(origin) and (origin.min() < 0 or origin.max() >= len(changes)):
            raise SchemaError(
                "the function given to flat_map returned the position of a row that does not exist",
                detail=f"it was given {len(changes)} rows",
                hint="return for each output row the position of its input row, from 0 on",
            )
        return changes.with_columns((), ()).take(origin).with_columns(self.outputs, columns)


@dataclass(frozen=True)
class CalledFlatMap(FlatMap):
    """A `FlatMap` by a function of ours, which programs call."""

    calls_users = False
    label = "flatmap"


@dataclass(frozen=True)
class RowByRow:
    """A function for `FlatMap`: applies a Python function from a row (a dict) to rows (tuples or dicts)."""

    outputs: Fields
    function: Callable[[dict[str, Any]], Iterable[Any]]

    def __call__(self, columns: Columns, count: int) -> tuple[list[int], dict[str, Any]]:
        names = [field.name for field in self.outputs]
        origin, results = [], []
        rows = zip(*(column.to_pylist() for column in columns.values()), strict=True) if columns else [()] * count
        for at, row in enumerate(rows):
            for out in self.function(dict(zip(columns, row, strict=True))):
                origin.append(at)
                results.append(tuple(out[name] for name in names) if isinstance(out, Mapping) else out)
        return origin, {name: [row[at] for row in results] for at, name in enumerate(names)}


@dataclass(frozen=True)
class Negate(ColumnsKept):
    """Every diff with its sign changed."""

    def fields(self, given: Fields) -> Fields:
        return given

    def __call__(self, changes: Changes) -> Changes:
        return changes.negated()

    def lower(self, program: ProgramBuilder, rows: Rows) -> Rows | None:
        diffs = program.some_slots(len(rows.diffs))
        for from_, to in zip(rows.diffs, diffs, strict=True):
            program.emit(opcodes.NEGATE, rows.count, from_, to)
        return replace(rows, diffs=diffs)


@dataclass(frozen=True)
class Explode(ColumnsKept):
    """Every diff multiplied by integers computed from the row, one for each diff lane of the output.

    If the columns that are kept have few different values, changes with equal ones are added up.
    """

    function: Callable[[Columns], Sequence[Any]]
    keep: tuple[str, ...]

    calls_users = True

    def fields(self, given: Fields) -> Fields:
        fields = {field.name: field for field in given}
        return tuple(fields[name] for name in self.keep)

    def __call__(self, changes: Changes) -> Changes:
        factors = [np.broadcast_to(np.asarray(lane), len(changes)) for lane in self.function(changes.named)]
        if any(lane.dtype.kind not in "iub" for lane in factors):
            raise SchemaError(
                "the function given to explode must return integers",
                detail=f"it returned {', '.join(str(lane.dtype) for lane in factors)}",
                hint="multiplicities are integers: scale decimals first",
            )
        lanes = [lane.astype(np.int64, copy=False) for lane in factors]
        selected = Select(tuple((name, name) for name in self.keep))(changes)
        groups = few_groups(selected)
        return selected.scaled(np.stack(lanes)) if groups is None else added_up(selected, groups, lanes)

    def lower(self, program: ProgramBuilder, rows: Rows) -> Rows | None:
        if not isinstance(self.function, LoweredLanes) or len(rows.diffs) != 1:
            return None
        factors = self.function.lower(program, rows)
        if factors is None:
            return None
        (diff,) = rows.diffs
        diffs = [diff, *(program.multiplied(rows.count, diff, factor) for factor in factors)]
        return replace(rows.select(self.keep), fields=self.fields(rows.fields), diffs=tuple(diffs))


@runtime_checkable
class LoweredLanes(Protocol):
    """A function for `Explode` that can be written as instructions of a program; its first lane counts rows."""

    def lower(self, program: ProgramBuilder, rows: Rows) -> list[int] | None:
        """The slots of the other lanes; None if they cannot be written."""
        ...


@dataclass(frozen=True)
class ColumnLanes:
    """A function for `Explode`: 1, which counts rows, and the values of some columns of integers."""

    columns: tuple[str, ...]

    def __call__(self, columns: Columns) -> list[Any]:
        return [1, *(columns[name].to_numpy(zero_copy_only=False) for name in self.columns)]

    def lower(self, program: ProgramBuilder, rows: Rows) -> list[int] | None:
        summed = [field for field in rows.fields if field.name in self.columns]
        if any(field.nullable or not pa.types.is_signed_integer(field.type) for field in summed):
            return None
        return [rows.columns[name].value for name in self.columns]


@dataclass(frozen=True)
class Inspect(ColumnsKept):
    """Calls a function with the changes, and passes them on."""

    function: Callable[[Changes], object]

    calls_users = True

    def fields(self, given: Fields) -> Fields:
        return given

    def __call__(self, changes: Changes) -> Changes:
        if len(changes):
            self.function(changes)
        return changes


@dataclass(frozen=True)
class Consolidate(ColumnsKept):
    """Adds up the equal updates of a visit."""

    def fields(self, given: Fields) -> Fields:
        return given

    def __call__(self, changes: Changes) -> Changes:
        return changes.consolidated() if len(changes) else changes

    def lower(self, program: ProgramBuilder, rows: Rows) -> Rows | None:
        return program.consolidated(rows)


class Linear(Operator[Stream]):
    """Runs a chain of steps; `stages` are the columns before the first step and after each step."""

    def __init__(
        self, source: Stream, steps: Sequence[Step], stages: Sequence[Fields], lanes: int, errors: ErrorLog
    ) -> None:
        self._source, self._errors = source, errors
        self._pace = Pace(calls_users=any(step.calls_users for step in steps))
        self._declared = steps
        self._steps: list[Callable[[Changes], Changes]] = [
            step.bound(given, result) if isinstance(step, Select) else step
            for step, given, result in zip(steps, stages[:-1], stages[1:], strict=True)
        ]
        self.out = Stream(stages[-1], source.dimensions, lanes)

    def visit(self, span: Span) -> Iterator[None]:
        """Run the chain, a piece of the changes at a time."""
        parts: list[Changes] = []
        for changes in self._source.parts:
            if parts:
                yield
            for start, end in self._pace.pieces(len(changes)):
                parts.append(self._run(changes.slice(start, end)))
                if self._pace.is_due(end - start):
                    yield
        self.out.parts = parts

    def _run(self, given: Changes) -> Changes:
        changes = given
        try:
            for step in self._steps:
                changes = step(changes)
        except Exception:
            return self._without_bad_rows(given)
        return changes

    def _without_bad_rows(self, given: Changes) -> Changes:
        """Run the chain step by step, and log the rows for which a step raises.

        An error shows the row that the chain was given, since steps drop columns. Steps do not change times: if every
        row has a time of its own, the position of a row's time identifies the given row that it comes from.
        """
        changes = replace(given, times=given.times[given.tix], tix=np.arange(len(given), dtype=np.int32))
        for step in self._steps:
            changes, failures = _set_apart(step, changes)
            self._errors.add_rows(given, failures)
            if not len(changes):
                return self.out.empty
        return replace(changes, times=given.times, tix=given.tix[changes.tix])

    def forget(self, epoch: int) -> None:
        self.out.closed = self._source.closed

    def lower(self, program: ProgramBuilder) -> bool:
        rows = program.stream(self._source)
        for step in self._declared:
            rows = None if rows is None else step.lower(program, rows)
        return program.write(self.out, rows)


def _set_apart(step: Callable[[Changes], Changes], changes: Changes) -> tuple[Changes, list[RowFailure]]:
    """The step's result for the rows for which it does not raise, and the failures, by position in the given rows."""
    result, _, failures = separate_bad_rows(
        lambda rows: step(changes.take(rows)), len(changes), lambda: changes.take(np.empty(0, np.int64))
    )
    return result, [replace(failure, row=int(changes.tix[failure.row])) for failure in failures]


class AfterStart(Operator[Stream]):
    """The changes of a stream after the epoch at which the dataflow starts."""

    def __init__(self, source: Stream) -> None:
        self._source = source
        self.out = Stream(source.fields, source.dimensions, source.lanes)

    def visit(self, span: Span) -> None:
        changes = self._source.changes
        self.out.changes = changes.at_times(span.after_start(changes.times))

    def forget(self, epoch: int) -> None:
        self.out.closed = self._source.closed

    def lower(self, program: ProgramBuilder) -> bool:
        """Programs run after the first sweep, when all changes are after the start."""
        return program.write(self.out, program.stream(self._source))


class Concat(Operator[Stream]):
    """The changes of several streams with the same columns."""

    def __init__(self, sources: Sequence[Stream]) -> None:
        self._sources = tuple(sources)
        first = sources[0]
        self.out = Stream(first.fields, first.dimensions, first.lanes)

    def visit(self, span: Span) -> None:
        self.out.parts = [part for source in self._sources for part in source.parts]

    def forget(self, epoch: int) -> None:
        self.out.closed = all(source.closed for source in self._sources)

    def lower(self, program: ProgramBuilder) -> bool:
        sources = [rows for rows in map(program.stream, self._sources) if rows is not None]
        return len(sources) == len(self._sources) and program.write(self.out, program.concat(sources, self.out.fields))
