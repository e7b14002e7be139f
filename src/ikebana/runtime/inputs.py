"""The inputs and tables of a worker: which dataflows read them, and where their changes go.

One dataflow arranges the changes of an input or a table, the *primary* one, and reads them from a source; all other
dataflows import its arrangement. A stream is not stored: every dataflow that reads it has a source of its own.

A table that has got further columns is replaced. Dataflows that were installed before read it without these columns,
through the *former* primary dataflow, which gets all later changes, too.

Cost: a change is pushed once for each dataflow that has a source, without a copy; closing an epoch looks at all
sources.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping

import numpy as np
import pyarrow as pa

from ikebana.errors import DataflowError
from ikebana.operators.changes import Changes, Fields
from ikebana.operators.sources import InputSource
from ikebana.plan import ir
from ikebana.runtime.messages import TableSpec


class Inputs:
    """The inputs and tables of one worker."""

    def __init__(self) -> None:
        self.tables: dict[str, TableSpec] = {}
        self.last_change: dict[str, int] = {}
        """The last epoch at which the rows that a table's dataflow has on this worker changed, if they have."""
        self._sources: dict[str, dict[str, InputSource]] = {}  # by input or table, and by the dataflow that reads it
        self._fields: dict[str, Fields] = {}
        self._dataflows: dict[str, str] = {}  # that have the rows of inputs and tables; empty for a stream
        self._primary: dict[str, ir.Node] = {}  # the plan that arranges an input's or a table's changes
        self._former: dict[str, dict[Fields, ir.Node]] = {}  # the same of tables that have got further columns since

    # Creating and dropping.

    def create(self, name: str, fields: Fields, dataflow: str) -> None:
        """Create an input, whose rows a dataflow is going to have."""
        self._sources[name], self._fields[name] = {}, fields
        self._dataflows[name] = dataflow

    def create_table(self, table: TableSpec) -> None:
        """Create a table."""
        self.create(table.name, table.fields, table.dataflow)
        self.tables[table.name] = table

    def replace_table(self, table: TableSpec) -> None:
        """Give a table further columns."""
        former = self._former.setdefault(table.name, {})
        former[self._fields[table.name]] = self._primary.pop(table.name)
        self._fields[table.name], self._dataflows[table.name] = table.fields, table.dataflow
        self.tables[table.name] = table

    def drop_table(self, name: str) -> None:
        """Forget a table."""
        for by_name in (self._sources, self._fields, self._dataflows, self._primary, self._former):
            by_name.pop(name, None)
        for by_table in (self.tables, self.last_change):
            by_table.pop(name, None)

    # Changes.

    def push(self, name: str, changes: Changes) -> None:
        """Give the changes of an input or a table to all dataflows that have a source of it."""
        has_former = name in self._former  # then some dataflows read it without the columns that were added
        for source in self._sources[name].values():
            source.push(changes.select(source.out.fields) if has_former else changes)

    def push_to_table(self, name: str, changes: Changes, epoch: int) -> None:
        """Like `push`, for changes of a table of which the last are at an epoch."""
        self.last_change[name] = epoch
        self.push(name, changes)

    def push_copied(self, table: TableSpec, rows: pa.Table, values: Mapping[str, pa.Array], epoch: int) -> None:
        """Push rows with multiplicities, and further columns of one value each, into a table that was replaced."""
        if not len(rows):
            self.last_change.pop(table.name, None)  # earlier changes do not concern the dataflow that has the rows now
            return
        *columns, diffs = rows.combine_chunks().columns
        named = dict(zip(rows.schema.names, columns, strict=False))
        first = pa.array(np.zeros(len(rows), np.int64))
        named |= {name: value.take(first) for name, value in values.items()}
        changes = Changes.of(table.fields, named, (epoch,), diffs.to_numpy())
        self._sources[table.name][table.dataflow].push(changes)
        self.last_change[table.name] = epoch

    def advance(self, epoch: int) -> Iterator[str]:
        """Close the epochs before this one; yield the dataflows that have changes, or have waited for that."""
        for sources in self._sources.values():
            for name, source in sources.items():
                if source.advance(epoch):
                    yield name

    def close(self, name: str) -> Collection[str]:
        """Close an input: it will not change any more. Return the dataflows that have a source of it."""
        for source in self._sources[name].values():
            source.close()
        return self._sources[name].keys()

    # Dataflows.

    def source(self, dataflow: str, plan: ir.Node, node: ir.Source, epoch: int) -> InputSource | ir.Node:
        """A new source of an input's changes, for the dataflow that arranges them; for others, the plan to import.

        The epochs before `epoch` are closed.
        """
        former = self._former.get(node.name, {}).get(node.fields)
        if former is not None:
            return former
        if self._fields.get(node.name) != node.fields:
            raise DataflowError(
                f"there is no input or table {node.name!r} with these columns",
                detail="it was dropped, or belongs to another engine",
                hint="create the query again, from tables that exist",
            )
        primary = self._primary.get(node.name)
        if primary is not None:
            return primary
        if node.name not in self.tables or self.tables[node.name].schema is not None:
            self._primary[node.name] = plan
        source = InputSource(node.name, self._fields[node.name])
        source.advance(epoch)
        self._sources[node.name][dataflow] = source
        return source

    def forget(self, dataflow: str) -> None:
        """Drop the sources of a dataflow."""
        for sources in self._sources.values():
            sources.pop(dataflow, None)

    def readers(self, name: str) -> Collection[str]:
        """The dataflows that have a source of an input or a table, if it exists."""
        return self._sources.get(name, {}).keys()

    def has_rows_of_one(self, dataflow: str) -> bool:
        """Whether a dataflow has the rows of an input or a table, which are pushed to the workers that own them."""
        return dataflow in self._dataflows.values()

    def former_plans(self, table: str) -> list[ir.Node]:
        """The plans that arrange a table without columns that were added."""
        return list(self._former.get(table, {}).values())

    def is_primary(self, plan: ir.Node) -> bool:
        """Whether a plan arranges an input or a table, with all its columns or without some that were added."""
        former = (plan for plans in self._former.values() for plan in plans.values())
        return any(plan is other for other in (*self._primary.values(), *former))
