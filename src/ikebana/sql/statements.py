"""Prepared statements: one dataflow for all parameter values of a query.

    statement = Statement(engine, "by customer", planned, parameters, tables)
    statement.read(customer=7)                # the answer for these values, now

    orders = statement.open(customer=7)       # an answer that is kept up to date
    orders.to_arrow()
    orders.close()

A *binding* is a set of parameter values. The parameters are a table with a row for each binding, and the query is
joined with it: each row of the result belongs to a binding, and groups, limits and windows are evaluated separately for
each binding. So a thousand bindings share all indexes and operators, and a change costs time in proportion to the
results that it changes.

Opening and closing a binding is an epoch of its own, even inside a block of a transaction, so the result can be read at
once. Nothing has to be checked, because only the statement changes its table of parameters.

`read` does not need a binding if the statement selects rows of one table by key (`ikebana.sql.lowering.key_lookups`).
Otherwise it opens one, together with those of other threads, and keeps it open for a while
(`ikebana.sql.statement_reads`).

Cost: opening and closing is a command to the workers, for any number of bindings, and its consequences. Reading is a
look-up in the result, which is indexed by binding. The changes of a binding are sent by the workers to the iterators
over that binding only.

Errors. A binding has the errors of its own rows, and of rows that depend on no parameter: a bad parameter value is an
error of its own binding only.
"""

from __future__ import annotations

import itertools
import threading
import weakref
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Self

import pyarrow as pa
import pyarrow.compute as pc

from ikebana.encoding.columns import match_columns
from ikebana.engine import Engine, View
from ikebana.engine.deadline import Deadline
from ikebana.engine.subscriptions import Subscription
from ikebana.engine.views import plain_rows
from ikebana.errors import DroppedError, SchemaError, SqlError
from ikebana.reducers.ordering import sort_table
from ikebana.sql.lowering.key_lookups import key_lookup
from ikebana.sql.lowering.query import lower
from ikebana.sql.planned import PARAMETERS, Planned
from ikebana.sql.relation import BINDING_ID, SourceTable
from ikebana.sql.statement_reads import StatementReads, Values

KEEP = 100
"""The default number of sets of values that stay open after they were read."""


class _WithParameters(Mapping[str, SourceTable]):
    """Tables by name, and the table of parameters, which is not listed."""

    def __init__(self, tables: Mapping[str, SourceTable], parameters: SourceTable) -> None:
        self._tables, self._parameters = tables, parameters

    def __getitem__(self, name: str) -> SourceTable:
        return self._parameters if name == PARAMETERS else self._tables[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._tables)

    def __len__(self) -> int:
        return len(self._tables)


