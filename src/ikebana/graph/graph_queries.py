"""Prepared queries of a graph, and sets of answers: what the interactive queries have in common.

A query is one dataflow, joined with a stream of arguments: opening an answer inserts a row of arguments with a new
number, the binding, and closing it retracts the row. The view of the query is arranged by binding. `open_columns` does
so for a table of arguments at once, without a Python object for each of them.

Queries that read an index directly, without opening an answer, install a view of it when they first do so; it is shared
like any other arrangement, and dropped with the query.

Cost: opening or closing any number of answers takes one epoch. See `ikebana.engine.prepared` for the guarantees.
"""

from __future__ import annotations

import itertools
from abc import abstractmethod
from collections.abc import Sequence
from typing import Any, Self

import pyarrow as pa
import pyarrow.compute as pc

from ikebana.encoding.columns import match_columns
from ikebana.engine import Engine
from ikebana.engine.collection import Arrangement, Collection
from ikebana.engine.deadline import Deadline
from ikebana.engine.prepared import AnyBinding, Prepared
from ikebana.engine.prepared_reads import Values
from ikebana.engine.result_tables import plain_rows
from ikebana.engine.views import View
from ikebana.errors import DroppedError, SchemaError
from ikebana.operators.row_errors import BINDING
from ikebana.plan import ir

query_numbers = itertools.count(1)
"""Numbers for the names of queries and of indexes that are not shared."""


class GraphQuery(Prepared[AnyBinding]):
    """A prepared query of a graph."""

    kind = "query"
    error = SchemaError

    def __init__(
        self, engine: Engine, title: str, parameters: Sequence[pa.Field], keep: int, number_type: pa.DataType
    ) -> None:
        name = f"graph: {title} {next(query_numbers)}"
        fields = [pa.field(BINDING, number_type, False), *parameters]
        table = engine.table(f"arguments of {name}", fields, kind="stream", durable=False)
        try:
            view = engine.install(name, self._plan(table).arrange(BINDING))
        except BaseException:
            engine.drop_table(table.name)
            raise
        super().__init__(engine, name, parameters, table, view, keep)
        self._sets: set[AnswerSet] = set()
        self._indexes: dict[str, View] = {}  # views of the indexes that are read directly; the lock guards them

    @abstractmethod
    def _plan(self, arguments: Collection) -> Collection:
        """The answers, each row with the number of its binding."""

    def open_columns(self, values: Any, *, timeout: float | None = None) -> AnswerSet:
        """Open an answer for each row of a table of arguments, all in one epoch, as one object.

        `values` is an Arrow table, or a mapping of parameters to arrays. Many thousands of answers are opened at once
        without a Python object for each of them.
        """
        self._check()
        columns = self._checked_columns(values)
        deadline = self._engine.coordinator.deadline(timeout, f"opening {self.kind} {self.name!r}")
        numbers = self._new_numbers(len(columns[self.parameters[0].name]))
        answers = AnswerSet(self, pa.array(numbers, self._table.node.columns[0].type), columns)
        self._change_set(answers, 1, deadline)
        self._sets.add(answers)
        return answers

    def read_columns(self, values: Any, *, timeout: float | None = None) -> pa.Table:
        """The answers for a table of arguments, now, as `AnswerSet.to_arrow` returns them.

        Arguments that occur several times may be answered once.
        """
        with self.open_columns(values, timeout=timeout) as answers:
            return answers.to_arrow(timeout=timeout)

    def _new_numbers(self, count: int) -> list[int]:
        """Numbers for new bindings."""
        return list(itertools.islice(self._numbers, count))

    def _checked_columns(self, values: Any) -> Values:
        names = values.schema.names if isinstance(values, pa.Table | pa.RecordBatch) else list(values)
        if set(names) != {field.name for field in self.parameters}:
            self._bound(dict.fromkeys(names))  # raises
        try:
            arrays = match_columns(values, self.parameters)
        except SchemaError as error:
            what = f"{self.kind} {self.name!r} cannot be opened: {error.what}"
            raise SchemaError(what, detail=error.detail, hint=error.hint) from None
        return {field.name: array for field, array in zip(self.parameters, arrays, strict=True)}

    def _change_set(self, answers: AnswerSet, diff: int, deadline: Deadline) -> None:
        if len(answers):
            self._table.apply({BINDING: answers.numbers, **answers.bound}, diff, deadline)

    def end_set(self, answers: AnswerSet, timeout: float | None = None) -> None:
        """Delete the answers of a set; if that fails, they stay open."""
        if answers in self._sets:
            deadline = self._engine.coordinator.deadline(timeout, f"closing answers of {self.kind} {self.name!r}")
            self._change_set(answers, -1, deadline)
            self._sets.discard(answers)

    def rows_of_set(self, answers: AnswerSet, timeout: float | None = None) -> pa.Table:
        """The answers of a set, with their arguments."""
        if answers not in self._sets:
            raise DroppedError(f"these answers of {self.kind} {self.name!r} were closed", hint="open them again")
        rows = plain_rows(self._view.find({BINDING: answers.numbers}, timeout=timeout), self.name)
        places = pc.index_in(rows[BINDING].combine_chunks(), value_set=answers.numbers)
        arguments = {self._argument_name(name): array.take(places) for name, array in answers.bound.items()}
        return pa.table({**arguments, **{name: rows[name] for name in self.columns}})

    def _argument_name(self, name: str) -> str:
        """The name of a parameter's column beside those of answers."""
        return f"of_{name}" if name in self.columns else name

    def _found_columns(self, source: Arrangement, values: Any, timeout: float | None) -> pa.Table:
        """The rows that an index has for the nodes of a table of arguments, with multiplicities."""
        self._check()
        deadline = self._engine.coordinator.deadline(timeout, f"reading {self.kind} {self.name!r}")
        return rows_of_nodes(self.index(source), pc.unique(self._checked_columns(values)["node"]), deadline)

    def index(self, arrangement: Arrangement) -> View:
        """An arrangement as a view that can be looked up; the first call installs it."""
        (key,) = (field.name for field in ir.schema_of(arrangement.node).key.fields)
        if key not in self._indexes:
            with self._lock:
                if key not in self._indexes:
                    self._check()
                    self._indexes[key] = self._engine.install(f"{self.name}: index by {key}", arrangement)
        return self._indexes[key]

    def close(self) -> None:
        super().close()
        self._sets.clear()

    def _release(self) -> None:
        for index in self._indexes.values():
            index.drop()
        super()._release()


class AnswerSet:
    """The answers of a query for a table of arguments, opened and closed together."""

    def __init__(self, query: GraphQuery[Any], numbers: pa.Array, bound: Values) -> None:
        self._query, self.numbers, self.bound = query, numbers, bound

    def to_arrow(self, *, timeout: float | None = None) -> pa.Table:
        """All answers as an Arrow table: the arguments, then the columns of the answer.

        A parameter with the name of a column of the answer is called `of_` and that name.
        """
        return self._query.rows_of_set(self, timeout)

    def close(self, *, timeout: float | None = None) -> None:
        """Stop maintaining the answers; closing twice does nothing."""
        self._query.end_set(self, timeout)

    def __len__(self) -> int:
        return len(self.numbers)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<{len(self)} answers of {self._query.name}>"


def rows_of_nodes(index: View, nodes: pa.Array, deadline: Deadline) -> pa.Table:
    """The rows that an index has for some nodes, with multiplicities, at the last closed epoch, which must exist."""
    (key,) = ir.schema_of(index.plan).key.fields
    return index.find({key.name: nodes}, timeout=deadline.seconds_left())
