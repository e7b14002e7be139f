"""Rows made of rows: explode, posexplode, inline, stack, and the repetition that EXCEPT ALL and INTERSECT ALL need.

All lists of a column are flattened at once, each element with the position of its row.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import types

from ikebana.errors import SqlError
from ikebana.expressions import ColumnBatch, Expression, Literal
from ikebana.expressions.core.tree import Tree
from ikebana.expressions.nested.sets import zipped
from ikebana.operators import linear
from ikebana.operators.changes import Fields
from ikebana.sql.expression_steps import Named, Repeat, fields_of, filtered
from ikebana.sql.lowering.context import Lowering, Required
from ikebana.sql.relation import Relation, from_collection, union_all, unique_name

Generator = Callable[[Relation, Sequence[Expression], dict[int, str], bool], Relation]
"""A function of the relation whose attributes are passed on, the generator's inputs, the attributes that it generates
with their names, and whether it is an OUTER one."""


def generate(lowering: Lowering, tree: Tree, required: Required) -> Relation:
    """LATERAL VIEW, or a generator in SELECT."""
    generator, inner = tree.expression("generator"), lowering.relation(tree.only_child)
    dropped = set(tree.fields["unrequiredChildIndex"] or ())
    relation = lowering.with_subqueries(inner, [generator])
    passed_on = relation.select([attribute for at, attribute in enumerate(inner.outputs) if at not in dropped])
    generated = {attribute.expr_id: attribute.fields["name"] for attribute in tree.expressions("generatorOutput")}
    inputs = [lowering.expression(child, relation.outputs) for child in generator.children]
    if generator.kind != "Unnest" and generator.kind not in _GENERATORS:
        raise SqlError(f"the generator {generator.kind} is not supported in a maintained view")
    if generator.kind == "Unnest":
        return _unnest(
            passed_on, inputs, generated, bool(tree.fields["outer"]), bool(generator.fields["withOrdinality"])
        )
    return _GENERATORS[generator.kind](passed_on, inputs, generated, bool(tree.fields["outer"]))


@dataclass(frozen=True)
class Elements:
    """For `CalledFlatMap`: each row once for each element of a list or map, with columns for the element.

    With `outer`, a row without elements occurs once, with nulls.
    """

    passed_on: Named
    values: Expression
    generated: Fields
    has_position: bool
    """Whether the first generated column is the element's position."""
    spread: bool
    """Whether each field of an element is a column."""
    outer: bool

    def __call__(self, columns: linear.Columns, count: int) -> tuple[Any, dict[str, Any]]:
        rows = ColumnBatch.from_input(columns, count)
        lists = _as_lists(self.values.evaluate(rows))
        lengths = pc.fill_null(pc.list_value_length(lists), 0).to_numpy(zero_copy_only=False).astype(np.int64)
        times = np.maximum(lengths, 1) if self.outer else lengths
        origin = np.repeat(np.arange(count), times)
        missing = np.repeat(lengths == 0, times)
        elements = _flattened(lists, pa.array(np.cumsum(~missing) - 1, mask=missing), self.spread)
        if self.has_position:
            position = np.arange(len(origin)) - np.repeat(np.cumsum(times) - times, times)
            elements = [pa.array(position.astype(np.int32), mask=missing), *elements]
        passed_on = {name: value.evaluate(rows).take(pa.array(origin)) for name, value in self.passed_on}
        generated = {field.name: column for field, column in zip(self.generated, elements, strict=True)}
        return origin, {**passed_on, **generated}


def _as_lists(values: pa.Array) -> pa.Array:
    """Lists as they are; maps as lists of structs of key and value."""
    kind = values.type
    return values.cast(pa.list_(pa.struct([kind.key_field, kind.item_field]))) if types.is_map(kind) else values


def _flattened(lists: pa.Array, positions: pa.Array, spread: bool) -> list[pa.Array]:
    """The elements of all lists at some positions; with `spread`, a column for each of their fields."""
    elements = pc.list_flatten(lists).take(positions)
    return elements.flatten() if spread else [elements]


