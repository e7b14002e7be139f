"""Relations: what the nodes of a query's plan are, while it is lowered.

A `Table` is what a query may read by name: a table or view of the session. A `Part` is the result of a node of
Catalyst's plan: the rows of a *source* collection, of which *filters* leave some, and for each attribute of Catalyst's
(a number) what it is, an expression over the columns of the source. Filters and projections are collected, not
applied: so a join can look up a table's own index, and filter and compute what it finds, where the index is shared with
all other queries; and what is applied at last is one step.

A part of a prepared statement that depends on its parameters has the column `ID` in its source, which says to which
opening a row belongs; all that is made of it keeps it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import pyarrow as pa

from ikebana.engine.collection import Arrangement, Collection
from ikebana.expressions import Column, Expression
from ikebana.operators.changes import Fields
from ikebana.operators.row_errors import BINDING
from ikebana.sql.steps import Named, filtered, projected

BINDING_ID = BINDING
"""The column that says to which opening of a prepared statement a row belongs."""

DIFF = "diff"
"""What views call how often a row is there; so no column can be called that."""


@dataclass(frozen=True, eq=False)
class SourceTable:
    """A table or view that queries can read.

    With a `key` no two rows agree in these columns, and an index by them is maintained. A `stream` keeps nothing: a
    query sees the rows that come after it was installed, and indexes what it needs by itself.
    """

    name: str
    rows: Collection
    key: tuple[str, ...] = ()
    is_stream: bool = False
    identity: str = ""
    """What tells it from others that had its name."""

    @cached_property
    def index(self) -> Arrangement | None:
        """The index by key, if there is one."""
        return self.rows.arrange(*self.key) if self.key and not self.is_stream else None


@dataclass(frozen=True, eq=False)
class Relation:
    """Rows, and what Catalyst's attributes are in them."""

    source: Collection
    outputs: Mapping[int, Expression]
    """What each attribute is, in the order of the node's output, over the columns of `source`."""
    names: Mapping[int, str]
    """What users call each attribute."""
    filters: tuple[Expression, ...] = ()
    table: SourceTable | None = None
    """The table whose rows `source` is, if it is one."""
    unique: tuple[str, ...] | None = None
    """Columns of `source` in which no two rows agree, and by which it is indexed already."""

    # Other parts made of this one: nothing is computed yet.

    def where(self, conditions: Iterable[Expression]) -> Relation:
        """Fewer rows; conditions are over the columns of the source."""
        return replace(self, filters=(*self.filters, *conditions))

    def with_outputs(self, outputs: Mapping[int, Expression], names: Mapping[int, str]) -> Relation:
        """Other attributes, over the columns of the source."""
        return replace(self, outputs=dict(outputs), names=dict(names))

    def select(self, attributes: Iterable[int]) -> Relation:
        """Some of the attributes."""
        kept = list(attributes)
        return self.with_outputs({each: self.outputs[each] for each in kept}, {each: self.names[each] for each in kept})

    # What it is as a collection.

    def rows(self, named: Iterable[tuple[str, Expression]]) -> Collection:
        """The rows that pass the filters: the binding column, if there is one, and expressions over the source."""
        return self.project(self.with_binding(named))

    def project(self, named: Named) -> Collection:
        """Like `rows`, but without the binding column: for joins, which have a name of their own for it."""
        columns = {column for _, expression in named for column in expression.columns}
        return projected(filtered(self.source, self.filters, columns), named)

    def columns(self, attributes: Iterable[int] | None = None) -> list[tuple[int, str]]:
        """Attributes (all, or some) with names that no two of them share: those of users as far as possible."""
        taken = set[str]()
        found = []
        for attribute in self.outputs if attributes is None else attributes:
            name = unique_name(self.names[attribute], taken)
            taken.add(name)
            found.append((attribute, name))
        return found

    def materialised(self, attributes: Sequence[int] | None = None) -> Relation:
        """The same as a collection that has exactly the attributes (all, or some) as columns."""
        columns = self.columns(attributes)
        rows = self.rows((name, self.outputs[attribute]) for attribute, name in columns)
        return from_collection(rows, columns, self.names)

    # Parameters of a prepared statement.

    @property
    def binding(self) -> Column | None:
        """The binding column; None if the relation does not depend on parameters."""
        fields = (field for field in self.source.node.columns if field.name == BINDING_ID)
        return next(map(column_of, fields), None)

    @property
    def is_bound(self) -> bool:
        """Whether the relation depends on parameters: its rows exist once for each binding."""
        return self.binding is not None

    def with_binding(self, named: Iterable[tuple[str, Expression]]) -> Named:
        """Named expressions, preceded by the binding column if there is one."""
        return (*([] if self.binding is None else [(BINDING_ID, self.binding)]), *named)

    def key(self, names: Iterable[str] = ()) -> tuple[str, ...]:
        """A key of the collections that `rows` returns, for groups, partitions and indexes.

        The names, preceded by the binding column if there is one: groups of different bindings are separate.
        """
        return (*([BINDING_ID] if self.is_bound else []), *names)


def from_collection(
    rows: Collection,
    columns: Iterable[tuple[int, str]],
    names: Mapping[int, str],
    unique: tuple[str, ...] | None = None,
) -> Relation:
    """A part whose attributes are columns of a collection."""
    fields = {field.name: field for field in rows.node.columns}
    pairs = list(columns)
    outputs = {attribute: column_of(fields[name]) for attribute, name in pairs}
    return Relation(rows, outputs, {attribute: names[attribute] for attribute, _ in pairs}, unique=unique)


def union_all(parts: Sequence[Relation]) -> Relation:
    """The rows of all parts, under the attributes of the first; by position."""
    columns = parts[0].columns()
    names = [name for _, name in columns]
    rows = [part.rows(zip(names, part.outputs.values(), strict=True)) for part in parts]
    return from_collection(rows[0].concat(*rows[1:]), columns, parts[0].names)


def column_of(field: pa.Field) -> Column:
    """A column, as an expression."""
    return Column(field.type, field.nullable, field.name)


def columns_of(fields: Fields) -> dict[str, Expression]:
    """Columns as expressions, by name."""
    return {field.name: column_of(field) for field in fields}


def unique_name(name: str, taken: Iterable[str]) -> str:
    """The name, or the name with a number, such that it is not taken, and can be that of a column.

    >>> unique_name("n_name", {"n_name", "n_name 2"})
    'n_name 3'
    """
    known = {DIFF, BINDING_ID, *taken}
    if name not in known:
        return name
    number = 2
    while f"{name} {number}" in known:
        number += 1
    return f"{name} {number}"


def substituted(expression: Expression, columns: Mapping[str, Expression]) -> Expression:
    """An expression with its columns replaced."""
    if isinstance(expression, Column):
        return columns.get(expression.name, expression)
    inputs = tuple(substituted(each, columns) for each in expression.inputs)
    return expression if inputs == expression.inputs else expression.with_inputs(inputs)
