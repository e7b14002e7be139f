"""Functions that create, change and take apart maps, except higher-order functions (`nested.lambdas`).

A map has no null keys and no two equal keys, where NaN equals NaN and -0.0 equals 0.0: a row for which a function would
create such a map raises, as in Spark with its default policy for duplicate keys.
"""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pyarrow as pa
from pyarrow import types

from ikebana.encoding.arrow import Mask, unpack_bits
from ikebana.errors import SqlError
from ikebana.expressions.core.base import Call, Config, Expression, Literal, builds, function, is_nullable
from ikebana.expressions.core.scalars import (
    Arguments,
    Value,
    as_array,
    conform,
    map_distinct,
    maps,
    raise_where,
    row_count,
    validity_of,
)
from ikebana.expressions.core.tree import Tree
from ikebana.expressions.core.types import common_type
from ikebana.expressions.nested.functions import list_of
from ikebana.expressions.nested.lists import Lists, ranks
from ikebana.expressions.strings.patterns import translate_java

_STRING = pa.string()


def map_of(key: pa.DataType, value: pa.DataType, nullable: bool) -> pa.DataType:
    """The Arrow type of Spark's MAP of two types."""
    return pa.map_(key, pa.field("value", value, nullable or types.is_null(value)))


def checked_map(call: Call, lists: Lists, values: pa.Array, is_valid: Mask | None, *arguments: Value) -> pa.Array:
    """Maps with the items of lists as keys; raise for rows that have a null key, or the same key twice."""
    is_null = unpack_bits(lists.items.is_null())
    raise_where(lists.any(is_null), call, "a key of a map must not be null", *arguments)
    codes = ranks(lists.items)
    pairs = lists.parents * (len(codes) + 2) + codes + 1
    is_first = np.zeros(len(codes), bool)
    is_first[np.unique(pairs, return_index=True)[1]] = True
    raise_where(lists.any(~is_first), call, "a map must not have a key twice", *arguments)
    return lists.to_map(call.type, lists.items, values, is_valid)


# Constructors.


def _pair_types(arguments: Arguments) -> pa.DataType:
    keys, values = arguments[::2], arguments[1::2]
    return map_of(common_type(keys), common_type(values), is_nullable(values))


@maps("CreateMap", gives=_pair_types, nullable=False, strict=False, raises=True)
def _create_map(call: Call, *values: Value) -> pa.Array:
    rows, width = row_count(*values), len(values) // 2
    order = pa.array(np.arange(rows * width).reshape(width, rows).T.ravel())
    columns = [
        pa.concat_arrays([conform(as_array(value, rows), kind) for value in part]).take(order)
        for part, kind in ((values[::2], call.type.key_type), (values[1::2], call.type.item_type))
    ]
    return checked_map(call, Lists(np.full(rows, width), columns[0]), columns[1], None, *map(_never_null, values))


def _never_null(value: Value) -> Value:
    """A value without nulls and of the same length: a null among the arguments does not excuse a bad key."""
    return pa.array(np.zeros(len(value))) if isinstance(value, pa.Array) else pa.scalar(0)


@maps(
    "MapFromArrays",
    gives=lambda arguments: map_of(
        arguments[0].type.value_type, arguments[1].type.value_type, arguments[1].type.value_field.nullable
    ),
    raises=True,
)
def _map_from_arrays(call: Call, keys: Value, values: Value) -> pa.Array:
    rows, is_valid = row_count(keys, values), validity_of(keys, values)
    one, other = (Lists.from_array(as_array(value, rows)) for value in (keys, values))
    raise_where(one.counts != other.counts, call, "the arrays of keys and values differ in length", keys, values)
    if is_valid is not None:
        one, other = one.where(is_valid), other.where(is_valid)
    return checked_map(call, one, other.items, is_valid, keys, values)


@maps(
    "MapFromEntries",
    gives=lambda arguments: map_of(
        arguments[0].type.value_type.field(0).type,
        arguments[0].type.value_type.field(1).type,
        arguments[0].type.value_type.field(1).nullable,
    ),
    nullable=lambda tree, arguments: is_nullable(arguments) or arguments[0].type.value_field.nullable,
    raises=True,
)
def _map_from_entries(call: Call, entries: pa.Array) -> pa.Array:
    """Null if one of the entries is null."""
    lists = Lists.from_array(entries)
    is_valid = ~lists.any(unpack_bits(lists.items.is_null()))
    lists = lists.where(is_valid)
    keys, values = lists.items.flatten()
    present = pa.array(np.zeros(len(entries)), mask=~is_valid)
    return checked_map(call, Lists(lists.counts, keys), values, is_valid, present)


