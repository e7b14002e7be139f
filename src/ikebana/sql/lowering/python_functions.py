"""Python functions of users: columns that they compute, once for each row."""

from __future__ import annotations

from ikebana.expressions.core.tree import Tree
from ikebana.sql.lowering.context import Lowering, Wanted, lowers
from ikebana.sql.relation import Relation


@lowers("BatchEvalPython", "ArrowEvalPython")
def _evaluated(lowering: Lowering, tree: Tree, wanted: Wanted) -> Relation:
    part = lowering.part(tree.only)
    results = {each.expr_id: each.fields["name"] for each in tree.many("resultAttrs")}
    computed = (lowering.expression(each, part.outputs) for each in tree.many("udfs"))
    outputs = {**part.outputs, **dict(zip(results, computed, strict=True))}
    return part.with_outputs(outputs, {**part.names, **results}).materialised()  # or each use would call it again
