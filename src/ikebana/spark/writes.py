"""The driver's side of writing through the data source: transactions of Spark's writing jobs.

The tasks of a job (`ikebana.spark.writers`) stage rows on the workers, as those of `Table.load` do, in a transaction
that the first of them asks the driver for. When all tasks have succeeded Spark calls the writer's `commit`, which sends
the driver the parts that count; if the job fails it calls `abort`. Both run in processes that are not the driver's.

A micro-batch of a stream is applied exactly once: the table remembers the last micro-batch of each stream, and one that
Spark repeats is skipped. A stream whose first micro-batches were applied to another table is refused, unless it has the
option `resume`; see `ikebana.spark.following`.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import TYPE_CHECKING

from ikebana.cluster.client_keys import IssuedKeys, allow_stage
from ikebana.cluster.protocol import Grant
from ikebana.engine.coordinator import Coordinator
from ikebana.engine.tables import Transaction
from ikebana.errors import DataflowError, SchemaError
from ikebana.spark.snapshots import DriverReply, TableDefinition, WriteRequest

if TYPE_CHECKING:
    from ikebana.spark.table import Table

_OPS = ("insert", "upsert", "delete")

WRITE_SECONDS = 24 * 3600.0
"""How long a job may write to a table."""


class Writes:
    """Answers the requests of writers. Several threads may do so at once."""

    def __init__(
        self, coordinator: Coordinator, find: Callable[[str], Table], keys: Callable[[], IssuedKeys], server: int
    ) -> None:
        """`find` returns the table of a name, and raises if there is none; `server` takes the requests of writers.

        `keys` returns what issues keys for the workers as they are now.
        """
        self._coordinator, self._find, self._keys, self._server = coordinator, find, keys, server
        self._transactions: dict[str, Transaction] = {}  # by job
        self._jobs: dict[str, str] = {}  # the last job of each stream
        self._clients: dict[str, set[bytes]] = {}  # the keys that have begun each job
        self._lock = threading.Lock()

    def answer(self, request: WriteRequest, client: bytes) -> DriverReply:
        """The answer to a request of the client with a public key."""
        if request.kind != "describe" and self._keys().purpose(client) != ("write", request.table):
            raise DataflowError(f"the key of this job does not allow writing to table {request.table!r}")
        match request.kind:
            case "describe":
                return self._describe(request)
            case "begin":
                return self._begin(request, client)
            case "commit":
                self._commit(request)
                self._revoke(request.job)
            case "abort":
                self._abort(request)
                self._revoke(request.job)
        return DriverReply()

    def _revoke(self, job: str) -> None:
        """Make the keys useless that the tasks of a job have used."""
        with self._lock:
            clients = self._clients.pop(job, set())
        for key in clients:
            self._keys().revoke(key)

    def _describe(self, request: WriteRequest) -> DriverReply:
        table = self._find(request.table)
        if request.op not in _OPS:
            raise SchemaError(f"the option `op` is {request.op!r}", hint=f"use one of {', '.join(_OPS)}")
        credentials = self._keys().issue(Grant(WRITE_SECONDS, server=self._server), ("write", table.name))
        return DriverReply(table=TableDefinition.of(table._inner.spec), credentials=credentials)

    def _begin(self, request: WriteRequest, client: bytes) -> DriverReply:
        """The number of the job's transaction. One of an earlier job of the same stream is aborted."""
        with self._lock:
            self._clients.setdefault(request.job, set()).add(client)
            transaction = self._transactions.get(request.job)
            if transaction is None:
                transaction = self._transactions[request.job] = Transaction(self._coordinator)
                earlier = self._jobs.get(request.stream) if request.stream else None
                self._jobs[request.stream] = request.job
                if earlier in self._transactions:
                    self._transactions.pop(earlier).abort()
        number = transaction.number
        self._keys().renew(client, lambda grant: allow_stage(grant, number, request.table))
        return DriverReply(number=number)

    def _commit(self, request: WriteRequest) -> None:
        with self._lock:
            transaction = self._transactions.pop(request.job, None)
        if transaction is None:
            raise DataflowError(f"a job that writes to table {request.table!r} has ended", hint="run it again")
        try:
            table = self._find(request.table)
            if request.stream and not self._is_next(table, request):
                transaction.abort()
                return
            position = (request.stream, request.batch) if request.stream else None
            if request.rows:
                transaction._adopt(table._inner, request.parts)
                if position is not None:
                    transaction.note = table._note(position)
                transaction.commit()
            else:  # no epoch: a stream that reads the table would never be idle
                transaction.abort()
                if position is not None:
                    table._skip(position)
        except BaseException:
            transaction.abort()
            raise
        if request.stream:
            table._last_batches[request.stream] = request.batch

    def _is_next(self, table: Table, request: WriteRequest) -> bool:
        """Whether a micro-batch has to be applied; raises if earlier ones are missing."""
        last = table._last_batches.get(request.stream)
        if last is None and request.batch > 0 and not request.resume:
            raise DataflowError(
                f"table {table.name!r} cannot continue from the checkpoint of this stream",
                detail=f"its micro-batches before number {request.batch} were not applied to this table",
                hint='use a new checkpoint, or option("resume", True) if the table has the rows already',
            )
        return last is None or request.batch > last

    def _abort(self, request: WriteRequest) -> None:
        with self._lock:
            transaction = self._transactions.pop(request.job, None)
        if transaction is not None:
            transaction.abort()
