"""Typed columns through lanes and back, and what lanes promise: exactness, order, no copies, no mix-ups."""

from __future__ import annotations

import math
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ikebana.encoding import Schema
from ikebana.encoding.canonical import canonical
from ikebana.encoding.payload import cells, same_rows
from ikebana.trace import Updates
from tests.trace import compare
from tests.trace.strategies import KINDS, Domain, domains, examples, fields, rows_of, values

EXACT = [kind for kind in KINDS if Schema({"k": kind}).key.exact]
HASHED = [kind for kind in KINDS if kind not in EXACT]


# Round trips.
@examples(3, quick=1.5)
@given(domains(most_columns=3, count=5))
def test_oracle_columns_come_back(domain: Domain) -> None:
    rows = [(*key, *val) for key, val in zip(domain.keys, domain.vals, strict=True)]
    columns = compare.columns_of(domain.schema, rows)
    back = Updates.of(domain.schema, columns, (0,), [1] * len(rows)).columns()
    assert list(back) == list(columns)
    for name, column in columns.items():
        back[name].validate(full=True)
        assert back[name].type == column.type
        assert compare.plain(back[name]) == compare.plain(column)


@pytest.mark.parametrize("nullable", [False, True])
@pytest.mark.parametrize("kind", [pa.float32(), pa.float64()])
def test_oracle_floats_are_made_canonical(kind: pa.DataType, nullable: bool) -> None:
    """Also where the column is hashed, which a nullable double is."""
    bits, word = (np.uint64, 64) if kind == pa.float64() else (np.uint32, 32)
    nans = np.array(
        [0x7FF8 << 48, 0xFFF8 << 48, (0x7FF8 << 48) + 1] if word == 64 else [0x7FC0 << 16, 0xFFC0 << 16], bits
    )
    given = np.concatenate([nans.view(f"f{word // 8}"), np.array([-0.0, 0.0, -math.inf, 1.5], f"f{word // 8}")])
    schema = Schema([pa.field("k", kind, nullable)])
    assert schema.key.exact == (not nullable or word == 32)
    updates = Updates.of(schema, {"k": given}, (0,))
    back = updates.columns()["k"].to_numpy(zero_copy_only=False)
    assert len(set(back[: len(nans)].view(bits))) == 1 and np.isnan(back[: len(nans)]).all()
    assert [math.copysign(1, zero) for zero in back[len(nans) : len(nans) + 2]] == [1, 1]
    assert back[-2:].tolist() == [-math.inf, 1.5]
    assert len(set(updates.key.tolist())) == 4  # NaN, zero, and the two others


@st.composite
def column_pairs(draw: Any) -> tuple[pa.Field, list[Any], list[Any]]:
    """A field, and two columns of it with the same few values, which may be null."""
    field = draw(fields("c"))
    some = st.sampled_from(draw(st.lists(values(field), min_size=1, max_size=3)))
    return field, draw(st.lists(some, max_size=6)), draw(st.lists(some, max_size=6))


@given(column_pairs(), st.integers(0, 3))
def test_oracle_rows_are_compared_where_they_are_stored(
    case: tuple[pa.Field, list[Any], list[Any]], skipped: int
) -> None:
    field, *sides = case
    one, other = (canonical(compare.array_of(field, side)).slice(skipped) for side in sides)
    a_rows, b_rows = (rows.ravel() for rows in np.indices((len(one), len(other))))
    expected = [left == right for left in cells((one,)) for right in cells((other,))]
    assert same_rows((one,), a_rows, (other,), b_rows).tolist() == expected


# Exact lanes.
def test_which_columns_fit_into_a_lane() -> None:
    hashed = {"string", "large_string", "binary", "large_binary", "fixed_size_binary[3]"}
    assert {str(kind) for kind in HASHED} == hashed | {"decimal128(19, 3)", "decimal128(38, 10)"}
    nullable = [kind for kind in EXACT if not Schema([pa.field("k", kind)]).key.exact]
    assert {kind.bit_width for kind in nullable} == {64}
    pair = Schema({"a": pa.int32(), "b": pa.int32()}, [pa.field("c", pa.int32()), pa.field("d", pa.int32())])
    assert pair.key.exact and not pair.val.exact  # 64 bits, and 66
    assert Schema({}).key.exact


def order_of(row: tuple[Any, ...]) -> Any:
    """The order of rows: nulls first, NaN last."""
    cells = [(-1,) if v is None else (1, 0) if v != v else (0, v) for v in row]
    return [(c[0], compare.canonical(c[1])) if len(c) > 1 else c for c in cells]


@st.composite
def exact_rows(draw: Any) -> tuple[tuple[pa.Field, ...], list[tuple[Any, ...]]]:
    """Columns that fit into a lane together, and rows of them."""
    columns: tuple[pa.Field, ...] = ()
    for field in draw(st.tuples(*map(fields, "abc"))):
        if Schema((*columns, field)).key.exact:
            columns = (*columns, field)
    return columns, draw(rows_of(columns, 8))


@examples(3, quick=1.5)
@given(exact_rows())
def test_oracle_exact_lanes_keep_order(case: tuple[tuple[pa.Field, ...], list[tuple[Any, ...]]]) -> None:
    columns, rows = case
    schema = Schema(columns)
    lane, _, payload = schema.encode(compare.columns_of(schema, rows), len(rows))
    assert payload == ()
    by_value = [order_of(row) for row in rows]
    for i, j in np.ndindex(len(rows), len(rows)):
        assert (lane[i] < lane[j]) == (by_value[i] < by_value[j])


