"""Python functions of users: columns that the functions compute, once for each row."""

from __future__ import annotations

from ikebana.expressions.core.tree import Tree
from ikebana.sql.lowering.context import Lowering, Required
from ikebana.sql.relation import Relation


def evaluate(lowering: Lowering, tree: Tree, required: Required) -> Relation:
    """The child's rows, with the results of Python functions as further attributes."""
    relation = lowering.relation(tree.only_child)
    names = {attribute.expr_id: attribute.fields["name"] for attribute in tree.expressions("resultAttrs")}
    results = (lowering.expression(function, relation.outputs) for function in tree.expressions("udfs"))
    outputs = {**relation.outputs, **dict(zip(names, results, strict=True))}
    # Materialised, or every use of a result would call its function again.
    return relation.with_outputs(outputs, {**relation.names, **names}).materialised()
