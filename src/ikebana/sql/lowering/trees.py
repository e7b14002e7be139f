"""Questions about Catalyst's trees that several handlers ask: subqueries, references, conjunctions."""

from __future__ import annotations

from collections.abc import Sequence

from ikebana.expressions.core.tree import Tree, of_nodes
from ikebana.sql.planned import CLOCK, TABLE
from ikebana.sql.relation import Relation

_LISTS = {"Project": "projectList", "Aggregate": "aggregateExpressions"}
_SAME_OUTPUT = {"Sort", "GlobalLimit", "LocalLimit", "Offset", "Filter", "ResolvedHint", "CollectMetrics"}


def scalar_subqueries(trees: Sequence[Tree]) -> dict[int, Tree]:
    """The scalar subqueries in expressions, by expression id."""
    return {node.expr_id: node for tree in trees for node in tree.walk() if node.kind == "ScalarSubquery"}


def is_clock(subquery: Tree) -> bool:
    """Whether a scalar subquery reads the clock."""
    leaf = of_nodes(subquery.fields["plan"])
    while len(leaf.children) == 1:
        leaf = leaf.only_child
    outputs = leaf.expressions("output") if "output" in leaf.fields else []
    return any(output.fields["metadata"].get(TABLE) == CLOCK for output in outputs)


def listed_outputs(tree: Tree, relation: Relation) -> list[int]:
    """The attributes of a node's result in order: a list may have an attribute twice, which its relation has once."""
    while tree.kind in _SAME_OUTPUT:
        tree = tree.only_child
    if tree.kind not in _LISTS:
        return list(relation.outputs)
    return [named.expr_id for named in tree.expressions(_LISTS[tree.kind])]


def without_try(function: Tree) -> tuple[Tree, bool]:
    """An aggregate function, and whether it is null where it would overflow: planning marks it by a call of `try`."""
    if len(function.children) == 1:
        child = function.only_child
        if child.kind == "UnresolvedFunction" and child.called == "try":
            return Tree(function.kind, function.fields, child.children), True
    return function, False


def references(tree: Tree) -> set[int]:
    """The attributes that an expression refers to."""
    return {node.expr_id for node in tree.walk() if node.kind == "AttributeReference"}


def all_references(trees: Sequence[Tree]) -> set[int]:
    """The attributes that any of the expressions refers to."""
    return {attribute for tree in trees for attribute in references(tree)}


def conjuncts(tree: Tree | None) -> list[Tree]:
    """The conditions that AND combines; none for no condition."""
    if tree is None:
        return []
    if tree.kind != "And":
        return [tree]
    return [condition for child in tree.children for condition in conjuncts(child)]
