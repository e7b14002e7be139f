"""Transactions on a worker: their staged rows, and whether they can be committed.

A worker keeps staged rows as it received them. When it receives a `Check`, it computes the net change of each table
against the table's trace (`ikebana.runtime.net_changes`), and keeps the net change; a commit hands it to the table's
inputs. Nothing else sees a transaction before it is committed, so to abort one it is enough to drop it.

The trace must contain all changes committed before, for which the worker waits.

Cost: that of the net changes. Not guaranteed: anything if another transaction with the same keys is committed between
the check and the commit of a transaction; the driver checks and commits one at a time, or several that have no keys in
common (`Claims`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ikebana.encoding.lanes import Lane
from ikebana.errors import DataflowError
from ikebana.operators.changes import Changes
from ikebana.runtime.messages import Check, Problem, Stage, TableSpec, ToPrepare, Verdict
from ikebana.runtime.net_changes import StoredTables, is_insert, keys_of, net_changes
from ikebana.runtime.staging import StagedRows


@dataclass(slots=True)
class _Transaction:
    staged: dict[tuple[str, Any, int], Stage] = field(default_factory=dict)  # by table, part and attempt
    changes: list[tuple[str, Changes]] = field(default_factory=list)
    refused: Problem | None = None  # set if there was no memory for some of its rows: then none is kept
    attempt: int = 0  # the last attempt to prepare it


class OpenTransactions:
    """The open transactions of one worker, with their staged rows and checked changes."""

    def __init__(self) -> None:
        self._open: dict[int, _Transaction] = {}
        self._ended: set[int] = set()
        self._oldest = 0

    def stage(self, stage: Stage) -> bool:
        """Keep rows until their transaction ends. Return whether they are kept: those that arrive later are ignored."""
        if stage.transaction < self._oldest or stage.transaction in self._ended:
            return False
        transaction = self._open.setdefault(stage.transaction, _Transaction())
        if transaction.refused is not None:
            return False
        transaction.staged[stage.table, stage.part, stage.attempt] = stage
        return True

    def refuse(self, stage: Stage, reason: str) -> None:
        """Drop all rows of a transaction, and reject it when it is checked: there is no memory for some rows."""
        transaction = self._open.setdefault(stage.transaction, _Transaction())
        transaction.staged.clear()
        transaction.refused = Problem(stage.table, "memory", max(map(len, stage.columns), default=0), (reason,))

    def check(
        self,
        check: Check | ToPrepare,
        tables: dict[str, TableSpec],
        stored: StoredTables,
        epoch: int,
        claims: Claims | None = None,
    ) -> Verdict:
        """The verdict on a transaction. If there are no problems, its changes are kept for `changes_of` and `end`.

        `claims` has the keys of the transactions that are prepared together, before this one.
        """
        transaction = self._open.setdefault(check.transaction, _Transaction())
        if transaction.refused is not None:
            return Verdict((transaction.refused,))
        by_table: list[tuple[TableSpec, list[StagedRows]]] = []
        for name, attempts in check.parts:
            keys = [(name, part, attempt) for part, attempt in attempts]
            staged = [transaction.staged[key] for key in keys if key in transaction.staged]
            if staged:
                parts = [StagedRows(stage.columns, stage.ops) for stage in staged]
                by_table.append((_table(tables, name), parts))
        if claims is not None and not claims.add(by_table):
            return Verdict((), conflicts=True)
        changes: list[tuple[str, Changes]] = []
        problems: list[Problem] = []
        for table, parts in by_table:
            table_changes, table_problems = net_changes(table, parts, stored, epoch)
            changes += [(table.name, change) for change in table_changes if len(change)]
            problems += table_problems
        transaction.changes = [] if problems else changes
        return Verdict(tuple(problems))

    def prepare(
        self, prepared: ToPrepare, tables: dict[str, TableSpec], stored: StoredTables, claims: Claims | None
    ) -> Verdict:
        """The verdict on a transaction, as of `check`; an attempt that comes after a later one does nothing."""
        number = prepared.transaction
        transaction = self._open.setdefault(number, _Transaction())
        if number < self._oldest or number in self._ended or prepared.number < transaction.attempt:
            return Verdict((), conflicts=True)
        transaction.attempt = prepared.number
        return self.check(prepared, tables, stored, prepared.epoch, claims)

    def changes_of(self, transaction: int) -> list[tuple[str, Changes]]:
        """The changes of a transaction that was checked without problems."""
        return self._open[transaction].changes

    def end(self, transaction: int) -> list[tuple[str, Changes]]:
        """Remove a transaction, and return its checked changes."""
        ended = self._open.pop(transaction, None)
        self._ended.add(transaction)
        return ended.changes if ended is not None else []

    def forget(self, oldest: int) -> None:
        """Forget the transactions before `oldest`, all of which have ended."""
        if oldest > self._oldest:
            self._oldest = oldest
            self._ended = {number for number in self._ended if number >= oldest}
            self._open = {number: other for number, other in self._open.items() if number >= oldest}


class Claims:
    """The keys of transactions that are prepared together, and are therefore checked against the same rows.

    Two transactions that change different keys do not affect each other's verdicts. Nor do rows that are inserted into
    a bag affect one that only inserts.
    """

    def __init__(self) -> None:
        self._lanes: dict[str, list[Lane]] = {}  # by table

    def add(self, changed: Sequence[tuple[TableSpec, Sequence[StagedRows]]]) -> bool:
        """Claim the keys of a transaction, unless another transaction has claimed one of them. Return which."""
        lanes = [
            (table, parts, keys_of(table.schema, parts)[0]) for table, parts in changed if table.schema is not None
        ]
        if any(self._conflicts(table, parts, lane) for table, parts, lane in lanes):
            return False
        for table, _, lane in lanes:
            self._lanes.setdefault(table.name, []).append(lane)
        return True

    def _conflicts(self, table: TableSpec, parts: Sequence[StagedRows], lane: Lane) -> bool:
        if table.kind == "bag" and all(is_insert(part.ops) for part in parts):
            return False
        return any(_have_common(lane, claimed) for claimed in self._lanes.get(table.name, ()))


def _have_common(one: Lane, other: Lane) -> bool:
    return bool(np.isin(one, other).any()) if len(one) * len(other) > 1 else bool(one[0] == other[0])


def _table(tables: dict[str, TableSpec], name: str) -> TableSpec:
    if name not in tables:
        raise DataflowError(f"there is no table {name!r}", hint="it was dropped during the transaction")
    return tables[name]
