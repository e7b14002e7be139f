"""Transactions on a worker: their staged rows, and whether they can be committed.

A worker keeps staged rows as it received them. When it receives a `Check`, it computes the net change of each table
against the table's trace (`ikebana.runtime.net_changes`), and keeps the net change; a commit hands it to the table's
inputs. Nothing else sees a transaction before it is committed, so to abort one it is enough to drop it.

The trace must contain all changes committed before, for which the worker waits.

Together. Transactions that are prepared together are checked against the same rows, so no two of them may change the
same key (`Claims`). Those that add a few rows each are checked by one look-up of all their keys: nearly always, neither
the table nor another one of them has any of the keys (`only_new_rows`).

Cost: that of the net changes, and about half of it for each of eight transactions that are checked by one look-up. Not
guaranteed: anything if another transaction with the same keys is committed between the check and the commit of a
transaction; the driver checks and commits one at a time, or several that are prepared together.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa

from ikebana.encoding.lanes import Lane
from ikebana.errors import DataflowError
from ikebana.operators.changes import Changes
from ikebana.runtime.key_reads import MOST_KEYS
from ikebana.runtime.messages import ACCEPTED, Check, Problem, Stage, TableSpec, ToPrepare, Verdict
from ikebana.runtime.net_changes import (
    StoredTables,
    insertions,
    is_insert,
    keys_of,
    net_changes,
    rows_with_keys,
    sorted_distinct,
)
from ikebana.runtime.staging import INSERT, UPSERT, StagedRows

StagedTables: TypeAlias = Sequence[tuple[TableSpec, Sequence[StagedRows]]]
"""The staged rows of a transaction, by table."""


@dataclass(slots=True)
class _Transaction:
    staged: dict[tuple[str, Any, int], Stage] = field(default_factory=dict)  # by table, part and attempt
    changes: list[tuple[str, Changes]] = field(default_factory=list)
    refused: Problem | None = None  # set if there was no memory for some of its rows: then none is kept
    attempt: int = 0  # the last attempt to prepare it

    def staged_in(self, parts: Any, tables: Mapping[str, TableSpec]) -> StagedTables:
        """The rows of some parts, which are as in `Check`, by table; none of tables without rows."""
        by_table: list[tuple[TableSpec, list[StagedRows]]] = []
        for name, attempts in parts:
            keys = [(name, part, attempt) for part, attempt in attempts]
            stages = [self.staged[key] for key in keys if key in self.staged]
            if stages:
                by_table.append((_table(tables, name), [StagedRows(stage.columns, stage.ops) for stage in stages]))
        return by_table

    def check(self, staged: StagedTables, stored: StoredTables, epoch: int) -> Verdict:
        """The verdict on its rows; keeps their net changes if there are no problems."""
        changes: list[tuple[str, Changes]] = []
        problems: list[Problem] = []
        for table, parts in staged:
            table_changes, table_problems = net_changes(table, parts, stored, epoch)
            changes += [(table.name, change) for change in table_changes if len(change)]
            problems += table_problems
        self.changes = [] if problems else changes
        return Verdict(tuple(problems))


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

    def check(self, check: Check, tables: Mapping[str, TableSpec], stored: StoredTables, epoch: int) -> Verdict:
        """The verdict on a transaction. If there are no problems, its changes are kept for `changes_of` and `end`."""
        transaction = self._open.setdefault(check.transaction, _Transaction())
        if transaction.refused is not None:
            return Verdict((transaction.refused,))
        return transaction.check(transaction.staged_in(check.parts, tables), stored, epoch)

    def prepare(
        self, group: Sequence[ToPrepare], tables: Mapping[str, TableSpec], stored: StoredTables
    ) -> list[Verdict]:
        """The verdicts, as of `check`, on transactions that are prepared together.

        An attempt that comes after a later one does nothing. One that changes a key of another one before it conflicts.
        """
        attempts = [self._begin_attempt(prepared, tables) for prepared in group]
        staged = [() if isinstance(attempt, Verdict) else attempt for attempt in attempts]
        new = only_new_rows(staged, stored, group[0].epoch) if len(group) > 1 else frozenset[int]()
        claims = Claims() if len(group) > 1 else None
        return [
            attempt if isinstance(attempt, Verdict) else self._prepared(prepared, attempt, stored, at in new, claims)
            for at, (prepared, attempt) in enumerate(zip(group, attempts, strict=True))
        ]

    def _begin_attempt(self, prepared: ToPrepare, tables: Mapping[str, TableSpec]) -> Verdict | StagedTables:
        """The staged rows of a transaction that is to be checked, or the verdict on it if it is not."""
        number = prepared.transaction
        transaction = self._open.setdefault(number, _Transaction())
        if number < self._oldest or number in self._ended or prepared.number < transaction.attempt:
            return Verdict((), conflicts=True)
        transaction.attempt = prepared.number
        if transaction.refused is not None:
            return Verdict((transaction.refused,))
        return transaction.staged_in(prepared.parts, tables)

    def _prepared(
        self, prepared: ToPrepare, staged: StagedTables, stored: StoredTables, is_new: bool, claims: Claims | None
    ) -> Verdict:
        """The verdict on a transaction; `is_new`: it only adds rows, with keys that nobody else has."""
        transaction = self._open[prepared.transaction]
        if is_new:
            transaction.changes = [
                (table.name, insertions(table, part.columns, prepared.epoch))
                for table, parts in staged
                for part in parts
            ]
            return ACCEPTED
        if claims is not None and not claims.add(staged):
            return Verdict((), conflicts=True)
        return transaction.check(staged, stored, prepared.epoch)

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

    def add(self, staged: StagedTables) -> bool:
        """Claim the keys of a transaction, unless another transaction has claimed one of them. Return which."""
        lanes = [(table, parts, keys_of(table.schema, parts)[0]) for table, parts in staged if table.schema is not None]
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


def only_new_rows(group: Sequence[StagedTables], stored: StoredTables, epoch: int) -> frozenset[int]:
    """The positions of transactions that only add rows to one table each, with keys that neither the table nor another
    transaction of the group has.

    Only tables with a key count, and few rows. Transactions that are left out may be of this kind, too.
    """
    by_table: dict[str, tuple[TableSpec, list[tuple[int, StagedRows]]]] = {}
    for at, staged in enumerate(group):
        for table, parts in staged:
            if table.kind == "keyed":
                by_table.setdefault(table.name, (table, []))[1].extend((at, part) for part in parts)
    adding = {at for at, staged in enumerate(group) if len(staged) == 1 and _only_adds(staged)}
    with_new_keys: set[int] = set()
    for table, parts_of_table in by_table.values():
        with_new_keys |= _with_new_keys(table, parts_of_table, stored, epoch)
    return frozenset(adding & with_new_keys)


def _only_adds(staged: StagedTables) -> bool:
    return all(isinstance(part.ops, int) and part.ops in (INSERT, UPSERT) for _, parts in staged for part in parts)


def _with_new_keys(
    table: TableSpec, staged: Sequence[tuple[int, StagedRows]], stored: StoredTables, epoch: int
) -> set[int]:
    """The transactions, given with their parts, of which all keys are new in a table and in these parts."""
    assert table.schema is not None
    counts, columns = [len(part) for _, part in staged], len(table.schema.key.fields)
    if len(staged) == 1 or sum(counts) > MOST_KEYS:
        return set()
    keys = zip(*(part.columns[:columns] for _, part in staged), strict=True)
    lane, _ = table.schema.key.encode([pa.concat_arrays(parts) for parts in keys], sum(counts))
    distinct = sorted_distinct(lane)
    existing = rows_with_keys(table.schema, stored(table), distinct, epoch)
    transactions = {at for at, _ in staged}
    if len(distinct) == len(lane) and not len(existing):
        return transactions
    values, positions, occurrences = np.unique(lane, return_inverse=True, return_counts=True)
    is_new = (occurrences == 1) & ~np.isin(values, existing.key)
    numbers = np.repeat([at for at, _ in staged], counts)
    return transactions.difference(numbers[~is_new[positions]].tolist())


def _table(tables: Mapping[str, TableSpec], name: str) -> TableSpec:
    if name not in tables:
        raise DataflowError(f"there is no table {name!r}", hint="it was dropped during the transaction")
    return tables[name]
