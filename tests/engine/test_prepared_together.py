"""Transactions that are prepared together: the same verdicts and changes as one after the other, but for conflicts."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from ikebana.encoding import Schema
from ikebana.encoding.lanes import Lane
from ikebana.operators.changes import Changes
from ikebana.runtime import transactions
from ikebana.runtime.messages import Stage, TableSpec, ToPrepare
from ikebana.runtime.staging import DELETE, INSERT, UPSERT
from ikebana.runtime.transactions import OpenTransactions
from ikebana.time import Antichain
from ikebana.trace import Batch, Updates
from ikebana.trace.batch import StoredBatch
from ikebana.trace.description import Description
from ikebana.trace.updates import consolidate

EXACT = pa.field("k", pa.int64(), nullable=False), pa.field("v", pa.int64())
HASHED = pa.field("k", pa.string(), nullable=False), pa.field("v", pa.int64())
EPOCH = 5


def spec_of(name: str, fields: tuple[pa.Field, ...], kind: str) -> TableSpec:
    schema = Schema(fields[:1], fields[1:]) if kind == "keyed" else Schema(fields, ())
    return TableSpec(name, fields, kind, schema)


TABLES = {
    spec.name: spec
    for spec in (spec_of("exact", EXACT, "keyed"), spec_of("hashed", HASHED, "keyed"), spec_of("bag", EXACT, "bag"))
}


def columns_of(table: TableSpec, keys: Sequence[int], values: Sequence[int]) -> tuple[pa.Array, ...]:
    cells = [f"key {key}" for key in keys] if table.name == "hashed" else list(keys)
    return pa.array(cells, table.fields[0].type), pa.array(values, pa.int64())


class Rows:
    """The rows of a table: keys 0 to 4, each with the value 0."""

    def __init__(self, table: TableSpec) -> None:
        assert table.schema is not None
        changes = Changes.of(table.fields, dict(zip("kv", columns_of(table, range(5), [0] * 5), strict=True)), (0,))
        bounds = (Antichain.of((time,)) for time in (0, 1, 0))
        self._batch = StoredBatch.of(consolidate(changes.keyed(table.schema)), Description(*bounds))

    def batches(self) -> list[Batch]:
        return [self._batch]

    def rows_of(self, lanes: Lane, epoch: int) -> Updates | None:
        return None


STORED = {name: Rows(table) for name, table in TABLES.items()}
PART = st.tuples(
    st.sampled_from(sorted(TABLES)),
    st.sampled_from([INSERT, INSERT, UPSERT, DELETE]),
    st.lists(st.integers(0, 12), min_size=1, max_size=2),
)
GROUP = st.lists(st.lists(PART, min_size=1, max_size=2), min_size=2, max_size=6)


def staged(group: Sequence[Sequence[Any]]) -> tuple[OpenTransactions, list[ToPrepare]]:
    opened, prepared = OpenTransactions(), []
    for number, parts in enumerate(group):
        attempts: dict[str, list[tuple[int, int]]] = {}
        for part, (name, op, keys) in enumerate(parts):
            op = INSERT if name == "bag" and op == UPSERT else op
            columns = columns_of(TABLES[name], keys, [part % 2] * len(keys))
            columns = columns[:1] if op == DELETE and name != "bag" else columns
            opened.stage(Stage(number, name, part, 0, columns, op))
            attempts.setdefault(name, []).append((part, 0))
        named = tuple((name, tuple(keys)) for name, keys in attempts.items())
        prepared.append(ToPrepare(number, named, number + 1, EPOCH + number, (0,)))
    return opened, prepared


def triples(opened: OpenTransactions, transaction: int) -> Counter[Any]:
    found: Counter[Any] = Counter()
    for name, changes in opened.changes_of(transaction):
        for row, time, diff in changes.triples():
            found[name, row, time] += diff
    return Counter({key: diff for key, diff in found.items() if diff})


def keys_of(parts: Sequence[Any]) -> set[Any]:
    return {(name, key) for name, _, keys in parts for key in keys}


@given(GROUP)
def test_invariance_transactions_are_checked_together_or_one_after_the_other(group: Sequence[Sequence[Any]]) -> None:
    together, prepared = staged(group)
    alone, _ = staged(group)
    verdicts = together.prepare(prepared, TABLES, lambda table: STORED[table.name])
    for at, verdict in enumerate(verdicts):
        others = [other for other in range(len(group)) if other != at and not verdicts[other].conflicts]
        if verdict.conflicts:
            assert any(keys_of(group[at]) & keys_of(group[other]) for other in others)
            continue
        (expected,) = alone.prepare([prepared[at]], TABLES, lambda table: STORED[table.name])
        assert verdict == expected and triples(together, at) == triples(alone, at)
    accepted = [keys_of(parts) for parts, verdict in zip(group, verdicts, strict=True) if not verdict.conflicts]
    keyed = [key for keys in accepted for key in keys if key[0] != "bag"]
    assert len(keyed) == len(set(keyed))


def test_new_rows_of_several_transactions_are_found_by_one_look_up(monkeypatch: Any) -> None:
    looked_up: list[int] = []
    rows_with_keys = transactions.rows_with_keys

    def counted(schema: Any, stored: Any, lanes: Lane, epoch: int) -> Updates:
        looked_up.append(len(lanes))
        return rows_with_keys(schema, stored, lanes, epoch)

    monkeypatch.setattr(transactions, "rows_with_keys", counted)
    monkeypatch.setattr(transactions, "net_changes", None)
    opened, prepared = staged([[("exact", INSERT, [10 + at])] for at in range(8)])
    verdicts = opened.prepare(prepared, TABLES, lambda table: STORED[table.name])
    assert all(not verdict.problems and not verdict.conflicts for verdict in verdicts) and looked_up == [8]
    assert triples(opened, 7) == {("exact", (17, 0), (EPOCH + 7,)): 1}
