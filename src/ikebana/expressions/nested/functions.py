"""Functions of arrays, structs and maps, except higher-order functions (`ikebana.expressions.nested.lambdas`).

Columns of arrays are flattened into their elements (`Lists`), which are computed together. NaN equals NaN and is
greater than all other values, and -0.0 equals 0.0. Positions count from 1 in element_at and slice (from the end if
negative), but from 0 in `array[position]`. With Spark's `legacySizeOfNull`, the size of null is -1.

Functions of two arrays are in `nested.sets`, sequences in `nested.sequences`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import types

from ikebana.encoding.arrow import from_numpy
from ikebana.expressions.core.base import Call, ColumnBatch, Config, Expression, Literal, builds, function, is_nullable
from ikebana.expressions.core.failing import fail_on_error, fails_on_error
from ikebana.expressions.core.scalars import (
    Arguments,
    Value,
    as_array,
    conform,
    map_distinct,
    maps,
    raise_where,
    row_count,
    to_int64,
    validity_of,
)
from ikebana.expressions.core.tree import Tree, of_nodes
from ikebana.expressions.nested.lists import Lists, ranks

_INT, _STRING, _LONG = pa.int32(), pa.string(), pa.int64()


_POSITION_ZERO = "the position must not be 0: the first element has position 1"


def list_of(kind: pa.DataType, nullable: bool) -> pa.DataType:
    """The Arrow type of Spark's ARRAY of a type."""
    return pa.list_(pa.field("element", kind, nullable))


def _first_type(arguments: Arguments) -> pa.DataType:
    return arguments[0].type


# Constructors and fields.


@maps(
    "CreateArray",
    gives=lambda arguments: list_of(arguments[0].type, is_nullable(arguments)),
    nullable=False,
    strict=False,
)
def _create_array(call: Call, *values: Value) -> pa.Array:
    rows = row_count(*values)
    columns = pa.concat_arrays([conform(as_array(value, rows), call.type.value_type) for value in values])
    order = np.arange(rows * len(values)).reshape(len(values), rows).T.ravel()
    return Lists(np.full(rows, len(values)), columns.take(pa.array(order))).to_array(call.type)


@builds("CreateNamedStruct")
def _build_struct(tree: Tree, children: Arguments, config: Config) -> Expression:
    names = [name.value if isinstance(name, Literal) else None for name in children[::2]]
    values = children[1::2]
    fields = [pa.field(str(name), value.type, value.nullable) for name, value in zip(names, values, strict=True)]
    return Call(pa.struct(fields), False, "struct", values)


@function("struct", lazy=True)
def _struct(call: Call, rows: ColumnBatch) -> pa.Array:
    columns = [value.evaluate(rows) for value in call.arguments]
    return pa.StructArray.from_arrays(columns, fields=list(call.type))


@builds("GetStructField")
def _build_field(tree: Tree, children: Arguments, config: Config) -> Expression:
    (child,) = children
    field = child.type.field(int(tree.fields["ordinal"]))
    return Call(field.type, child.nullable or field.nullable, "field", children, (int(tree.fields["ordinal"]),))


@function("field")
def _field(call: Call, structs: pa.Array) -> pa.Array:
    return structs.flatten()[call.options[0]]


@builds("GetArrayStructFields")
def _build_fields(tree: Tree, children: Arguments, config: Config) -> Expression:
    (child,) = children
    field = child.type.value_type.field(int(tree.fields["ordinal"]))
    kind = list_of(field.type, bool(tree.fields["containsNull"]))
    return Call(kind, child.nullable, "fields", children, (int(tree.fields["ordinal"]),))


@function("fields")
def _fields(call: Call, arrays: pa.Array) -> pa.Array:
    structs = Lists.from_array(arrays)
    return Lists(structs.counts, structs.items.flatten()[call.options[0]]).to_array(call.type, validity_of(arrays))


@builds("KnownNotContainsNull")
def _build_without_nulls(tree: Tree, children: Arguments, config: Config) -> Expression:
    (child,) = children
    return Call(list_of(child.type.value_type, False), child.nullable, "without nulls", children)


@function("without nulls")
def _without_nulls(call: Call, arrays: pa.Array) -> pa.Array:
    return conform(arrays, call.type)


# Concatenation and reversal of strings, binaries and arrays.


