"""The tables and views of a session by their names: one namespace for both, with Spark's rules for names.

`Relations` only records what exists, under `lock`, which also makes several steps one: checking that a name is free and
taking it. The engine creates and drops what is on the workers (`ikebana.engine.engine`).

Each table and view has an *identity*, by which DataFrames and plans recognise it: a later one of the same name has
another identity. A replaced view keeps its identity if its columns are the same.
"""

from __future__ import annotations

import secrets
import threading
from contextlib import ExitStack, suppress

from pyspark.sql import SparkSession

from ikebana.engine import views
from ikebana.errors import DataflowError, IkebanaError
from ikebana.plan.sharing import readers_of
from ikebana.spark.naming import alike, check_free, is_case_sensitive, mentioned, resolve
from ikebana.spark.snapshots import Readable
from ikebana.spark.table import Table
from ikebana.spark.view import View
from ikebana.sql import SourceTable


class Relations:
    """The tables and views of a session."""

    def __init__(self, spark: SparkSession) -> None:
        self._spark = spark
        self.lock = threading.RLock()
        self.tables: dict[str, Table] = {}
        self.views: dict[str, View] = {}
        self.sources: dict[str, SourceTable] = {}
        """Tables and views, as SQL reads them."""

    # Finding them.

    def has(self, name: str) -> bool:
        """Whether there is a table or view of this name."""
        return name in self.sources or (not is_case_sensitive(self._spark) and bool(alike(self.sources, name)))

    def table(self, name: str) -> Table:
        """The table of this name; raises if there is none."""
        return resolve(self.tables, name, "table", self._spark)

    def view(self, name: str) -> View:
        """The view of this name; raises if there is none."""
        return resolve(self.views, name, "view", self._spark)

    def source(self, name: str) -> SourceTable:
        """The table or view of this name, as SQL reads it; raises if there is none."""
        with self.lock:
            return resolve(self.sources, name, "table or view", self._spark)

    def readable(self, name: str) -> Readable:
        """The table or view of this name, for readers of the data source; raises if it cannot be read."""
        with self.lock:
            known: dict[str, View | Table] = {**self.views, **self.tables}
            relation = resolve(known, name, "table or view", self._spark)
            identity = self.sources[relation.name].identity
        if isinstance(relation, View):
            return Readable(relation.name, identity, relation._inner.dataflow, relation._inner.plan.columns)
        relation._check_readable()
        return Readable(relation.name, identity, relation._inner.spec.dataflow, relation._inner.spec.fields)

    def rows(self, name: str) -> views.View:
        """The rows of a table or view, as the engine has them; `name` is exact."""
        with self.lock:
            return self.views[name]._inner if name in self.views else self.tables[name]._rows

    def mentioned(self, text: str) -> list[str]:
        """The names of the tables and views that a SQL text may read, except streams."""
        with self.lock:
            return mentioned(text, [name for name, source in self.sources.items() if not source.is_stream])

    def readers_of(self, table: Table) -> list[View]:
        """The views that read a table, the latest first."""
        with self.lock:
            return [view for view in reversed(self.views.values()) if readers_of(view._inner.plan, {table.name})]

    def is_current(self, source: SourceTable) -> bool:
        """Whether a table or view still exists, under its name."""
        return self.sources.get(source.name) is source

    # Adding and removing them.

    def check_free(self, name: str) -> None:
        """Raise if Spark cannot distinguish a new name from an existing one."""
        check_free(self.sources, name, self._spark)

    def add_table(self, table: Table) -> None:
        """Add a table."""
        self.tables[table.name] = table
        self.update_table(table)

    def update_table(self, table: Table) -> None:
        """Let SQL read the present columns of a table."""
        self.sources[table.name] = SourceTable(
            table.name, table._inner, tuple(table.key), table.kind == "stream", table._inner.identity
        )

    def add_view(self, view: View, identity: str | None = None) -> None:
        """Add a view; one that was stored has an identity already."""
        self.views[view.name] = view
        self.sources[view.name] = SourceTable(view.name, view._inner.rows(), identity=identity or new_identity())

    def update_view(self, view: View, *, keep_identity: bool) -> None:
        """Let SQL read the present result of a view that was replaced."""
        identity = self.sources[view.name].identity if keep_identity else new_identity()
        self.sources[view.name] = SourceTable(view.name, view._inner.rows(), identity=identity)

    def remove(self, name: str) -> None:
        """Remove a table or view."""
        self.tables.pop(name, None)
        self.views.pop(name, None)
        del self.sources[name]

    # Holding them.

    def hold_all(self, stack: ExitStack) -> None:
        """Keep the last closed epoch of all tables and views readable, until the stack is closed."""
        for table in list(self.tables.values()):
            if table.kind != "stream":
                stack.enter_context(table.hold())
        for view in list(self.views.values()):
            with suppress(IkebanaError):  # it has failed, and nobody can read it
                stack.enter_context(view._inner.hold())


def check_current(relations: Relations, source: SourceTable) -> None:
    """Raise if the table or view that a query reads is no longer the one of its name."""
    if not relations.is_current(source):
        raise DataflowError(
            f"the query reads {source.name!r} as it no longer is",
            detail="the table or view of this name was dropped or replaced, or a column was added to it",
            hint="create the view, or the DataFrame, again",
        )


def new_identity() -> str:
    """The identity of a table or view that has none yet."""
    return secrets.token_hex(8)
