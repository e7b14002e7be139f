"""Functions of two arrays: union, intersection, difference, overlap, and zipping.

Elements are equal as in SQL's groups: null equals null, NaN equals NaN, and -0.0 equals 0.0. Results have each element
once, in the order of its first occurrence.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import types

from ikebana.encoding.arrow import Mask, from_numpy
from ikebana.expressions.core.base import Call, Config, Expression, builds, function, is_nullable
from ikebana.expressions.core.scalars import Arguments, Value, as_array, conform, maps, row_count, validity_of
from ikebana.expressions.core.tree import Tree
from ikebana.expressions.core.types import common_type
from ikebana.expressions.nested.functions import list_of
from ikebana.expressions.nested.lists import Integers, Lists, ranks


def distinct_items(lists: Lists, codes: Integers) -> Mask:
    """The first occurrence of each item in its list, given codes that are equal for equal items and at least -1."""
    flags = np.zeros(len(codes), bool)
    flags[np.unique(lists.parents * (codes.max(initial=0) + 2) + codes + 1, return_index=True)[1]] = True
    return flags


def with_one_zero(items: pa.Array) -> pa.Array:
    """The items, with 0.0 in place of -0.0."""
    return pc.add(items, pa.scalar(0.0, items.type)) if types.is_floating(items.type) else items


class _Pair:
    """Two arrays of each row, and codes of their elements that are equal for equal elements, -1 for null."""

    def __init__(self, left: Value, right: Value, kind: pa.DataType) -> None:
        rows = row_count(left, right)
        self.is_valid = validity_of(left, right)
        lists = [Lists.from_array(as_array(value, rows)) for value in (left, right)]
        self.left, self.right = (Lists(one.counts, conform(one.items, kind)) for one in lists)
        codes = ranks(pa.concat_arrays([self.left.items, self.right.items]))
        self.left_codes, self.right_codes = np.split(codes, [len(self.left.items)])

    def in_right(self) -> Mask:
        """Which items of the left arrays the right array has too."""
        step = max(self.left_codes.max(initial=0), self.right_codes.max(initial=0)) + 2
        left, right = (
            lists.parents * step + codes + 1
            for lists, codes in ((self.left, self.left_codes), (self.right, self.right_codes))
        )
        return np.isin(left, right)


def _is_nullable_inside(argument: Expression) -> bool:
    return bool(argument.type.value_field.nullable)


def _element(arguments: Arguments) -> pa.DataType:
    return common_type(arguments).value_type


@maps(
    "ArrayUnion",
    gives=lambda arguments: list_of(_element(arguments), any(map(_is_nullable_inside, arguments))),
)
def _union(call: Call, left: Value, right: Value) -> pa.Array:
    pair = _Pair(left, right, call.type.value_type)
    order = np.argsort(np.concatenate([pair.left.parents, pair.right.parents]), kind="stable")
    items = pa.concat_arrays([pair.left.items, pair.right.items]).take(pa.array(order))
    both = Lists(pair.left.counts + pair.right.counts, with_one_zero(items))
    codes = np.concatenate([pair.left_codes, pair.right_codes])[order]
    return both.filter(distinct_items(both, codes)).to_array(call.type)


@maps(
    "ArrayIntersect",
    gives=lambda arguments: list_of(_element(arguments), all(map(_is_nullable_inside, arguments))),
)
def _intersect(call: Call, left: Value, right: Value) -> pa.Array:
    return _kept(call, _Pair(left, right, _element(call.arguments)), is_in_right=True)


@maps("ArrayExcept", gives=lambda arguments: list_of(_element(arguments), _is_nullable_inside(arguments[0])))
def _except(call: Call, left: Value, right: Value) -> pa.Array:
    return _kept(call, _Pair(left, right, _element(call.arguments)), is_in_right=False)


def _kept(call: Call, pair: _Pair, is_in_right: bool) -> pa.Array:
    left = Lists(pair.left.counts, with_one_zero(pair.left.items))
    flags = distinct_items(left, pair.left_codes) & (pair.in_right() == is_in_right)
    return left.filter(flags).to_array(call.type)


@maps(
    "ArraysOverlap",
    gives=pa.bool_(),
    nullable=lambda tree, arguments: is_nullable(arguments) or any(map(_is_nullable_inside, arguments)),
)
def _overlap(call: Call, left: Value, right: Value) -> pa.Array:
    """Null if no element is in both arrays, but one of them has a null and the other is not empty."""
    pair = _Pair(left, right, _element(call.arguments))
    overlaps = pair.left.any(pair.in_right() & (pair.left_codes >= 0))
    has_null = pair.left.any(pair.left_codes < 0) | pair.right.any(pair.right_codes < 0)
    is_open = has_null & (pair.left.counts > 0) & (pair.right.counts > 0)
    return from_numpy(pa.bool_(), overlaps, overlaps | ~is_open)


# Zipping.


@builds("ArraysZip")
def _build_zip(tree: Tree, children: Arguments, config: Config) -> Expression:
    names = [str(name.fields.get("value")) for name in tree.expressions("names")]
    fields = [pa.field(name, child.type.value_type, True) for name, child in zip(names, children, strict=True)]
    return Call(list_of(pa.struct(fields), False), is_nullable(children), "arrays_zip", children)


@function("arrays_zip")
def _zip(call: Call, *arrays: pa.Array) -> pa.Array:
    """The elements at the same position as one struct; shorter arrays are extended by nulls."""
    is_valid = validity_of(*arrays)
    lists = [Lists.from_array(array) for array in arrays]
    counts = np.max([one.counts for one in lists], axis=0)
    counts = counts if is_valid is None else np.where(is_valid, counts, 0)
    columns = [padded(one, counts) for one in lists]
    fields = list(call.type.value_type)
    conformed = [conform(column, field.type) for column, field in zip(columns, fields, strict=True)]
    return Lists(counts, pa.StructArray.from_arrays(conformed, fields=fields)).to_array(call.type, is_valid)


def zipped(arrays: Sequence[Expression], with_numbers: bool) -> Expression:
    """Arrays of structs of the elements of arrays, null arrays counting as empty; their numbers come last."""
    fields = [pa.field(str(at), array.type.value_type, True) for at, array in enumerate(arrays)]
    if with_numbers:
        fields.append(pa.field("number", pa.int64(), False))
    return Call(list_of(pa.struct(fields), False), False, "zipped", tuple(arrays), (with_numbers,))


@function("zipped")
def _zipped(call: Call, *arrays: pa.Array) -> pa.Array:
    lists = [Lists.from_array(array) for array in arrays]
    counts = np.max([one.counts for one in lists], axis=0)
    columns = [padded(one, counts) for one in lists]
    if call.options[0]:
        columns.append(from_numpy(pa.int64(), Lists(counts, pa.nulls(0)).positions + 1))
    return Lists(counts, pa.StructArray.from_arrays(columns, fields=list(call.type.value_type))).to_array(call.type)


def padded(lists: Lists, counts: Integers) -> pa.Array:
    """The items of lists that are extended by nulls, or cut off, to other lengths."""
    longer = Lists(counts, pa.nulls(0))
    begins = np.cumsum(lists.counts) - lists.counts
    has_item = longer.positions < lists.counts[longer.parents]
    index = np.where(has_item, begins[longer.parents] + longer.positions, 0)
    return lists.items.take(pa.array(index, mask=~has_item))
