"""Arrays, structs and maps: making them, taking them apart, and functions of arrays.

Whole columns of lists are opened into their elements, which are then handled together. Functions that compare elements
are for elements that are not themselves nested.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import types

from ikebana.encoding.arrow import from_numpy
from ikebana.errors import SqlError
from ikebana.expressions.core.base import Call, ColumnBatch, Config, Expression, Literal, builds, function, is_nullable
from ikebana.expressions.core.scalars import (
    Arguments,
    Value,
    each_distinct,
    maps,
    refuse_where,
    rows_of,
    shaped,
    valid,
    wide,
)
from ikebana.expressions.core.tree import Tree, of_nodes
from ikebana.expressions.nested.lists import Lists, codes

_INT, _TEXT, _LONG = pa.int32(), pa.string(), pa.int64()


def list_of(kind: pa.DataType, nullable: bool) -> pa.DataType:
    """The type of an array, as Spark's is in Arrow."""
    return pa.list_(pa.field("element", kind, nullable))


def _first_type(arguments: Arguments) -> pa.DataType:
    return arguments[0].type


def _fails(tree: Tree, config: Config) -> tuple[Any, ...]:
    return (bool(tree.fields["failOnError"]),)


def _array(value: Value, rows: int) -> pa.Array:
    """A column, also of a literal."""
    return value if isinstance(value, pa.Array) else pa.repeat(value, rows)


def _check_plain(arguments: Arguments) -> None:
    """Elements are compared: they must not be nested."""
    kind = arguments[0].type
    if types.is_nested(kind.key_type if types.is_map(kind) else kind.value_type):
        raise SqlError(
            "comparing elements that are arrays, structs or maps is not supported in a maintained view",
            hint="compute it in a Python UDF, or when the view is read",
        )


# Making.


@maps(
    "CreateArray",
    gives=lambda arguments: list_of(arguments[0].type, is_nullable(arguments)),
    nullable=False,
    strict=False,
)
def _create_array(call: Call, *given: Value) -> pa.Array:
    rows = rows_of(*given)
    columns = pa.concat_arrays([shaped(_array(each, rows), call.type.value_type) for each in given])
    order = np.arange(rows * len(given)).reshape(len(given), rows).T.ravel()
    return Lists(np.full(rows, len(given)), columns.take(pa.array(order))).closed(call.type)


@builds("CreateNamedStruct")
def _build_struct(tree: Tree, children: Arguments, config: Config) -> Expression:
    names = [each.value if isinstance(each, Literal) else None for each in children[::2]]
    fields = [pa.field(str(name), each.type, each.nullable) for name, each in zip(names, children[1::2], strict=True)]
    return Call(pa.struct(fields), False, "struct", children[1::2])


@function("struct", lazy=True)
def _struct(call: Call, rows: ColumnBatch) -> pa.Array:
    columns = [each.evaluate(rows) for each in call.arguments]
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
    opened = Lists.of(arrays)
    return Lists(opened.counts, opened.items.flatten()[call.options[0]]).closed(call.type, valid(arrays))


@builds("KnownNotContainsNull")
def _build_without_nulls(tree: Tree, children: Arguments, config: Config) -> Expression:
    (child,) = children
    return Call(list_of(child.type.value_type, False), child.nullable, "without nulls", children)


@function("without nulls")
def _without_nulls(call: Call, arrays: pa.Array) -> pa.Array:
    return shaped(arrays, call.type)


# Strings, bytes and arrays, end to end and backwards.


def _concat_type(arguments: Arguments) -> pa.DataType:
    kind = arguments[0].type
    if not types.is_list(kind):
        return kind
    return list_of(kind.value_type, any(each.type.value_field.nullable for each in arguments))


@maps("Concat", gives=_concat_type)
def _concat(call: Call, *given: Value) -> pa.Array:
    if not types.is_list(call.type):
        return pc.binary_join_element_wise(*given, pa.scalar("", _TEXT).cast(call.type))
    rows = rows_of(*given)
    opened = [Lists.of(_array(each, rows)) for each in given]
    order = np.argsort(np.concatenate([each.parents for each in opened]), kind="stable")
    items = pa.concat_arrays([shaped(each.items, call.type.value_type) for each in opened])
    counts = np.sum([each.counts for each in opened], axis=0)
    return Lists(counts, items.take(pa.array(order))).closed(call.type)


