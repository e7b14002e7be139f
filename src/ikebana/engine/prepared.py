"""Prepared queries: one dataflow for all parameter values of a query.

A *binding* is a set of parameter values. The parameters are a table with a row for each binding, and the query is
joined with it: each row of the result belongs to a binding, whose number it has in the column `BINDING`. So a thousand
bindings share all indexes and operators, and a change costs time in proportion to the results that it changes.

`Prepared` is what queries with parameters have in common, whatever language they are written in: it opens, reads and
closes bindings of a view that is arranged by `BINDING`. Prepared statements (`ikebana.sql.statements`) and questions to
Datalog programs (`ikebana.datalog.topdown`) are subclasses, which create the table and the view.

Opening and closing a binding is an epoch of its own, even inside a block of a transaction, so the result can be read at
once. Nothing has to be checked, because only the query changes its table of parameters.

`read` opens a binding, together with those of other threads, and keeps it open for a while
(`ikebana.engine.prepared_reads`).

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
from abc import ABC, abstractmethod
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Generic, Self, TypeVar

import pyarrow as pa
import pyarrow.compute as pc

from ikebana.encoding.columns import match_columns
from ikebana.engine.deadline import Deadline
from ikebana.engine.engine import Engine
from ikebana.engine.prepared_reads import PreparedReads, Values
from ikebana.engine.result_tables import plain_rows
from ikebana.engine.subscriptions import Subscription
from ikebana.engine.tables import Table
from ikebana.engine.views import View
from ikebana.errors import DataflowError, DroppedError, IkebanaError, SchemaError
from ikebana.operators.row_errors import BINDING

if TYPE_CHECKING:
    import pandas as pd

KEEP = 100
"""The default number of sets of values that stay open after they were read."""

AnyBinding = TypeVar("AnyBinding", bound="Binding")


class Prepared(ABC, Generic[AnyBinding]):
    """A query with parameters."""

    kind: ClassVar[str] = "query"
    """What errors call it."""
    error: ClassVar[type[IkebanaError]] = DataflowError
    """The class of errors about missing or unknown parameters."""

    def __init__(
        self, engine: Engine, name: str, parameters: Sequence[pa.Field], table: Table, view: View, keep: int = KEEP
    ) -> None:
        """`view` is arranged by `BINDING`; it and `table`, the parameters, belong to the query from now on.

        `keep` is how many sets of values stay open after `read`, the most recently read ones.
        """
        self.name, self.parameters = name, tuple(parameters)
        self._engine, self._table, self._view = engine, table, view
        self._numbers = itertools.count(1)
        self.bindings: dict[int, AnyBinding] = {}
        """The open bindings, by number."""
        self._by_values: dict[Hashable, AnyBinding] = {}  # one of them for each set of values
        self._reads = PreparedReads(self, keep)
        self._lock = threading.Lock()
        self._closed = False
        self.on_close: Callable[[], None] = lambda: None
        """Called when the query is closed."""

    @property
    def columns(self) -> list[str]:
        """The names of the result's columns."""
        return [field.name for field in self._view.plan.columns if field.name != BINDING]

    # Reading.

    def read(self, given: Mapping[str, Any] | None = None, /, **values: Any) -> pa.Table:
        """The answer for parameter values, now, as an Arrow table; values and `timeout` are given as to `open`.

        Any number of threads can read at once: values that have to be opened are opened together.
        """
        self._check()
        bound, timeout = self._arguments(given, values)
        return self._read(bound, self._engine.coordinator.deadline(timeout, f"reading {self.kind} {self.name!r}"))

    def _read(self, bound: Values, deadline: Deadline) -> pa.Table:
        key = _key(bound)
        binding = self._by_values.get(key)
        if binding is not None:
            answer = self.rows_of(binding.number, None, deadline.seconds_left())
            if binding.number in self.bindings:
                return answer
        return self._reads.read(key, bound, deadline)

    # Opening.

    def open(self, given: Mapping[str, Any] | None = None, /, **values: Any) -> AnyBinding:
        """Bind the parameters to values: the result for them is kept up to date until it is closed.

        Values are given by name, or as a mapping. `timeout` limits the seconds that opening may take; if the query has
        a parameter of that name, `timeout` is its value, unless the mapping has one for it.
        """
        self._check()
        bound, timeout = self._arguments(given, values)
        return self._open([bound], timeout)[0]

    def open_many(self, many: Iterable[Mapping[str, Any]], *, timeout: float | None = None) -> list[AnyBinding]:
        """Open a result for each of several mappings of values, all in one epoch; see `open`."""
        self._check()
        return self._open([self._bound(dict(values)) for values in many], timeout)

    def wait(self, *, timeout: float | None = None) -> None:
        """Wait until the results of all bindings that were opened and closed so far are complete."""
        self._check()
        self._view.wait(self._engine.epoch - 1, timeout=timeout)

    def _open(self, many: Sequence[Values], timeout: float | None) -> list[AnyBinding]:
        deadline = self._engine.coordinator.deadline(timeout, f"opening {self.kind} {self.name!r}")
        bindings = [self._binding(self.new_number(), values) for values in many]
        self.change({binding.number: binding.bound for binding in bindings}, {}, deadline)
        for binding in bindings:
            self.bindings[binding.number] = self._by_values[_key(binding.bound)] = binding
        return bindings

    @abstractmethod
    def _binding(self, number: int, values: Values) -> AnyBinding:
        """A new binding."""

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
            raise self.error(
                f"{self.kind} {self.name!r} cannot be opened with {', '.join(sorted(values)) or 'no values'}",
                detail=f"its parameters are {', '.join(names)}",
                hint="give a value to each of them",
            )
        try:
            arrays = match_columns({name: [values[name]] for name in names}, self.parameters)
        except SchemaError as error:
            what = f"{self.kind} {self.name!r} cannot be opened: {error.what.replace('column', 'parameter')}"
            raise SchemaError(what, detail=error.detail, hint=error.hint) from None
        return dict(zip(names, arrays, strict=True))

    def end(self, binding: AnyBinding, timeout: float | None = None) -> None:
        """Delete a binding; if that fails, it stays open."""
        if self.bindings.pop(binding.number, None) is None:
            return
        key = _key(binding.bound)
        if self._by_values.get(key) is binding:
            del self._by_values[key]
        deadline = self._engine.coordinator.deadline(timeout, f"closing a result of {self.kind} {self.name!r}")
        try:
            self.change({}, {binding.number: binding.bound}, deadline)
        except BaseException:  # so that it can be closed again
            self.bindings[binding.number] = binding
            raise

    def close(self) -> None:
        """Close all bindings, and release everything that only this query uses; closing twice does nothing."""
        with self._lock:
            if self._closed:
                return
            self._closed = True
        self.bindings.clear()
        self._by_values.clear()
        self._reads.forget()
        self._release()
        self.on_close()

    def _release(self) -> None:
        self._view.drop()
        self._engine.drop_table(self._table.name)

    # What bindings and `PreparedReads` need.

    def new_number(self) -> int:
        """A number for a new binding."""
        return next(self._numbers)

    def change(self, opened: Mapping[int, Values], closed: Mapping[int, Values], deadline: Deadline) -> None:
        """Open and close bindings, by number, in one epoch."""
        self._check()
        bindings = [*opened.items(), *closed.items()]
        if not bindings:
            return
        rows: dict[str, Any] = {BINDING: [number for number, _ in bindings]}
        for field in self.parameters:
            rows[field.name] = pa.concat_arrays([values[field.name] for _, values in bindings])
        self._table.apply(rows, [1] * len(opened) + [-1] * len(closed), deadline)

    def rows_of(self, number: int, at: int | None, timeout: float | None = None) -> pa.Table:
        """The result for a binding."""
        rows = self._view.find({BINDING: [number]}, at, binding=number, timeout=timeout)
        return self._shown(plain_rows(rows, self.name).drop_columns([BINDING]))

    def answers(self, numbers: Sequence[int], deadline: Deadline) -> list[pa.Table]:
        """The result for each of several bindings; raises if one of them has errors."""
        if len(numbers) == 1:
            return [self.rows_of(numbers[0], None, deadline.seconds_left())]
        rows = plain_rows(self._view.find({BINDING: list(numbers)}, timeout=deadline.seconds_left()), self.name)
        by_number = {number: rows.filter(pc.equal(rows[BINDING], number)) for number in numbers}
        return [self._shown(by_number[number].drop_columns([BINDING])) for number in numbers]

    def _shown(self, rows: pa.Table) -> pa.Table:
        """The result in the order and with the columns that users see."""
        return rows

    def changes(self, number: int, since: str | None, timeout: float | None) -> Subscription:
        """The changes of a binding, with its number in a column."""
        return self._view.changes(since, timeout=timeout, binding=number)

    def _check(self) -> None:
        if self._closed:
            raise DroppedError(f"{self.kind} {self.name!r} was closed", hint="prepare it again")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<{self.kind} {self.name}: {len(self.bindings)} open>"


