"""Paths of delta joins that wait for later changes, and operators that are not visited while nothing concerns them."""

from __future__ import annotations

import random
from collections import Counter

import pyarrow as pa
import pytest

from ikebana.engine import Engine, Table, View
from ikebana.engine.delta_join import natural_join

TABLES = {"a": ("x", "y"), "b": ("y", "z"), "c": ("z", "w")}
Rows = dict[str, Counter[tuple[int, int]]]


def joined(rows: Rows) -> Counter[tuple[int, ...]]:
    counts: Counter[tuple[int, ...]] = Counter()
    for (x, y), one in rows["a"].items():
        for (y2, z), two in rows["b"].items():
            for (z2, w), three in rows["c"].items():
                if y == y2 and z == z2:
                    counts[x, y, z, w] += one * two * three
    return +counts


def shown(view: View) -> Counter[tuple[int, ...]]:
    counts: Counter[tuple[int, ...]] = Counter()
    for row in view.to_arrow().to_pylist():
        counts[row["x"], row["y"], row["z"], row["w"]] += 1
    return counts


def change(r: random.Random, table: Table, rows: Counter[tuple[int, int]]) -> None:
    """Some rows more, or one less."""
    one, two = table.columns
    if rows.total() and r.random() < 0.4:
        gone = r.choice(sorted(rows.elements()))
        rows[gone] -= 1
        table.delete({one: [gone[0]], two: [gone[1]]})
    else:
        new = [(r.randrange(4), r.randrange(4)) for _ in range(r.randint(1, 3))]
        rows.update(new)
        table.insert({one: [row[0] for row in new], two: [row[1] for row in new]})


@pytest.mark.parametrize("seed", range(12))
def test_oracle_a_join_that_is_installed_late_and_changes_now_and_then(seed: int) -> None:
    r = random.Random(seed)
    engine = Engine(workers=1 + seed % 3, seed=seed)
    tables = {name: engine.table(name, dict.fromkeys(columns, pa.int64())) for name, columns in TABLES.items()}
    rows: Rows = {name: Counter() for name in TABLES}
    for _ in range(r.randint(0, 8)):
        name = r.choice(sorted(TABLES))
        change(r, tables[name], rows[name])
    view = engine.install("join", natural_join(*tables.values()))
    for _ in range(12):
        name = r.choice(sorted(TABLES))
        for _ in range(r.randint(1, 2)):  # several epochs in one sweep
            change(r, tables[name], rows[name])
        if r.random() < 0.7:
            assert shown(view) == joined(rows)
    assert shown(view) == joined(rows)


def test_regression_the_first_change_of_a_path_that_was_never_visited() -> None:
    engine = Engine()
    tables = {name: engine.table(name, dict.fromkeys(columns, pa.int64())) for name, columns in TABLES.items()}
    for name, (one, two) in TABLES.items():
        tables[name].insert({one: [1], two: [1]})
    view = engine.install("join", natural_join(*tables.values()))
    assert shown(view) == {(1, 1, 1, 1): 1}
    tables["c"].insert({"z": [1], "w": [2]})
    assert shown(view) == {(1, 1, 1, 1): 1, (1, 1, 1, 2): 1}


def test_operators_that_nothing_concerns_are_not_visited() -> None:
    engine = Engine(workers=2)
    one, two = (engine.table(name, {"k": pa.int64()}) for name in ("one", "two"))
    seen: list[str] = []
    both = one.inspect(lambda changes: seen.append("one")).concat(two.inspect(lambda changes: seen.append("two")))
    view = engine.install("both", both.count("k"))
    two.insert({"k": [1, 2]})
    assert view.to_arrow().num_rows == 2 and set(seen) == {"two"}


def test_regression_two_streams_in_one_join() -> None:
    engine = Engine(workers=2)
    streams = [engine.table(name, dict.fromkeys(TABLES[name], pa.int64()), kind="stream") for name in ("a", "b")]
    kept = engine.table("c", dict.fromkeys(TABLES["c"], pa.int64()))
    kept.insert({"z": [1], "w": [1]})
    view = engine.install("join", natural_join(*streams, kept))
    assert shown(view) == {}
    for table in streams:
        table.insert({name: [1] for name in table.columns})
    assert shown(view) == {(1, 1, 1, 1): 1}
