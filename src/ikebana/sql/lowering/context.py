"""The state of lowering one query, and what all handlers share.

`Lowering.relation` dispatches a node of Catalyst's plan to its handler, by the name of the node's class; the table of
handlers is `ikebana.sql.lowering.handlers`. A handler lowers the node's children through the same method and returns a
`Relation` (`ikebana.sql.relation`), in which filters and projections are collected rather than applied.

What is not supported is refused here, before anything is installed, by an error that names it.

Prepared statements: a relation that depends on parameters carries the binding column by itself. A handler that combines
relations other than by `InnerJoin` makes them depend on parameters alike first (`Lowering.bound_alike`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cache
from itertools import count

import pyarrow as pa

from ikebana.engine.collection import Collection, constant
from ikebana.errors import SqlError
from ikebana.expressions import Expression, PythonFunction, translate
from ikebana.expressions.core.base import unsupported_error
from ikebana.expressions.core.tree import Tree, of_nodes
from ikebana.sql.inner_joins import InnerJoin
from ikebana.sql.lowering.trees import is_clock, scalar_subqueries
from ikebana.sql.planned import PARAMETERS, Planned
from ikebana.sql.relation import Relation, SourceTable, column_of
from ikebana.sql.scalar_subqueries import single_value

Required = set[int] | None
"""The attributes of a node's result that its parent reads; None for all.

