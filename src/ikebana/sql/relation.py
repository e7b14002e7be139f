"""Relations: the results of plan nodes while a query is lowered.

A `SourceTable` is a table or view of the session, which queries read by name. A `Relation` is the result of a node of
Catalyst's plan: the rows of a *source* collection that pass the *filters*, and for each attribute of Catalyst's (an
integer id) an expression over the columns of the source. Filters and projections are collected, not applied. So a join
can look up a table's own index, shared with all other queries, and filter and compute what it finds; and all filters
and projections together are one step.

Prepared statements. A *binding* is a set of values for the parameters of a prepared statement. The source of a relation
that depends on parameters has the column `BINDING_ID`, which says to which binding a row belongs; everything computed
from the relation keeps it. Relations do this by themselves: `rows` and `materialised` carry the column, `key` makes it
part of a group's or partition's key, joins equate it (`ikebana.sql.inner_joins`), and `unique_name` keeps other columns
from having its name.
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
from ikebana.sql.expression_steps import Named, filtered, projected

BINDING_ID = BINDING
"""The column that says to which binding of a prepared statement a row belongs."""

DIFF = "diff"
"""The name that views reserve for a row's multiplicity: no column can have it."""


@dataclass(frozen=True, eq=False)
class SourceTable:
    """A table or view that queries can read.

    With a `key`, no two rows agree in these columns, and an index by them is maintained. A `stream` stores no rows: a
    query sees the rows that arrive after it was installed, and maintains the indexes that it needs itself.
    """

    name: str
    rows: Collection
    key: tuple[str, ...] = ()
    is_stream: bool = False
    identity: str = ""
    """Distinguishes the table from others that had the same name."""

    @cached_property
    def index(self) -> Arrangement | None:
        """The index by key, if there is one."""
        return self.rows.arrange(*self.key) if self.key and not self.is_stream else None


@dataclass(frozen=True, eq=False)
class Relation:
    """Rows of a collection, and the attributes of Catalyst's as expressions over its columns."""

    source: Collection
    outputs: Mapping[int, Expression]
    """Each attribute as an expression over the columns of `source`, in the order of the node's output."""
    names: Mapping[int, str]
    """The user's name for each attribute."""
    filters: tuple[Expression, ...] = ()
    table: SourceTable | None = None
    """The table whose rows `source` is, if it is one."""
    unique: tuple[str, ...] | None = None
    """Columns of `source` in which no two rows agree, and by which it is indexed already."""

    # Relations derived from this one, without computing anything.

    def where(self, conditions: Iterable[Expression]) -> Relation:
        """The rows that also satisfy conditions over the columns of the source."""
        return replace(self, filters=(*self.filters, *conditions))

    def with_outputs(self, outputs: Mapping[int, Expression], names: Mapping[int, str]) -> Relation:
        """The same rows with other attributes, over the columns of the source."""
        return replace(self, outputs=dict(outputs), names=dict(names))

    def select(self, attributes: Iterable[int]) -> Relation:
        """Some of the attributes."""
        selected = list(attributes)
        outputs = {attribute: self.outputs[attribute] for attribute in selected}
        return self.with_outputs(outputs, {attribute: self.names[attribute] for attribute in selected})

    # Collections.

    def rows(self, named: Iterable[tuple[str, Expression]]) -> Collection:
        """The rows that pass the filters: the binding column, if there is one, and expressions over the source."""
        return self.project(self.with_binding(named))

    def project(self, named: Named) -> Collection:
        """Like `rows`, but without the binding column: for joins, which have a name of their own for it."""
        columns = {column for _, expression in named for column in expression.columns}
        return projected(filtered(self.source, self.filters, columns), named)

    def columns(self, attributes: Iterable[int] | None = None) -> list[tuple[int, str]]:
        """Attributes (all, or some) with unique column names: the users' names as far as possible."""
        columns = dict[int, str]()
        for attribute in self.outputs if attributes is None else attributes:
            columns[attribute] = unique_name(self.names[attribute], columns.values())
        return list(columns.items())

    def materialised(self, attributes: Sequence[int] | None = None) -> Relation:
        """The same rows as a collection that has exactly the attributes (all, or some) as columns."""
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
        """Whether the relation depends on parameters: each row belongs to a binding."""
        return self.binding is not None

    def with_binding(self, named: Iterable[tuple[str, Expression]]) -> Named:
        """Named expressions, preceded by the binding column if there is one."""
        return (*([] if self.binding is None else [(BINDING_ID, self.binding)]), *named)

    def key(self, names: Iterable[str] = ()) -> tuple[str, ...]:
        """Columns that make groups, partitions or indexes of what `rows` returns.

        These are `names`, preceded by the binding column if there is one: each binding has its own groups.
        """
        return (*([BINDING_ID] if self.is_bound else []), *names)


def from_collection(
    rows: Collection,
    columns: Iterable[tuple[int, str]],
    names: Mapping[int, str],
    unique: tuple[str, ...] | None = None,
) -> Relation:
    """A relation whose attributes are columns of a collection."""
    fields = {field.name: field for field in rows.node.columns}
    pairs = list(columns)
    outputs = {attribute: column_of(fields[name]) for attribute, name in pairs}
    return Relation(rows, outputs, {attribute: names[attribute] for attribute, _ in pairs}, unique=unique)


def union_all(relations: Sequence[Relation]) -> Relation:
    """The rows of all relations, matched by position, with the attributes of the first.

    Either all or none of the relations depend on parameters (`Lowering.bound_alike`).
    """
    first = relations[0]
    columns = first.columns()
    names = [name for _, name in columns]
    rows = [relation.rows(zip(names, relation.outputs.values(), strict=True)) for relation in relations]
    return from_collection(rows[0].concat(*rows[1:]), columns, first.names)


def column_of(field: pa.Field) -> Column:
    """A column as an expression."""
    return Column(field.type, field.nullable, field.name)


def columns_of(fields: Fields) -> dict[str, Expression]:
    """Columns as expressions, by name."""
    return {field.name: column_of(field) for field in fields}


def unique_name(name: str, taken: Iterable[str]) -> str:
    """The name, with a number if needed: one that is neither taken nor reserved.

    >>> unique_name("n_name", {"n_name", "n_name 2"})
    'n_name 3'
    """
    unavailable = {DIFF, BINDING_ID, *taken}
    if name not in unavailable:
        return name
    number = 2
    while f"{name} {number}" in unavailable:
        number += 1
    return f"{name} {number}"


def column_names(names: Sequence[str]) -> list[str]:
    """Distinct names for the columns of a view: if several have one name, the second is called `name_2`, and so on.

    >>> column_names(["id", "name", "id", "id_2"])
    ['id', 'name', 'id_3', 'id_2']
    """
    distinct, taken = list[str](), set(names)
    for name in names:
        number, chosen = 2, name
        while chosen in distinct or (chosen != name and chosen in taken):
            chosen, number = f"{name}_{number}", number + 1
        distinct.append(chosen)
    return distinct


def substituted(expression: Expression, columns: Mapping[str, Expression]) -> Expression:
    """An expression with its columns replaced, by name; columns that `columns` does not have stay as they are."""
    if isinstance(expression, Column):
        return columns.get(expression.name, expression)
    inputs = tuple(substituted(argument, columns) for argument in expression.inputs)
    return expression if inputs == expression.inputs else expression.with_inputs(inputs)
