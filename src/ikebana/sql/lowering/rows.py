"""Nodes that treat each row by itself, or only put rows together: project, filter, union, expand.

Also those that mean nothing to a collection: how rows are partitioned, and in which order they come.
"""

from __future__ import annotations

from collections.abc import Sequence

from ikebana.expressions.core.tree import Tree
from ikebana.sql.lowering.context import Lowering, Wanted, all_references, conjuncts, lowers, scalar_subqueries
from ikebana.sql.lowering.join_chains import is_join, join_of, restricted
from ikebana.sql.lowering.temporal import is_temporal, while_valid
from ikebana.sql.lowering.windows import at_most, windowed
from ikebana.sql.relation import Relation, union_all


@lowers("Sort", "Repartition", "RepartitionByExpression", "RebalancePartitions", "ResolvedHint", "LocalLimit")
def _as_it_is(lowering: Lowering, tree: Tree, wanted: Wanted) -> Relation:
    return lowering.part(tree.only, wanted)


@lowers("Project")
def _project(lowering: Lowering, tree: Tree, wanted: Wanted) -> Relation:
    named = tree.many("projectList")
    return lowering.computed(lowering.part(tree.only, all_references(named)), named)


@lowers("Filter")
def _filter(lowering: Lowering, tree: Tree, wanted: Wanted) -> Relation:
    conditions = conjuncts(tree.one("condition"))
    lasting = [each for each in conditions if not is_temporal(each)]
    passing = [each for each in conditions if is_temporal(each)]
    if passing:
        needed = None if wanted is None else wanted | all_references(conditions)
        inner = lowering.part(tree.only, needed)
        first = filtered_by(lowering, inner, [each for each in lasting if not scalar_subqueries([each])])
        valid = while_valid(lowering, first, passing)
        return restricted(lowering, valid, [each for each in lasting if scalar_subqueries([each])])
    most = at_most(tree.only, conditions)
    if most is not None:
        return restricted(lowering, windowed(lowering, tree.only, most), conditions)
    if is_join(tree.only) or scalar_subqueries(conditions):
        return join_of(lowering, tree, wanted)
    return filtered_by(lowering, lowering.part(tree.only, wanted), conditions)


def filtered_by(lowering: Lowering, part: Relation, conditions: Sequence[Tree]) -> Relation:
    """The rows of a part for which conditions hold, in which there are no subqueries."""
    return part.where([lowering.expression(each, part.outputs) for each in conditions])


# Several collections, put together by position.


@lowers("Union")
def _union(lowering: Lowering, tree: Tree, wanted: Wanted) -> Relation:
    return union_all(lowering.bound_alike([lowering.part(child) for child in tree.children]))


@lowers("Expand")
def _expand(lowering: Lowering, tree: Tree, wanted: Wanted) -> Relation:
    """Each row several times, with other columns each time: grouping sets."""
    projections = tree.lists("projections")
    part = lowering.with_subqueries(lowering.part(tree.only), [each for some in projections for each in some])
    names = {each.expr_id: each.fields["name"] for each in tree.many("output")}
    parts = []
    for projection in projections:
        expressions = [lowering.expression(each, part.outputs) for each in projection]
        parts.append(part.with_outputs(dict(zip(names, expressions, strict=True)), names))
    return union_all(parts)
