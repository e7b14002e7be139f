"""Prepared statements: one dataflow for all parameter values of a query.

    statement = Statement(engine, "by customer", planned, parameters, tables)
    orders = statement.open(customer=7)       # one more row in the table of parameters: milliseconds
    orders.to_arrow()
    orders.close()

A *binding* is a set of parameter values. The parameters are a table with a row for each binding, and the query is
joined with it: each row of the result belongs to a binding, and groups, limits and windows are evaluated separately for
each binding. So a thousand bindings share all indexes and operators, and a change costs time in proportion to the
results that it changes.

Opening and closing a binding is a transaction of its own, even inside a block of another transaction, so the result can
be read at once.

Cost: opening and closing is a transaction of one row, and its consequences. Reading is a lookup in the result, which is
indexed by binding. An iterator over the changes of one binding receives those of all bindings, and drops the others.

Errors. A binding has the errors of its own rows, and of rows that depend on no parameter: a bad parameter value is an
error of its own binding only.
"""

from __future__ import annotations

import itertools
import weakref
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Self

import pyarrow as pa
import pyarrow.compute as pc

from ikebana.engine import Engine
from ikebana.engine.subscriptions import Subscription
from ikebana.engine.views import plain_rows
from ikebana.errors import DroppedError, EvaluationError, SqlError
from ikebana.reducers.ordering import sort_table
from ikebana.sql.lowering.query import lower
from ikebana.sql.planned import PARAMETERS, Planned
from ikebana.sql.relation import BINDING_ID, SourceTable


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
    ) -> None:
        self.name, self.parameters = name, tuple(parameters)
        self._engine = engine
        self._numbers = itertools.count(1)
        self._values = engine.table(
            f"parameters of {name}", [pa.field(BINDING_ID, pa.int64()), *parameters], BINDING_ID
        )
        try:
            lowered = lower(planned, _WithParameters(tables, SourceTable(PARAMETERS, self._values, (BINDING_ID,))))
            if BINDING_ID not in lowered.rows.columns:
                raise SqlError(
                    f"statement {name!r} has no parameters", hint="write parameters as :name, or create a view"
                )
            self.order = lowered.order
            self._view = engine.install(name, lowered.rows.arrange(BINDING_ID))
        except BaseException:
            engine.drop_table(self._values.name)
            raise
        self.bindings: dict[int, Binding] = {}
        """The open bindings, by number."""
        self._closed = False

    @property
    def columns(self) -> list[str]:
        """The names of the result's columns."""
        return [field.name for field in self._view.plan.columns if field.name != BINDING_ID]

    def open(self, given: Mapping[str, Any] | None = None, /, **values: Any) -> Binding:
        """Bind the parameters to values: the result for them is kept up to date until it is closed.

        Values are given by name, or as a mapping. `timeout` limits the seconds that opening may take; if the statement
        has a parameter of that name, `timeout` is its value, unless the mapping has one for it.
        """
        self._check()
        names = [field.name for field in self.parameters]
        is_parameter = "timeout" in names and "timeout" not in (given or {})
        timeout = None if is_parameter else values.pop("timeout", None)
        values = {**(given or {}), **values}
        if values.keys() != set(names):
            raise SqlError(
                f"statement {self.name!r} cannot be opened with {', '.join(sorted(values)) or 'no values'}",
                detail=f"its parameters are {', '.join(names)}",
                hint="give a value to each of them",
            )
        number = next(self._numbers)
        self._change({BINDING_ID: [number], **{name: [values[name]] for name in names}}, "insert", timeout)
        binding = self.bindings[number] = Binding(self, number, values)
        return binding

    def close(self) -> None:
        """Close all bindings, and release everything that only this statement uses; closing twice does nothing."""
        if not self._closed:
            self._closed = True
            self.bindings.clear()
            self._view.drop()
            self._engine.drop_table(self._values.name)

    def end(self, number: int, timeout: float | None = None) -> None:
        """Delete a binding; if that fails, it stays open."""
        binding = self.bindings.pop(number, None)
        if binding is None:
            return
        try:
            self._change({BINDING_ID: [number]}, "delete", timeout)
        except BaseException:  # so that it can be closed again
            self.bindings[number] = binding
            raise

    def _change(self, rows: Mapping[str, Any], op: str, timeout: float | None) -> None:
        transaction = self._engine.transaction(timeout=timeout)
        try:
            transaction.change(self._values, rows, op)
            transaction.commit()
        except BaseException:
            transaction.abort()
            raise

    def rows_of(self, number: int, at: int | None, timeout: float | None = None) -> pa.Table:
        """The result for a binding."""
        rows = self._view.read(at, {BINDING_ID: [number]}, binding=number, timeout=timeout)
        rows = plain_rows(rows, self.name).drop_columns([BINDING_ID])
        return sort_table(rows, self.order) if self.order else rows

    def changes(self, number: int, since: str | None, timeout: float | None) -> Subscription:
        """The changes for all bindings, with the number of each row's binding; the errors of binding `number`."""
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


class Binding:
    """The result of a prepared statement for one set of parameter values."""

    def __init__(self, statement: Statement, number: int, values: Mapping[str, Any]) -> None:
        self._statement, self._number = statement, number
        self.values = dict(values)
        self._subscriptions: weakref.WeakSet[Subscription] = weakref.WeakSet()

    def to_arrow(self, at: int | None = None, *, timeout: float | None = None) -> pa.Table:
        """The result as an Arrow table, at the last closed epoch or at one that is held."""
        self._check()
        return self._statement.rows_of(self._number, at, timeout)

    def to_pandas(self, at: int | None = None, *, timeout: float | None = None) -> Any:
        """The result as a pandas DataFrame."""
        return self.to_arrow(at, timeout=timeout).to_pandas()

    def changes(self, since: str | None = None, *, timeout: float | None = None) -> BindingChanges:
        """An iterator of (epoch, Arrow table with a column `diff`): like `View.changes`, of this result alone."""
        self._check()
        subscription = self._statement.changes(self._number, since, timeout)
        self._subscriptions.add(subscription)
        return BindingChanges(self._number, subscription)

    def close(self, *, timeout: float | None = None) -> None:
        """Stop maintaining the result, and end iterators over its changes; closing twice does nothing."""
        for subscription in list(self._subscriptions):
            subscription.close()
        self._statement.end(self._number, timeout)

    def _check(self) -> None:
        if self._number not in self._statement.bindings:
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

    def __init__(self, number: int, subscription: Subscription) -> None:
        self._number, self._subscription, self._had_errors = number, subscription, False

    def __next__(self) -> tuple[int, pa.Table]:
        while True:
            try:
                epoch, changes = next(self._subscription)
            except EvaluationError:
                self._had_errors = True
                raise
            own = changes.filter(pc.equal(changes[BINDING_ID], self._number))
            if own.num_rows or self._had_errors:
                self._had_errors = False
                return epoch, own.drop_columns([BINDING_ID])