def _concat_type(arguments: Arguments) -> pa.DataType:
    kind = arguments[0].type
    if not types.is_list(kind):
        return kind
    return list_of(kind.value_type, any(argument.type.value_field.nullable for argument in arguments))


@maps("Concat", gives=_concat_type)
def _concat(call: Call, *values: Value) -> pa.Array:
    if not types.is_list(call.type):
        return pc.binary_join_element_wise(*values, pa.scalar("", _STRING).cast(call.type))
    rows = row_count(*values)
    columns = [Lists.from_array(as_array(value, rows)) for value in values]
    order = np.argsort(np.concatenate([lists.parents for lists in columns]), kind="stable")
    items = pa.concat_arrays([conform(lists.items, call.type.value_type) for lists in columns])
    counts = np.sum([lists.counts for lists in columns], axis=0)
    return Lists(counts, items.take(pa.array(order))).to_array(call.type)


@maps("Reverse", gives=_first_type)
def _reverse(call: Call, value: pa.Array) -> pa.Array:
    if not types.is_list(value.type):
        if value.type == _STRING:
            return pc.utf8_reverse(value)
        return map_distinct(lambda value: value[::-1], value.type, value)
    lists = Lists.from_array(value)
    return lists.sort(-lists.positions).to_array(call.type)


# Elements.


@maps(
    "GetArrayItem",
    gives=lambda arguments: arguments[0].type.value_type,
    nullable=True,
    options=fail_on_error,
    raises=fails_on_error,
)
def _item(call: Call, array: Value, position: Value) -> pa.Array:
    lists, index = _lists(array, position), to_int64(position)
    exists = (index >= 0) & (index < lists.counts)
    if fails_on_error(call):
        raise_where(
            ~exists, call, "the array has no element at the position (the first has position 0)", array, position
        )
    return lists.pick(index, exists)


def _lists(array: Value, *others: Value) -> Lists:
    """The lists of an argument, one for each row of all arguments."""
    return Lists.from_array(as_array(array, row_count(array, *others)))


def _element_type(arguments: Arguments) -> pa.DataType:
    kind = arguments[0].type
    return kind.item_type if types.is_map(kind) else kind.value_type


def _element_options(tree: Tree, config: Config) -> tuple[Any, ...]:
    """Whether element_at raises for a position without element, and otherwise its value there: a string, or null."""
    nodes = tree.fields.get("defaultValueOutOfBound")
    return (bool(tree.fields["failOnError"]), of_nodes(nodes).fields["value"] if nodes else None)


@maps(
    "ElementAt",
    gives=_element_type,
    nullable=True,
    options=_element_options,
    raises=lambda call: types.is_list(call.arguments[0].type),
)
def _element_at(call: Call, array: Value, position: Value) -> pa.Array:
    if types.is_map(array.type):
        return _value_of_key(array, position)
    fails, default = call.options
    lists, number = _lists(array, position), to_int64(position)
    raise_where(np.equal(number, 0), call, _POSITION_ZERO, array, position)
    index = _index(number, lists)
    exists = (index >= 0) & (index < lists.counts)
    if fails:
        raise_where(~exists, call, "the array has no element at the position", array, position)
    elements = lists.pick(index, exists)
    return elements if default is None else pc.if_else(pa.array(exists), elements, pa.scalar(default, call.type))


def _index(position: Any, lists: Lists) -> Any:
    """Positions that count from 1, or from the end if negative, as positions from 0."""
    return np.where(position > 0, position - 1, position + lists.counts)


@maps("GetMapValue", gives=_element_type, nullable=True)
def _map_value(call: Call, mapping: Value, key: Value) -> pa.Array:
    return _value_of_key(mapping, key)


def _value_of_key(mapping: Value, key: Value) -> pa.Array:
    """The value of a key in each map, null if the map does not have it."""
    rows = row_count(mapping, key)
    mapping = as_array(mapping, rows)
    keys = Lists.from_map_keys(mapping)
    matches = _equals(keys, as_array(key, rows))
    index = np.full(rows, -1)
    index[keys.parents[matches]] = keys.positions[matches]
    return Lists.from_map_values(mapping).pick(index, index >= 0)


def _equals(lists: Lists, values: pa.Array) -> Any:
    """Which items equal the value of their row; false for null items."""
    combined = ranks(pa.concat_arrays([lists.items, conform(values, lists.items.type)]))
    items, others = combined[: len(lists.items)], combined[len(lists.items) :]
    return (items == others[lists.parents]) & (items >= 0)