A hint: a handler may ignore it and return more attributes.
"""

Handler = Callable[["Lowering", Tree, Required], Relation]
"""How a class of nodes is lowered: the context, the node, and the attributes that are required of it."""


class Lowering:
    """The lowering of one query."""

    def __init__(self, planned: Planned, tables: Mapping[str, SourceTable], handlers: Mapping[str, Handler]) -> None:
        self.planned, self._tables, self._handlers = planned, tables, handlers
        self.config = planned.config
        self._synthetic = count(-1, -1)
        self.loops: dict[int, Relation] = {}
        """The variables of recursive queries whose bodies are being lowered, by loop id."""

    def relation(self, tree: Tree, required: Required = None) -> Relation:
        """The result of a node; attributes that are not required may be missing."""
        handler = self._handlers.get(tree.kind)
        if handler is None:
            raise SqlError(
                f"{tree.kind} is not supported in a maintained view",
                hint="compute it when the view is read, or write the query differently",
            )
        with unexpected_errors_refused(tree.kind):
            return handler(self, tree, required)

    def expression(self, tree: Tree, columns: Mapping[int, Expression]) -> Expression:
        """An expression of Catalyst's over known attributes and subqueries."""

        def leaf(node: Tree) -> Expression | None:
            if node.kind == "PythonUDF":
                return self._python(node, tuple(self.expression(child, columns) for child in node.children))
            if node.kind not in ("AttributeReference", "ScalarSubquery"):
                return None
            if node.expr_id not in columns:
                raise SqlError(
                    f"the query reads {node.fields.get('name', 'a subquery')!r} where Spark's plan does not have it",
                    hint="write the query differently: Spark itself may not be able to run it",
                )
            return columns[node.expr_id]

        return translate(tree, leaf, self.config)

    def _python(self, tree: Tree, arguments: tuple[Expression, ...]) -> Expression:
        """A call of a user's Python function."""
        if not tree.fields["udfDeterministic"]:
            raise SqlError(
                f"the Python function {tree.fields['name']!r} is not deterministic",
                detail="a maintained view calls it again when a row is deleted",
                hint="leave out asNondeterministic() if it always returns the same result for the same arguments",
            )
        code = self.planned.functions[int(tree.fields["resultId"]["id"])]
        return PythonFunction(code.type, True, code.name, code.function, arguments, code.eval_type)

    def table(self, name: str, identity: str | None = None) -> SourceTable:
        """A table by name; with an identity, exactly that table and not a later one of the same name."""
        try:
            table = self._tables[name]
        except KeyError:
            known = ", ".join(map(repr, self._tables))
            raise SqlError(f"there is no table {name!r}", detail=f"there are {known}") from None
        if identity not in (None, table.identity):
            raise SqlError(
                f"the DataFrame reads {name!r}, which was dropped",
                detail="the table or view that has this name now was created later",
                hint="create the DataFrame again, with to_df() of the current table or view",
            )
        return table

    def new_attribute(self) -> int:
        """The id of an attribute that is not Catalyst's."""
        return next(self._synthetic)

    # Scalar subqueries and parameters.

    def subqueries(self, trees: Sequence[Tree]) -> list[Relation]:
        """Relations for the scalar subqueries in expressions: one row each, the subquery's id as attribute.

        All parameters together are one relation, with a row for each binding.
        """
        relations, parameters = list[Relation](), dict[int, str]()
        for number, subquery in scalar_subqueries(trees).items():
            if is_clock(subquery):
                raise SqlError(
                    "the current time can only be used in comparisons in WHERE, in a maintained view",
                    hint="for example: WHERE at >= now() - INTERVAL 5 MINUTES",
                )
            inner = self.relation(of_nodes(subquery.fields["plan"]))
            attribute = next(iter(inner.outputs))
            if inner.table is not None and inner.table.name == PARAMETERS:
                parameters[number] = inner.names[attribute]
            else:
                relations.append(single_value(inner, attribute, number, self.always(inner)))
        return [*relations, self._parameters(parameters)] if parameters else relations

    def _parameters(self, names: Mapping[int, str]) -> Relation:
        """The bindings of the statement, with the named parameters as attributes."""
        table = self.table(PARAMETERS)
        fields = {field.name: field for field in table.rows.node.columns}
        outputs = {number: column_of(fields[name]) for number, name in names.items()}
        return Relation(table.rows, outputs, names, table=table)

    def with_subqueries(self, relation: Relation, trees: Sequence[Tree]) -> Relation:
        """The relation, with the scalar subqueries of expressions as further attributes."""
        others = self.subqueries(trees)
        return cross_join([relation, *others]) if others else relation

    def computed(self, relation: Relation, named: Sequence[Tree]) -> Relation:
        """The relation with other attributes: named expressions over its own."""
        relation = self.with_subqueries(relation, named)
        outputs = {tree.expr_id: self.expression(tree, relation.outputs) for tree in named}
        return relation.with_outputs(outputs, {tree.expr_id: tree.fields["name"] for tree in named})

    def always(self, relation: Relation) -> Relation:
        """A row for each result that must exist even if `relation` is empty: one for each binding, or just one."""
        return self._parameters({}) if relation.is_bound else Relation(single_row(), {}, {})

    def bound(self, relation: Relation) -> Relation:
        """The relation once for each binding; unchanged if it depends on parameters already."""
        return relation if relation.is_bound else cross_join([relation, self._parameters({})])

    def bound_alike(self, relations: Sequence[Relation], others: Sequence[Relation] = ()) -> list[Relation]:
        """The relations; if any of them or of `others` depends on parameters, all of them do."""
        if any(relation.is_bound for relation in (*relations, *others)):
            return [self.bound(relation) for relation in relations]
        return list(relations)


@cache
def single_row() -> Collection:
    """A collection of one row, whose value is not used."""
    return constant(pa.table({"one": pa.array([True])}, pa.schema([pa.field("one", pa.bool_(), nullable=False)])))


def cross_join(relations: Sequence[Relation]) -> Relation:
    """All combinations of the rows of relations, with all attributes."""
    names = {attribute: name for relation in relations for attribute, name in relation.names.items()}
    return InnerJoin(relations).result([attribute for relation in relations for attribute in relation.outputs], names)


@contextmanager
def unexpected_errors_refused(what: str) -> Iterator[None]:
    """Raise any error that is not an `SqlError` as one, which says that `what` could not be lowered."""
    try:
        yield
    except SqlError:
        raise
    except Exception as error:
        raise unsupported_error(error, what) from error
