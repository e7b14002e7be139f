"""Catalyst's plans as trees, parsed from the output of Spark's `toJSON`.

The JSON of a plan is a flat list of nodes in pre-order, each with the number of its children. The fields of a node
contain expressions, which are such lists themselves, or lists of expressions. A field that refers to a child contains
the child's position. This module does not interpret the nodes.

Trees are walked, translated and evaluated recursively, with a few stack frames per level. Importing this module, also
in workers, therefore raises Python's recursion limit to `FRAMES`, and trees with more than `LEVELS` levels are
rejected. Spark's own parser fails at about half of that.

Cost: each node is visited once; expressions in fields are parsed on access.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ikebana.errors import SqlError

LEVELS = 1500
"""The maximum number of levels of a tree."""

FRAMES = 15_000
"""The number of stack frames that a tree of `LEVELS` levels may need."""

sys.setrecursionlimit(max(sys.getrecursionlimit(), FRAMES))


@dataclass(frozen=True, eq=False)
class Tree:
    """A node of a plan or of an expression: the name of its Catalyst class, its fields and its children."""

    kind: str
    fields: Mapping[str, Any]
    children: tuple[Tree, ...]

    @property
    def only_child(self) -> Tree:
        """The only child."""
        (child,) = self.children
        return child

    def expression(self, name: str) -> Tree:
        """The expression in a field."""
        return of_nodes(self.fields[name])

    def optional_expression(self, name: str) -> Tree | None:
        """The expression in a field that may be empty."""
        nodes = self.fields.get(name)
        return of_nodes(nodes) if nodes else None

    def expressions(self, name: str) -> list[Tree]:
        """The expressions in a field that contains a list."""
        return [of_nodes(nodes) for nodes in self.fields[name]]

    def expression_lists(self, name: str) -> list[list[Tree]]:
        """The expressions in a field that contains a list of lists."""
        return [[of_nodes(nodes) for nodes in expressions] for expressions in self.fields[name]]

    def scala_name(self, name: str) -> str:
        """The name of a Scala object or class in a field, such as the type of a join."""
        value = self.fields[name]
        return short_name(value.get("object") or value["product-class"]) if isinstance(value, Mapping) else str(value)

    @property
    def called(self) -> str:
        """The name of the function that an `UnresolvedFunction` calls: planning has put it there (`sql.planned`)."""
        return str(self.fields["nameParts"]).strip("[]")

    @property
    def expr_id(self) -> int:
        """The number by which other nodes refer to this attribute or alias."""
        return int(self.fields["exprId"]["id"])

    def walk(self) -> Iterator[Tree]:
        """This node and its descendants in pre-order, without the expressions in fields."""
        waiting = [self]
        while waiting:
            node = waiting.pop()
            yield node
            waiting += reversed(node.children)

    def __repr__(self) -> str:
        inner = ", ".join(map(repr, self.children))
        return f"{self.kind}({inner})" if inner else self.kind


def parse(text: str) -> Tree:
    """The tree of a plan's JSON.

    >>> parse('[{"class": "a.Not", "num-children": 1}, {"class": "a.Literal", "num-children": 0, "value": "true"}]')
    Not(Literal)
    """
    return of_nodes(json.loads(text))


def of_nodes(nodes: Sequence[Mapping[str, Any]]) -> Tree:
    """The tree of a flat list of nodes in pre-order."""
    stack: list[Tree] = []
    levels: list[int] = []  # the number of levels of each tree on the stack
    for node in reversed(nodes):  # children follow their parent, so in reverse they come first
        count = int(node["num-children"])
        if count > len(stack):
            raise SqlError("cannot parse Spark's plan", detail=f"{node['class']} has too few children")
        children = tuple([stack.pop() for _ in range(count)])
        stack.append(Tree(short_name(node["class"]), node, children))
        levels.append(1 + max((levels.pop() for _ in range(count)), default=0))
        if levels[-1] > LEVELS:
            raise SqlError(
                f"the query is nested more than {LEVELS} levels deep",
                hint="split it into several views, or move nested expressions into a Python function",
            )
    if len(stack) != 1:
        raise SqlError("cannot parse Spark's plan", detail=f"it has {len(stack)} roots")
    return stack[0]


def short_name(name: str) -> str:
    """The name of a class or object, without its package.

    >>> short_name("org.apache.spark.sql.catalyst.plans.Inner$")
    'Inner'
    """
    return name.rsplit(".", 1)[-1].removesuffix("$").rsplit("$", 1)[-1]
