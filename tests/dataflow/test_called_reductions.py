"""Reductions that programs call, with groups that fit into registers and groups that do not."""

from __future__ import annotations

from collections import Counter
from unittest.mock import patch

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ikebana.engine import Engine
from ikebana.reducers.ordering import TopRows, reduced
from ikebana.reducers.sort_keys import SortKey
from ikebana.runtime import program as fusing
from tests.dataflow.harness import cluster_of
from tests.dataflow.test_programs import fused
from tests.profiles import examples

TEXTS = ["", "a", "b", "a longer text", "漢"]
Row = tuple[int, str, int]


def first_rows(rows: Counter[Row], limit: int) -> Counter[Row]:
    """The first rows of each group, by text and number."""
    result: Counter[Row] = Counter()
    for key in {row[0] for row in rows}:
        group = sorted((row for row in rows.elements() if row[0] == key), key=lambda row: (row[1].encode(), row[2]))
        result.update(group[:limit])
    return result


def columns(rows: list[Row]) -> dict[str, list[object]]:
    return {name: [row[at] for row in rows] for at, name in enumerate(("k", "s", "n"))}


rows = st.tuples(st.integers(0, 2), st.sampled_from(TEXTS), st.integers(-2, 2))
histories = st.lists(st.lists(st.tuples(rows, st.booleans()), min_size=1, max_size=6), min_size=2, max_size=6)


@pytest.mark.parametrize("room", [8, 1 << 13])
@pytest.mark.parametrize("workers", [1, 2])
@given(history=histories, limit=st.integers(1, 3))
@examples(0.2)
def test_oracle_first_rows(room: int, workers: int, history: list[list[tuple[Row, bool]]], limit: int) -> None:
    """With little room, groups soon have too many rows: then programs do without the reduction."""
    with patch.object(fusing, "ROOM", room), fused("always"), Engine(workers) as engine:
        source = engine.input("source", {"k": pa.int64(), "s": pa.string(), "n": pa.int64()})
        view = engine.install("view", reduced(source, ("k",), TopRows(limit, 0, (SortKey("s"),))))
        present: Counter[Row] = Counter()
        for changes in history:
            for row, is_added in changes:
                if is_added or present[row]:
                    source.push(columns([row]), 1 if is_added else -1)
                    present[row] += 1 if is_added else -1
            engine.advance()
            table = view.to_arrow().select(["k", "s", "n"]).to_pydict()
            assert Counter(zip(*table.values(), strict=True)) == first_rows(+present, limit)


@pytest.mark.parametrize("workers", [1, 2])
def test_a_group_that_is_too_large_is_read_by_visits(workers: int) -> None:
    with patch.object(fusing, "ROOM", 16), fused("small"), Engine(workers) as engine:
        source = engine.input("source", {"k": pa.int64(), "s": pa.string(), "n": pa.int64()})
        view = engine.install("view", reduced(source, ("k",), TopRows(1, 0, (SortKey("s"),))))
        ran = []
        for number in range(30):
            source.insert(columns([(0, "x", number)]))
            engine.advance()
            assert view.to_arrow()["n"].to_pylist() == [0]
            flows = [worker.flows[view.dataflow] for worker in cluster_of(engine).workers]
            ran.append(min(flow.programs_run for flow in flows))
        assert ran[10] > 5, "a small group is read by a program"
        assert ran[-1] < 20, "a large one is read by visits"
