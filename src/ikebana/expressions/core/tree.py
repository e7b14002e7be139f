"""Catalyst's plans as trees: what Spark's `toJSON` gives, parsed.

The JSON of a plan is a flat list of nodes in pre-order, each with the number of its children; what a node has as fields
are expressions, which are themselves such lists, or lists of them. A field that names a child has its position.
Nothing here knows what a node means.

Trees are walked, translated and evaluated level by level, each level in a few frames of Python's stack: for this the
limit of that stack is raised to `FRAMES` when this module is imported, in workers too, and trees of more than `LEVELS`
are refused. Spark's own parser gives up at about half of them.

Cost: each node is touched once; expressions are parsed when they are asked for.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ikebana.errors import SqlError

LEVELS = 1500
"""The most levels that a tree may have."""

FRAMES = 15_000
"""The frames that Python may need for them."""

sys.setrecursionlimit(max(sys.getrecursionlimit(), FRAMES))


@dataclass(frozen=True, eq=False)
class Tree:
    """A node of a plan or of an expression: the name of its class, its fields and its children."""

    kind: str
    fields: Mapping[str, Any]
    children: tuple[Tree, ...]

    @property
    def only(self) -> Tree:
        """The one child."""
        (child,) = self.children
        return child

    def one(self, name: str) -> Tree:
        """The expression in a field."""
        return of_nodes(self.fields[name])

    def maybe(self, name: str) -> Tree | None:
        """The expression in a field that may be empty."""
        nodes = self.fields.get(name)
        return of_nodes(nodes) if nodes else None

    def many(self, name: str) -> list[Tree]:
        """The expressions in a field that has a list of them."""
        return [of_nodes(nodes) for nodes in self.fields[name]]

    def lists(self, name: str) -> list[list[Tree]]:
        """The expressions in a field that has lists of lists of them."""
        return [[of_nodes(nodes) for nodes in each] for each in self.fields[name]]

    def case(self, name: str) -> str:
        """The name of a Scala object or class in a field, such as the type of a join."""
        value = self.fields[name]
        return short(value.get("object") or value["product-class"]) if isinstance(value, Mapping) else str(value)

    @property
    def expr_id(self) -> int:
        """The number by which other nodes know this attribute or alias."""
        return int(self.fields["exprId"]["id"])

    def walk(self) -> Iterator[Tree]:
        """This node and all below it; not those in fields."""
        yield self
        for child in self.children:
            yield from child.walk()

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
    levels: list[int] = []  # of each tree on the stack
    for node in reversed(nodes):  # children come after their parent, so backwards they are there already
        count = int(node["num-children"])
        if count > len(stack):
            raise SqlError("cannot read a plan of Spark's", detail=f"{node['class']} has children that are missing")
        children = tuple([stack.pop() for _ in range(count)])
        stack.append(Tree(short(node["class"]), node, children))
        levels.append(1 + max((levels.pop() for _ in range(count)), default=0))
        if levels[-1] > LEVELS:
            raise SqlError(
                f"the query is nested more than {LEVELS} levels deep",
                hint="split it into several views, or put what is nested into a Python function",
            )
    if len(stack) != 1:
        raise SqlError("cannot read a plan of Spark's", detail=f"it has {len(stack)} roots")
    return stack[0]


def short(name: str) -> str:
    """The name of a class or object, without its package.

    >>> short("org.apache.spark.sql.catalyst.plans.Inner$")
    'Inner'
    """
    return name.rsplit(".", 1)[-1].removesuffix("$").rsplit("$", 1)[-1]