def _key(values: Values) -> Hashable:
    """A key for dictionaries that is equal for equal values."""
    return tuple(str(value[0]) for value in values.values()), tuple(value.null_count for value in values.values())


class Binding:
    """The result of a prepared query for one set of parameter values."""

    def __init__(self, query: Prepared[Any], number: int, bound: Values) -> None:
        self._query, self.number, self.bound = query, number, bound
        self._subscriptions: weakref.WeakSet[Subscription] = weakref.WeakSet()

    @property
    def values(self) -> dict[str, Any]:
        """The parameter values."""
        return {name: value[0].as_py() for name, value in self.bound.items()}

    def to_arrow(self, at: int | None = None, *, timeout: float | None = None) -> pa.Table:
        """The result as an Arrow table, at the last closed epoch or at one that is held."""
        self._check()
        return self._query.rows_of(self.number, at, timeout)

    def to_pandas(self, at: int | None = None, *, timeout: float | None = None) -> pd.DataFrame:
        """The result as a pandas DataFrame."""
        return self.to_arrow(at, timeout=timeout).to_pandas()

    def changes(self, since: str | None = None, *, timeout: float | None = None) -> BindingChanges:
        """An iterator of (epoch, Arrow table with a column `diff`): like `View.changes`, of this result alone."""
        self._check()
        subscription = self._query.changes(self.number, since, timeout)
        self._subscriptions.add(subscription)
        return BindingChanges(subscription)

    def close(self, *, timeout: float | None = None) -> None:
        """Stop maintaining the result, and end iterators over its changes; closing twice does nothing."""
        for subscription in list(self._subscriptions):
            subscription.close()
        self._query.end(self, timeout)

    def _check(self) -> None:
        if self.number not in self._query.bindings:
            raise DroppedError(
                f"this result of {self._query.kind} {self._query.name!r} was closed", hint="open it again"
            )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def __repr__(self) -> str:
        shown = ", ".join(f"{name}={value!r}" for name, value in self.values.items())
        return f"<{self._query.name}({shown})>"


class BindingChanges(Iterator[tuple[int, pa.Table]]):
    """The changes of a binding's result, each epoch once; can be iterated further after it has raised an error."""

    def __init__(self, subscription: Subscription) -> None:
        self._subscription = subscription

    def __next__(self) -> tuple[int, pa.Table]:
        epoch, changes = next(self._subscription)
        return epoch, changes.drop_columns([BINDING])
