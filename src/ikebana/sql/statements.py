"""Prepared statements: one dataflow for all values that a query's parameters are given.

    statement = Statement(engine, "by customer", planned, parameters, tables)
    mine = statement.open(customer=7)       # a row more in the table of parameters: milliseconds
    mine.to_arrow()
    mine.close()

Parameters are a table with a row for each opening. The query is joined with it: each row of the result says to which
opening it belongs, groups and limits are those of an opening. So a thousand openings share all indexes and all
operators, and a change costs what it changes in any of them.

Opening and closing is a transaction of its own, even inside the block of another: an answer can be read at once.

Cost: opening and closing is a transaction of one row, and what follows from it. Reading is a look-up in the result,
which is indexed by opening. Whoever follows the changes of an opening gets those of all, and leaves the others out.

Errors. An opening has the errors of its own rows, and of those that depend on no parameter: a bad value of a parameter
concerns the opening that was given it, and no other.
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


class _Known(Mapping[str, SourceTable]):
    """Tables, and that of the parameters."""

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
            lowered = lower(planned, _Known(tables, SourceTable(PARAMETERS, self._values, (BINDING_ID,))))
            if BINDING_ID not in lowered.rows.columns:
                raise SqlError(f"statement {name!r} has no parameters", hint="write them as :name, or make it a view")
            self.order = lowered.order
            self._view = engine.install(name, lowered.rows.arrange(BINDING_ID))
        except BaseException:
            engine.drop_table(self._values.name)
            raise
        self.openings: dict[int, Opening] = {}
        """Those that are open, by number."""
        self._closed = False

    @property
    def columns(self) -> list[str]:
        """The names of the columns of each answer."""
        return [field.name for field in self._view.plan.columns if field.name != BINDING_ID]

    def open(self, given: Mapping[str, Any] | None = None, /, **values: Any) -> Opening:
        """Give values to the parameters: an answer that is kept up to date until it is closed.

        Values are given by name, or as a mapping. `timeout` is how many seconds that may take, unless it is a parameter
        whose value is given by no mapping.
        """
        self._check()
        names = [field.name for field in self.parameters]
        has_own = "timeout" in names and "timeout" not in (given or {})
        timeout = None if has_own else values.pop("timeout", None)
        values = {**(given or {}), **values}
        if values.keys() != set(names):
            raise SqlError(
                f"statement {self.name!r} cannot be opened with {', '.join(sorted(values)) or 'no values'}",
                detail=f"its parameters are {', '.join(names)}",
                hint="give a value to each of them",
            )
        number = next(self._numbers)
        self._change({BINDING_ID: [number], **{name: [values[name]] for name in names}}, "insert", timeout)
        opening = self.openings[number] = Opening(self, number, values)
        return opening

    def close(self) -> None:
        """Close all openings, and release what only they used; closing twice does nothing."""
        if not self._closed:
            self._closed = True
            self.openings.clear()
            self._view.drop()
            self._engine.drop_table(self._values.name)

    def end(self, number: int, timeout: float | None = None) -> None:
        """Take the values of an opening away; one that could not be taken away stays open."""
        opening = self.openings.pop(number, None)
        if opening is None:
            return
        try:
            self._change({BINDING_ID: [number]}, "delete", timeout)
        except BaseException:  # it can be closed again
            self.openings[number] = opening
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
        """The answer of an opening."""
        found = self._view.read(at, {BINDING_ID: [number]}, opening=number, timeout=timeout)
        found = plain_rows(found, self.name).drop_columns([BINDING_ID])
        return sort_table(found, self.order) if self.order else found

    def changes(self, number: int, since: str | None, timeout: float | None) -> Subscription:
        """The changes of all answers, with the number of the opening that each row is of; the errors of one."""
        return self._view.changes(since, timeout=timeout, opening=number)

    def _check(self) -> None:
        if self._closed:
            raise DroppedError(f"statement {self.name!r} was closed", hint="prepare it again")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<statement {self.name}: {len(self.openings)} open>"


class Opening:
    """The answer of a prepared statement for some values of its parameters."""

    def __init__(self, statement: Statement, number: int, values: Mapping[str, Any]) -> None:
        self._statement, self._number = statement, number
        self.values = dict(values)
        self._subscriptions: weakref.WeakSet[Subscription] = weakref.WeakSet()

    def to_arrow(self, at: int | None = None, *, timeout: float | None = None) -> pa.Table:
        """The answer as an Arrow table, at the last closed epoch or at one that is held."""
        self._check()
        return self._statement.rows_of(self._number, at, timeout)

    def to_pandas(self, at: int | None = None, *, timeout: float | None = None) -> Any:
        """The answer as a pandas frame."""
        return self.to_arrow(at, timeout=timeout).to_pandas()

    def changes(self, since: str | None = None, *, timeout: float | None = None) -> OpeningChanges:
        """An iterator of (epoch, Arrow table with a column `diff`): as `View.changes`, of this answer alone."""
        self._check()
        found = self._statement.changes(self._number, since, timeout)
        self._subscriptions.add(found)
        return OpeningChanges(self._number, found)

    def close(self, *, timeout: float | None = None) -> None:
        """Let the answer go, and end iterators over its changes; closing twice does nothing."""
        for each in list(self._subscriptions):
            each.close()
        self._statement.end(self._number, timeout)

    def _check(self) -> None:
        if self._number not in self._statement.openings:
            raise DroppedError(f"this answer of statement {self._statement.name!r} was closed", hint="open it again")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def __repr__(self) -> str:
        shown = ", ".join(f"{name}={value!r}" for name, value in self.values.items())
        return f"<{self._statement.name}({shown})>"


class OpeningChanges(Iterator[tuple[int, pa.Table]]):
    """The changes of the answer of an opening, each epoch once; goes on after the errors that it raises."""

    def __init__(self, number: int, subscription: Subscription) -> None:
        self._number, self._subscription, self._had_errors = number, subscription, False

    def __next__(self) -> tuple[int, pa.Table]:
        while True:
            try:
                epoch, changes = next(self._subscription)
            except EvaluationError:
                self._had_errors = True
                raise
            mine = changes.filter(pc.equal(changes[BINDING_ID], self._number))
            if mine.num_rows or self._had_errors:
                self._had_errors = False
                return epoch, mine.drop_columns([BINDING_ID])
