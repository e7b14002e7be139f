"""How tables of a session are created and dropped: on the workers, under their names in SQL and Spark, and in storage.

A table exists entirely or not at all: if a step of creating it fails or is interrupted, the earlier steps are undone. A
name is checked and taken under the lock of `Relations`, so two threads cannot create two tables of one name. Creating
a table takes one command to the workers and, with temporary views, a few milliseconds of Spark.

Not guaranteed: dropping a table ends the streams that it follows after the table is gone, so a micro-batch of such a
stream may fail.
"""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING

from ikebana.cluster.interrupts import complete_or_undo, defer_interrupts
from ikebana.engine import tables
from ikebana.operators.changes import Fields
from ikebana.spark.expiring import Expiries, Expiry
from ikebana.spark.frames import Frames
from ikebana.spark.monitoring import log
from ikebana.spark.relations import Relations
from ikebana.spark.stored_queries import StoredQueries
from ikebana.spark.table import Table

if TYPE_CHECKING:
    from ikebana.spark.session import Session


class TableLifecycle:
    """Creates and drops the tables of a session."""

    def __init__(
        self,
        session: Session,
        relations: Relations,
        frames: Frames,
        expiries: Expiries,
        stored: StoredQueries | None,
    ) -> None:
        self._session, self._engine = session, session.engine
        self._relations, self._frames, self._expiries, self._stored = relations, frames, expiries, stored

    def create(self, name: str, fields: Fields, key: tuple[str, ...], kind: str) -> Table:
        """Create a table whose name, columns and key have been checked."""
        with self._relations.lock:
            self._relations.check_free(name)
            return complete_or_undo(lambda: self._create(name, fields, key, kind), Table.drop)

    def _create(self, name: str, fields: Fields, key: tuple[str, ...], kind: str) -> Table:
        table = self.add(self._engine.table(name, fields, key or None, kind))
        log.info("table %r was created", name)
        return table

    def add(self, inner: tables.Table) -> Table:
        """Add a table of the engine to the session: a new one, or one that was recovered."""
        table = Table(self._session, inner)
        self._relations.add_table(table)
        if table.kind != "stream":
            self._frames.show(table.name)
            if self._engine.coordinator.named_subscriptions is not None:
                self._engine.coordinator.named_subscriptions.attach(table._rows)
        return table

    def expire(self, table: Table, after: timedelta, on: str) -> None:
        """Delete rows of a table from now on, this long after the time in their column `on`."""
        if self._stored is not None:
            self._stored.save_expiry(table.name, after, on)
        self._expiries.add(table.name, Expiry(self._session, table, after, on))

    def drop(self, name: str, *, cascade: bool) -> None:
        """Drop a table; with `cascade`, the views that read it as well. Otherwise raises if there are any."""
        with self._relations.lock, defer_interrupts():
            table = self._relations.table(name)
            for view in self._relations.readers_of(table) if cascade else ():
                view.drop()
            if not self._relations.readers_of(table):  # otherwise the table stays, and its rows expire as before
                self._expiries.remove(table.name)
                if self._stored is not None:
                    self._stored.forget_expiry(table.name)
                if self._engine.history is not None:
                    self._engine.history.save(table.name, None)
            self._engine.drop_table(table.name)
            table._rows.drop()
            self._relations.remove(table.name)
        self._frames.hide(table.name)
        table.stop_following()
        log.info("table %r was dropped", table.name)
