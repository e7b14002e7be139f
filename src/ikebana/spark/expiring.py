"""Rows that expire: they are deleted some time after the time in one of their columns.

    session.create_table("clicks", "page STRING, at TIMESTAMP", expire_after="7 days", on="at")

A hidden view of the table has the rows that have expired by the session's clock (`ikebana.spark.clock`). Once a
second the session deletes these rows, in transactions like those of users. So all views, look-ups and DataFrames lose
them at the same epoch, their memory is freed as that of other deleted rows, and whatever follows the changes of the
table sees ordinary deletions.

Exact. A row is deleted if, and only if, the table has it when it expires: the hidden view is read and the rows
are deleted while no other transaction can be committed. A row that was replaced by one with a later time stays.
Until it is deleted, at most about two seconds after it expires, a row is a row like any other; a row that had
expired before it was inserted is visible for that time as well. A row whose time is null is never deleted.

Cost: in the hidden view's dataflow, for each row its key and its time (in a table without a key, the whole row); one
request to all workers each second. At most `MOST_ROWS` rows are deleted in one transaction; they pass through the
driver, as columns.
"""

from __future__ import annotations

import threading
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from pyarrow import types

from ikebana.engine import views
from ikebana.engine.durations import duration
from ikebana.errors import IkebanaError, SchemaError, WaitTimeoutError
from ikebana.operators.changes import Fields
from ikebana.spark.monitoring import log
from ikebana.spark.naming import quote

if TYPE_CHECKING:
    from ikebana.spark.session import Session
    from ikebana.spark.table import Table

MOST_ROWS = 1_000_000
"""At most so many rows are deleted in one transaction."""

_PERIOD_SECONDS = 1.0


class Expiry:
    """Deletes the rows of one table when they expire."""

    def __init__(self, session: Session, table: Table, after: timedelta, on: str) -> None:
        self._session, self._after, self._on = session, after, on
        columns = ", ".join(map(quote, table.key or table.columns))
        query = (
            f"SELECT {columns} FROM {quote(table.name)} "
            f"WHERE CAST({quote(on)} AS TIMESTAMP) <= now() - INTERVAL '{after.total_seconds():.6f}' SECOND"
        )
        self._table, self._coordinator = table, session.engine.coordinator
        rows = session._queries.lower(query, f"the expiry of table {table.name!r}").rows
        self._expired: views.View = session.engine.install(f"expired rows of {table.name}", rows)

    def delete_expired(self) -> int:
        """Delete the rows that have expired; returns how many."""
        deleted = 0
        while self._expired.first_rows(0)[1]:
            with self._coordinator.lock:  # no other transaction can change these rows before they are deleted
                rows, _ = self._expired.first_rows(MOST_ROWS)
                if rows.num_rows:
                    self._table._inner.delete(rows)
                    deleted += rows.num_rows
        return deleted

    def again(self) -> Expiry:
        """The same, for a table that has got another column; this one is closed."""
        self.close()
        return Expiry(self._session, self._table, self._after, self._on)

    def close(self) -> None:
        """Stop deleting rows."""
        self._expired.drop()


class Expiries:
    """The thread of a session that deletes rows, while there are tables whose rows expire."""

    def __init__(self) -> None:
        self._expiries: dict[str, Expiry] = {}  # by table
        self._lock, self._stop = threading.Lock(), threading.Event()
        self._thread: threading.Thread | None = None

    def add(self, name: str, expiry: Expiry) -> None:
        """Delete the rows of a table from now on."""
        with self._lock:
            self._expiries[name] = expiry
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="ikebana expiry", daemon=True)
                self._thread.start()

    def remove(self, name: str) -> None:
        """Stop deleting the rows of a table, if its rows expire; waits for a deletion in progress."""
        with self._lock:
            expiry = self._expiries.pop(name, None)
            if expiry is not None:
                expiry.close()

    def renew(self, name: str) -> None:
        """Go on with a table that has got another column."""
        with self._lock:
            if name in self._expiries:
                self._expiries[name] = self._expiries[name].again()

    def _run(self) -> None:
        while not self._stop.wait(_PERIOD_SECONDS):
            with self._lock:
                for name, expiry in list(self._expiries.items()):
                    try:
                        expiry.delete_expired()
                    except WaitTimeoutError:  # for instance while workers are replaced
                        continue
                    except IkebanaError as error:
                        if not self._stop.is_set():
                            log.error("rows of table %r are no longer deleted when they expire: %s", name, error)
                        del self._expiries[name]

    def stop(self) -> None:
        """Begin no further deletion, and report no error of the one in progress."""
        self._stop.set()

    def close(self) -> None:
        """End the thread. The workers must have ended, so that a deletion in progress fails."""
        self.stop()
        if self._thread is not None:
            self._thread.join()


def checked_expiry(expire_after: Any, on: Any, fields: Fields, *, is_stream: bool) -> timedelta | None:
    """After what time rows are deleted; None if they are not. Raises if table and arguments do not fit."""
    if expire_after is None and on is None:
        return None
    if expire_after is None or on is None:
        raise SchemaError(
            "expire_after and on belong together",
            hint='give a time and a column, such as expire_after="7 days", on="ts"',
        )
    if is_stream:
        raise SchemaError("rows of a stream cannot expire", detail="they are not stored", hint="leave out expire_after")
    known = {field.name: field.type for field in fields}
    if on not in known:
        raise SchemaError(f"there is no column {on!r}", detail=f"the columns are {', '.join(known)}")
    if not (types.is_timestamp(known[on]) or types.is_date(known[on])):
        raise SchemaError(
            f"rows cannot expire by column {on!r}",
            detail=f"it is of type {known[on]}",
            hint="use a column of type TIMESTAMP or DATE",
        )
    return duration(expire_after, "expire_after")