class Statement:
    """A query with parameters."""

    def __init__(
        self,
        engine: Engine,
        name: str,
        planned: Planned,
        parameters: Sequence[pa.Field],
        tables: Mapping[str, SourceTable],
        keep: int = KEEP,
    ) -> None:
        """`keep` is how many sets of values stay open after `read`, the most recently read ones."""
        self.name, self.parameters = name, tuple(parameters)
        self._engine = engine
        self.numbers = itertools.count(1)
        self._table = engine.table(f"parameters of {name}", [pa.field(BINDING_ID, pa.int64()), *parameters], BINDING_ID)
        try:
            with_parameters = _WithParameters(tables, SourceTable(PARAMETERS, self._table, (BINDING_ID,)))
            lowered = lower(planned, with_parameters)
            if BINDING_ID not in lowered.rows.columns:
                raise SqlError(
                    f"statement {name!r} has no parameters", hint="write parameters as :name, or create a view"
                )
            self.order = lowered.order
            self._lookup = key_lookup(planned, with_parameters)
            self._view = engine.install(name, lowered.rows.arrange(BINDING_ID))
        except BaseException:
            engine.drop_table(self._table.name)
            raise
        self.bindings: dict[int, Binding] = {}
        """The open bindings, by number."""
        self._by_values: dict[Hashable, Binding] = {}  # one of them for each set of values
        self._reads = StatementReads(self, keep)
        self._index: View | None = None  # the arrangement in which answers are looked up
        self._lock = threading.Lock()  # guards its creation
        self._closed = False

    @property
    def columns(self) -> list[str]:
        """The names of the result's columns."""
        return [field.name for field in self._view.plan.columns if field.name != BINDING_ID]

    @property
    def is_lookup(self) -> bool:
        """Whether `read` looks up rows of one table by key, and opens nothing."""
        return self._lookup is not None

    # Reading.

    def read(self, given: Mapping[str, Any] | None = None, /, **values: Any) -> pa.Table:
        """The answer for parameter values, now, as an Arrow table; values and `timeout` are given as to `open`.

        Any number of threads can read at once: values that have to be opened are opened together.
        """
        self._check()
        bound, timeout = self._arguments(given, values)
        deadline = self._engine.coordinator.deadline(timeout, f"reading statement {self.name!r}")
        if self._lookup is not None:
            return self._looked_up(bound, deadline)
        key = _key(bound)
        binding = self._by_values.get(key)
        if binding is not None:
            answer = self.rows_of(binding.number, None, deadline.seconds_left())
            if binding.number in self.bindings:
                return answer
        return self._reads.read(key, bound, deadline)

    def _looked_up(self, values: Values, deadline: Deadline) -> pa.Table:
        """The answer of a statement that selects rows by key."""
        assert self._lookup is not None
        key = {column: values[parameter] for column, parameter in self._lookup.key.items()}
        if any(value.null_count for value in key.values()):  # nothing is equal to null
            key = {column: value[:0] for column, value in key.items()}
        rows = self._source_index().find(key, timeout=deadline.seconds_left())
        answer = self._lookup.answer(plain_rows(rows, self.name), values)
        return sort_table(answer, self._lookup.order) if self._lookup.order else answer

    def _source_index(self) -> View:
        """The arrangement of the table by the columns of the key; the first call installs it."""
        if self._index is None:
            assert self._lookup is not None
            with self._lock:
                if self._index is None:
                    self._check()
                    arrangement = self._lookup.source.rows.arrange(*self._lookup.key)
                    self._index = self._engine.install(f"{self.name}: {self._lookup.source.name}", arrangement)
        return self._index

    # Opening.

    def open(self, given: Mapping[str, Any] | None = None, /, **values: Any) -> Binding:
        """Bind the parameters to values: the result for them is kept up to date until it is closed.

        Values are given by name, or as a mapping. `timeout` limits the seconds that opening may take; if the statement
        has a parameter of that name, `timeout` is its value, unless the mapping has one for it.
        """
        self._check()
        bound, timeout = self._arguments(given, values)
        return self._open([bound], timeout)[0]

    def open_many(self, many: Iterable[Mapping[str, Any]], *, timeout: float | None = None) -> list[Binding]:
        """Open a result for each of several mappings of values, all in one epoch; see `open`."""
        self._check()
        return self._open([self._bound(dict(values)) for values in many], timeout)

    def _open(self, many: Sequence[Values], timeout: float | None) -> list[Binding]:
        deadline = self._engine.coordinator.deadline(timeout, f"opening statement {self.name!r}")
        bindings = [Binding(self, self.new_number(), values) for values in many]
        self.change({binding.number: binding.bound for binding in bindings}, {}, deadline)
        for binding in bindings:
            self.bindings[binding.number] = self._by_values[_key(binding.bound)] = binding
        return bindings

    def _arguments(self, given: Mapping[str, Any] | None, values: dict[str, Any]) -> tuple[Values, float | None]:
        """The values of the parameters, and the timeout."""
        names = [field.name for field in self.parameters]
        is_parameter = "timeout" in names and "timeout" not in (given or {})
        timeout = None if is_parameter else values.pop("timeout", None)
        return self._bound({**(given or {}), **values}), timeout

    def _bound(self, values: dict[str, Any]) -> Values:
        """The checked values of all parameters."""
        names = [field.name for field in self.parameters]
        if values.keys() != set(names):
            raise SqlError(
                f"statement {self.name!r} cannot be opened with {', '.join(sorted(values)) or 'no values'}",
                detail=f"its parameters are {', '.join(names)}",
                hint="give a value to each of them",
            )
        try:
            arrays = match_columns({name: [values[name]] for name in names}, self.parameters)
        except SchemaError as error:
            what = f"statement {self.name!r} cannot be opened: {error.what.replace('column', 'parameter')}"
            raise SchemaError(what, detail=error.detail, hint=error.hint) from None
        return dict(zip(names, arrays, strict=True))

    def end(self, binding: Binding, timeout: float | None = None) -> None:
        """Delete a binding; if that fails, it stays open."""
        if self.bindings.pop(binding.number, None) is None:
            return
        key = _key(binding.bound)
        if self._by_values.get(key) is binding:
            del self._by_values[key]
        deadline = self._engine.coordinator.deadline(timeout, f"closing a result of statement {self.name!r}")
        try:
            self.change({}, {binding.number: binding.bound}, deadline)
        except BaseException:  # so that it can be closed again
            self.bindings[binding.number] = binding
            raise

    def close(self) -> None:
        """Close all bindings, and release everything that only this statement uses; closing twice does nothing."""
        with self._lock:
            if self._closed:
                return
            self._closed = True
        self.bindings.clear()
        self._by_values.clear()
        self._reads.forget()
        if self._index is not None:
            self._index.drop()
        self._view.drop()
        self._engine.drop_table(self._table.name)

    # What bindings and `StatementReads` need.

    def new_number(self) -> int:
        """A number for a new binding."""
        return next(self.numbers)

    def change(self, opened: Mapping[int, Values], closed: Mapping[int, Values], deadline: Deadline) -> None:
        """Open and close bindings, by number, in one epoch."""
        self._check()
        bindings = [*opened.items(), *closed.items()]
        if not bindings:
            return
        rows: dict[str, Any] = {BINDING_ID: [number for number, _ in bindings]}
        for field in self.parameters:
            rows[field.name] = pa.concat_arrays([values[field.name] for _, values in bindings])
        self._table.apply(rows, [1] * len(opened) + [-1] * len(closed), deadline)

    def rows_of(self, number: int, at: int | None, timeout: float | None = None) -> pa.Table:
        """The result for a binding."""
        rows = self._view.find({BINDING_ID: [number]}, at, binding=number, timeout=timeout)
        return self._shown(plain_rows(rows, self.name).drop_columns([BINDING_ID]))

    def answers(self, numbers: Sequence[int], deadline: Deadline) -> list[pa.Table]:
        """The result for each of several bindings; raises if one of them has errors."""
        if len(numbers) == 1:
            return [self.rows_of(numbers[0], None, deadline.seconds_left())]
        rows = plain_rows(self._view.find({BINDING_ID: list(numbers)}, timeout=deadline.seconds_left()), self.name)
        by_number = {number: rows.filter(pc.equal(rows[BINDING_ID], number)) for number in numbers}
        return [self._shown(by_number[number].drop_columns([BINDING_ID])) for number in numbers]

    def _shown(self, rows: pa.Table) -> pa.Table:
        return sort_table(rows, self.order) if self.order else rows

    def changes(self, number: int, since: str | None, timeout: float | None) -> Subscription:
        """The changes of a binding, with its number in a column."""
        return self._view.changes(since, timeout=timeout, binding=number)

    def _check(self) -> None:
        if self._closed:
            raise DroppedError(f"statement {self.name!r} was closed", hint="prepare it again")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<statement {self.name}: {len(self.bindings)} open>"


