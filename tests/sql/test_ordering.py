"""Orders, and the first rows of groups, against Python's sort."""

from __future__ import annotations

import itertools
import math
import pickle
from collections import Counter
from datetime import date
from decimal import Decimal
from typing import Any
from unittest.mock import patch

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from ikebana.engine import Engine
from ikebana.operators import buckets
from ikebana.plan import ir
from ikebana.plan.sharing import walk
from ikebana.reducers.ordering import TopRows, order_of, sort_table, top_rows
from ikebana.reducers.sort_keys import Prefix, SortKey
from tests.profiles import examples
from tests.sql.maintained import (
    Domain,
    Row,
    Rows,
    applied,
    arrays,
    check,
    histories,
    maybe,
    never,
    place,
    plain,
    plain_rows,
)

WIDE: list[Domain] = [
    (never("g", pa.int64()), [1, 2]),
    (maybe("s", pa.string()), [None, "", "a", "Z", "é", "漢", "a longer text than eight bytes"]),
    (maybe("x", pa.float64()), [None, -math.inf, -1.5, 0.0, 2.0, math.nan]),
    (maybe("d", pa.decimal128(38, 2)), [None, Decimal("-1.25"), Decimal("12345678901234567890.50")]),
    (never("n", pa.int64()), [-(1 << 63), -1, 0, (1 << 63) - 1]),
]
NARROW: list[Domain] = [
    (never("g", pa.int64()), [1, 2]),
    (maybe("m", pa.int16()), [None, -3, 0, 7]),
    (maybe("b", pa.bool_()), [None, False, True]),
    (maybe("t", pa.date32()), [None, date(1969, 12, 31), date(2020, 2, 29)]),
]
ONE: list[Domain] = [
    (never("g", pa.int64()), [1, 2]),
    (never("x", pa.float64()), [-math.inf, -1.5, 0.0, 2.0, math.nan]),
]
TABLES = {"wide": WIDE, "narrow": NARROW, "one": ONE}


def compare(value: Any, key: SortKey) -> Any:
    """A key for Python's sort."""
    if value is None:
        return (0 if key.nulls_first else 2, Backwards(0, False))
    return (1, Backwards(place(value), not key.ascending))


class Backwards:
    """A value that may compare the other way round."""

    def __init__(self, value: Any, turned: bool) -> None:
        self.value, self.turned = value, turned

    def __lt__(self, other: Backwards) -> bool:
        return bool(other.value < self.value if self.turned else self.value < other.value)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Backwards) and self.value == other.value


def in_order(rows: list[Row], names: list[str], keys: list[SortKey]) -> list[Row]:
    """Rows in order, ties by the other columns, first column first."""
    every = [*keys, *(SortKey(name) for name in names)]
    return sorted(rows, key=lambda row: [compare(row[names.index(key.column)], key) for key in every])


def sort_keys(names: list[str]) -> st.SearchStrategy[list[SortKey]]:
    return st.lists(st.builds(SortKey, st.sampled_from(names), st.booleans(), st.booleans()), max_size=3)


def twin_of_top(
    rows: list[Row], names: list[str], keys: list[SortKey], limit: int | None, offset: int, by: int
) -> Rows:
    result: Rows = Counter()
    for key in {row[:by] for row in rows}:
        group = in_order([row for row in rows if row[:by] == key], names, keys)
        result.update(group[offset : None if limit is None else offset + limit])
    return result


@pytest.mark.parametrize("table", TABLES)
@given(data=st.data())
@examples(0.3)
def test_twin_order(table: str, data: st.DataObject) -> None:
    domains = TABLES[table]
    names = [field.name for field, _ in domains]
    rows = data.draw(st.lists(st.tuples(*(st.sampled_from(values) for _, values in domains)), max_size=30))
    keys = data.draw(sort_keys(names))
    columns = arrays([field for field, _ in domains], rows)
    expected = [tuple(map(plain, row)) for row in in_order(rows, names, keys)]
    assert [tuple(map(plain, rows[at])) for at in order_of(columns, keys)] == expected
    parts = pa.concat_tables([pa.table(columns).slice(0, 1), pa.table(columns).slice(1)])  # in chunks
    sorted_rows = zip(*(column.to_pylist() for column in sort_table(parts, keys).columns), strict=True)
    assert [tuple(map(plain, row)) for row in sorted_rows] == expected
    group = np.array([at % 3 for at in range(len(rows))], np.int64)
    by_group = [at for which in range(3) for at in order_of(columns, keys) if at % 3 == which]
    found_rows = [tuple(map(plain, rows[at])) for at in order_of(columns, keys, group)]
    assert found_rows == [tuple(map(plain, rows[at])) for at in by_group]


