"""The collections that plans of rules consist of: filters, computed columns, joins, and several relations in one.

A *bundle* stores relations of one loop together, with a column that says which relation a row belongs to.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import pyarrow as pa

from ikebana.datalog import functors
from ikebana.datalog.check import Relation
from ikebana.datalog.storage import Storage
from ikebana.datalog.types import Primitive
from ikebana.engine.collection import Arrangement, Collection
from ikebana.engine.scopes import in_one_scope
from ikebana.expressions import Column, Expression, Literal
from ikebana.operators.expression_steps import Computed, RowCondition
from ikebana.operators.join import JoinColumns
from ikebana.plan import ir

UNIT, _TAG, _PRESENT = "#unit", "#relation", "present"


def columns_of(relation: Relation) -> tuple[str, ...]:
    """The columns of a relation: its attributes; one column for a relation without attributes."""
    return tuple("diff_" if name == "diff" else name for name in relation.attributes) or (_PRESENT,)


def types_of(relation: Relation) -> tuple[Primitive, ...]:
    """The types of the columns of a relation."""
    return relation.types or ("number",)


@dataclass(frozen=True)
class Facts:
    """The facts of a relation: a set of rows, and the columns that are the attributes, in their order."""

    rows: Collection
    columns: tuple[str, ...]


def fields_of(relation: Relation, storage: Storage) -> list[pa.Field]:
    """The columns of a relation with their types."""
    pairs = zip(columns_of(relation), types_of(relation), strict=True)
    return [pa.field(name, storage.type(kind), nullable=False) for name, kind in pairs]


def unit_field() -> pa.Field:
    return pa.field(UNIT, pa.int8(), nullable=False)


def with_unit(collection: Collection) -> Collection:
    """A collection with one more column, which is the same in all rows."""
    columns = [(field.name, functors.column(field.name, field.type)) for field in collection.node.columns]
    if any(name == UNIT for name, _ in columns):
        return collection
    return collection.step(Computed((*columns, (UNIT, Literal(pa.int8(), False, 0)))))


def filtered(collection: Collection, conditions: Sequence[Expression]) -> Collection:
    """The rows for which all conditions are true."""
    return collection.step(RowCondition(functors.conjunction(conditions))) if conditions else collection


def computed_columns(collection: Collection, names: Mapping[str, str]) -> Collection:
    """The columns `new: old`."""
    if list(names.items()) == [(name, name) for name in collection.columns]:
        return collection
    return collection.select(**names)


def computed(collection: Collection, named: tuple[tuple[str, Expression], ...]) -> Collection:
    """Expressions over the columns, under new names."""
    if all(isinstance(expression, Column) for _, expression in named):
        return computed_columns(collection, {name: str(expression) for name, expression in named})
    return collection.step(Computed(named))


def joined(left: Arrangement, right: Arrangement, result: JoinColumns) -> Collection:
    """Join two arrangements on their keys."""
    left_node, right_node = in_one_scope([left.node, right.node])
    return Collection(ir.make(ir.Join, left=left_node, right=right_node, result=result))


class Bundle:
    """Several relations in one collection: a column for the number of the relation, and columns that they share."""

    def __init__(self, relations: Sequence[tuple[str, Collection]]) -> None:
        self._relations = relations
        self._columns: list[pa.Field] = []
        self._places: dict[str, list[str]] = {}
        for name, rows in relations:
            self._places[name] = self._place(rows)

    @property
    def key(self) -> list[str]:
        """The columns by which the collection is indexed: relations are spread over the workers."""
        return [_TAG, self._columns[0].name]

    def _place(self, rows: Collection) -> list[str]:
        """The shared columns for the columns of a relation; new ones where there are too few of a type."""
        places: list[str] = []
        for field in rows.node.columns:
            free = (column.name for column in self._columns if column.type == field.type and column.name not in places)
            name = next(free, None)
            if name is None:
                name = f"#{len(self._columns)}"
                self._columns.append(pa.field(name, field.type, nullable=False))
            places.append(name)
        return places

    def collection(self) -> Collection:
        parts = []
        for number, (name, rows) in enumerate(self._relations):
            own = dict(zip(self._places[name], rows.node.columns, strict=True))
            named: list[tuple[str, Expression]] = [(_TAG, Literal(pa.int16(), False, number))]
            for column in self._columns:
                field = own.get(column.name)
                filler = Literal(column.type, False, "" if pa.types.is_string(column.type) else 0)
                named.append((column.name, filler if field is None else functors.column(field.name, field.type)))
            parts.append(rows.step(Computed(tuple(named))))
        return parts[0].concat(*parts[1:])

    def part(self, stored: Collection, name: str) -> Collection:
        """The rows of one relation, of the stored collection."""
        number = [relation for relation, _ in self._relations].index(name)
        is_own = functors.compared("=", functors.column(_TAG, pa.int16()), Literal(pa.int16(), False, number))
        rows = filtered(stored, [is_own])
        fields = next(rows for relation, rows in self._relations if relation == name).columns
        return rows.select(**dict(zip(fields, self._places[name], strict=True)))