def _elements(*, has_position: bool = False, inline: bool = False) -> Generator:
    """The elements of a list or map; `inline`, those of a list of structs, a column for each field."""

    def elements(relation: Relation, inputs: Sequence[Expression], generated: dict[int, str], outer: bool) -> Relation:
        (values,) = inputs
        spread = inline or types.is_map(values.type)
        columns = _columns(relation, generated)
        outputs = ((name, relation.outputs[key]) for key, name in columns if key not in generated)
        passed_on = relation.with_binding(outputs)  # explicit, since this step computes all columns of its rows
        names = [name for attribute, name in columns if attribute in generated]
        kinds = [pa.int32()] * has_position + _element_types(values.type, spread)
        fields = tuple(pa.field(name, kind, nullable=True) for name, kind in zip(names, kinds, strict=True))
        function = Elements(passed_on, values, fields, has_position, spread, outer)
        step = linear.CalledFlatMap((*fields_of(passed_on), *fields), function)
        rows = filtered(relation.source, relation.filters).step(step)
        return from_collection(rows, columns, {**relation.names, **generated})

    return elements


def _element_types(kind: pa.DataType, spread: bool) -> list[pa.DataType]:
    if types.is_map(kind):
        return [kind.key_type, kind.item_type]
    return [field.type for field in kind.value_type] if spread else [kind.value_type]


def _columns(relation: Relation, generated: dict[int, str]) -> list[tuple[int, str]]:
    """The attributes that are passed on and those that are generated, with unique names."""
    columns = relation.columns()
    for attribute, name in generated.items():
        columns.append((attribute, unique_name(name, [taken for _, taken in columns])))
    return columns


def _repeat(relation: Relation, inputs: Sequence[Expression], generated: dict[int, str], outer: bool) -> Relation:
    """Each row as many times as its first input says, with the other inputs as generated attributes."""
    times, *others = inputs
    outputs = {**relation.outputs, **dict(zip(generated, others, strict=True))}
    relation = relation.with_outputs(outputs, {**relation.names, **generated})
    columns = relation.columns()
    count = unique_name("times", [name for _, name in columns])
    rows = relation.rows([(count, times), *((name, outputs[attribute]) for attribute, name in columns)])
    return from_collection(rows.step(Repeat(count)), columns, relation.names)


def _stack(relation: Relation, inputs: Sequence[Expression], generated: dict[int, str], outer: bool) -> Relation:
    """The inputs after the first, divided into as many rows as the first says."""
    count, *values = inputs
    if not isinstance(count, Literal):
        raise SqlError("the number of rows of stack must be a constant")
    width, relations = len(generated), []
    for at in range(int(count.value)):
        row = values[at * width : (at + 1) * width]
        row += [Literal(value.type, True, None) for value in values[len(row) : width]]
        outputs = {**relation.outputs, **dict(zip(generated, row, strict=True))}
        relations.append(relation.with_outputs(outputs, {**relation.names, **generated}))
    return union_all(relations)


def _unnest(
    relation: Relation, inputs: Sequence[Expression], generated: dict[int, str], outer: bool, has_ordinality: bool
) -> Relation:
    """The elements of arrays side by side, with nulls where an array is shorter; then their numbers, from 1."""
    if len(inputs) == 1 and not has_ordinality:
        return _elements()(relation, inputs, generated, outer)
    if any(not types.is_list(array.type) for array in inputs):
        raise SqlError("UNNEST of a map beside others, or with ordinality, is not supported in a maintained view")
    return _elements(inline=True)(relation, [zipped(inputs, has_ordinality)], generated, outer)


_GENERATORS: dict[str, Generator] = {
    "Explode": _elements(),
    "PosExplode": _elements(has_position=True),
    "Inline": _elements(inline=True),
    "Stack": _stack,
    "ReplicateRows": _repeat,
}