@maps(
    "Size",
    gives=_INT,
    nullable=lambda tree, arguments: not tree.fields["legacySizeOfNull"] and is_nullable(arguments),
    strict=False,
    options=lambda tree, config: (bool(tree.fields["legacySizeOfNull"]),),
)
def _size(call: Call, array: pa.Array) -> pa.Array:
    counts, is_valid = np.diff(np.asarray(array.offsets)), validity_of(array)
    if call.options[0] and is_valid is not None:
        return from_numpy(_INT, np.where(is_valid, counts, -1))
    return from_numpy(_INT, counts, is_valid)


@maps("MapKeys", gives=lambda arguments: list_of(arguments[0].type.key_type, True))
def _map_keys(call: Call, mapping: pa.Array) -> pa.Array:
    return Lists.from_map_keys(mapping).to_array(call.type)


@maps("MapValues", gives=lambda arguments: list_of(arguments[0].type.item_type, arguments[0].type.item_field.nullable))
def _map_values(call: Call, mapping: pa.Array) -> pa.Array:
    return Lists.from_map_values(mapping).to_array(call.type)


# Searching.


@maps(
    "ArrayContains",
    gives=pa.bool_(),
    nullable=lambda tree, arguments: is_nullable(arguments) or arguments[0].type.value_field.nullable,
)
def _contains(call: Call, array: Value, value: Value) -> pa.Array:
    """Null if the array does not contain the value, but contains nulls."""
    lists = _lists(array, value)
    contains = lists.any(_equals(lists, as_array(value, len(lists.counts))))
    has_nulls = lists.any(ranks(lists.items) < 0)
    return from_numpy(pa.bool_(), contains, contains | ~has_nulls)


@maps("ArrayPosition", gives=_LONG)
def _position(call: Call, array: Value, value: Value) -> pa.Array:
    lists = _lists(array, value)
    matches = np.flatnonzero(_equals(lists, as_array(value, len(lists.counts))))[::-1]
    position = np.zeros(len(lists.counts), np.int64)
    position[lists.parents[matches]] = lists.positions[matches] + 1  # the first match of a row is written last
    return from_numpy(_LONG, position)


@maps("ArrayRemove", gives=_first_type)
def _remove(call: Call, array: Value, value: Value) -> pa.Array:
    lists = _lists(array, value)
    return lists.filter(~_equals(lists, as_array(value, len(lists.counts)))).to_array(call.type)


@maps("ArrayDistinct", gives=_first_type)
def _distinct(call: Call, array: pa.Array) -> pa.Array:
    lists = Lists.from_array(array)
    codes = ranks(lists.items)
    if types.is_floating(lists.items.type):
        lists = Lists(lists.counts, pc.add(lists.items, pa.scalar(0.0, lists.items.type)))  # -0.0 becomes 0.0
    first = np.unique(lists.parents * (len(codes) + 2) + codes + 1, return_index=True)[1]
    flags = np.zeros(len(codes), bool)
    flags[first] = True
    return lists.filter(flags).to_array(call.type)


# Order.


@maps("SortArray", gives=_first_type)
def _sort(call: Call, array: Value, ascending: Value) -> pa.Array:
    """Nulls are less than all other values."""
    lists = _lists(array, ascending)
    direction = np.broadcast_to(np.where(np.asarray(as_array(ascending, len(lists.counts))), 1, -1), len(lists.counts))
    return lists.sort(ranks(lists.items) * direction[lists.parents]).to_array(call.type)


def _extreme(kind: str, position: Callable[[Any], Any]) -> None:
    @maps(kind, gives=lambda arguments: arguments[0].type.value_type, nullable=True)
    def _(call: Call, array: pa.Array) -> pa.Array:
        lists = Lists.from_array(array).drop_nulls()
        return lists.sort(ranks(lists.items)).pick(position(lists.counts), lists.counts > 0)


_extreme("ArrayMin", lambda counts: 0)
_extreme("ArrayMax", lambda counts: counts - 1)


# Slicing, flattening, repeating, inserting.


