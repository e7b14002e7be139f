"""Rows are partitioned by shard and by round: every row is in the part that it belongs to, once."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from ikebana.encoding import Schema
from ikebana.kernels import shard_rows
from ikebana.operators.changes import Changes
from ikebana.operators.partition import split_rows, split_updates
from ikebana.operators.pending import PendingChanges
from ikebana.operators.span import Span
from ikebana.trace import Updates

EXACT = Schema({"k": pa.int64()}, {"v": pa.int64()})
WITH_PAYLOAD = Schema({"k": pa.int64()}, {"v": pa.string()})
TWO_DIFFS = Schema({"k": pa.int64()}, {"v": pa.int64()}, diffs=["n", "m"])

ROWS = st.lists(st.tuples(st.integers(-4, 4), st.integers(0, 2), st.integers(0, 2), st.sampled_from([1, 1, 1, -2])))


def updates_of(schema: Schema, rows: list[tuple[int, int, int, int]]) -> Updates:
    """Updates with a key, a value, an epoch and a diff each."""
    keys, values, epochs, diffs = (list(column) for column in zip(*rows, strict=True)) if rows else ([], [], [], [])
    kind = schema.val.fields[0].type
    columns = {"k": keys, "v": pa.array([str(v) if kind == pa.string() else v for v in values], kind)}
    is_constant = len(set(diffs)) == 1
    weights: Any = diffs[0] if is_constant else np.array(diffs, np.int64)
    times = (epochs[0],) if len(set(epochs)) == 1 else np.array(epochs, np.int64).reshape(-1, 1)
    return Updates.of(
        schema, columns, times, dict.fromkeys(schema.diffs, weights) if len(schema.diffs) > 1 else weights
    )


def triples(parts: list[Updates]) -> Counter[Any]:
    return Counter(triple for part in parts for triple in part.triples())


@given(st.lists(ROWS, max_size=3), st.sampled_from([EXACT, WITH_PAYLOAD, TWO_DIFFS]), st.sampled_from([1, 2, 3, 5]))
def test_invariance_updates_are_split_by_shard(parts: list[Any], schema: Schema, shards: int) -> None:
    given_parts = [updates_of(schema, rows) for rows in parts]
    split = split_updates(given_parts, shards)
    assert len(split) == shards
    kept = {shard: part for shard, part in enumerate(split) if part is not None}
    assert all(len(part) for part in kept.values())
    assert triples(list(kept.values())) == triples(given_parts)
    for shard, part in kept.items():
        assert shard_rows(part.key, shards).tolist() == [shard] * len(part)
        assert (part.tix < len(part.times)).all()


def test_rows_of_one_part_are_not_copied() -> None:
    updates = updates_of(EXACT, [(7, 1, 0, 1)] * 3)
    (part,) = (part for part in split_updates([updates], 4) if part is not None)
    assert part is updates
    changes = Changes.of_updates(updates)
    assert split_rows(changes, np.full(3, 1), 3) == [None, changes, None]


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 5)), min_size=1), st.integers(0, 3))
def test_oracle_changes_wait_for_their_rounds(rows: list[tuple[int, int]], visited: int) -> None:
    fields = (pa.field("v", pa.int64()),)
    changes = Changes.of(fields, {"v": [v for _, v in rows]}, np.array([(9, later) for later, _ in rows], np.int64))
    pending = PendingChanges()
    now = pending.keep_later(changes, Span(9, 10, (visited,)))
    assert Counter(now.triples()) == expected(rows, visited)
    waiting = set(later for later, _ in rows) - {visited}
    after = -1
    while (at := pending.next_round((), after)) is not None:
        popped = pending.pop(Span(9, 10, (at,)))
        assert Counter(triple for part in popped for triple in part.triples()) == expected(rows, at)
        waiting.remove(at)
        after = at
    assert not waiting


def expected(rows: list[tuple[int, int]], at: int) -> Counter[Any]:
    """The changes at a round."""
    return Counter(((v,), (9, later), 1) for later, v in rows if later == at)
