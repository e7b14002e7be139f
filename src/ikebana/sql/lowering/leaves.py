"""Leaves: tables, and rows that are part of the query."""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from ikebana.engine.collection import constant
from ikebana.errors import SqlError
from ikebana.expressions.core.tree import Tree
from ikebana.sql.lowering.context import Lowering, Required, single_row
from ikebana.sql.planned import CONSTANT, IDENTITY, TABLE
from ikebana.sql.relation import Relation, column_of, from_collection, unique_name


def leaf(lowering: Lowering, tree: Tree, required: Required) -> Relation:
    """A table, or rows that are part of the query."""
    name, number = table_name(tree), _annotation(tree, CONSTANT)
    if name is not None:
        return _table(lowering, tree, name)
    if number is None:
        raise SqlError("the query reads rows that are in no table", hint="load them into a table first")
    return _constant(tree, lowering.planned.constants[int(number)])


def one_row(lowering: Lowering, tree: Tree, required: Required) -> Relation:
    """The row of a SELECT without FROM."""
    return Relation(single_row(), {}, {})


def table_name(tree: Tree) -> str | None:
    """The name of the table that a leaf reads, if it reads one."""
    catalogued = tree.fields.get("catalogTable")
    name = catalogued["identifier"]["table"] if catalogued else _annotation(tree, TABLE)
    return None if name is None else str(name)


def _annotation(tree: Tree, key: str) -> Any:
    """A value from the metadata of a leaf's first attribute, or from the leaf itself if it has no attributes."""
    for attribute in tree.expressions("output"):
        return attribute.fields["metadata"].get(key)
    return tree.fields.get(key)


def _names(tree: Tree) -> dict[int, str]:
    return {attribute.expr_id: attribute.fields["name"] for attribute in tree.expressions("output")}


def _table(lowering: Lowering, tree: Tree, name: str) -> Relation:
    table = lowering.table(name, _annotation(tree, IDENTITY))
    fields = {field.name: field for field in table.rows.node.columns}
    names = _names(tree)
    outputs = {attribute: column_of(fields[column]) for attribute, column in names.items()}
    return Relation(table.rows, outputs, names, table=table)


def _constant(tree: Tree, rows: pa.Table) -> Relation:
    names = _names(tree)
    if not names:
        rows = pa.table({"row": pa.array(range(rows.num_rows))})
    columns: list[str] = []
    for name in rows.column_names:
        columns.append(unique_name(name, columns))
    return from_collection(constant(rows.rename_columns(columns)), zip(names, columns, strict=False), names)
