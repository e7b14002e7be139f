"""Sequences of integers, dates and timestamps.

A step of days or less is added again and again. A step of months is added to the start as often as needed, in the
session's time zone: from 31 January it leads to the last days of the months.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
from pyarrow import types

from ikebana.encoding.arrow import from_numpy, is_instant
from ikebana.errors import SqlError
from ikebana.expressions.core.base import Call, Config, Expression, builds, function, is_nullable
from ikebana.expressions.core.scalars import Arguments, raise_where, to_int64, validity_of
from ikebana.expressions.core.tree import Tree
from ikebana.expressions.nested.functions import list_of
from ikebana.expressions.nested.lists import Lists
from ikebana.expressions.temporal import calendar, zones
from ikebana.expressions.temporal.zones import DAY

_LEAST_MONTH = 28 * DAY


@builds("Sequence")
def _build_sequence(tree: Tree, children: Arguments, config: Config) -> Expression:
    kind, steps = children[0].type, [child.type for child in children[2:]]
    if any(types.is_interval(step) for step in steps) or not (types.is_integer(kind) or types.is_temporal(kind)):
        raise SqlError(
            f"sequence of {kind} with such a step is not supported in a maintained view",
            hint="use a step of months and years, or of days and smaller units",
        )
    zone = tree.fields.get("timeZoneId") or config.time_zone
    return Call(list_of(kind, False), is_nullable(children), "sequence", children, (zone,))


@function("sequence", raises=True)
def _sequence(call: Call, start: pa.Array, stop: pa.Array, step: pa.Array | None = None) -> pa.Array:
    arguments = [argument for argument in (start, stop, step) if argument is not None]
    first, last = to_int64(start), to_int64(stop)
    if step is None:
        unit = 1 if types.is_integer(start.type) or types.is_date(start.type) else DAY
        increment = np.where(first <= last, unit, -unit)
    else:
        increment = to_int64(step)
    _check_direction(call, first, last, increment, arguments)
    is_valid = validity_of(*arguments)
    if step is not None and types.is_integer(step.type) and not types.is_integer(start.type):
        return _by_months(call, start.type, first, last, increment, is_valid)
    if step is not None and types.is_date(start.type):
        raise_where(increment % DAY != 0, call, "the step of a sequence of dates must be whole days", *arguments)
        increment = increment // DAY
    counts = (last - first) // np.where(increment == 0, 1, increment) + 1
    lists = Lists(_where(is_valid, counts), pa.nulls(0))
    items = first[lists.parents] + increment[lists.parents] * lists.positions
    return Lists(lists.counts, from_numpy(call.type.value_type, items)).to_array(call.type, is_valid)


def _check_direction(call: Call, first: Any, last: Any, step: Any, arguments: list[pa.Array]) -> None:
    is_wrong = ((step > 0) & (first > last)) | ((step < 0) & (first < last)) | ((step == 0) & (first != last))
    raise_where(is_wrong, call, "the step does not lead from start to stop", *arguments)


def _where(is_valid: Any, counts: Any) -> Any:
    return counts if is_valid is None else np.where(is_valid, counts, 0)


def _by_months(call: Call, kind: pa.DataType, first: Any, last: Any, months: Any, is_valid: Any) -> pa.Array:
    """The dates or times that are a multiple of some months after the first: more than enough, then those in range."""
    (zone,) = call.options
    unit = DAY if types.is_date(kind) else 1
    span = np.abs(last - first) * unit
    most = _where(is_valid, span // (_LEAST_MONTH * np.maximum(np.abs(months), 1)) + 2)
    lists = Lists(np.where(months == 0, np.minimum(most, 1), most), pa.nulls(0))
    start, by = first[lists.parents], months[lists.parents] * lists.positions
    if types.is_date(kind):
        items = calendar.plus_months(start, by)
    else:
        clock = zones.to_clock(start, zone) if is_instant(kind) else start
        days, rest = np.divmod(clock, DAY)
        moved = calendar.plus_months(days, by) * DAY + rest
        items = zones.to_instant(moved, zone) if is_instant(kind) else moved
    end = last[lists.parents]
    inside = np.where(months[lists.parents] < 0, items >= end, items <= end)
    return Lists(lists.counts, from_numpy(kind, items)).filter(inside).to_array(call.type, is_valid)