@maps("Slice", gives=_first_type, raises=True)
def _slice(call: Call, array: Value, start: Value, length: Value) -> pa.Array:
    lists = _lists(array, start, length)
    position, size = to_int64(start), to_int64(length)
    raise_where(np.equal(position, 0), call, _POSITION_ZERO, array, start, length)
    raise_where(np.less(size, 0), call, "the length must not be negative", array, start, length)
    begin = _index(position, lists)
    exists = (begin >= 0) & (begin < lists.counts)
    begin = np.where(exists, begin, 0)
    counts = np.where(exists, np.clip(size, 0, lists.counts - begin), 0)
    return lists.slice(begin, counts).to_array(call.type)


@maps(
    "Flatten",
    gives=lambda arguments: list_of(
        arguments[0].type.value_type.value_type, arguments[0].type.value_type.value_field.nullable
    ),
    nullable=lambda tree, arguments: is_nullable(arguments) or arguments[0].type.value_field.nullable,
)
def _flatten(call: Call, arrays: pa.Array) -> pa.Array:
    """Null if one of the inner arrays is null."""
    outer = Lists.from_array(arrays)
    inner = Lists.from_array(outer.items)
    counts = np.bincount(outer.parents, weights=inner.counts, minlength=len(arrays)).astype(np.int64)
    has_nulls = outer.any(np.asarray(outer.items.is_null()))
    return Lists(counts, inner.items).to_array(call.type, ~has_nulls)


@maps(
    "ArrayRepeat",
    gives=lambda arguments: list_of(arguments[0].type, arguments[0].nullable),
    nullable=lambda tree, arguments: arguments[1].nullable,
    strict=False,
)
def _array_repeat(call: Call, value: Value, count: Value) -> pa.Array:
    rows = row_count(value, count)
    count = as_array(count, rows)
    counts = np.clip(to_int64(pc.fill_null(count, 0)), 0, None)
    items = as_array(value, rows).take(pa.array(np.repeat(np.arange(rows), counts)))
    return Lists(counts, items).to_array(call.type, validity_of(count))


@maps(
    "ArrayInsert",
    gives=lambda arguments: list_of(
        arguments[0].type.value_type,
        arguments[0].type.value_field.nullable or arguments[2].nullable or not _is_at_an_end(arguments[1]),
    ),
    nullable=lambda tree, arguments: is_nullable(arguments[:2]),
    strict=False,
    raises=lambda call: not _is_at_an_end(call.arguments[1]),
)
def _insert(call: Call, array: Value, position: Value, item: Value) -> pa.Array:
    """A position beyond the array is reached by nulls. Position -1 is the end."""
    rows = row_count(array, position, item)
    array, position, item = (as_array(value, rows) for value in (array, position, item))
    is_valid = validity_of(array, position)
    lists, place = Lists.from_array(array), to_int64(pc.fill_null(position, 1))
    raise_where(place == 0, call, _POSITION_ZERO, array, position)
    index = np.where(place > 0, place - 1, lists.counts + place + 1)
    before = np.maximum(-index, 0) * (place < 0)  # nulls between the item and the array
    index = np.maximum(index, 0)
    counts = np.where(place > 0, np.maximum(lists.counts, index), lists.counts + before) + 1
    shifted = np.where(before[lists.parents] > 0, before[lists.parents] + 1, lists.positions >= index[lists.parents])
    ends = np.cumsum(counts)
    source = np.full(int(counts.sum()), -1)
    source[(ends - counts)[lists.parents] + lists.positions + shifted] = np.arange(len(lists.items))
    source[ends - counts + index] = len(lists.items) + np.arange(rows)
    items = pa.concat_arrays([conform(part, call.type.value_type) for part in (lists.items, item)])
    return Lists(counts, items.take(pa.array(source, mask=source < 0))).to_array(call.type, is_valid)


def _is_at_an_end(position: Expression) -> bool:
    """Whether an item is inserted at the beginning or end of an array."""
    return isinstance(position, Literal) and position.value in (1, -1)


# Strings.


@maps("ArrayJoin", gives=_STRING)
def _join(call: Call, array: Value, delimiter: Value, replacement: Value | None = None) -> pa.Array:
    """Nulls are replaced, or omitted if there is no replacement."""
    lists = _lists(array, delimiter, *([] if replacement is None else [replacement]))
    if replacement is None:
        lists = lists.drop_nulls()
    else:
        replacements = as_array(replacement, len(lists.counts)).take(pa.array(lists.parents))
        lists = Lists(lists.counts, pc.coalesce(lists.items, replacements))
    return pc.binary_join(lists.to_array(pa.list_(_STRING)), delimiter)
