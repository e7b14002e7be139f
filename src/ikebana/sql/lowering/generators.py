"""Rows made of rows: explode, posexplode, inline, stack, and the repetition that EXCEPT ALL and INTERSECT ALL need.

Lists are flattened as a whole, each element with the position of the row that it stems from.
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
from ikebana.operators import linear
from ikebana.operators.changes import Fields
from ikebana.sql.lowering.context import Lowering, Wanted, lowers
from ikebana.sql.relation import Relation, from_collection, union_all, unique_name
from ikebana.sql.steps import Named, Repeat, fields_of, filtered

Generator = Callable[[Relation, Sequence[Expression], dict[int, str], bool], Relation]
"""The part whose attributes are kept, the generator's inputs, what it makes, and whether it is an outer one."""


@lowers("Generate")
def _generate(lowering: Lowering, tree: Tree, wanted: Wanted) -> Relation:
    generator, inner = tree.one("generator"), lowering.part(tree.only)
    left_out = set(tree.fields["unrequiredChildIndex"] or ())
    part = lowering.with_subqueries(inner, [generator])
    kept = part.select([each for at, each in enumerate(inner.outputs) if at not in left_out])
    made = {each.expr_id: each.fields["name"] for each in tree.many("generatorOutput")}
    inputs = [lowering.expression(each, part.outputs) for each in generator.children]
    if generator.kind not in _GENERATORS:
        raise SqlError(f"the generator {generator.kind} is not supported in a maintained view")
    return _GENERATORS[generator.kind](kept, inputs, made, bool(tree.fields["outer"]))


@dataclass(frozen=True)
class Elements:
    """For `FlatMap`: each row once for each element of a list or map, with columns for what the element has.

    With `outer`, a row without elements is there once, with nulls.
    """

    kept: Named
    values: Expression
    made: Fields
    position: bool
    """Whether the first column that is made is the element's position."""
    spread: bool
    """Whether an element has a column for each of its fields."""
    outer: bool

    def __call__(self, columns: linear.Columns, count: int) -> tuple[Any, dict[str, Any]]:
        rows = ColumnBatch.given(columns, count)
        lists = _as_lists(self.values.evaluate(rows))
        lengths = pc.fill_null(pc.list_value_length(lists), 0).to_numpy(zero_copy_only=False).astype(np.int64)
        times = np.maximum(lengths, 1) if self.outer else lengths
        origin = np.repeat(np.arange(count), times)
        missing = np.repeat(lengths == 0, times)
        elements = _flattened(lists, pa.array(np.cumsum(~missing) - 1, mask=missing), self.spread)
        if self.position:
            place = np.arange(len(origin)) - np.repeat(np.cumsum(times) - times, times)
            elements = [pa.array(place.astype(np.int32), mask=missing), *elements]
        kept = {name: each.evaluate(rows).take(pa.array(origin)) for name, each in self.kept}
        return origin, {**kept, **{field.name: each for field, each in zip(self.made, elements, strict=True)}}


def _as_lists(values: pa.Array) -> pa.Array:
    """Lists as they are; maps as lists of structs, of a key and a value each."""
    kind = values.type
    return values.cast(pa.list_(pa.struct([kind.key_field, kind.item_field]))) if types.is_map(kind) else values


def _flattened(lists: pa.Array, rows: pa.Array, spread: bool) -> list[pa.Array]:
    """Some of all elements, by their positions; with `spread` a column for each field of theirs."""
    elements = pc.list_flatten(lists).take(rows)
    return elements.flatten() if spread else [elements]


def _elements(*, position: bool = False, inline: bool = False) -> Generator:
    """The elements of a list or map; `inline`, those of a list of structs, a column for each field."""

    def generate(part: Relation, inputs: Sequence[Expression], made: dict[int, str], outer: bool) -> Relation:
        (values,) = inputs
        spread = inline or types.is_map(values.type)
        columns = _columns(part, made)
        kept = part.with_binding((name, part.outputs[each]) for each, name in columns if each not in made)
        names = [name for each, name in columns if each in made]
        kinds = [pa.int32()] * position + _element_types(values.type, spread)
        fields = tuple(pa.field(name, kind, nullable=True) for name, kind in zip(names, kinds, strict=True))
        function = Elements(kept, values, fields, position, spread, outer)
        rows = filtered(part.source, part.filters).step(linear.FlatMap((*fields_of(kept), *fields), function))
        return from_collection(rows, columns, {**part.names, **made})

    return generate


def _element_types(kind: pa.DataType, spread: bool) -> list[pa.DataType]:
    if types.is_map(kind):
        return [kind.key_type, kind.item_type]
    return [field.type for field in kind.value_type] if spread else [kind.value_type]


def _columns(part: Relation, made: dict[int, str]) -> list[tuple[int, str]]:
    """The attributes that are kept and made, with names that no two of them share."""
    columns = part.columns()
    for attribute, name in made.items():
        columns.append((attribute, unique_name(name, [taken for _, taken in columns])))
    return columns


def _repeated(part: Relation, inputs: Sequence[Expression], made: dict[int, str], outer: bool) -> Relation:
    """Each row as often as its first input says, with the other inputs."""
    times, *others = inputs
    given = part.with_outputs({**part.outputs, **dict(zip(made, others, strict=True))}, {**part.names, **made})
    columns = given.columns()
    count = unique_name("times", [name for _, name in columns])
    named = ((count, times), *((name, given.outputs[each]) for each, name in columns))
    return from_collection(given.rows(named).step(Repeat(count)), columns, given.names)


def _stacked(part: Relation, inputs: Sequence[Expression], made: dict[int, str], outer: bool) -> Relation:
    """The inputs as so many rows as the first says."""
    count, *values = inputs
    if not isinstance(count, Literal):
        raise SqlError("the number of rows that stack makes must be a number, not an expression")
    width, parts = len(made), []
    for at in range(int(count.value)):
        row = values[at * width : (at + 1) * width]
        row += [Literal(each.type, True, None) for each in values[len(row) : width]]
        parts.append(part.with_outputs({**part.outputs, **dict(zip(made, row, strict=True))}, {**part.names, **made}))
    return union_all(parts)


_GENERATORS: dict[str, Generator] = {
    "Explode": _elements(),
    "PosExplode": _elements(position=True),
    "Inline": _elements(inline=True),
    "Stack": _stacked,
    "ReplicateRows": _repeated,
}
