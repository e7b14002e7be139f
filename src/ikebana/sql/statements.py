"""Prepared statements: one dataflow for all parameter values of a query.

    statement = Statement(engine, "by customer", planned, parameters, tables)
    statement.read(customer=7)                # the answer for these values, now

    orders = statement.open(customer=7)       # an answer that is kept up to date
    orders.to_arrow()
    orders.close()

Bindings, and what they cost, are those of all prepared queries (`ikebana.engine.prepared`). Groups, limits and windows
are evaluated separately for each binding.

`read` does not need a binding if the statement selects rows of one table by key (`ikebana.sql.lowering.key_lookups`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import pyarrow as pa

from ikebana.engine import Engine, View
from ikebana.engine.deadline import Deadline
from ikebana.engine.prepared import KEEP, Binding, Prepared
from ikebana.engine.prepared_reads import Values
from ikebana.engine.result_tables import plain_rows
from ikebana.errors import SqlError
from ikebana.reducers.ordering import sort_table
from ikebana.sql.lowering.key_lookups import key_lookup
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


class Statement(Prepared[Binding]):
    """An SQL query with parameters."""

    kind = "statement"
    error = SqlError

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
        table = engine.table(
            f"parameters of {name}", [pa.field(BINDING_ID, pa.int64()), *parameters], BINDING_ID, durable=False
        )
        try:
            with_parameters = _WithParameters(tables, SourceTable(PARAMETERS, table, (BINDING_ID,)))
            lowered = lower(planned, with_parameters)
            if BINDING_ID not in lowered.rows.columns:
                raise SqlError(
                    f"statement {name!r} has no parameters", hint="write parameters as :name, or create a view"
                )
            self.order = lowered.order
            self._lookup = key_lookup(planned, with_parameters)
            view = engine.install(name, lowered.rows.arrange(BINDING_ID))
        except BaseException:
            engine.drop_table(table.name)
            raise
        super().__init__(engine, name, parameters, table, view, keep)
        self._index: View | None = None  # the arrangement in which answers are looked up; the lock guards its creation

    @property
    def is_lookup(self) -> bool:
        """Whether `read` looks up rows of one table by key, and opens nothing."""
        return self._lookup is not None

    def _read(self, bound: Values, deadline: Deadline) -> pa.Table:
        return super()._read(bound, deadline) if self._lookup is None else self._looked_up(bound, deadline)

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

    def _binding(self, number: int, values: Values) -> Binding:
        return Binding(self, number, values)

    def _release(self) -> None:
        if self._index is not None:
            self._index.drop()
        super()._release()

    def _shown(self, rows: pa.Table) -> pa.Table:
        return sort_table(rows, self.order) if self.order else rows
