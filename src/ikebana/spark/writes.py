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
from typing import TYPE_CHECKING, Any

from ikebana.engine.coordinator import Coordinator
from ikebana.engine.tables import Transaction
from ikebana.errors import DataflowError, SchemaError
from ikebana.runtime.messages import TableSpec
from ikebana.spark.snapshots import WriteRequest

if TYPE_CHECKING:
    from ikebana.spark.table import Table

_OPS = ("insert", "upsert", "delete")


class Writes:
    """Answers the requests of writers. Several threads may do so at once."""

    def __init__(self, coordinator: Coordinator, find: Callable[[str], Table]) -> None:
        """`find` returns the table of a name, and raises if there is none."""
        self._coordinator, self._find = coordinator, find
        self._transactions: dict[str, Transaction] = {}  # by job
        self._jobs: dict[str, str] = {}  # the last job of each stream
        self._lock = threading.Lock()

    def answer(self, request: WriteRequest) -> Any:
        """The answer to a request."""
        match request.kind:
            case "describe":
                return self._describe(request)
            case "begin":
                return self._begin(request)
            case "commit":
                return self._commit(request)
            case "abort":
                self._abort(request)
        return None

    def _describe(self, request: WriteRequest) -> TableSpec:
        table = self._find(request.table)
        if request.op not in _OPS:
            raise SchemaError(f"the option `op` is {request.op!r}", hint=f"use one of {', '.join(_OPS)}")
        return table.inner.spec

    def _begin(self, request: WriteRequest) -> int:
        """The number of the job's transaction. One of an earlier job of the same stream is aborted."""
        with self._lock:
            transaction = self._transactions.get(request.job)
            if transaction is None:
                transaction = self._transactions[request.job] = Transaction(self._coordinator)
                earlier = self._jobs.get(request.stream) if request.stream else None
                self._jobs[request.stream] = request.job
                if earlier in self._transactions:
                    self._transactions.pop(earlier).abort()
            return transaction.number

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
            if request.rows:
                transaction.adopt(table.inner, request.parts)
                transaction.commit()
            else:  # no epoch: a stream that reads the table would never be idle
                transaction.abort()
        except BaseException:
            transaction.abort()
            raise
        if request.stream:
            table.last_batches[request.stream] = request.batch

    def _is_next(self, table: Table, request: WriteRequest) -> bool:
        """Whether a micro-batch has to be applied; raises if earlier ones are missing."""
        last = table.last_batches.get(request.stream)
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
