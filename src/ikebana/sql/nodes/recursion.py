"""WITH RECURSIVE: a loop. Its result is what the anchor has and what the recursive part makes of the result.

Spark applies the recursive part to the rows of the round before, until there are none, and keeps the rows of all
rounds; where the recursive part treats rows one by one, as Spark demands, that is the least collection x that is
anchor + part(x). A loop that goes on for more rounds than `ROUNDS` fails, and the view with it, as in Spark.
"""

from __future__ import annotations

from dataclasses import dataclass

from ikebana.collection import Collection
from ikebana.errors import EvaluationError, SqlError
from ikebana.operators.changes import Changes, Fields
from ikebana.sql.lowering import Lowering, Wanted, lowers
from ikebana.sql.relations import ID, Part, of_collection
from ikebana.sql.tree import Tree

ROUNDS = 100
"""Spark's own default (spark.sql.cteRecursionLevelLimit), where a query has no MAX RECURSION LEVEL."""


@dataclass(frozen=True)
class AtMost:
    """A linear step inside a loop: no changes after so many rounds."""

    rounds: int

    def fields(self, given: Fields) -> Fields:
        return given

    def __call__(self, changes: Changes) -> Changes:
        if len(changes) and changes.times[:, -1].max() > self.rounds:
            raise EvaluationError(
                f"a recursive query has not ended after {self.rounds} rounds",
                detail="each round still finds rows",
                hint="end the recursion by a condition, for example on a depth that grows by one in each round",
            )
        return changes


@lowers("UnionLoop")
def _loop(lowering: Lowering, tree: Tree, wanted: Wanted) -> Part:
    anchor, recursion = tree.children
    if _outer_loops(tree, recursion) and not _outer_loops(tree, anchor):
        raise SqlError(
            "a recursive query inside another, which it reads in each round, is not supported in a maintained view",
            hint="let it read the other where it begins",
        )
    start = lowering.part(anchor)
    found = _iterated(lowering, tree, start, recursion)
    if found is None:  # it depends on parameters that the anchor does not depend on
        found = _iterated(lowering, tree, lowering.dependent(start), recursion)
    assert found is not None
    return found


def _outer_loops(loop: Tree, part: Tree) -> set[int]:
    """The loops around one of them that a part of it reads."""
    inside = {int(each.fields["id"]) for each in loop.walk() if each.kind == "UnionLoop"}
    return {int(each.fields["loopId"]) for each in part.walk() if each.kind == "UnionLoopRef"} - inside


def _iterated(lowering: Lowering, tree: Tree, start: Part, recursion: Tree) -> Part | None:
    attributes = [int(each["id"]) for each in tree.fields["outputAttrIds"]]
    columns = [(each, f"column {at}") for at, each in enumerate(attributes)]
    names = dict(zip(attributes, start.names.values(), strict=True))
    named = ((name, output) for (_, name), output in zip(columns, start.outputs.values(), strict=True))
    first = start.rows((*start.opening, *named))
    first = first.declare([field.with_nullable(field.name != ID) for field in first.node.columns])
    differs = False

    def body(variable: Collection) -> Collection:
        nonlocal differs
        lowering.loops[int(tree.fields["id"])] = of_collection(variable, columns, names)
        part = lowering.part(recursion)
        differs = bool(part.opening) != bool(start.opening)
        if differs:
            return variable
        named = ((name, output) for (_, name), output in zip(columns, part.outputs.values(), strict=True))
        more = part.rows((*part.opening, *named)).declare(first.node.columns)
        return first.concat(more.step(AtMost(int(tree.fields.get("maxDepth") or ROUNDS))))

    rows = first.iterate(body)
    return None if differs else of_collection(rows, columns, names)


@lowers("UnionLoopRef")
def _variable(lowering: Lowering, tree: Tree, wanted: Wanted) -> Part:
    loop = lowering.loops[int(tree.fields["loopId"])]
    names = {each.expr_id: each.fields["name"] for each in tree.many("output")}
    return loop.giving(dict(zip(names, loop.outputs.values(), strict=True)), names)
