"""Casts between all types that Spark can cast, also inside arrays, structs and maps, except intervals.

In ANSI mode a value that cannot be cast raises an error; try_cast makes it null, also inside of nested values.
Otherwise the result is null, except that a number that is out of the range of an integer type wraps (integers,
decimals, timestamps) or is clamped (floats), as in Spark.

Nested values are cast to strings as Spark shows them: `[1, null]`, `{1, a}`, `{key -> value}`.

This module builds casts, and applies them inside nested values. The conversions themselves are in `number_casts`,
`string_casts` and `time_casts`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import types

from ikebana.encoding.arrow import validity
from ikebana.encoding.bad_rows import separate_bad_rows
from ikebana.errors import EvaluationError, SqlError
from ikebana.expressions.core.base import (
    Call,
    Column,
    ColumnBatch,
    Config,
    Expression,
    builds,
    function,
    locate_bad_rows,
)
from ikebana.expressions.core.buffers import scatter
from ikebana.expressions.core.conversions import CONVERSIONS, FAMILIES, conversion, family_of
from ikebana.expressions.core.scalars import null_where_invalid
from ikebana.expressions.core.tree import Tree
from ikebana.expressions.core.types import arrow_type
from ikebana.expressions.nested.lists import Lists

_STRING = pa.string()
_TRY = "try"
"""The third option of a cast that is null where it would raise."""


@builds("Cast", "CheckOverflow")
def _cast(tree: Tree, children: tuple[Expression, ...], config: Config) -> Expression:
    options = (config.ansi, tree.fields.get("timeZoneId") or config.time_zone)
    return _built(tree, children, tree.fields["dataType"], options)


@builds("try_Cast", "ansi_Cast", "legacy_Cast")
def _cast_in_mode(tree: Tree, children: tuple[Expression, ...], config: Config) -> Expression:
    """A cast in a mode of its own. The second argument is a null of the type to cast to."""
    value, kind = tree.children
    options = {
        "try_Cast": (True, config.time_zone, _TRY),
        "ansi_Cast": (True, config.time_zone),
        "legacy_Cast": (False, config.time_zone),
    }[tree.called]
    return _built(Tree("Cast", {}, (value,)), children[:1], kind.fields["dataType"], options)


def _built(tree: Tree, children: tuple[Expression, ...], spark: Any, options: tuple[Any, ...]) -> Expression:
    """The cast of a child to a type of Spark's."""
    (child,) = children
    target = arrow_type(spark)
    if child.type == target and (_is_full_interval(spark) if _is_interval(spark) else not _has_months(tree)):
        return child
    parts = list(_parts(child.type, target))
    if _is_interval(spark) or _has_months(tree) or any(_families(*pair) not in CONVERSIONS for pair in parts):
        shown = spark if isinstance(spark, str) else target
        raise SqlError(f"a cast from {child.type} to {shown} is not supported in a maintained view")
    can_be_null = not options[0] or _TRY in options
    nullable = child.nullable or (can_be_null and any(_can_fail(*pair) for pair in parts))
    return Call(target, nullable, "cast", children, options)


def _parts(source: pa.DataType, target: pa.DataType) -> Iterator[tuple[pa.DataType, pa.DataType]]:
    """The pairs of different types to cast between, also inside nested types."""
    if source == target:
        return
    if types.is_nested(source) and (types.is_string(target) or source.id == target.id):
        targets = [target] * len(_inner(source)) if types.is_string(target) else _inner(target)
        for one, other in zip(_inner(source), targets, strict=True):
            yield from _parts(one, other)
    else:
        yield source, target


def _inner(kind: pa.DataType) -> list[pa.DataType]:
    """The types of the elements, fields, or keys and values of a nested type."""
    if types.is_map(kind):
        return [kind.key_type, kind.item_type]
    return [kind.field(at).type for at in range(kind.num_fields)]


def _families(source: pa.DataType, target: pa.DataType) -> tuple[str, str]:
    return family_of(source), family_of(target)


def _can_fail(source: pa.DataType, target: pa.DataType) -> bool:
    return CONVERSIONS[_families(source, target)].can_fail(source, target)


def _is_interval(spark: Any) -> bool:
    return str(spark).startswith("interval")


def _is_full_interval(spark: Any) -> bool:
    """Whether a cast to an interval keeps every value: an interval that ends in months or seconds loses nothing."""
    return str(spark).endswith(("month", "second"))