@maps("Reverse", gives=_first_type)
def _reverse(call: Call, value: pa.Array) -> pa.Array:
    if not types.is_list(value.type):
        return pc.utf8_reverse(value) if value.type == _TEXT else each_distinct(_backwards, value.type, value)
    opened = Lists.of(value)
    return opened.ordered(np.lexsort((-opened.positions, opened.parents))).closed(call.type)


def _backwards(value: bytes) -> bytes:
    return value[::-1]


# Elements.


@maps(
    "GetArrayItem",
    gives=lambda arguments: arguments[0].type.value_type,
    nullable=True,
    options=_fails,
    raises=lambda call: bool(call.options[0]),
)
def _item(call: Call, array: Value, position: Value) -> pa.Array:
    opened, at = _opened(array, position), wide(position)
    inside = (at >= 0) & (at < opened.counts)
    if call.options[0]:
        refuse_where(~inside, call, "an array has no element at some position", array, position)
    return opened.pick(at, inside)


def _opened(array: Value, *others: Value) -> Lists:
    return Lists.of(_array(array, rows_of(array, *others)))


def _element_type(arguments: Arguments) -> pa.DataType:
    kind = arguments[0].type
    return kind.item_type if types.is_map(kind) else kind.value_type


def _element_options(tree: Tree, config: Config) -> tuple[Any, ...]:
    """Whether it fails, and what it is where there is no element: a text, or null."""
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
        return _looked_up(array, position)
    fails, default = call.options
    opened, at = _opened(array, position), wide(position)
    refuse_where(np.equal(at, 0), call, "positions begin at 1", array, position)
    index = np.where(at > 0, at - 1, at + opened.counts)
    inside = (index >= 0) & (index < opened.counts)
    if fails:
        refuse_where(~inside, call, "an array has no element at some position", array, position)
    found = opened.pick(index, inside)
    return found if default is None else pc.if_else(pa.array(inside), found, pa.scalar(default, call.type))


@maps("GetMapValue", gives=_element_type, nullable=True)
def _map_value(call: Call, given: Value, key: Value) -> pa.Array:
    return _looked_up(given, key)


def _looked_up(given: Value, key: Value) -> pa.Array:
    """The values of keys in maps."""
    rows = rows_of(given, key)
    given = _array(given, rows)
    keys = Lists.keys(given)
    hits = _same(keys, _array(key, rows))
    found = np.full(rows, -1)
    found[keys.parents[hits]] = keys.positions[hits]
    return Lists.values(given).pick(found, found >= 0)


def _same(opened: Lists, wanted: pa.Array) -> Any:
    """Which items are the same as what is wanted in their row, and not null."""
    every = codes(pa.concat_arrays([opened.items, shaped(wanted, opened.items.type)]))
    here, there = every[: len(opened.items)], every[len(opened.items) :]
    return (here == there[opened.parents]) & (here >= 0)


@maps(
    "Size",
    gives=_INT,
    nullable=lambda tree, arguments: not tree.fields["legacySizeOfNull"] and is_nullable(arguments),
    strict=False,
    options=lambda tree, config: (bool(tree.fields["legacySizeOfNull"]),),
)
def _size(call: Call, array: pa.Array) -> pa.Array:
    counts, there = np.diff(np.asarray(array.offsets)), valid(array)
    if call.options[0] and there is not None:
        return from_numpy(_INT, np.where(there, counts, -1))
    return from_numpy(_INT, counts, there)


@maps("MapKeys", gives=lambda arguments: list_of(arguments[0].type.key_type, True))
def _map_keys(call: Call, given: pa.Array) -> pa.Array:
    return Lists.keys(given).closed(call.type)


@maps("MapValues", gives=lambda arguments: list_of(arguments[0].type.item_type, arguments[0].type.item_field.nullable))
def _map_values(call: Call, given: pa.Array) -> pa.Array:
    return Lists.values(given).closed(call.type)