def _key(values: Values) -> Hashable:
    """A key for dictionaries that is equal for equal values."""
    return tuple(str(value[0]) for value in values.values()), tuple(value.null_count for value in values.values())


class Binding:
    """The result of a prepared statement for one set of parameter values."""

    def __init__(self, statement: Statement, number: int, bound: Values) -> None:
        self._statement, self.number, self.bound = statement, number, bound
        self._subscriptions: weakref.WeakSet[Subscription] = weakref.WeakSet()

    @property
    def values(self) -> dict[str, Any]:
        """The parameter values."""
        return {name: value[0].as_py() for name, value in self.bound.items()}

    def to_arrow(self, at: int | None = None, *, timeout: float | None = None) -> pa.Table:
        """The result as an Arrow table, at the last closed epoch or at one that is held."""
        self._check()
        return self._statement.rows_of(self.number, at, timeout)

    def to_pandas(self, at: int | None = None, *, timeout: float | None = None) -> Any:
        """The result as a pandas DataFrame."""
        return self.to_arrow(at, timeout=timeout).to_pandas()

    def changes(self, since: str | None = None, *, timeout: float | None = None) -> BindingChanges:
        """An iterator of (epoch, Arrow table with a column `diff`): like `View.changes`, of this result alone."""
        self._check()
        subscription = self._statement.changes(self.number, since, timeout)
        self._subscriptions.add(subscription)
        return BindingChanges(subscription)

    def close(self, *, timeout: float | None = None) -> None:
        """Stop maintaining the result, and end iterators over its changes; closing twice does nothing."""
        for subscription in list(self._subscriptions):
            subscription.close()
        self._statement.end(self, timeout)

    def _check(self) -> None:
        if self.number not in self._statement.bindings:
            raise DroppedError(f"this result of statement {self._statement.name!r} was closed", hint="open it again")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def __repr__(self) -> str:
        shown = ", ".join(f"{name}={value!r}" for name, value in self.values.items())
        return f"<{self._statement.name}({shown})>"


class BindingChanges(Iterator[tuple[int, pa.Table]]):
    """The changes of a binding's result, each epoch once; can be iterated further after it has raised an error."""

    def __init__(self, subscription: Subscription) -> None:
        self._subscription = subscription

    def __next__(self) -> tuple[int, pa.Table]:
        epoch, changes = next(self._subscription)
        return epoch, changes.drop_columns([BINDING_ID])
