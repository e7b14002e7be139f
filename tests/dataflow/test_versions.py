"""Lookups meet the distinct rows at their time, however many versions of a row a trace still has."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator
from typing import Any
from unittest.mock import patch

import numpy as np
import pyarrow as pa
import pytest

from ikebana.engine import Engine, Table
from ikebana.engine.collection import Collection
from ikebana.engine.delta_join import natural_join
from ikebana.operators import lookup, probes
from ikebana.operators.join import Pairs
from ikebana.runtime import program

WIDTH = 9


@pytest.fixture(autouse=True, params=["as they come", "by offset"])
def pairing(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """How probes find their rows: as usual, or in visits and by the offsets of their keys, however few they are."""
    if request.param == "by offset":
        monkeypatch.setattr(probes, "LEAST_ROWS", 1)
        monkeypatch.setattr(program, "FUSE", "never")


@pytest.fixture
def pairs_met(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[int]]:
    """How many pairs each lookup puts out, from now on."""
    counts: list[int] = []
    emit = lookup.emit

    def counted(pairs: Pairs, *rest: Any) -> Any:
        counts.append(len(pairs.a_rows))
        return emit(pairs, *rest)

    monkeypatch.setattr(lookup, "emit", counted)
    yield counts


def self_joins(table: Collection, width: int = WIDTH) -> Collection:
    return natural_join(*(table.select("k", **{f"v{at}": "v"}) for at in range(width)))


def values_of(table: pa.Table, key: int) -> dict[tuple[int, ...], int]:
    rows = [row for row in table.to_pylist() if row["k"] == key]
    return {tuple(row[f"v{at}"] for at in range(WIDTH)): row["diff"] for row in rows}


def hot_table(engine: Engine) -> Table:
    table = engine.table("t", {"k": pa.int64(), "v": pa.int64()}, key="k")
    table.insert({"k": list(range(40)), "v": list(range(40))})
    return table


@pytest.mark.parametrize("at_once", [False, True])
@patch.object(program, "FUSE", "never")  # pairs are counted in visits
def test_a_row_with_many_versions_meets_each_probe_once(pairs_met: list[int], at_once: bool) -> None:
    """`at_once`: all updates in one sweep, so that probes are at many epochs too."""
    with Engine() as engine:
        table = hot_table(engine)
        view = engine.install("wide", self_joins(table))
        view.read()
        updates = 12
        for value in range(updates):
            table.upsert({"k": [3], "v": [100 + value]})
            if not at_once:
                view.read()
        pairs_met.clear()
        table.upsert({"k": [3], "v": [999]})
        assert values_of(view.read(), 3) == {(999,) * WIDTH: 1}
        epochs = updates + 1 if at_once else 1
        assert max(pairs_met) <= 2 * epochs
        assert sum(pairs_met) <= 2 * epochs * WIDTH * WIDTH


def test_equal_rows_of_a_bag_count_as_one_with_a_multiplicity(pairs_met: list[int]) -> None:
    with Engine() as engine:
        table = engine.table("t", {"k": pa.int64(), "v": pa.int64()})
        view = engine.install("wide", self_joins(table))
        for _ in range(4):
            table.insert({"k": [1], "v": [7]})
            view.read()
        assert values_of(view.read(), 1) == {(7,) * WIDTH: 4**WIDTH}
        assert max(pairs_met) <= 2


def test_oracle_rows_that_come_and_go_in_sweeps_of_any_length() -> None:
    """Three self joins, against sets of rows computed by hand, with changes left to add up in one sweep."""
    for seed in range(12):
        choose = random.Random(seed)
        with Engine(workers=choose.choice([1, 2]), seed=seed) as engine:
            source = engine.input("t", {"k": pa.int64(), "v": pa.string()})
            view = engine.install("wide", natural_join(*(source.select("k", **{f"v{at}": "v"}) for at in range(3))))
            rows: Counter[tuple[int, str]] = Counter()
            for _ in range(12):
                row, diff = (choose.randrange(3), choose.choice("abc")), choose.choice([1, 1, -1])
                rows[row] += diff
                source.push({"k": [row[0]], "v": [row[1]]}, [diff])
                engine.advance()
                if choose.random() < 0.4:
                    assert _triples(view.read()) == _joined(rows)
            assert _triples(view.read()) == _joined(rows)


def _triples(table: pa.Table) -> Counter[tuple[Any, ...]]:
    counts: Counter[tuple[Any, ...]] = Counter()
    for row in table.to_pylist():
        counts[row["k"], row["v0"], row["v1"], row["v2"]] += row["diff"]
    return counts


def _joined(rows: Counter[tuple[int, str]]) -> Counter[tuple[Any, ...]]:
    counts: Counter[tuple[Any, ...]] = Counter()
    for (key, one), a in rows.items():
        for two, three in ((x, y) for x in rows for y in rows if x[0] == y[0] == key):
            counts[key, one, two[1], three[1]] += a * rows[two] * rows[three]
    return Counter({row: diff for row, diff in counts.items() if diff})


def test_large_lookups_are_cut_between_keys() -> None:
    """The rows of a key stay together, so that its versions can be added up."""
    sizes = np.array([3, lookup.QUANTUM, 2, lookup.QUANTUM + 5, 1, 1])
    first = np.array([0, 2, 3, 7, 8, 10])
    matches = [np.stack([first, first + 1, np.zeros(6, np.int64), sizes], axis=1)]
    ranges = list(lookup._ranges_of_probes(matches))
    assert [start for start, _ in ranges][1:] == [end for _, end in ranges][:-1]
    assert (ranges[0][0], ranges[-1][1]) == (0, 11)
    for start, end in ranges:
        group = sizes[(first >= start) & (first < end)]
        assert len(group) == 1 or group.sum() <= lookup.QUANTUM
