"""Nested columns as payload: spelled out and read again, equal bytes exactly for equal values."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ikebana.encoding import Schema
from ikebana.encoding.canonical import canonical, declared
from ikebana.encoding.columns import match_columns
from ikebana.errors import SchemaError
from tests.trace.nested import NESTED, columns, same


def likened(array: pa.Array) -> list[Any]:
    return [same(value, array.type) for value in array.to_pylist()]


@given(columns())
def test_nested_columns_can_be_read_again(array: pa.Array) -> None:
    stored = canonical(array)
    assert (stored.type, len(stored)) == (pa.large_binary(), len(array))
    stored.validate(full=True)
    again = declared(stored, pa.field("x", array.type))
    again.validate(full=True)
    assert again.type == array.type
    assert likened(again) == likened(array)
    assert canonical(again).equals(stored)


@given(columns())
def test_equal_bytes_are_equal_values(array: pa.Array) -> None:
    stored, values = canonical(array).to_pylist(), likened(array)
    for a, x in zip(stored, values, strict=True):
        assert [a == b for b in stored] == [x == y for y in values]


@given(columns(), st.data())
def test_serialized_rows_can_be_taken_and_concatenated(array: pa.Array, data: Any) -> None:
    rows = data.draw(st.lists(st.integers(0, len(array) - 1))) if len(array) else []
    stored = canonical(array)
    taken = pa.concat_arrays([stored.take(pa.array(rows, pa.int64())), stored[1:]])
    again = declared(taken, pa.field("x", array.type))
    assert likened(again) == likened(pa.concat_arrays([array.take(pa.array(rows, pa.int64())), array[1:]]))


@given(columns())
def test_nested_columns_fit_their_own_type(array: pa.Array) -> None:
    field = pa.field("x", array.type)
    (checked,) = match_columns({"x": array}, (field,))
    assert likened(checked) == likened(array)
    (converted,) = match_columns({"x": array.to_pylist()}, (field,))
    assert likened(converted) == likened(array)


@given(NESTED)
def test_schemas_of_nested_columns_are_hashed(kind: pa.DataType) -> None:
    schema = Schema([pa.field("k", kind)], [pa.field("v", kind), pa.field("n", pa.int64())])
    key, val, payload = schema.encode({"k": pa.array([None], kind), "v": pa.array([None], kind), "n": [1]})
    assert [column.to_pylist() for column in schema.decode(key, val, payload)] == [[None], [None], [1]]


def test_values_are_widened_inside() -> None:
    field = pa.field("x", pa.list_(pa.struct([("a", pa.int64()), ("b", pa.string())])))
    narrow = pa.array([[{"a": 1, "b": "z"}]], pa.large_list(pa.struct([("a", pa.int8()), ("b", pa.large_string())])))
    (widened,) = match_columns({"x": narrow}, (field,))
    assert (widened.type, widened.to_pylist()) == (field.type, [[{"a": 1, "b": "z"}]])


@pytest.mark.parametrize(
    "given_, wanted",
    [
        (pa.array([[1.5]]), pa.list_(pa.int64())),
        (pa.array([[1]]), pa.list_(pa.float64())),
        (pa.array([1]), pa.list_(pa.int64())),
        (pa.array([{"a": 1}]), pa.struct([("b", pa.int64())])),
        (pa.array([[("a", 1)]], pa.map_(pa.string(), pa.int64())), pa.list_(pa.int64())),
    ],
    ids=str,
)
def test_what_would_lose_something_inside_is_refused(given_: pa.Array, wanted: pa.DataType) -> None:
    with pytest.raises(SchemaError, match=r"column 'x' (is not of type|do not fit the schema)"):
        match_columns({"x": given_}, (pa.field("x", wanted),))


@pytest.mark.parametrize(
    "kind, values",
    [
        (pa.list_(pa.field("item", pa.int64(), nullable=False)), [None, [1, None]]),
        (pa.struct([pa.field("item", pa.int64(), nullable=False)]), [None, {"item": None}]),
        (pa.list_(pa.struct([pa.field("item", pa.int64(), nullable=False)])), [[None, {"item": None}]]),
    ],
    ids=str,
)
def test_nulls_inside_are_refused_where_the_type_excludes_them(kind: pa.DataType, values: list[Any]) -> None:
    with pytest.raises(SchemaError, match="has a null in 'item'"):
        match_columns({"x": pa.array(values, kind)}, (pa.field("x", kind),))


def test_types_that_cannot_be_indexed_are_named_also_inside() -> None:
    with pytest.raises(SchemaError, match="decimal256") as refused:
        Schema({"x": pa.list_(pa.struct([("a", pa.decimal256(50, 2))]))})
    assert "contains decimal256(50, 2), which is not supported" in str(refused.value)
