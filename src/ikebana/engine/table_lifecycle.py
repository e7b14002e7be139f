"""How tables are created, get further columns, and are dropped: on the workers, in the catalogue and in storage.

A table exists entirely or not at all: if a step of creating it fails or is interrupted, the earlier steps are undone. A
table that stores rows has a primary arrangement, by its key or by all columns, which its dataflow maintains and queries
share.

Columns. A table with a further column is a new table, which takes the place of the old one in one epoch. Rows without
the column are kept as well, for as long as views read them.

Cost: creating and dropping a table takes a few commands to the workers. Adding a column copies all rows.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import pyarrow as pa

from ikebana.cluster.interrupts import complete_or_undo, defer_interrupts
from ikebana.engine.catalog import User
from ikebana.engine.collection import Collection
from ikebana.engine.coordinator import Coordinator
from ikebana.engine.maintenance import Maintenance
from ikebana.engine.sharing import result_node
from ikebana.engine.sources import Sources
from ikebana.engine.table_storage import StoredTable, TableStorage
from ikebana.engine.tables import Table
from ikebana.errors import SchemaError
from ikebana.operators.changes import Fields
from ikebana.plan import ir
from ikebana.plan.sharing import walk
from ikebana.runtime.messages import CopyRows, CreateTable, Demand, DropTable, Install, ReplaceTable, TableSpec, Wait


class TableLifecycle:
    """Creates, changes and drops the tables of an engine."""

    def __init__(
        self, coordinator: Coordinator, maintenance: Maintenance, sources: Sources, tables: dict[str, Table]
    ) -> None:
        """`tables` are those of the engine, by name; they are added and removed here."""
        self._coordinator, self._maintenance, self._catalog = coordinator, maintenance, maintenance.catalog
        self._sources, self._tables = sources, tables
        self.storage: TableStorage | None = None
        """The storage directory, if there is one."""

    def create(
        self, name: str, fields: Fields, key: tuple[str, ...], kind: str, *, durable: bool, internal: bool
    ) -> Table:
        """Create a table whose columns have been checked; see `Engine.table`."""
        if self.storage is None or not durable:
            return self._create(name, fields, key, kind)
        with self._coordinator.lock:
            self._catalog.check_name(name)
            stored_as = self.storage.create(name, fields, key, kind, internal=internal)
            try:
                return self._create(name, fields, key, kind, stored_as)
            except BaseException:
                self.storage.drop(name)
                raise

    def restore(self, stored: StoredTable) -> Table:
        """Create a table that the storage directory has, without its rows."""
        arranged_by = stored.arranged_by or stored.key
        return self._create(stored.name, stored.fields, stored.key, stored.kind, stored.stored_as, arranged_by)

    def _create(
        self,
        name: str,
        fields: Fields,
        key: tuple[str, ...],
        kind: str,
        stored_as: str = "",
        arranged_by: tuple[str, ...] | None = None,
    ) -> Table:
        source = self._sources.new(name, fields, is_stream=kind == "stream", identity=self._identity(stored_as))
        spec, primary = self._definition(source, key, kind, stored_as, key if arranged_by is None else arranged_by)
        with self._coordinator.lock:
            return complete_or_undo(
                lambda: self._install(source.node, spec, primary), lambda table: self.drop(table.name)
            )

    def _identity(self, stored_as: str) -> str:
        """The identity of a stored table; an empty text if it is not stored."""
        return self.storage.identity_of(stored_as) if self.storage is not None and stored_as else ""

    def _definition(
        self, source: Collection, key: Sequence[str], kind: str, stored_as: str, arranged_by: Sequence[str]
    ) -> tuple[TableSpec, ir.Node | None]:
        """The definition of a table and its primary arrangement, if it has one: by some columns, or by all."""
        assert isinstance(source.node, ir.Source)
        name, fields = source.node.name, source.node.fields
        if kind == "stream":
            return TableSpec(name, fields, "stream"), None
        primary = source.arrange(*arranged_by).node if arranged_by else result_node(source.node)
        kind, dataflow = "keyed" if key else "bag", self._catalog.new_dataflow_name(f"table {name}")
        return TableSpec(name, fields, kind, ir.schema_of(primary), dataflow, stored_as), primary

    def _definition_beside(self, old: TableSpec, source: Collection) -> tuple[TableSpec, ir.Node]:
        """The definition of a table with a further column, which is arranged by the same columns as before."""
        assert old.schema is not None
        primary = source.arrange(*(field.name for field in old.schema.key.fields)).node
        dataflow = self._catalog.new_dataflow_name(f"table {old.name}")
        spec = TableSpec(old.name, source.node.columns, old.kind, ir.schema_of(primary), dataflow, old.stored_as)
        return spec, primary

    def _install(self, source: ir.Node, spec: TableSpec, primary: ir.Node | None) -> Table:
        """Create a table and its primary arrangement, if it has one."""
        self._catalog.claim_name(spec.name)
        self._coordinator.command(CreateTable(spec))
        table = self._installed(source, spec, primary)
        self._sources.add(spec.name, source)
        return table

    def _installed(self, source: ir.Node, spec: TableSpec, primary: ir.Node | None) -> Table:
        """A table that workers know, after its primary arrangement was installed, if it has one."""
        primary_use = None
        if primary is not None:
            self._coordinator.command(Install(spec.dataflow, primary))
            self._catalog.add(spec.dataflow, primary)
            primary_use = self._catalog.use(spec.dataflow, User("table", spec.name, is_owner=True))
        table = self._tables[spec.name] = Table(self._coordinator, source, spec, self._maintenance, primary_use)
        return table

    def add_column(self, name: str, field: pa.Field, default: Any, timeout: float | None) -> Table:
        """Add a column to a table, in an epoch of its own; see `Engine.add_column`."""
        with self._coordinator.lock:
            old = self._tables[name]
            value = _column_value(old, field, default)
            source = self._sources.new(name, (*old.spec.fields, field), identity=self._identity(old.spec.stored_as))
            spec, primary = self._definition_beside(old.spec, source)
            deadline = self._coordinator.deadline(timeout, f"adding a column to table {name!r}")
            self._coordinator.command(Demand(old.spec.dataflow, self._coordinator.epoch))
            self._coordinator.ask(Wait(old.spec.dataflow, self._coordinator.epoch), deadline=deadline)
            with defer_interrupts(), self._storing_column(old.spec, field, value):
                self._coordinator.command(ReplaceTable(spec))
                new = self._installed(source.node, spec, primary)
                self._coordinator.command(CopyRows(name, old.spec.dataflow, {field.name: value}))
                self._coordinator.advance()
                self._sources.replace(name, source.node)
                new.replace(old)
                self.release_former_rows()
            return new

    def _storing_column(self, table: TableSpec, field: pa.Field, value: pa.Array) -> AbstractContextManager[None]:
        """A block that adds a column to a table, which is stored too if the table is."""
        is_stored = self.storage is not None and table.stored_as
        return self.storage.add_column(table, field, value) if self.storage and is_stored else nullcontext()

    def release_former_rows(self) -> None:
        """Release the rows without added columns that nobody reads any more."""
        for table in self._tables.values():
            for source, use in list(table.former_rows):
                others = [name for name in self._catalog.dataflows() if name != use.dataflow]
                is_read = any(source in walk(self._catalog.arrangement(name)) for name in others)
                if not is_read and self._catalog.users_of(use.dataflow) == [use.user]:
                    table.former_rows.remove((source, use))
                    self._sources.remove_former(source)
                    self._maintenance.release(use)

    def drop(self, name: str) -> None:
        """Drop a table that no view uses."""
        if self.storage is not None:
            self.storage.drop(name)
        self._tables.pop(name).mark_dropped()
        self._coordinator.command(DropTable(name))
        self._catalog.free_name(name)
        self._sources.remove(name)


def _column_value(table: Table, field: pa.Field, default: Any) -> pa.Array:
    """The value of a new column in the rows that a table has; raises if the table cannot have the column."""
    if table.kind == "stream":
        raise SchemaError(f"stream {table.name!r} cannot get another column", detail="its rows are not stored")
    if field.name in table.columns:
        raise SchemaError(f"table {table.name!r} has a column {field.name!r} already", hint="choose another name")
    if default is None and not field.nullable:
        raise SchemaError(
            f"column {field.name!r} has no value in the rows that table {table.name!r} has",
            hint="give a default, or let the column be nullable",
        )
    try:
        return pa.array([default], field.type)
    except (pa.ArrowException, TypeError, ValueError, OverflowError) as error:
        raise SchemaError(
            f"{default!r} cannot be the value of column {field.name!r}", detail=f"it is not of type {field.type}"
        ) from error
