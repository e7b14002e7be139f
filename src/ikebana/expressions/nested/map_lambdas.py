"""Higher-order functions of maps, and of two arrays.

These are map_filter, transform_keys, transform_values, map_zip_with and zip_with. Like those of arrays
(`nested.lambdas`), their functions are evaluated once for all entries of all maps.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from ikebana.encoding.arrow import Mask
from ikebana.expressions.core.base import Call, ColumnBatch, Config, Expression, builds, function, is_nullable
from ikebana.expressions.core.buffers import is_true
from ikebana.expressions.core.scalars import Arguments, conform, validity_of
from ikebana.expressions.core.tree import Tree
from ikebana.expressions.core.types import merge_nullability
from ikebana.expressions.nested.functions import list_of
from ikebana.expressions.nested.lambdas import Lambda
from ikebana.expressions.nested.lists import Integers, Lists, ranks
from ikebana.expressions.nested.maps import checked_map, map_of
from ikebana.expressions.nested.sets import padded


class _Entries:
    """The entries of the maps of some rows, and what a function returns for each."""

    def __init__(self, call: Call, rows: ColumnBatch) -> None:
        mapping, compute = call.arguments[0].evaluate(rows), call.arguments[-1]
        assert isinstance(compute, Lambda)
        self.mapping, self.is_valid = mapping, validity_of(mapping)
        self.keys, self.values = Lists.from_map_keys(mapping), Lists.from_map_values(mapping)
        self.results = compute.apply(rows, self.keys.parents, self.keys.items, self.values.items)


@builds("MapFilter")
def _build_filter(tree: Tree, children: Arguments, config: Config) -> Expression:
    return Call(children[0].type, children[0].nullable, "map_filter", children)


@function("map_filter", lazy=True)
def _filter(call: Call, rows: ColumnBatch) -> pa.Array:
    entries = _Entries(call, rows)
    flags = is_true(entries.results)
    keys, values = entries.keys.filter(flags), entries.values.filter(flags)
    return keys.to_map(call.type, keys.items, values.items, entries.is_valid)


@builds("TransformKeys")
def _build_keys(tree: Tree, children: Arguments, config: Config) -> Expression:
    mapping, compute = children
    kind = map_of(compute.type, mapping.type.item_type, mapping.type.item_field.nullable)
    return Call(kind, mapping.nullable, "transform_keys", children)


@function("transform_keys", lazy=True, raises=True)
def _keys(call: Call, rows: ColumnBatch) -> pa.Array:
    entries = _Entries(call, rows)
    keys = Lists(entries.keys.counts, entries.results)
    return checked_map(call, keys, entries.values.items, entries.is_valid, entries.mapping)


@builds("TransformValues")
def _build_values(tree: Tree, children: Arguments, config: Config) -> Expression:
    mapping, compute = children
    kind = map_of(mapping.type.key_type, compute.type, compute.nullable)
    return Call(kind, mapping.nullable, "transform_values", children)


@function("transform_values", lazy=True)
def _values(call: Call, rows: ColumnBatch) -> pa.Array:
    entries = _Entries(call, rows)
    return entries.keys.to_map(call.type, entries.keys.items, entries.results, entries.is_valid)


@builds("MapZipWith")
def _build_map_zip(tree: Tree, children: Arguments, config: Config) -> Expression:
    left, right, compute = children
    key = merge_nullability(left.type.key_type, right.type.key_type)
    return Call(map_of(key, compute.type, compute.nullable), is_nullable(children[:2]), "map_zip_with", children)


@function("map_zip_with", lazy=True)
def _map_zip(call: Call, rows: ColumnBatch) -> pa.Array:
    """The keys of the first map, then those that only the second one has; a missing value is null."""
    left, right = (argument.evaluate(rows) for argument in call.arguments[:2])
    compute = call.arguments[2]
    assert isinstance(compute, Lambda)
    is_valid = validity_of(left, right)
    flags = np.ones(rows.count, bool) if is_valid is None else is_valid
    keys, values = _side(left, flags, call.type.key_type), _side(right, flags, call.type.key_type)
    parents = np.concatenate([keys[0].parents, values[0].parents])
    codes = ranks(pa.concat_arrays([keys[0].items, values[0].items]))
    distinct, first, group = np.unique(parents * (len(codes) + 2) + codes, return_index=True, return_inverse=True)
    split = len(keys[0].items)
    order = np.argsort(first, kind="stable")  # by occurrence, then by row
    order = order[np.argsort(parents[first[order]], kind="stable")]
    index = [np.full(len(distinct), -1), np.full(len(distinct), -1)]
    index[0][group[:split]], index[1][group[split:]] = np.arange(split), np.arange(len(codes) - split)
    all_keys = pa.concat_arrays([keys[0].items, values[0].items]).take(pa.array(first[order]))
    arguments = [_taken(side[1].items, at[order]) for side, at in zip((keys, values), index, strict=True)]
    row = parents[first[order]]
    results = compute.apply(rows, row, all_keys, *arguments)
    counts = np.bincount(row, minlength=rows.count).astype(np.int64)
    return Lists(counts, all_keys).to_map(call.type, all_keys, results, is_valid)


def _side(mapping: pa.Array, flags: Mask, key: pa.DataType) -> tuple[Lists, Lists]:
    """The keys and values of one of two maps."""
    keys, values = (part(mapping).where(flags) for part in (Lists.from_map_keys, Lists.from_map_values))
    return Lists(keys.counts, conform(keys.items, key)), values


def _taken(items: pa.Array, index: Integers) -> pa.Array:
    """The items at some positions, null for -1."""
    return items.take(pa.array(np.maximum(index, 0), mask=index < 0))


@builds("ZipWith")
def _build_zip(tree: Tree, children: Arguments, config: Config) -> Expression:
    compute = children[2]
    return Call(list_of(compute.type, compute.nullable), is_nullable(children[:2]), "zip_with", children)


@function("zip_with", lazy=True)
def _zip(call: Call, rows: ColumnBatch) -> pa.Array:
    """A function of the elements at the same position; the shorter array is extended by nulls."""
    left, right = (argument.evaluate(rows) for argument in call.arguments[:2])
    compute = call.arguments[2]
    assert isinstance(compute, Lambda)
    is_valid = validity_of(left, right)
    one, other = Lists.from_array(left), Lists.from_array(right)
    counts = np.maximum(one.counts, other.counts)
    counts = counts if is_valid is None else np.where(is_valid, counts, 0)
    parents = np.repeat(np.arange(rows.count), counts)
    results = compute.apply(rows, parents, padded(one, counts), padded(other, counts))
    return Lists(counts, results).to_array(call.type, is_valid)
