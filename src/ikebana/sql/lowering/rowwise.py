"""Nodes that treat each row by itself, or concatenate rows: project, filter, union, expand.

Also nodes that have no effect on a collection, because they only concern the partitioning or the order of rows.
"""

from __future__ import annotations

from collections.abc import Sequence

from ikebana.expressions.core.tree import Tree
from ikebana.sql.lowering.context import Lowering, Required
from ikebana.sql.lowering.joins import is_join, join_chain, restricted
from ikebana.sql.lowering.temporal import is_temporal, while_valid
from ikebana.sql.lowering.trees import all_references, conjuncts, scalar_subqueries
from ikebana.sql.lowering.windows import row_number_limit, windowed
from ikebana.sql.relation import Relation, union_all


def pass_through(lowering: Lowering, tree: Tree, required: Required) -> Relation:
    """The child of a node that has no effect on a collection."""
    return lowering.relation(tree.only_child, required)


def project(lowering: Lowering, tree: Tree, required: Required) -> Relation:
    """SELECT expressions."""
    named = tree.expressions("projectList")
    return lowering.computed(lowering.relation(tree.only_child, all_references(named)), named)


def filter_rows(lowering: Lowering, tree: Tree, required: Required) -> Relation:
    """WHERE or HAVING: conditions on the current time, on row numbers and on subqueries each have their own way."""
    conditions = conjuncts(tree.expression("condition"))
    timeless = [condition for condition in conditions if not is_temporal(condition)]
    temporal = [condition for condition in conditions if is_temporal(condition)]
    if temporal:
        needed = None if required is None else required | all_references(conditions)
        inner = lowering.relation(tree.only_child, needed)
        with_subqueries = [condition for condition in timeless if scalar_subqueries([condition])]
        plain = [condition for condition in timeless if condition not in with_subqueries]
        valid = while_valid(lowering, filtered_by(lowering, inner, plain), temporal)
        return restricted(lowering, valid, with_subqueries)
    limit = row_number_limit(tree.only_child, conditions)
    if limit is not None:
        return restricted(lowering, windowed(lowering, tree.only_child, limit), conditions)
    if is_join(tree.only_child) or scalar_subqueries(conditions):
        return join_chain(lowering, tree, required)
    return filtered_by(lowering, lowering.relation(tree.only_child, required), conditions)


def filtered_by(lowering: Lowering, relation: Relation, conditions: Sequence[Tree]) -> Relation:
    """The rows of a relation that satisfy conditions without subqueries."""
    return relation.where([lowering.expression(condition, relation.outputs) for condition in conditions])


def union(lowering: Lowering, tree: Tree, required: Required) -> Relation:
    """UNION ALL."""
    return union_all(lowering.bound_alike([lowering.relation(child) for child in tree.children]))


def expand(lowering: Lowering, tree: Tree, required: Required) -> Relation:
    """Grouping sets: each row once for each projection."""
    projections = tree.expression_lists("projections")
    expressions = [expression for projection in projections for expression in projection]
    relation = lowering.with_subqueries(lowering.relation(tree.only_child), expressions)
    names = {output.expr_id: output.fields["name"] for output in tree.expressions("output")}
    relations = []
    for projection in projections:
        outputs = [lowering.expression(expression, relation.outputs) for expression in projection]
        relations.append(relation.with_outputs(dict(zip(names, outputs, strict=True)), names))
    return union_all(relations)
