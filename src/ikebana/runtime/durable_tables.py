"""The durable tables of a worker: preparing transactions, restoring rows, and snapshots.

What is written to storage, and read from it, goes through a `Durability` (`ikebana.runtime.durability`), which the
transport opens: the only I/O of a worker, while the requests of this module are answered.

Contract: a transaction whose verdict is `ACCEPTED` is in the log when the verdict is returned. Restored rows are those
of the epoch that is closed last; changes that were logged later follow at their own epochs.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from ikebana.encoding.spill_files import SpillFiles
from ikebana.errors import DataflowError
from ikebana.operators.changes import Changes
from ikebana.plan import ir
from ikebana.runtime.dataflow import Dataflow
from ikebana.runtime.durability import Durability, without_columns
from ikebana.runtime.inputs import Inputs
from ikebana.runtime.messages import (
    ACCEPTED,
    Check,
    Prepare,
    PrepareVerdicts,
    Restore,
    Restored,
    Stage,
    TableSpec,
    ToPrepare,
)
from ikebana.runtime.net_changes import is_insert
from ikebana.runtime.transactions import OpenTransactions


class DurableTables:
    """The durable tables of one worker, and the checks of transactions before they are applied."""

    def __init__(
        self, worker: int, inputs: Inputs, transactions: OpenTransactions, find: Callable[[str], Dataflow]
    ) -> None:
        """`find` returns a dataflow; it raises if there is none, or if it has failed."""
        self._worker, self._inputs, self._transactions, self._find = worker, inputs, transactions, find
        self._storage: Durability | None = None  # if tables are durable

    def open(self, storage: Durability) -> None:
        """Store what is prepared from now on."""
        self._storage = storage

    @property
    def storage(self) -> Durability:
        """The worker's shard of the storage directory."""
        if self._storage is None:
            raise DataflowError(f"worker {self._worker} has no storage", hint="open it first")
        return self._storage

    def close(self) -> None:
        """Release the files of the worker's shard."""
        if self._storage is not None:
            storage, self._storage = self._storage, None
            storage.close()

    # Transactions.

    def stage(self, stage: Stage) -> None:
        """Begin to write the rows of a transaction that are only inserted, so that its commit has less to write."""
        table = self._inputs.tables.get(stage.table)
        if self._storage is not None and table is not None and table.stored_as and is_insert(stage.ops):
            self._storage.write_early(stage.transaction, table, stage.columns)

    def end(self, transaction: int) -> list[tuple[str, Changes]]:
        """Remove a transaction, and return its checked changes."""
        if self._storage is not None:
            self._storage.end(transaction)
        return self._transactions.end(transaction)

    def forget(self, oldest: int) -> None:
        """Forget the transactions before `oldest`, all of which have ended."""
        if self._storage is not None:
            self._storage.forget(oldest)
        self._transactions.forget(oldest)

    def can_check(self, check: Check | ToPrepare) -> bool:
        """Whether the traces of a transaction's tables contain all changes committed before.

        Only this worker changes the rows that it owns, so it does not have to wait for other workers.
        """
        tables, last_change = self._inputs.tables, self._inputs.last_change
        changed = [tables[name] for name, _ in check.parts if name in last_change and name in tables]
        return all(self._find(table.dataflow).lower > last_change[table.name] for table in changed if table.dataflow)

    def check(self, check: Check, epoch: int) -> Any:
        """The verdict on a transaction that can be checked."""
        return self._transactions.check(check, self._inputs.tables, self._dataflow_of, epoch)

    def prepare(self, request: Prepare) -> PrepareVerdicts | None:
        """The verdicts on transactions, once those without problems are in the log; None if it is too early."""
        storage = self.storage
        own = [prepared for prepared in request.transactions if self._worker in prepared.workers]
        if not all([self.can_check(prepared) for prepared in own]):
            return None
        decided = self._transactions.prepare(own, self._inputs.tables, self._dataflow_of)
        verdicts = {prepared.number: verdict for prepared, verdict in zip(own, decided, strict=True)}
        accepted = [prepared for prepared in own if verdicts[prepared.number] == ACCEPTED]
        storage.log((prepared, self._changes_by_table(prepared.transaction)) for prepared in accepted)
        return PrepareVerdicts(
            tuple(verdicts.get(prepared.number) for prepared in request.transactions), storage.log_bytes
        )

    def _changes_by_table(self, transaction: int) -> list[tuple[TableSpec, Changes]]:
        return [(self._inputs.tables[name], changes) for name, changes in self._transactions.changes_of(transaction)]

    def _dataflow_of(self, table: TableSpec) -> Dataflow:
        return self._find(table.dataflow)

    # Rows.

    def restore(
        self,
        request: Restore,
        epoch: int,
        kept: int | None,
        spill: SpillFiles | None,
        find_plan: Callable[[ir.Node], Dataflow],
    ) -> Restored:
        """Load the rows of tables as of an epoch, and push the changes that were made later.

        `kept` is the epoch from which on history is kept, and `spill` is where large batches are.
        `find_plan` returns the dataflow that maintains a plan.
        """
        storage, inputs = self.storage, self._inputs
        tables = [inputs.tables[name] for name in request.tables]
        batches, restored = storage.restore(tables, epoch, request.added, kept, spill)
        for table in tables:
            self._dataflow_of(table).preload(batches[table.name], epoch)
            for plan in inputs.former_plans(table.name):
                find_plan(plan).preload(without_columns(batches[table.name], ir.schema_of(plan)), epoch)
            later = storage.later_changes(table, epoch, request.added.get(table.name), kept)
            if later is not None:
                inputs.push_to_table(table.name, later, int(later.times[:, 0].max()))
                restored = replace(restored, log_rows=restored.log_rows + len(later))
        return restored

    # Snapshots.

    def begin_snapshot(self, epoch: int) -> None:
        """Keep the rows of all durable tables, and complete the epoch."""
        if self._storage is not None:
            tables = [table for table in self._inputs.tables.values() if table.stored_as]
            flows = {table.stored_as: self._dataflow_of(table) for table in tables}
            handles = {name: flow.reader.clone() for name, flow in flows.items()}
            self._storage.begin_snapshot(epoch, handles, [flow.name for flow in flows.values()])
            for flow in flows.values():
                flow.demand(epoch + 1)

    def begin_history(self, table: TableSpec, epoch: int) -> None:
        """Note that the rows of a table were copied at an epoch."""
        if self._storage is not None and table.stored_as:
            self._storage.begin_history(table.stored_as, epoch)

    def write_snapshot(self, epoch: int, has_completed: Callable[[str, int], bool]) -> bool:
        """Begin to write a snapshot once its dataflows have completed the epoch; return whether it is written."""
        storage = self.storage
        is_complete = all(has_completed(name, epoch) for name in storage.snapshot_dataflows)
        return is_complete and storage.write_snapshot(epoch)