# Searching.


@maps(
    "ArrayContains",
    gives=pa.bool_(),
    check=_check_plain,
    nullable=lambda tree, arguments: is_nullable(arguments) or arguments[0].type.value_field.nullable,
)
def _contains(call: Call, array: Value, wanted: Value) -> pa.Array:
    """Null where it is not found, and there are nulls among which it might be."""
    opened = _opened(array, wanted)
    found = _rows_with(opened, _same(opened, _array(wanted, len(opened.counts))))
    unsure = _rows_with(opened, codes(opened.items) < 0)
    return from_numpy(pa.bool_(), found, found | ~unsure)


def _rows_with(opened: Lists, flags: Any) -> Any:
    """Rows of which some item is marked."""
    marked = np.zeros(len(opened.counts), bool)
    marked[opened.parents[flags]] = True
    return marked


@maps("ArrayPosition", gives=_LONG, check=_check_plain)
def _position(call: Call, array: Value, wanted: Value) -> pa.Array:
    opened = _opened(array, wanted)
    hits = np.flatnonzero(_same(opened, _array(wanted, len(opened.counts))))[::-1]
    found = np.zeros(len(opened.counts), np.int64)
    found[opened.parents[hits]] = opened.positions[hits] + 1  # the first one is the last that is written
    return from_numpy(_LONG, found)


@maps("ArrayRemove", gives=_first_type, check=_check_plain)
def _remove(call: Call, array: Value, unwanted: Value) -> pa.Array:
    opened = _opened(array, unwanted)
    return opened.where(~_same(opened, _array(unwanted, len(opened.counts)))).closed(call.type)


@maps("ArrayDistinct", gives=_first_type, check=_check_plain)
def _distinct(call: Call, array: pa.Array) -> pa.Array:
    opened = Lists.of(array)
    numbers = codes(opened.items)
    if types.is_floating(opened.items.type):
        opened = Lists(opened.counts, pc.add(opened.items, pa.scalar(0.0, opened.items.type)))  # -0.0 is 0.0
    first = np.unique(opened.parents * (len(numbers) + 2) + numbers + 1, return_index=True)[1]
    flags = np.zeros(len(numbers), bool)
    flags[first] = True
    return opened.where(flags).closed(call.type)


# Order.


@maps("SortArray", gives=_first_type, check=_check_plain)
def _sort(call: Call, array: Value, ascending: Value) -> pa.Array:
    """Nulls are less than all else."""
    opened = _opened(array, ascending)
    direction = np.broadcast_to(np.where(np.asarray(_array(ascending, len(opened.counts))), 1, -1), len(opened.counts))
    return opened.ordered(np.lexsort((codes(opened.items) * direction[opened.parents], opened.parents))).closed(
        call.type
    )


def _extreme(kind: str, at: Callable[[Any], Any]) -> None:
    @maps(kind, gives=lambda arguments: arguments[0].type.value_type, nullable=True, check=_check_plain)
    def _(call: Call, array: pa.Array) -> pa.Array:
        opened = Lists.of(array).keep(pc.is_valid)
        ordered = opened.ordered(np.lexsort((codes(opened.items), opened.parents)))
        return ordered.pick(at(opened.counts), opened.counts > 0)


_extreme("ArrayMin", lambda counts: 0)
_extreme("ArrayMax", lambda counts: counts - 1)


# Parts.


@maps("Slice", gives=_first_type, raises=True)
def _slice(call: Call, array: Value, start: Value, length: Value) -> pa.Array:
    opened = _opened(array, start, length)
    at, many = wide(start), wide(length)
    refuse_where(np.equal(at, 0), call, "positions begin at 1", array, start, length)
    refuse_where(np.less(many, 0), call, "a length is negative", array, start, length)
    begin = np.where(at > 0, at - 1, at + opened.counts)
    inside = (begin >= 0) & (begin < opened.counts)
    begin = np.where(inside, begin, 0)
    counts = np.where(inside, np.clip(many, 0, opened.counts - begin), 0)
    return opened.part(begin, counts).closed(call.type)


