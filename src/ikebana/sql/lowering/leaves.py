"""Leaves: tables, and rows that are part of the query."""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from ikebana.engine.collection import constant
from ikebana.errors import SqlError
from ikebana.expressions.core.tree import Tree
from ikebana.sql.lowering.context import ONE_ROW, Lowering, Wanted, lowers
from ikebana.sql.planned import CONSTANT, IDENTITY, TABLE
from ikebana.sql.relation import Relation, column_of, from_collection, unique_name


@lowers("LogicalRelation", "LogicalRDD", "DataSourceV2Relation", "DataSourceV2ScanRelation", "LocalRelation", "Range")
def _leaf(lowering: Lowering, tree: Tree, wanted: Wanted) -> Relation:
    name, number = table_name(tree), _said(tree, CONSTANT)
    if name is not None:
        return _table(lowering, tree, name)
    if number is None:
        raise SqlError("the query reads rows that are in no table", hint="load them into a table first")
    return _constant(tree, lowering.planned.constants[int(number)])


@lowers("OneRowRelation")
def _one_row(lowering: Lowering, tree: Tree, wanted: Wanted) -> Relation:
    return Relation(ONE_ROW, {}, {})


def table_name(tree: Tree) -> str | None:
    """The name of the table that a leaf reads."""
    catalogued = tree.fields.get("catalogTable")
    name = catalogued["identifier"]["table"] if catalogued else _said(tree, TABLE)
    return None if name is None else str(name)


def _said(tree: Tree, key: str) -> Any:
    """What the attributes of a leaf say in their metadata, or the leaf itself where it has none."""
    for attribute in tree.many("output"):
        return attribute.fields["metadata"].get(key)
    return tree.fields.get(key)


def _table(lowering: Lowering, tree: Tree, name: str) -> Relation:
    table = lowering.table(name, _said(tree, IDENTITY))
    fields = {field.name: field for field in table.rows.node.columns}
    names = {each.expr_id: each.fields["name"] for each in tree.many("output")}
    return Relation(table.rows, {each: column_of(fields[column]) for each, column in names.items()}, names, table=table)


def _constant(tree: Tree, rows: pa.Table) -> Relation:
    names = {each.expr_id: each.fields["name"] for each in tree.many("output")}
    if not names:
        rows = pa.table({"row": pa.array(range(rows.num_rows))})
    columns: list[str] = []
    for name in rows.column_names:
        columns.append(unique_name(name, columns))
    return from_collection(constant(rows.rename_columns(columns)), zip(names, columns, strict=False), names)
