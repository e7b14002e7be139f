"""WITH RECURSIVE: a loop. Its result is what the anchor has and what the recursive part makes of the result.

Spark applies the recursive part to the rows of the round before, until there are none, and keeps the rows of all
rounds; where the recursive part treats rows one by one, as Spark demands, that is the least collection x that is
anchor + part(x). The anchor is round 0. In the loop's time, what the recursive part makes of a round has that round's
number: it is the next round.

As in Spark a loop fails, and the view with it, if it has rows in a round beyond `maxDepth`, or `maxRows` rows or more;
planning puts both into the plan. -1 is no limit.

A LIMIT that Spark lets end the loop is part of it (`limit`): of the rows of all rounds, those of the earliest rounds
are kept, and of the last of these the least. Rows that are not kept do not go on to the next round, so the loop ends.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ikebana.encoding.bad_rows import BadRows
from ikebana.engine.collection import Collection
from ikebana.errors import EvaluationError, SqlError
from ikebana.expressions import Expression, Literal
from ikebana.expressions.core.tree import Tree
from ikebana.operators import linear
from ikebana.operators.changes import Changes, Fields
from ikebana.reducers import sums
from ikebana.reducers.ordering import top_rows
from ikebana.reducers.sort_keys import SortKey
from ikebana.sql.lowering.context import Lowering, Wanted, lowers
from ikebana.sql.relation import Relation, columns_of, from_collection
from ikebana.sql.steps import projected

_ROUND, _COUNT = "round", "count"
_ROUND_FIELD = pa.field(_ROUND, pa.int64(), nullable=False)


@dataclass(frozen=True)
class Rounds:
    """A linear step inside a loop, on what the recursive part makes: one more column, the round of each row."""

    def fields(self, given: Fields) -> Fields:
        return (*given, _ROUND_FIELD)

    def __call__(self, changes: Changes) -> Changes:
        rounds = pa.array(changes.times[changes.tix, -1] + 1)
        return changes.with_columns(self.fields(changes.fields), (*changes.columns, rounds))


def _check_rounds(rounds: Any, most: int) -> None:
    """Raise if rows are in a round that there must not be; they are to blame, and no others."""
    late = np.flatnonzero(rounds >= most)
    if len(late):
        error = _endless(most)
        error.bad_rows = BadRows(late, lambda at: error)
        raise error


@dataclass(frozen=True)
class Early:
    """A linear step inside a loop, on what the recursive part makes: rows of the first so many rounds, or an error."""

    rounds: int

    def fields(self, given: Fields) -> Fields:
        return given

    def __call__(self, changes: Changes) -> Changes:
        _check_rounds(changes.times[changes.tix, -1] + 1, self.rounds)
        return changes


@dataclass(frozen=True)
class EarlyKept:
    """The same on rows of which a column says in which round they are."""

    rounds: int

    def fields(self, given: Fields) -> Fields:
        return given

    def __call__(self, changes: Changes) -> Changes:
        _check_rounds(changes.named[_ROUND].to_numpy(), self.rounds)
        return changes


def _endless(rounds: int) -> EvaluationError:
    return EvaluationError(
        f"a recursive query has not ended after {rounds} rounds",
        detail="the next round still has rows",
        hint="end the recursion by a condition, or allow more rounds: MAX RECURSION LEVEL, or "
        "spark.sql.cteRecursionLevelLimit",
    )


@dataclass(frozen=True)
class TooMany:
    """For `FlatMap`, on the number of rows that a loop has: no rows, but an error where there are too many."""

    rows: int
    outputs: Fields

    def __call__(self, columns: linear.Columns, count: int) -> tuple[list[int], dict[str, Any]]:
        if count and pc.max(columns[_COUNT]).as_py() >= self.rows:
            raise EvaluationError(
                f"a recursive query has {self.rows} rows or more",
                hint="end the recursion by a condition, or allow more: spark.sql.cteRecursionRowLimit",
            )
        return [], {field.name: pa.array([], field.type) for field in self.outputs}


@lowers("UnionLoop")
def _loop(lowering: Lowering, tree: Tree, wanted: Wanted) -> Relation:
    anchor, recursion = tree.children
    if _outer_loops(tree, recursion) and not _outer_loops(tree, anchor):
        raise SqlError(
            "a recursive query inside another, which it reads in each round, is not supported in a maintained view",
            hint="let it read the other where it begins",
        )
    start = lowering.part(anchor)
    found = _iterated(lowering, tree, start, recursion)
    if found is None:  # it depends on parameters that the anchor does not depend on
        found = _iterated(lowering, tree, lowering.bound(start), recursion)
    assert found is not None
    return found


def _outer_loops(loop: Tree, part: Tree) -> set[int]:
    """The loops around one of them that a part of it reads."""
    inside = {int(each.fields["id"]) for each in loop.walk() if each.kind == "UnionLoop"}
    return {int(each.fields["loopId"]) for each in part.walk() if each.kind == "UnionLoopRef"} - inside


def _iterated(lowering: Lowering, tree: Tree, start: Relation, recursion: Tree) -> Relation | None:
    attributes = [int(each["id"]) for each in tree.fields["outputAttrIds"]]
    columns = [(each, f"column {at}") for at, each in enumerate(attributes)]
    names = {each: f"column {at}" for at, each in enumerate(attributes)}  # a UnionLoopRef has those of users
    named = ((name, output) for (_, name), output in zip(columns, _listed(tree.children[0], start), strict=True))
    first = start.rows(named)
    first = first.declare([field.with_nullable(field.name not in start.key()) for field in first.node.columns])
    limits = _Limits(tree, start.key(), first)
    differs = False

    def body(variable: Collection) -> Collection:
        nonlocal differs
        lowering.loops[int(tree.fields["id"])] = from_collection(variable, columns, names)
        part = lowering.part(recursion)
        differs = part.is_bound != start.is_bound
        if differs:
            return variable
        named = ((name, output) for (_, name), output in zip(columns, _listed(recursion, part), strict=True))
        return limits.kept(part.rows(named).declare(first.node.columns))

    rows = limits.first.iterate(body)
    return None if differs else from_collection(limits.checked(rows), columns, names)


def _listed(tree: Tree, part: Relation) -> list[Expression]:
    """The columns of a node: a projection may have an attribute twice, which the part has once."""
    if tree.kind != "Project":
        return list(part.outputs.values())
    return [part.outputs[each.expr_id] for each in tree.many("projectList")]


class _Limits:
    """What Spark limits of a loop: its rounds, and its rows."""

    def __init__(self, tree: Tree, key: Sequence[str], first: Collection) -> None:
        """`first` is the anchor, `key` tells the loops of a statement's openings apart."""
        self._limit = None if tree.fields.get("limit") is None else int(tree.fields["limit"])
        self._rounds, self._rows = int(tree.fields["maxDepth"]), int(tree.fields["maxRows"])
        if self._rounds == 0:
            raise SqlError("a recursive query that may have no rounds is not supported in a maintained view")
        self._key, self._fields, self._anchor = key, tuple(first.node.columns), first
        self.first = first if self._limit is None else self._top(first)
        """What the loop begins with."""

    def kept(self, more: Collection) -> Collection:
        """The rows of the loop: the anchor and what the recursive part has made."""
        if self._limit is not None:
            return self._top(self._anchor, more.step(Rounds()))
        return self._anchor.concat(more if self._rounds < 0 else more.step(Early(self._rounds)))

    def _top(self, anchor: Collection, *others: Collection) -> Collection:
        """The rows that the LIMIT leaves, of the anchor and of others with their rounds."""
        rows = projected(anchor, (*columns_of(self._fields).items(), (_ROUND, Literal(_ROUND_FIELD.type, False, 0))))
        rows = top_rows(rows.concat(*others), self._key, self._limit, 0, [SortKey(_ROUND)])
        if self._rounds > 0:
            rows = rows.step(EarlyKept(self._rounds))
        return rows.select(*(field.name for field in self._fields))

    def checked(self, rows: Collection) -> Collection:
        """The result of the loop, which must not have too many rows; a LIMIT says itself how many these are."""
        if self._limit is not None or self._rows < 0:
            return rows
        counted = sums.aggregate(rows, self._key, ((_COUNT, sums.Count()),))
        return rows.concat(counted.step(linear.FlatMap(self._fields, TooMany(self._rows, self._fields))))


@lowers("UnionLoopRef")
def _variable(lowering: Lowering, tree: Tree, wanted: Wanted) -> Relation:
    loop = lowering.loops[int(tree.fields["loopId"])]
    names = {each.expr_id: each.fields["name"] for each in tree.many("output")}
    return loop.with_outputs(dict(zip(names, loop.outputs.values(), strict=True)), names)
