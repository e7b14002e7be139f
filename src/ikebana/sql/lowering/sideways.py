"""Keys passed sideways: an aggregate in a join is computed only for the groups that the join can use.

    SELECT ... FROM lineitem JOIN part ON ... WHERE p_brand = 'Brand#23'
    AND l_quantity < (SELECT 0.2 * avg(l_quantity) FROM lineitem WHERE l_partkey = p_partkey)

The subquery becomes an aggregate by l_partkey, which is joined with the selected parts by p_partkey. Its rows for other
parts are never used, so its input is joined with the selected parts first. `restricted_aggregate` does that for an
aggregate whose groups are equal, in the join, to the whole key of a table of which a condition selects few rows. A key
has at most one row, so that the input keeps its multiplicities; and a group is kept or left out as a whole, so that its
aggregates are the same.

Cost: the restricted aggregate cannot be shared with queries that select other rows of the table. Not restricted are
aggregates without such a table: those joined with a table by a part of its key, or with rows that depend on parameters,
whose groups would be maintained for each set of values.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from ikebana.expressions import Column
from ikebana.expressions.core.tree import Tree
from ikebana.sql.lowering.trees import conjuncts
from ikebana.sql.relation import Relation

_SELECTIVE = ("EqualTo", "In", "InSet", "Like", "StartsWith", "EndsWith", "Contains")
"""Conditions that probably select few rows."""

Nodes = list[Mapping[str, Any]]
"""An expression of Catalyst's, as a list of nodes in pre-order."""


@dataclass(frozen=True, eq=False)
class Selection:
    """A part of a join that may restrict aggregates: its plan and its relation."""

    tree: Tree
    relation: Relation

    @property
    def key(self) -> list[int] | None:
        """The attributes that are the key of the table, if few rows of a table with a key are selected."""
        table = self.relation.table
        if table is None or table.index is None or self.relation.is_bound or not _is_selective(self.tree):
            return None
        columns = {
            output.name: attribute for attribute, output in self.relation.outputs.items() if isinstance(output, Column)
        }
        return [columns[name] for name in table.key] if columns.keys() >= {*table.key} else None


class Equalities:
    """Classes of attributes that are equal in all rows of a join."""

    def __init__(self, pairs: Iterable[Sequence[Tree]]) -> None:
        """Each pair consists of expressions that are equal; those that are not attributes of one type are ignored."""
        self._same: dict[int, int] = {}
        self._attributes: dict[int, Tree] = {}
        for left, right in pairs:
            if _is_attribute(left) and _is_attribute(right) and left.fields["dataType"] == right.fields["dataType"]:
                self._attributes |= {left.expr_id: left, right.expr_id: right}
                first, second = self.class_of(left.expr_id), self.class_of(right.expr_id)
                if first != second:
                    self._same[second] = first

    def class_of(self, attribute: int) -> int:
        """The class of an attribute: one of its attributes."""
        while attribute in self._same:
            attribute = self._same[attribute]
        return attribute

    def reference(self, attribute: int) -> Tree | None:
        """A reference to an attribute that is equal to another one."""
        return self._attributes.get(attribute)


def is_grouped(tree: Tree) -> bool:
    """Whether a node is an aggregate of groups, possibly filtered and projected."""
    while tree.kind in ("Filter", "Project"):
        tree = tree.only_child
    return tree.kind == "Aggregate" and bool(tree.fields["groupingExpressions"])


def restricted_aggregate(tree: Tree, selections: Sequence[Selection], equalities: Equalities) -> Tree:
    """The plan of an aggregate of groups, whose input is joined with the selections that restrict its groups."""
    groups = {equalities.class_of(output): reference for output, reference in _group_outputs(tree)}
    conditions = ((selection, _condition(selection, groups, equalities)) for selection in selections)
    return _with_input(tree, [(selection.tree, condition) for selection, condition in conditions if condition])


def _with_input(tree: Tree, joined: Sequence[tuple[Tree, Nodes]]) -> Tree:
    """The plan of an aggregate, whose input is joined with other plans on conditions."""
    child = tree.only_child
    if tree.kind != "Aggregate":
        return replace(tree, children=(_with_input(child, joined),))
    for other, condition in joined:
        if not _attributes(other) & _attributes(child):
            child = Tree("Join", {"joinType": "Inner", "condition": condition}, (child, other))
    return replace(tree, children=(child,))


def _group_outputs(tree: Tree) -> Iterator[tuple[int, Tree]]:
    """The attributes that are groups in the result of an aggregate, and the attributes of its input that they are."""
    if tree.kind == "Filter":
        yield from _group_outputs(tree.only_child)
        return
    if tree.kind == "Aggregate":
        named = tree.expressions("aggregateExpressions")
        groups = {node.expr_id: node for node in tree.expressions("groupingExpressions") if _is_attribute(node)}
    else:
        named, groups = tree.expressions("projectList"), dict(_group_outputs(tree.only_child))
    for output in named:
        value = output.only_child if output.kind == "Alias" else output
        if _is_attribute(value) and value.expr_id in groups:
            yield output.expr_id, groups[value.expr_id]


def _is_attribute(tree: Tree) -> bool:
    return tree.kind == "AttributeReference"


def _condition(selection: Selection, groups: Mapping[int, Tree], equalities: Equalities) -> Nodes | None:
    """The condition that groups are equal to the key of a selection, as nodes; None unless the whole key is."""
    conditions = []
    for attribute in selection.key or ():
        group, reference = groups.get(equalities.class_of(attribute)), equalities.reference(attribute)
        if group is None or reference is None:
            return None
        conditions.append([_node("EqualTo"), group.fields, reference.fields])
    if not conditions:
        return None
    return [_node("And")] * (len(conditions) - 1) + [node for condition in conditions for node in condition]


def _node(kind: str) -> Mapping[str, Any]:
    """A node of an expression with two children."""
    return {"class": kind, "num-children": 2}


def _is_selective(tree: Tree) -> bool:
    """Whether a condition in a plan probably selects few rows."""
    filters = (node for node in tree.walk() if node.kind == "Filter")
    conditions = (condition for node in filters for condition in conjuncts(node.expression("condition")))
    return any(
        condition.kind in _SELECTIVE and any(child.kind == "Literal" for child in condition.children)
        for condition in conditions
    )


def _attributes(tree: Tree) -> set[int]:
    """The ids of all attributes that occur in a plan."""
    return {number for node in tree.walk() for number in _ids(node.fields)}


def _ids(value: Any) -> Iterator[int]:
    """The expression ids in the fields of a node."""
    if isinstance(value, Mapping):
        if isinstance(value.get("exprId"), Mapping):
            yield int(value["exprId"]["id"])
        value = value.values()
    elif not isinstance(value, list | tuple):
        return
    for part in value:
        yield from _ids(part)
