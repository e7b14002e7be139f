"""Lowering: Catalyst's optimised plan becomes a collection.

`lower` walks the plan from its leaves. Tables are found by name; what each node gives is a `Part`
(`ikebana.sql.relation`), in which filters and projections are collected rather than applied. Handlers of nodes are in
`ikebana.sql.lowering`, registered by the name of Catalyst's class (`lowers`).

What is not supported is refused here, before anything is installed, by an error that names it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import count

import pyarrow as pa

from ikebana.engine.collection import constant
from ikebana.errors import SqlError
from ikebana.expressions import Expression, PythonFunction, translate
from ikebana.expressions.core.base import refused
from ikebana.expressions.core.tree import Tree, of_nodes
from ikebana.sql.joins import InnerJoin
from ikebana.sql.planned import CLOCK, PARAMETERS, TABLE, Planned
from ikebana.sql.relation import Relation, SourceTable, column_of
from ikebana.sql.scalar_subqueries import single_value

Wanted = set[int] | None
"""The attributes of a node's result that are of use; None for all."""

Handler = Callable[["Lowering", Tree, Wanted], Relation]

_HANDLERS: dict[str, Handler] = {}


def lowers(*kinds: str) -> Callable[[Handler], Handler]:
    """Register how nodes of some classes of Catalyst's are lowered."""

    def register(handler: Handler) -> Handler:
        for kind in kinds:
            assert kind not in _HANDLERS, kind
            _HANDLERS[kind] = handler
        return handler

    return register


class Lowering:
    """The lowering of one query."""

    def __init__(self, planned: Planned, tables: Mapping[str, SourceTable]) -> None:
        self.planned, self._tables = planned, tables
        self.config = planned.config
        self._synthetic = count(-1, -1)
        self.loops: dict[int, Relation] = {}
        """What the variable of a recursive query is, while its body is lowered, by the number of its loop."""

    def part(self, tree: Tree, wanted: Wanted = None) -> Relation:
        """The result of a node; what is not wanted may be left out."""
        handler = _HANDLERS.get(tree.kind)
        if handler is None:
            raise SqlError(
                f"{tree.kind} is not supported in a maintained view",
                hint="compute it when the view is read, or write the query differently",
            )
        try:
            return handler(self, tree, wanted)
        except SqlError:
            raise
        except Exception as error:
            raise refused(error, tree.kind) from error

    def expression(self, tree: Tree, columns: Mapping[int, Expression]) -> Expression:
        """An expression of Catalyst's, over attributes and subqueries that are known."""

        def leaf(each: Tree) -> Expression | None:
            if each.kind == "PythonUDF":
                return self._python(each, tuple(self.expression(child, columns) for child in each.children))
            if each.kind not in ("AttributeReference", "ScalarSubquery"):
                return None
            if each.expr_id not in columns:
                raise SqlError(
                    f"the query reads {each.fields.get('name', 'a subquery')!r} where Spark's plan does not have it",
                    hint="write the query differently: Spark itself may not be able to run it",
                )
            return columns[each.expr_id]

        return translate(tree, leaf, self.config)

    def _python(self, tree: Tree, arguments: tuple[Expression, ...]) -> Expression:
        """A call of a Python function of the user's."""
        if not tree.fields["udfDeterministic"]:
            raise SqlError(
                f"the Python function {tree.fields['name']!r} is not deterministic",
                detail="a maintained view calls it again for a row that is deleted",
                hint="leave out asNondeterministic() if it always gives the same result for the same arguments",
            )
        code = self.planned.functions[int(tree.fields["resultId"]["id"])]
        return PythonFunction(code.type, True, code.name, code.function, arguments, code.eval_type)

    def table(self, name: str, identity: str | None = None) -> SourceTable:
        """A table by name; with an identity, that one and no other that has the name by now."""
        try:
            found = self._tables[name]
        except KeyError:
            known = ", ".join(map(repr, self._tables))
            raise SqlError(f"there is no table {name!r}", detail=f"there are {known}") from None
        if identity not in (None, found.identity):
            raise SqlError(
                f"the DataFrame reads {name!r}, which was dropped",
                detail="what has this name now was created later",
                hint="make the DataFrame again, with to_df() of the table or view that there is now",
            )
        return found

    def new_attribute(self) -> int:
        """The number of an attribute that Catalyst does not have."""
        return next(self._synthetic)

    # Subqueries in expressions, and parameters.

    def subqueries(self, trees: Sequence[Tree]) -> list[Relation]:
        """Parts for the scalar subqueries in expressions: one row each, with its number as attribute.

        Parameters are one part, with as many rows as there are openings of the statement.
        """
        parts, parameters = list[Relation](), dict[int, str]()
        for number, each in scalar_subqueries(trees).items():
            if is_clock(each):
                raise SqlError(
                    "the present time can only be compared with, in conditions of WHERE, in a maintained view",
                    hint="for example: WHERE at >= now() - INTERVAL 5 MINUTES",
                )
            inner = self.part(of_nodes(each.fields["plan"]))
            attribute = next(iter(inner.outputs))
            if inner.table is not None and inner.table.name == PARAMETERS:
                parameters[number] = inner.names[attribute]
            else:
                parts.append(single_value(inner, attribute, number, self.always(inner)))
        return [*parts, self._parameters(parameters)] if parameters else parts

    def _parameters(self, used: Mapping[int, str]) -> Relation:
        """The openings of the statement, with some of their parameters as attributes."""
        table = self.table(PARAMETERS)
        fields = {field.name: field for field in table.rows.node.columns}
        outputs = {number: column_of(fields[name]) for number, name in used.items()}
        return Relation(table.rows, outputs, used, table=table)

    def with_subqueries(self, part: Relation, trees: Sequence[Tree]) -> Relation:
        """The part, with the scalar subqueries of expressions as further attributes."""
        others = self.subqueries(trees)
        return joined([part, *others]) if others else part

    def computed(self, part: Relation, named: Sequence[Tree]) -> Relation:
        """The part with other attributes: named expressions over its own."""
        part = self.with_subqueries(part, named)
        outputs = {each.expr_id: self.expression(each, part.outputs) for each in named}
        return part.with_outputs(outputs, {each.expr_id: each.fields["name"] for each in named})

    def always(self, part: Relation) -> Relation:
        """A row for each result that there must be in any case: for each opening of the statement, or just one."""
        return self._parameters({}) if part.is_bound else Relation(ONE_ROW, {}, {})

    def bound(self, part: Relation) -> Relation:
        """The rows of a relation once for each binding, unless the relation depends on parameters already."""
        return part if part.is_bound else joined([part, self._parameters({})])

    def bound_alike(self, parts: Sequence[Relation], others: Sequence[Relation] = ()) -> list[Relation]:
        """The parts; if any of them or of `others` depends on parameters, all are made to."""
        return [self.bound(part) for part in parts] if any(each.is_bound for each in (*parts, *others)) else list(parts)