def _has_months(tree: Tree) -> bool:
    """Whether the operand contains year-month intervals, which are stored as integers but not cast like integers."""
    nodes = [node for child in tree.children for node in child.walk()]
    kinds = (str(node.fields.get("dataType", "")) for node in nodes)
    return any("YMInterval" in node.kind for node in nodes) or any(
        kind.startswith(("interval year", "interval month")) for kind in kinds
    )


def _raises(call: Call) -> bool:
    parts = list(_parts(call.arguments[0].type, call.type))
    if _TRY in call.options:
        return False
    return any(_families(*pair) in _RAISING_IN_BOTH_MODES for pair in parts) or (
        call.options[0] and any(_can_fail(*pair) for pair in parts)
    )


_RAISING_IN_BOTH_MODES = {("string", "timestamp"), ("binary", "string")}
"""The casts that may raise in both modes."""


@function("cast", raises=_raises)
def _run(call: Call, array: pa.Array) -> pa.Array:
    if array.type == call.type:
        return array
    if types.is_nested(array.type):
        return (_printed if types.is_string(call.type) else _nested)(call, array)
    run = CONVERSIONS[_families(array.type, call.type)].run
    return _tried(run, call, array) if _TRY in call.options else run(call, array)


def _tried(convert: Callable[[Call, pa.Array], pa.Array], call: Call, array: pa.Array) -> pa.Array:
    """The values, null where one cannot be cast."""

    def run(index: Any) -> pa.Array:
        try:
            return convert(call, array.take(pa.array(index)))
        except EvaluationError as error:
            locate_bad_rows(error, ColumnBatch.from_input({}, len(index)), by_row=True)
            raise

    values, good, failures = separate_bad_rows(run, len(array), lambda: pa.nulls(0, call.type))
    if not failures:
        return values
    is_good = np.zeros(len(array), bool)
    is_good[good] = True
    return scatter(call.type, len(array), [(is_good, values)])


def _cast_inside(call: Call, array: pa.Array, kind: pa.DataType) -> pa.Array:
    """The elements or a field of nested values, cast to a type."""
    part = Column(array.type, True, str(call.arguments[0]))
    return _run(Call(kind, True, call.function, (part,), call.options), array)


def _nested(call: Call, array: pa.Array) -> pa.Array:
    """Nested values, cast to a type of the same shape."""
    kind, mask = call.type, array.is_null() if array.null_count else None
    if types.is_struct(kind):
        fields = list(kind.fields)
        parts = [_cast_inside(call, part, field.type) for part, field in zip(array.flatten(), fields, strict=True)]
        return pa.StructArray.from_arrays(parts, fields=fields, mask=mask)
    if types.is_list(kind):
        lists = Lists.from_array(array)
        return Lists(lists.counts, _cast_inside(call, lists.items, kind.value_type)).to_array(kind, validity(array))
    keys, values = Lists.from_map_keys(array), Lists.from_map_values(array)
    cast_keys = _cast_inside(call, keys.items, kind.key_type)
    return keys.to_map(kind, cast_keys, _cast_inside(call, values.items, kind.item_type), validity(array))


def _printed(call: Call, array: pa.Array) -> pa.Array:
    """Nested values as strings."""

    def strings(part: pa.Array) -> pa.Array:
        return _cast_inside(call, part, _STRING).fill_null("null")

    if types.is_struct(array.type):
        fields = [strings(field) for field in array.flatten()]
        joined = pc.binary_join_element_wise(*fields, ", ") if fields else pa.repeat("", len(array))
    elif types.is_list(array.type):
        joined = _joined(Lists.from_array(array), strings)
    else:
        keys = Lists.from_map_keys(array)
        values = strings(Lists.from_map_values(array).items)
        joined = _joined(keys, lambda items: pc.binary_join_element_wise(strings(items), values, " -> "))
    left, right = "[]" if types.is_list(array.type) else "{}"
    return null_where_invalid(pc.binary_join_element_wise(left, joined, right, ""), validity(array))


def _joined(lists: Lists, strings: Callable[[pa.Array], pa.Array]) -> pa.Array:
    """The items of each list as one string."""
    return pc.binary_join(Lists(lists.counts, strings(lists.items)).to_array(pa.list_(_STRING)), ", ")


# Casts whose result is always null.


@conversion(*(f"date {name}" for name in ("boolean", "integer", "float", "decimal")), fails=True)
def _all_null(call: Call, array: pa.Array) -> pa.Array:
    return pa.nulls(len(array), call.type)


for _name in FAMILIES:
    conversion(f"void {_name}")(_all_null)