def _concat_type(arguments: Arguments) -> pa.DataType:
    return common_type(arguments)


@maps("MapConcat", gives=_concat_type, raises=True)
def _map_concat(call: Call, *values: Value) -> pa.Array:
    rows = row_count(*values)
    columns = [as_array(value, rows) for value in values]
    is_valid = validity_of(*columns)
    keys, items = ([part(column) for column in columns] for part in (Lists.from_map_keys, Lists.from_map_values))
    if is_valid is not None:
        keys, items = ([lists.where(is_valid) for lists in part] for part in (keys, items))
    order = pa.array(np.argsort(np.concatenate([lists.parents for lists in keys]), kind="stable"))
    counts = np.sum([lists.counts for lists in keys], axis=0)
    key_items, value_items = (
        pa.concat_arrays([conform(lists.items, kind) for lists in part]).take(order)
        for part, kind in ((keys, call.type.key_type), (items, call.type.item_type))
    )
    return checked_map(call, Lists(counts, key_items), value_items, is_valid, *columns)


@builds("StringToMap")
def _build_string_to_map(tree: Tree, children: Arguments, config: Config) -> Expression:
    text, *delimiters = children
    if not all(isinstance(delimiter, Literal) and delimiter.value is not None for delimiter in delimiters):
        raise SqlError(
            "str_to_map with delimiters that are not constant is not supported in a maintained view",
            hint="write the delimiters as strings",
        )
    patterns = tuple(str(delimiter.value) for delimiter in delimiters if isinstance(delimiter, Literal))
    return Call(map_of(_STRING, _STRING, True), text.nullable, "str_to_map", (text,), patterns)


@function("str_to_map", raises=True)
def _string_to_map(call: Call, text: pa.Array) -> pa.Array:
    pairs, parts = (translate_java(pattern).python for pattern in call.options)
    entries = map_distinct(lambda value: _entries(value, pairs, parts), pa.list_(pa.list_(_STRING)), text)
    lists, is_valid = Lists.from_array(entries), validity_of(text)
    inner = Lists.from_array(lists.items)
    zeros, ones = np.zeros(len(inner.counts), np.int64), np.ones(len(inner.counts), np.int64)
    keys, values = inner.pick(zeros, ones > 0), inner.pick(ones, ones > 0)
    return checked_map(call, Lists(lists.counts, keys), values, is_valid, text)


def _entries(text: str, pairs: re.Pattern[str], parts: re.Pattern[str]) -> list[list[str | None]]:
    """Keys and values; an entry without the second delimiter has the value null."""
    split = [parts.split(pair, maxsplit=1) for pair in pairs.split(text)]
    return [[entry[0], entry[-1] if len(entry) > 1 else None] for entry in split]


# Taking maps apart.


def _entry_type(arguments: Arguments) -> pa.DataType:
    kind = arguments[0].type
    fields = [pa.field("key", kind.key_type, False), pa.field("value", kind.item_type, kind.item_field.nullable)]
    return list_of(pa.struct(fields), False)


@maps("MapEntries", gives=_entry_type)
def _map_entries(call: Call, mapping: pa.Array) -> pa.Array:
    keys, values = Lists.from_map_keys(mapping), Lists.from_map_values(mapping)
    fields = list(call.type.value_type)
    entries = pa.StructArray.from_arrays([keys.items, conform(values.items, fields[1].type)], fields=fields)
    return Lists(keys.counts, entries).to_array(call.type)


@maps("MapSort", gives=lambda arguments: arguments[0].type)
def _map_sort(call: Call, mapping: pa.Array) -> pa.Array:
    keys, values = Lists.from_map_keys(mapping), Lists.from_map_values(mapping)
    order: Any = np.lexsort((ranks(keys.items), keys.parents))
    return keys.to_map(call.type, keys.reorder(order).items, values.reorder(order).items, validity_of(mapping))
