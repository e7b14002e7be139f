"""Reductions that programs call, with groups that fit into registers and groups that do not."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable
from typing import Any
from unittest.mock import patch

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ikebana.engine import Engine, Input, View
from ikebana.operators.reducers import Reducer
from ikebana.reducers.gathering import Collect, Gathering
from ikebana.reducers.ordering import TopRows, reduced
from ikebana.reducers.sort_keys import SortKey
from ikebana.reducers.windows import Rank, WindowReducer
from ikebana.runtime import program as fusing
from tests.dataflow.harness import cluster_of, read
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


def numbered_rows(rows: Counter[Row], _: int) -> Counter[tuple[Any, ...]]:
    """Each row with its place in its group, by text and number."""
    result: Counter[tuple[Any, ...]] = Counter()
    for key in {row[0] for row in rows}:
        group = sorted((row for row in rows.elements() if row[0] == key), key=lambda row: (row[1].encode(), row[2]))
        result.update((*row, place) for place, row in enumerate(group, start=1))
    return result


def listed_texts(rows: Counter[Row], _: int) -> Counter[tuple[Any, ...]]:
    """The texts of each group, in order."""
    groups: dict[int, list[str]] = {}
    for key, text, _number in sorted(rows.elements(), key=lambda row: row[1].encode()):
        groups.setdefault(key, []).append(text)
    return Counter((key, tuple(texts)) for key, texts in groups.items())


REDUCERS: dict[str, tuple[Callable[[int], Reducer], Callable[[Counter[Row], int], Counter[Any]]]] = {
    "first rows": (lambda limit: TopRows(limit, 0, (SortKey("s"),)), first_rows),
    "windows": (lambda _: WindowReducer((SortKey("s"), SortKey("n")), (Rank("place", "row_number"),)), numbered_rows),
    "lists": (lambda _: Gathering((Collect("texts", "s"),)), listed_texts),
}


@pytest.mark.parametrize("name", REDUCERS)
@pytest.mark.parametrize("room", [8, 1 << 13])
@pytest.mark.parametrize("workers", [1, 2])
@given(history=histories, limit=st.integers(1, 3))
@examples(0.2)
def test_oracle_called_reducers(
    name: str, room: int, workers: int, history: list[list[tuple[Row, bool]]], limit: int
) -> None:
    """With little room, groups soon have too many rows: then programs do without the reduction."""
    reducer, expected = REDUCERS[name]
    with patch.object(fusing, "ROOM", room), fused("always"), Engine(workers) as engine:
        source = engine.input("source", {"k": pa.int64(), "s": pa.string(), "n": pa.int64()})
        view = engine.install("view", reduced(source, ("k",), reducer(limit)))
        present: Counter[Row] = Counter()
        for changes in history:
            for row, is_added in changes:
                if is_added or present[row]:
                    source.push(columns([row]), 1 if is_added else -1)
                    present[row] += 1 if is_added else -1
            engine.advance()
            assert read(view) == expected(+present, limit)


@pytest.mark.parametrize("name", REDUCERS)
def test_invariance_called_reducers_and_visits(name: str) -> None:
    """Programs do all sweeps but the first, and write to every trace what visits write."""
    r, present = random.Random(3), list[Row]()
    with fused("both"), Engine() as engine:
        source = engine.input("source", {"k": pa.int64(), "s": pa.string(), "n": pa.int64()})
        view = engine.install("view", reduced(source, ("k",), REDUCERS[name][0](2)))
        for _ in range(30):
            if present and r.random() < 0.4:
                source.push(columns([present.pop(r.randrange(len(present)))]), -1)
            else:
                present.append((r.randrange(3), r.choice(TEXTS), r.randrange(4)))
                source.push(columns(present[-1:]), 1)
            engine.advance()
            read(view)
        flow = cluster_of(engine).workers[0].flows[view.dataflow]
        assert flow.programs_run >= 28


def numbered_view(engine: Engine, rows: int) -> tuple[Input, View]:
    """Rows of one group, each with its place: a row before all of them changes them all."""
    source = engine.input("source", {"k": pa.int64(), "n": pa.int64()})
    view = engine.install("view", reduced(source, ("k",), WindowReducer((SortKey("n"),), (Rank("r", "row_number"),))))
    source.insert({"k": [0] * rows, "n": list(range(rows))})
    engine.advance()
    return source, view


def test_a_single_row_that_changes_many_finds_room() -> None:
    """It starts again for more room in its registers only."""
    starts = list[int]()
    with fused("small"), Engine() as engine:
        source, view = numbered_view(engine, 400)
        make_room = fusing.Program._make_room
        for number in range(10):
            with patch.object(fusing.Program, "_make_room", autospec=True, side_effect=make_room) as made:
                source.insert({"k": [0], "n": [-1 - number]})
                engine.advance()
                assert len(read(view)) == 401 + number
            starts.append(made.call_count)
        flow = cluster_of(engine).workers[0].flows[view.dataflow]
        assert flow.programs_run >= 8
    assert max(starts[:3]) > 0 and not any(starts[3:]), starts


def test_groups_whose_output_is_large_are_left_to_visits() -> None:
    """Also where a single row has changed."""
    with fused("small"), Engine() as engine:
        source, view = numbered_view(engine, 6000)
        for number in range(10):
            source.insert({"k": [0], "n": [-1 - number]})
            engine.advance()
            assert len(read(view)) == 6001 + number
        flow = cluster_of(engine).workers[0].flows[view.dataflow]
        assert flow.visits_run >= 5


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