ONE_ROW = constant(pa.table({"one": pa.array([True])}, pa.schema([pa.field("one", pa.bool_(), nullable=False)])))
"""A collection of one row, which says nothing."""


def joined(parts: Sequence[Relation]) -> Relation:
    """All pairs of the rows of parts, with all their attributes."""
    names = {attribute: name for part in parts for attribute, name in part.names.items()}
    return InnerJoin(parts).result([attribute for part in parts for attribute in part.outputs], names)


def scalar_subqueries(trees: Sequence[Tree]) -> dict[int, Tree]:
    """The scalar subqueries in expressions, by their numbers."""
    return {each.expr_id: each for tree in trees for each in tree.walk() if each.kind == "ScalarSubquery"}


def is_clock(subquery: Tree) -> bool:
    """Whether a scalar subquery is what the clock shows."""
    leaf = of_nodes(subquery.fields["plan"])
    while len(leaf.children) == 1:
        leaf = leaf.only
    outputs = leaf.many("output") if "output" in leaf.fields else []
    return any(each.fields["metadata"].get(TABLE) == CLOCK for each in outputs)


def references(tree: Tree) -> set[int]:
    """The attributes that an expression refers to."""
    return {each.expr_id for each in tree.walk() if each.kind == "AttributeReference"}


def all_references(trees: Sequence[Tree]) -> set[int]:
    """The attributes that some expressions refer to."""
    return {attribute for tree in trees for attribute in references(tree)}


def conjuncts(tree: Tree | None) -> list[Tree]:
    """The conditions that AND combines."""
    if tree is None:
        return []
    if tree.kind != "And":
        return [tree]
    return [each for child in tree.children for each in conjuncts(child)]
