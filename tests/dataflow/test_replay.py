"""The history of an arrangement as changes: the same collection, without rows that cancel, mostly without copies."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import Any
from unittest.mock import patch

import numpy as np
import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from ikebana.encoding import Schema
from ikebana.operators import replay
from ikebana.operators.changes import Changes
from ikebana.trace import Updates
from ikebana.trace.updates import consolidate
from tests.profiles import examples

PAIRS = Schema({"k": pa.int64()}, {"v": pa.int64()})
TEXTS = Schema({"k": pa.string()}, {"v": pa.string()}, hash_bits=2)

rows = st.tuples(st.integers(0, 9), st.integers(0, 1), st.integers(0, 2), st.sampled_from([1, 1, 2, -1]))


def part(schema: Schema, updates: list[tuple[int, int, int, int]]) -> Updates:
    """A part of a history: sorted, with equal updates added up."""
    convert: Any = str if schema is TEXTS else int
    columns = {"k": [convert(k) for k, _, _, _ in updates], "v": [convert(v) for _, v, _, _ in updates]}
    times = np.array([[time] for _, _, time, _ in updates], np.int64).reshape(-1, 1)
    return consolidate(Updates.of(schema, columns, times, [diff for *_, diff in updates])).updates


def total(parts: Iterable[Updates | Changes]) -> Counter[Any]:
    sums: Counter[Any] = Counter()
    for updates in parts:
        for row, time, diff in updates.triples():
            sums[row, time] += diff
    return Counter({update: diff for update, diff in sums.items() if diff})


@examples(1)
@given(st.lists(st.lists(rows, max_size=30), max_size=4), st.sampled_from([PAIRS, TEXTS]), st.integers(1, 4))
def test_oracle_history_without_rows_that_cancel(history: list[Any], schema: Schema, run_rows: int) -> None:
    parts = [part(schema, updates) for updates in history]
    with patch.object(replay, "RUN_ROWS", run_rows):
        changes = replay.replayed(parts)
    assert total(changes) == total(parts)
    seen = {(row, time) for piece in changes for row, time, _ in piece.triples()}
    assert seen == set(total(parts))


def test_rows_that_nothing_retracts_are_not_copied() -> None:
    keys = np.arange(100_000)
    old = consolidate(Updates.of(PAIRS, {"k": keys, "v": keys * 3}, (0,))).updates
    new = consolidate(Updates.of(PAIRS, {"k": [5, 70_000], "v": [15, 210_000]}, (0,), -1)).updates
    changes = replay.replayed([old, new])
    copied = [piece for piece in changes if not np.shares_memory(piece.named["k"].to_numpy(), old.key)]
    assert sum(map(len, changes)) == 99_998 and sum(map(len, copied)) <= 2 * replay.RUN_ROWS
