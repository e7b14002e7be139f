"""Columns of plans: fields from what users write, declarations, and checks that columns fit.

All checks raise a `SchemaError` that names the columns and says how to change them. Nothing here looks at data.

Cost: independent of the data.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import pyarrow as pa

from ikebana.encoding.columns import is_nested, is_plain_integer
from ikebana.errors import SchemaError
from ikebana.operators import linear
from ikebana.operators.changes import Fields
from ikebana.plan import ir

Types = Mapping[str, pa.DataType] | Iterable[pa.Field]
"""Columns as users declare them: a mapping of names to Arrow types, or a list of Arrow fields."""


def fields_of(columns: Types) -> Fields:
    """The fields of declared columns; not nullable, unless they are given as nullable `pyarrow.Field`s."""
    pairs = columns.items() if isinstance(columns, Mapping) else columns
    return tuple(pair if isinstance(pair, pa.Field) else pa.field(pair[0], pair[1], nullable=False) for pair in pairs)


def described(fields: Iterable[pa.Field]) -> str:
    """Names and types, for error messages."""
    return ", ".join(f"{field.name}: {field.type}" for field in fields)


def unused_name(name: str, used: Iterable[str]) -> str:
    """The name, followed by as many underscores as necessary to make it different from the used names."""
    return name if name not in used else unused_name(f"{name}_", used)


# Linear steps.


def with_step(node: ir.Node, step: linear.Step, lanes: int | None = None) -> ir.Node:
    """The node with one more linear step; a chain of steps is a single node."""
    lanes = lanes or node.lanes
    if isinstance(node, ir.Steps):
        return ir.make(ir.Steps, source=node.source, steps=(*node.steps, step), diff_lanes=lanes)
    return ir.make(ir.Steps, source=node, steps=(step,), diff_lanes=lanes)


def declared(node: ir.Node, fields: Fields) -> ir.Node:
    """The same columns, declared as `fields`, which differ only in nullability."""
    return node if node.columns == fields else with_step(node, linear.Declare(fields))


def declared_nullable(node: ir.Node, names: Iterable[str]) -> ir.Node:
    """The same columns, those named declared nullable."""
    names = set(names)
    return declared(node, tuple(field.with_nullable(field.nullable or field.name in names) for field in node.columns))


# Checks.


def check_known(node: ir.Node, names: Iterable[str]) -> None:
    """Raise unless a collection has all of the named columns."""
    known = [field.name for field in node.columns]
    unknown = [name for name in names if name not in known]
    if unknown:
        raise SchemaError(f"there is no column {unknown[0]!r}", detail=f"the columns are {', '.join(known)}")


def check_alike(action: str, one: ir.Node, other: ir.Node) -> None:
    """Raise unless two collections have the same columns and diff lanes; `action` says what was to be done."""
    if [(f.name, f.type) for f in one.columns] != [(f.name, f.type) for f in other.columns]:
        raise SchemaError(
            f"cannot {action} with different columns",
            detail=f"one has {described(one.columns)}; the other has {described(other.columns)}",
            hint="select or map to the same columns, in the same order, first",
        )
    if one.lanes != other.lanes:
        raise SchemaError(
            f"cannot {action} with different numbers of diff lanes",
            detail=f"one has {one.lanes}, the other has {other.lanes}",
            hint="explode both into the same number of lanes",
        )


def check_clock(clock: ir.Node, bounds: Sequence[pa.Field]) -> None:
    """Raise unless a collection can be the clock for columns that bound the validity of rows."""
    if len(clock.columns) != 1 or not is_plain_integer(clock.columns[0]) or clock.lanes != 1 or clock.scope:
        raise SchemaError(
            "a clock must have exactly one column: a timestamp, a date or an integer, not nullable",
            detail=f"this collection has {described(clock.columns) or 'no columns'}",
            hint="select that column, and declare it as not nullable; a clock must be outside of loops",
        )
    for field in bounds:
        if field.type != clock.columns[0].type:
            raise SchemaError(
                f"column {field.name!r} and the clock have different types",
                detail=f"the column is of type {field.type}, the clock of type {clock.columns[0].type}",
                hint="map one to the type of the other",
            )


def check_ordered(fields: Iterable[pa.Field]) -> None:
    """Raise if the values of a column have no order."""
    for field in fields:
        if is_nested(field.type):
            raise SchemaError(
                f"cannot order by column {field.name!r}: values of type {field.type} have no order",
                hint="map the parts to order by to columns of their own",
            )


def check_keys(left: Fields, right: Fields) -> None:
    """Raise unless the key columns of two sides of a join have the same types and nullability."""
    if [(f.type, f.nullable) for f in left] != [(f.type, f.nullable) for f in right]:
        shown = [", ".join(f"{f.name}: {f.type}{'?' if f.nullable else ''}" for f in side) for side in (left, right)]
        raise SchemaError(
            "cannot join on keys of different types",
            detail=f"left: {shown[0]}; right: {shown[1]} (? means nullable)",
            hint="map to the same types before arranging",
        )


def check_function(method: str, function: Any) -> None:
    """Raise if the argument of a method is not a function."""
    if not callable(function):
        raise SchemaError(
            f"{method}() needs a function, but got {function!r}",
            hint='give a function of whole columns, such as lambda c: pc.equal(c["name"], "a")',
        )
