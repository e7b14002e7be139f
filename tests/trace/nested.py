"""Nested columns for tests: strategies for types, values and arrays, and what values are equal to each other."""

from __future__ import annotations

import math
from datetime import date
from decimal import Decimal
from typing import Any

import pyarrow as pa
from hypothesis import strategies as st
from hypothesis.strategies import SearchStrategy
from pyarrow import types

FLAT: dict[Any, list[Any]] = {
    pa.int64(): [0, 1, -1, 2**63 - 1],
    pa.int8(): [0, 1, -128],
    pa.uint16(): [0, 1, 65535],
    pa.bool_(): [False, True],
    pa.float64(): [0.0, -0.0, 1.5, math.nan, -math.inf],
    pa.float32(): [0.0, -0.0, 0.5, math.nan],
    pa.date32(): [date(1970, 1, 1), date(1, 1, 1)],
    pa.decimal128(38, 2): [Decimal("-1.25"), Decimal("0.00")],
    pa.decimal128(5, 1): [Decimal("-1.5"), Decimal("0.0")],
    pa.string(): ["", "a", "a\0", "née"],
    pa.large_binary(): [b"", b"\0", b"\1", b"\1\0"],
    pa.null(): [],
}
NAMES = ["a", "b", "c"]


def _structs(inner: SearchStrategy[pa.DataType]) -> SearchStrategy[pa.DataType]:
    fields = st.lists(st.builds(_field, inner, st.booleans()), max_size=3)
    return fields.map(lambda kinds: pa.struct([kind.with_name(n) for n, kind in zip(NAMES, kinds, strict=False)]))


def _field(kind: pa.DataType, nullable: bool) -> pa.Field:
    return pa.field("item", kind, nullable or types.is_null(kind))


def _extended(inner: SearchStrategy[pa.DataType]) -> SearchStrategy[pa.DataType]:
    keys = inner.filter(lambda kind: not types.is_null(kind))
    element = st.builds(_field, inner, st.booleans())
    return st.one_of(
        element.map(pa.list_),
        element.map(pa.large_list),
        st.builds(lambda field, size: pa.list_(field, size), element, st.integers(0, 2)),
        _structs(inner),
        st.builds(pa.map_, keys, inner),
    )


KINDS = st.recursive(st.sampled_from(list(FLAT)), _extended, max_leaves=4)
NESTED = _extended(KINDS)


def values(kind: pa.DataType, nullable: bool = True) -> SearchStrategy[Any]:
    """Values of a type, as Python writes them."""
    if types.is_null(kind):
        return st.none()
    strategy = _values(kind)
    return st.none() | strategy if nullable else strategy


def _values(kind: pa.DataType) -> SearchStrategy[Any]:
    if types.is_struct(kind):
        return st.fixed_dictionaries({field.name: values(field.type, field.nullable) for field in kind})
    if types.is_map(kind):
        entry = st.tuples(values(kind.key_type, False), values(kind.item_type))
        return st.lists(entry, max_size=3, unique_by=lambda pair: repr(same(pair[0], kind.key_type)))
    if types.is_fixed_size_list(kind):
        element = values(kind.value_type, kind.value_field.nullable)
        return st.lists(element, min_size=kind.list_size, max_size=kind.list_size)
    if types.is_list(kind) or types.is_large_list(kind):
        return st.lists(values(kind.value_type, kind.value_field.nullable), max_size=3)
    return st.sampled_from(FLAT[kind])


def same(value: Any, kind: pa.DataType) -> Any:
    """What is equal for equal values, and can be hashed: one zero, one NaN, maps without an order."""
    if value is None:
        return None
    if types.is_struct(kind):
        return tuple(same(value[field.name], field.type) for field in kind)
    if types.is_map(kind):
        pairs = [(same(key, kind.key_type), same(item, kind.item_type)) for key, item in value]
        return tuple(sorted(pairs, key=repr))
    if isinstance(value, list):
        return tuple(same(element, kind.value_type) for element in value)
    if isinstance(value, float):
        return "NaN" if math.isnan(value) else value + 0.0
    return value


@st.composite
def columns(draw: Any, kinds: SearchStrategy[pa.DataType] = NESTED) -> pa.Array:
    """Any column of a nested type, perhaps a slice of a longer one."""
    kind = draw(kinds)
    drawn = draw(st.lists(values(kind), max_size=6))
    before, after = draw(st.integers(0, 2)), draw(st.integers(0, 2))
    spare = draw(values(kind))
    return pa.array([*[spare] * before, *drawn, *[spare] * after], kind)[before : before + len(drawn)]