@pytest.mark.parametrize("table", TABLES)
@given(data=st.data())
@examples(0.5)
def test_rows_begin_in_their_order(table: str, data: st.DataObject) -> None:
    domains = TABLES[table]
    names = [field.name for field, _ in domains]
    rows = data.draw(st.lists(st.tuples(*(st.sampled_from(values) for _, values in domains)), max_size=30))
    keys = data.draw(sort_keys(names))
    first = dict.fromkeys([*(key.column for key in keys), *names])
    known = {field.name: field for field, _ in domains}
    wanted = {key.column: key for key in reversed(keys)}
    prefix = Prefix.of("begin", [known[name] for name in first], [wanted.get(name, SortKey(name)) for name in first])
    if prefix is not None:
        begins = prefix.prefixes(arrays(list(known.values()), in_order(rows, names, keys)), len(rows)).tolist()
        assert begins == sorted(begins)


WHOLE = st.integers(-(2**63), 2**63 - 1) | st.integers(-(2**50), 2**50) | st.integers(-3, 3)
LONG = st.integers(-(10**38) + 1, 10**38 - 1) | WHOLE


@example([(0, 0, 0.0, b""), (-1, -1, 0.0, b"")], ["d", "w", "f", "b"])  # -1 was taken for 0
@given(st.lists(st.tuples(WHOLE, LONG | st.none(), st.floats(), st.binary(max_size=12))), st.permutations("wdfb"))
def test_numbers_begin_in_their_order(rows: list[tuple[Any, ...]], order: list[str]) -> None:
    kinds = {"w": pa.int64(), "d": pa.decimal128(38, 0), "f": pa.float64(), "b": pa.binary()}
    columns = zip(*rows, strict=True) if rows else [()] * len(kinds)
    table = pa.table(
        {
            name: pa.array([Decimal(value) if name == "d" and value is not None else value for value in values], kind)
            for (name, kind), values in zip(kinds.items(), columns, strict=True)
        }
    )
    keys = [SortKey(name, ascending=at % 2 == 0, nulls_first=at % 2 == 1) for at, name in enumerate(order)]
    prefix = Prefix.of("begin", [table.field(name).with_nullable(name == "d") for name in order], keys)
    if prefix is not None:
        ordered = sort_table(table, keys)
        begins = prefix.prefixes({name: ordered[name].combine_chunks() for name in kinds}, len(rows)).tolist()
        assert begins == sorted(begins)


@pytest.mark.parametrize("table", TABLES)
@given(data=st.data())
@examples(0.3)
def test_twin_top_rows(table: str, data: st.DataObject) -> None:
    domains = TABLES[table]
    fields = [field for field, _ in domains]
    row = st.tuples(*(st.sampled_from(values) for _, values in domains))
    rows = Counter(data.draw(st.dictionaries(row, st.sampled_from([1, 2, -1]), max_size=20)))
    keys = data.draw(sort_keys([field.name for field in fields]))
    limit, offset = data.draw(st.sampled_from([None, 0, 1, 3])), data.draw(st.sampled_from([0, 1, 4]))
    bag = [row for row, count in rows.items() for _ in range(count)]
    expected = twin_of_top(bag, [field.name for field in fields], keys, limit, offset, 1)
    result = applied(TopRows(limit, offset, tuple(keys)), fields[:1], fields[1:], rows)
    assert result == plain_rows(expected)


@pytest.mark.parametrize("table", TABLES)
@given(data=st.data())
@examples(0.3)
def test_oracle_maintained(table: str, data: st.DataObject) -> None:
    domains = TABLES[table]
    names = [field.name for field, _ in domains]
    keys = data.draw(sort_keys(names))
    limit, offset = data.draw(st.sampled_from([None, 0, 1, 3])), data.draw(st.sampled_from([0, 1, 4]))
    by = data.draw(st.sampled_from([0, 1, len(names)]))
    with patch.object(buckets, "_BUCKETS", data.draw(st.sampled_from([2, 1024]))):
        check(
            domains,
            data.draw(histories(domains, most=15)),
            lambda rows: top_rows(rows, names[:by], limit, offset, keys),
            lambda rows: twin_of_top(rows, names, keys, limit, offset, by),
            data.draw(st.sampled_from([1, 2])),
        )


def test_columns_that_fit_are_indexed_once() -> None:
    with Engine() as engine:
        source = engine.input("rows", [field for field, _ in NARROW])
        keys = [SortKey("t", ascending=False), SortKey("m")]
        plan = top_rows(source, ["g"], 3, 0, keys).node
        assert sum(isinstance(node, ir.Arrange) for node in walk(plan)) == 1
        assert top_rows(source, ["g"], 3, 0, keys).columns == source.columns


def test_ties_of_nested_columns_are_decided() -> None:
    lists = pa.array([[2], [1], None, [1, 1]], pa.list_(pa.int64()))
    orders = set()
    for turn in itertools.permutations(range(4)):
        columns = {"k": pa.array([1, 1, 1, 1]), "l": lists.take(pa.array(turn))}
        orders.add(str(columns["l"].take(pa.array(order_of(columns, [SortKey("k")]))).to_pylist()))
    assert len(orders) == 1


def test_keys_are_values() -> None:
    logic = TopRows(3, 1, (SortKey("a"), SortKey("b", ascending=False)))
    assert pickle.loads(pickle.dumps(logic)) == logic