@maps(
    "Flatten",
    gives=lambda arguments: list_of(
        arguments[0].type.value_type.value_type, arguments[0].type.value_type.value_field.nullable
    ),
    nullable=lambda tree, arguments: is_nullable(arguments) or arguments[0].type.value_field.nullable,
)
def _flatten(call: Call, arrays: pa.Array) -> pa.Array:
    """Null where one of the arrays is."""
    outer = Lists.of(arrays)
    inner = Lists.of(outer.items)
    counts = np.bincount(outer.parents, weights=inner.counts, minlength=len(arrays)).astype(np.int64)
    lacking = _rows_with(outer, np.asarray(outer.items.is_null()))
    return Lists(counts, inner.items).closed(call.type, ~lacking)


@maps(
    "ArrayRepeat",
    gives=lambda arguments: list_of(arguments[0].type, arguments[0].nullable),
    nullable=lambda tree, arguments: arguments[1].nullable,
    strict=False,
)
def _array_repeat(call: Call, value: Value, count: Value) -> pa.Array:
    rows = rows_of(value, count)
    many = _array(count, rows)
    counts = np.clip(wide(pc.fill_null(many, 0)), 0, None)
    items = _array(value, rows).take(pa.array(np.repeat(np.arange(rows), counts)))
    return Lists(counts, items).closed(call.type, valid(many))


@builds("ArrayInsert")
def _build_insert(tree: Tree, children: Arguments, config: Config) -> Expression:
    """Only array_append and array_prepend, which it is in plans."""
    array, position, item = children
    if not isinstance(position, Literal) or position.value not in (1, -1):
        raise SqlError("array_insert is not supported in a maintained view", hint="use array_append or array_prepend")
    kind = list_of(array.type.value_type, array.type.value_field.nullable or item.nullable)
    return Call(kind, array.nullable, "insert", (array, item), (position.value,))


@function("insert")
def _insert(call: Call, array: pa.Array, item: pa.Array) -> pa.Array:
    opened = Lists.of(array)
    before = opened.parents, np.arange(len(array))
    items = pa.concat_arrays([shaped(each, call.type.value_type) for each in (opened.items, item)])
    first = np.repeat([1, 0], [len(opened.items), len(array)]) * call.options[0]
    order = np.lexsort((first, np.concatenate(before)))
    return Lists(opened.counts + 1, items.take(pa.array(order))).closed(call.type, valid(array))


# Strings.


@maps("ArrayJoin", gives=_TEXT)
def _join(call: Call, array: Value, delimiter: Value, instead: Value | None = None) -> pa.Array:
    opened = _opened(array, delimiter, *([] if instead is None else [instead]))
    if instead is None:
        opened = opened.keep(pc.is_valid)
    else:
        by = _array(instead, len(opened.counts)).take(pa.array(opened.parents))
        opened = Lists(opened.counts, pc.coalesce(opened.items, by))
    return pc.binary_join(opened.closed(pa.list_(_TEXT)), delimiter)


# Sequences.


@builds("Sequence")
def _build_sequence(tree: Tree, children: Arguments, config: Config) -> Expression:
    kind = children[0].type
    if not types.is_integer(kind):
        raise SqlError("sequence is supported for whole numbers only in a maintained view")
    return Call(list_of(kind, False), is_nullable(children), "sequence", children)


@function("sequence", raises=True)
def _sequence(call: Call, start: pa.Array, stop: pa.Array, step: pa.Array | None = None) -> pa.Array:
    given = [each for each in (start, stop, step) if each is not None]
    first, last = wide(start), wide(stop)
    by = wide(step) if step is not None else np.where(first <= last, 1, -1)
    wrong = ((by > 0) & (first > last)) | ((by < 0) & (first < last)) | ((by == 0) & (first != last))
    refuse_where(wrong, call, "a step does not lead from start to stop", *given)
    there = valid(*given)
    counts = (last - first) // np.where(by == 0, 1, by) + 1
    counts = counts if there is None else np.where(there, counts, 0)
    numbers = Lists(counts, pa.nulls(0))
    items = first[numbers.parents] + by[numbers.parents] * numbers.positions
    return Lists(counts, from_numpy(call.type.value_type, items)).closed(call.type, there)
