"""min, max and top_k by any columns: the same result in any number of levels, and little to read in large groups."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any
from unittest.mock import patch

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ikebana.engine import Engine, Input
from ikebana.engine.collection import Collection
from ikebana.errors import SchemaError
from ikebana.operators import buckets
from ikebana.operators.buckets import Bucket
from ikebana.operators.changes import Changes
from ikebana.plan import ir
from ikebana.plan.sharing import walk
from ikebana.runtime import program
from ikebana.trace import Updates
from ikebana.trace.batch import StoredBatch
from tests.dataflow.harness import Setup, engine_of, examples, read, settle, setups

Row = tuple[Any, ...]
Counts = Counter[Row]


# Tables: a column of keys, and values that fit into a lane, or do not.
def _maybe(name: str, kind: pa.DataType) -> pa.Field:
    return pa.field(name, kind, nullable=True)


K = pa.field("k", pa.int64(), nullable=False)
FLOATS = [None, -math.inf, -1.5, -0.0, 0.0, 2.0, math.nan]
TEXTS = [None, "", "a", "aa", "b", "é", "漢", "a longer text than eight bytes", "a longer text than eight bytez"]
TABLES: dict[str, tuple[tuple[pa.Field, ...], list[list[Any]]]] = {
    "text": ((_maybe("s", pa.string()),), [TEXTS]),
    "float": ((_maybe("x", pa.float64()),), [FLOATS]),
    "text, number": ((_maybe("s", pa.string()), pa.field("n", pa.int64(), nullable=False)), [TEXTS, [-1, 0, 7]]),
    "float, text": ((_maybe("x", pa.float64()), _maybe("s", pa.string())), [FLOATS, TEXTS]),
    "small numbers": ((pa.field("m", pa.int16(), False), _maybe("n", pa.int32())), [[-1, 0, 7], [None, -3, 5]]),
    "more than fits": ((pa.field("m", pa.int64(), False), _maybe("n", pa.int64())), [[-1, 0, 7], [None, -3, 5]]),
}


# The oracle.
def place(value: Any) -> Any:
    """Where a value stands: null before all else, NaN after all else."""
    if value is None:
        return (0,)
    return (2,) if value != value else (1, value)


def same(row: Row) -> Row:
    """The row with equal values for what the engine takes for equal."""
    return tuple(
        "NaN" if value != value else 0.0 if value == 0 and isinstance(value, float) else value for value in row
    )


def expected(rows: Counts, names: list[str], by: list[str], k: int, greatest: bool, distinct: bool) -> Counts:
    """The first `k` of each group, counted as often as they are there, or once."""
    known: Counts = Counter()
    for row, count in rows.items():
        known[same(row)] += count
    order = [names.index(name) for name in (*by, *names[1:])]
    result: Counts = Counter()
    for key in {row[0] for row in known}:
        group = [row for row in known if row[0] == key and known[row] > 0]
        left = k
        for row in sorted(group, key=lambda row: [place(_number(row[at])) for at in order], reverse=greatest):
            taken = min(left, 1 if distinct else known[row])
            result[row], left = taken, left - taken
    return +result


def _number(value: Any) -> Any:
    return math.nan if value == "NaN" else value


def shown(view: Any) -> Counts:
    return Counter({same(row): count for row, count in read(view).items()})


QUERIES: dict[str, tuple[Callable[..., Collection], int, bool, bool]] = {
    "min": (lambda c, by, levels: c.min("k", *by, levels=levels), 1, False, True),
    "max": (lambda c, by, levels: c.max("k", *by, levels=levels), 1, True, True),
    **{
        f"top {k}": (lambda c, by, levels, k=k: c.top_k("k", k, *by, levels=levels), k, True, False)
        for k in (0, 1, 2, 5)
    },
}


def push(source: Input, fields: tuple[pa.Field, ...], changes: list[tuple[Row, int]]) -> None:
    columns = list(zip(*(row for row, _ in changes), strict=True))
    arrays = {field.name: pa.array(column, field.type) for field, column in zip(fields, columns, strict=True)}
    source.push(arrays, np.array([diff for _, diff in changes]))


@pytest.mark.parametrize("table", TABLES)
@given(setup=setups(3), data=st.data())
@examples(0.4)
def test_oracle_any_columns_in_any_number_of_levels(table: str, setup: Setup, data: st.DataObject) -> None:
    values, domains = TABLES[table]
    fields = (K, *values)
    names = [field.name for field in fields]
    name = data.draw(st.sampled_from(sorted(QUERIES)))
    query, k, greatest, distinct = QUERIES[name]
    by = data.draw(st.lists(st.sampled_from(names), max_size=3))
    levels = data.draw(st.sampled_from([None, None, 1, 2, 3]))
    row = st.tuples(st.integers(0, 1), *(st.sampled_from(domain) for domain in domains))
    change = st.tuples(row, st.sampled_from([1, 1, 1, 2, -1, -2]))
    epochs = data.draw(st.lists(st.lists(change, min_size=1, max_size=12), min_size=1, max_size=4))
    with (
        engine_of(setup) as engine,
        patch.object(buckets, "_BUCKETS", data.draw(st.sampled_from([2, 4, 1024]))),
    ):
        source = engine.input("rows", fields)
        view = engine.install("view", query(source, by, levels))
        assert query(source, by, levels).columns == names
        rows: Counts = Counter()
        for changes in epochs:
            push(source, fields, changes)
            for drawn_row, diff in changes:
                rows[drawn_row] += diff
            engine.advance()
            assert shown(view) == expected(rows, names, by, k, greatest, distinct)


# Loops.
def least_labels(edges: Collection, labels: Collection, levels: int | None) -> Collection:
    """The least label of all nodes from which a node can be reached."""
    return labels.iterate(
        lambda known: (
            known.concat(known.join(edges, on="k").select("label", k="v").select("k", "label"))
            .concat(labels.enter(known))
            .min("k", levels=levels)
        )
    )


def labelled(edges: set[tuple[int, int]], labels: dict[int, str]) -> Counts:
    known = dict(labels)
    for _ in range(len(labels)):
        for k, v in edges:
            if k in known:
                known[v] = min(known[k], known.get(v, known[k]))
    return Counter({item: 1 for item in known.items()})


@pytest.mark.parametrize("levels", [None, 1, 3])
@pytest.mark.parametrize("workers", [1, 2])
def test_oracle_levels_inside_a_loop(levels: int | None, workers: int) -> None:
    random = np.random.default_rng(levels)
    labels = {int(node): f"label {number} of many" for node, number in enumerate(random.permutation(20))}
    edges: set[tuple[int, int]] = set()
    with patch.object(buckets, "_BUCKETS", 4):
        engine = Engine(workers)
        links = engine.input("links", {"k": pa.int64(), "v": pa.int64()})
        names = engine.input("names", {"k": pa.int64(), "label": pa.string()})
        view = engine.install("least", least_labels(links, names, levels))
    names.insert({"k": list(labels), "label": list(labels.values())})
    for _ in range(12):
        changed = {(int(k), int(v)) for k, v in random.integers(0, 20, (6, 2))}
        for diff, pairs in ((1, changed - edges), (-1, changed & edges)):
            links.push({name: [pair[at] for pair in pairs] for at, name in enumerate("kv")}, diff)
        edges ^= changed
        engine.advance()
        assert Counter(read(view)) == labelled(edges, labels)


# Plans.
def arrangements(query: Collection) -> list[tuple[str, ...]]:
    return [node.key for node in walk(query.node) if isinstance(node, ir.Arrange)]


def test_levels_are_those_asked_for_or_needed() -> None:
    engine = Engine()
    texts = engine.input("texts", {"k": pa.int64(), "s": pa.string(), "bucket": pa.int64()})
    numbers = engine.input("numbers", {"k": pa.int64(), "n": pa.int32(), "m": pa.int32()})
    by_bucket = ("k", "bucket_")  # a name that is not taken
    assert arrangements(texts.max("k")) == [by_bucket, ("k",)]
    assert arrangements(texts.max("k", levels=1)) == [("k",)]
    assert arrangements(texts.max("k", levels=3)) == [by_bucket, by_bucket, ("k",)]
    assert arrangements(texts.select("k").max("k", levels=3)) == [("k",)]  # nothing to compete by
    assert arrangements(numbers.max("k")) == [("k",)]
    assert arrangements(numbers.max("k", levels=2)) == [("k", "bucket"), ("k",)]
    for levels in (0, 5):
        with pytest.raises(SchemaError, match="1 to 4 levels"):
            texts.max("k", levels=levels)


def test_least_and_greatest_share_the_index_of_the_buckets() -> None:
    engine = Engine()
    texts = engine.input("texts", {"k": pa.int64(), "s": pa.string()})
    engine.install("least", texts.min("k"))
    assert "arrange by k, bucket  <- shared with least" in engine.explain(texts.max("k"))


def test_columns_are_put_in_order_only_where_that_helps() -> None:
    engine = Engine()
    numbers = engine.input("numbers", {"k": pa.int64(), "n": pa.int32(), "m": pa.int32()})
    plain = numbers.max("k").node
    assert numbers.max("k", "n", "m").node is plain
    (reordered,) = (node for node in walk(numbers.max("k", "m").node) if isinstance(node, ir.Reduce))
    assert [field.name for field in reordered.columns] == ["k", "m", "n"]
    assert reordered.reducer.is_ordered(ir.schema_of(reordered.source))  # type: ignore[attr-defined]


def test_buckets_are_the_same_everywhere() -> None:
    fields = (_maybe("s", pa.string()), _maybe("x", pa.float64()))
    columns = {"s": ["a", None, "a", "a longer text"], "x": [0.0, math.nan, -0.0, None]}
    buckets = Bucket("bucket", ("s", "x"), 1024)(Changes.of(fields, columns, (0,))).named["bucket"].to_pylist()
    assert buckets == [90, 503, 90, 222]


# Rows read.
@contextmanager
def rows_read() -> Iterator[list[int]]:
    """The sizes of all that is taken out of batches, by any operator, meanwhile."""
    sizes: list[int] = []
    gather = StoredBatch.gather

    def counted(self: StoredBatch, rows: Any = None) -> Updates:
        updates = gather(self, rows)
        sizes.append(len(updates))
        return updates

    with patch.object(StoredBatch, "gather", counted):
        yield sizes


LARGE = 40_000
CHANGES = {
    "a row in the midst": ("value 020000x", 1),
    "a new winner": ("zzz", 1),
    "that winner removed": ("zzz", -1),
    "the first winner removed": (f"value {LARGE - 1:06d}", -1),
}


@patch.object(program, "FUSE", "never")
def read_for_changes(query: Callable[[Collection], Collection], fields: tuple[pa.Field, ...]) -> dict[str, int]:
    """How many rows visits read for each of some changes of one row in a large group."""
    engine = Engine()
    source = engine.input("rows", fields)
    view = engine.install("view", query(source))
    texts = [f"value {number:06d}" for number in range(LARGE)]
    push(source, fields, [(_typed_row(text, fields), 1) for text in texts])
    engine.advance()
    read(view)
    counts = {}
    for name, (text, diff) in CHANGES.items():
        push(source, fields, [(_typed_row(text, fields), diff)])
        engine.advance()
        with rows_read() as sizes:
            settle(engine)
            view.wait(engine.epoch - 1)
        counts[name] = sum(sizes)
    return counts


def _typed_row(text: str, fields: tuple[pa.Field, ...]) -> Row:
    if pa.types.is_string(fields[1].type):
        return (0, text)
    number = LARGE if text == "zzz" else int(text[6:12])
    return (0, -number, number)


TEXT_FIELDS = (K, pa.field("s", pa.string(), nullable=False))
NUMBER_FIELDS = (K, pa.field("n", pa.int32(), nullable=False), pa.field("m", pa.int32(), nullable=False))


@pytest.mark.parametrize("query", [lambda c: c.max("k"), lambda c: c.min("k"), lambda c: c.top_k("k", 3)])
def test_a_change_in_a_large_group_reads_little_of_it(query: Callable[[Collection], Collection]) -> None:
    few = read_for_changes(query, TEXT_FIELDS)
    assert all(0 < rows < LARGE / 10 for rows in few.values()), few


def test_a_change_in_a_large_group_reads_the_ends_once_columns_are_in_order() -> None:
    few = read_for_changes(lambda c: c.max("k", "m"), NUMBER_FIELDS)
    assert all(0 < rows < 500 for rows in few.values()), few


def test_with_one_level_the_whole_group_is_read() -> None:
    """What is counted above is what it says."""
    all_ = read_for_changes(lambda c: c.max("k", levels=1), TEXT_FIELDS)
    assert all(rows >= LARGE for rows in all_.values()), all_