@pytest.mark.parametrize("kind", EXACT, ids=str)
def test_oracle_exact_lanes_keep_order_of_one_column(kind: pa.DataType) -> None:
    @examples(0.3)
    @given(st.lists(values(pa.field("k", kind, nullable=kind.bit_width < 64)), max_size=12))
    def check(column: list[Any]) -> None:
        schema = Schema([pa.field("k", kind, nullable=kind.bit_width < 64)])
        rows = [(value,) for value in column]
        lane = schema.encode(compare.columns_of(schema, rows))[0]
        in_order = [rows[i] for i in np.argsort(lane, kind="stable")]
        assert list(map(order_of, in_order)) == sorted(map(order_of, rows))

    check()


PLAIN = [pa.int64(), pa.timestamp("us"), pa.duration("ns"), pa.date64(), pa.time64("us")]


@pytest.mark.parametrize("kind", PLAIN, ids=str)
def test_invariance_integers_are_their_own_lane(kind: pa.DataType) -> None:
    column = pa.array([3, 1, 2], pa.int64()).view(kind)
    lane, _, payload = Schema({"k": kind}).encode({"k": column})
    assert np.shares_memory(lane, np.frombuffer(column.buffers()[1], np.int64)) and payload == ()


def test_invariance_numpy_integers_are_not_copied() -> None:
    keys, vals = np.arange(5), np.arange(5)[::-1]
    updates = Updates.of(Schema({"k": pa.int64()}, {"v": pa.int64()}), {"k": keys, "v": vals.copy()}, (0,))
    assert np.shares_memory(updates.key, keys)
    assert updates.times.tolist() == [[0]] and updates.nbytes < 3 * keys.nbytes  # time and diff are held once


# However the same column is given.
@examples(1)
@given(domains(count=6), st.integers(0, 3))
def test_invariance_of_how_columns_are_given(domain: Domain, start: int) -> None:
    rows = [(*key, *val) for key, val in zip(domain.keys, domain.vals, strict=True)]
    schema, columns = domain.schema, compare.columns_of(domain.schema, rows)
    expected = schema.encode({name: column[start:] for name, column in columns.items()}, len(rows) - start)
    if not columns:
        return
    table = pa.table(list(columns.values()), schema=pa.schema([*schema.key.fields, *schema.val.fields]))
    fresh = {name: pa.concat_arrays([column[start:], column[:0]]) for name, column in columns.items()}
    chunked = pa.concat_tables([table[start:4], table[4:]])
    whole = schema.encode(table)
    for key, val, payload in (
        schema.encode(fresh),
        schema.encode(chunked),
        schema.encode(table[start:].combine_chunks().to_batches()[0]),
        (whole[0][start:], whole[1][start:], tuple(array[start:] for array in whole[2])),
    ):
        assert (key.tolist(), val.tolist()) == (expected[0].tolist(), expected[1].tolist())
        assert list(map(compare.plain, payload)) == list(map(compare.plain, expected[2]))


@pytest.mark.parametrize(
    ("kind", "given", "expected"),
    [
        (pa.int64(), np.array([1, 2], np.int8), [1, 2]),
        (pa.int8(), np.array([1, 2], np.int64), [1, 2]),
        (pa.uint64(), np.array([1, 2**64 - 1], np.uint64), [1, 2**64 - 1]),
        (pa.float64(), np.array([0.5], np.float32), [0.5]),
        (pa.float64(), [1, 2.5], [1.0, 2.5]),
        (pa.string(), pa.array(["a", "b", "a"]).dictionary_encode(), ["a", "b", "a"]),
        (pa.string(), pa.array(["a"], pa.large_string()), ["a"]),
        (pa.binary(), pa.array([b"a"], pa.large_binary()), [b"a"]),
        (pa.decimal128(9, 2), [Decimal("1.5"), Decimal(-2)], [Decimal("1.50"), Decimal("-2.00")]),
        (pa.decimal128(9, 2), pa.array([Decimal("1.5")], pa.decimal128(3, 1)), [Decimal("1.50")]),
        (pa.bool_(), np.array([True, False]), [True, False]),
        (pa.timestamp("s"), np.array([7], "datetime64[s]"), [7]),
    ],
)
def test_oracle_related_types_are_taken(kind: pa.DataType, given: Any, expected: list[Any]) -> None:
    column = Updates.of(Schema({"k": kind}), {"k": given}, (0,)).columns()["k"]
    assert column.type == kind and compare.plain(column) == expected


def test_oracle_no_columns_at_all() -> None:
    """The collection is a number; how many updates there are, times or diffs say."""
    schema = Schema({})
    assert len(Updates.of(schema, {}, (0,))) == 1
    assert len(Updates.of(schema, {}, (0,), [1, 2, 3])) == 3
    assert len(Updates.of(schema, {}, [(0,), (1,)])) == 2
    lanes = Schema({}, diffs=("a", "b"))
    assert len(Updates.of(lanes, {}, (0,), {"a": [1, 2], "b": 5})) == 2


# Schemas as values.
def test_schemas_as_values() -> None:
    people = Schema({"id": pa.int32()}, [pa.field("name", pa.string(), nullable=True)], diffs=("n", "sum"))
    assert repr(people) == "Schema(key=[id: int32], val=[name: string?], diffs=['n', 'sum'])"
    same = Schema([("id", pa.int32())], pa.schema([("name", pa.string())]), diffs=["n", "sum"])
    assert people == same and hash(people) == hash(same)
    assert people != Schema({"id": pa.int64()}, people.val.fields, diffs=people.diffs)
    assert people != "people" and people.key != "key"
    assert people.with_val({}) == Schema({"id": pa.int32()}, diffs=("n", "sum"))
