"""WITH RECURSIVE: a loop. Its result consists of the rows of the anchor and the recursive part's rows of the result.

Spark applies the recursive part to the rows of the previous round until there are none, and returns the rows of all
rounds. The recursive part treats rows one by one, as Spark requires, so the result is the least collection x with
x = anchor + part(x). The anchor is round 0. In the loop's time, the rows that the recursive part computes from a round
have that round's number, and make up the next round.

As in Spark a loop fails, and the view with it, if it has rows in round `maxDepth` or later, or `maxRows` rows or more;
planning puts both limits into the plan. -1 is no limit.

With UNION in place of UNION ALL (`isSet`, which planning adds), a row that an earlier round has had is not part of a
later one: x = distinct(anchor + part(x)), so that a loop over cyclic data ends.

A LIMIT that ends the loop in Spark is part of the loop (`limit`): the rows of the earliest rounds are kept, and of the
last of these rounds the least rows. Rows that are not kept do not reach the next round, so the loop ends.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ikebana.encoding.bad_rows import BadRows
from ikebana.engine.collection import Collection
from ikebana.errors import EvaluationError, SqlError
from ikebana.expressions import Expression, Literal
from ikebana.expressions.core.tree import Tree
from ikebana.kernels import opcodes
from ikebana.operators import linear
from ikebana.operators.changes import Changes, Fields
from ikebana.operators.program import GREATEST, NO_COLUMN, ProgramBuilder
from ikebana.operators.registers import ColumnSlots, Rows
from ikebana.reducers import sums
from ikebana.reducers.ordering import top_rows
from ikebana.reducers.sort_keys import SortKey
from ikebana.sql.expression_steps import projected
from ikebana.sql.lowering.context import Lowering, Required
from ikebana.sql.lowering.trees import listed_outputs
from ikebana.sql.relation import Relation, columns_of, from_collection

_ROUND, _COUNT = "round", "count"
_ROUND_FIELD = pa.field(_ROUND, pa.int64(), nullable=False)


@dataclass(frozen=True)
class AddRound(linear.Step):
    """A linear step inside a loop, on rows of the recursive part: adds a column, the round of each row."""

    label = "add round"

    def fields(self, given: Fields) -> Fields:
        return (*given, _ROUND_FIELD)

    def __call__(self, changes: Changes) -> Changes:
        rounds = pa.array(changes.times[changes.tix, -1] + 1)
        return changes.with_columns(self.fields(changes.fields), (*changes.columns, rounds))

    def lower(self, program: ProgramBuilder, rows: Rows) -> Rows:
        round_ = _part_round(program, rows.count, GREATEST)
        return replace(rows, fields=self.fields(rows.fields), columns={**rows.columns, _ROUND: round_})


def _part_round(program: ProgramBuilder, count: int, last: int) -> ColumnSlots:
    """The round of rows of the recursive part; the program raises if it is later than the last."""
    one = program.evaluated(opcodes.CONSTANT, count, least=1)
    return program.evaluated(opcodes.ADD, count, program.round_number(count), one, greatest=last)


def _check_rounds(rounds: Any, limit: int) -> None:
    """Raise if rows are in a round beyond the limit; the error blames exactly these rows."""
    late = np.flatnonzero(rounds >= limit)
    if len(late):
        error = _endless(limit)
        error.bad_rows = BadRows(late, lambda at: error)
        raise error


@dataclass(frozen=True)
class CheckRounds(linear.Step):
    """A linear step inside a loop, on rows of the recursive part: an error for rows after the first `rounds` rounds."""

    rounds: int

    label = "check rounds"

    def fields(self, given: Fields) -> Fields:
        return given

    def __call__(self, changes: Changes) -> Changes:
        _check_rounds(changes.times[changes.tix, -1] + 1, self.rounds)
        return changes

    def lower(self, program: ProgramBuilder, rows: Rows) -> Rows:
        _part_round(program, rows.count, self.rounds - 1)
        return rows


@dataclass(frozen=True)
class CheckNewRounds(linear.Step):
    """Like `CheckRounds`, on all rows of a loop that has each row once; those of the anchor are in round 0."""

    rounds: int

    label = "check rounds"

    def fields(self, given: Fields) -> Fields:
        return given

    def __call__(self, changes: Changes) -> Changes:
        rounds = changes.times[changes.tix, -1]
        _check_rounds(np.where(rounds > 0, rounds + 1, 0), self.rounds)
        return changes

    def lower(self, program: ProgramBuilder, rows: Rows) -> Rows:
        count, round_ = rows.count, program.round_number(rows.count)
        is_late = program.evaluated(opcodes.LESS, count, NO_COLUMN, round_)
        program.evaluated(opcodes.ADD, count, round_, is_late, greatest=self.rounds - 1)
        return rows


@dataclass(frozen=True)
class CheckRoundColumn(linear.Step):
    """Like `CheckRounds`, on rows that have their round in a column."""

    rounds: int

    label = "check rounds"

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
class CheckRowCount:
    """For `CalledFlatMap`, on the number of rows of a loop: no rows, but an error if there are `rows` rows or more."""

    rows: int
    outputs: Fields

    def __call__(self, columns: linear.Columns, count: int) -> tuple[list[int], dict[str, Any]]:
        if count and pc.max(columns[_COUNT]).as_py() >= self.rows:
            raise EvaluationError(
                f"a recursive query has {self.rows} rows or more",
                hint="end the recursion by a condition, or allow more rows: spark.sql.cteRecursionRowLimit",
            )
        return [], {field.name: pa.array([], field.type) for field in self.outputs}


def loop(lowering: Lowering, tree: Tree, required: Required) -> Relation:
    """A recursive query."""
    anchor, recursion = tree.children
    if _outer_loops(tree, recursion) and not _outer_loops(tree, anchor):
        raise SqlError(
            "a recursive query inside another, which it reads in each round, is not supported in a maintained view",
            hint="read the outer query only in the anchor of the inner one",
        )
    start = lowering.relation(anchor)
    result = _iterated(lowering, tree, start)
    if result is None:
        result = _iterated(lowering, tree, lowering.bound(start))
    assert result is not None
    return result


def _outer_loops(tree: Tree, part: Tree) -> set[int]:
    """The loops around `tree` that a part of it reads."""
    inside = {int(node.fields["id"]) for node in tree.walk() if node.kind == "UnionLoop"}
    return {int(node.fields["loopId"]) for node in part.walk() if node.kind == "UnionLoopRef"} - inside


def _iterated(lowering: Lowering, tree: Tree, start: Relation) -> Relation | None:
    """The loop that begins with `start`; None if only its recursive part depends on parameters.

    Then there is a loop for each set of parameter values, and the anchor must be there for each of them too. Whether
    that is so is known only once the recursive part has been lowered.
    """
    anchor, recursion = tree.children
    columns = [(int(attribute["id"]), f"column {at}") for at, attribute in enumerate(tree.fields["outputAttrIds"])]
    names = dict(columns)  # not the users' names: a UnionLoopRef has those

    def named(part: Tree, relation: Relation) -> Iterator[tuple[str, Expression]]:
        outputs = (relation.outputs[attribute] for attribute in listed_outputs(part, relation))
        return zip((name for _, name in columns), outputs, strict=True)

    first = start.rows(named(anchor, start))
    first = first.declare([field.with_nullable(field.name not in start.key()) for field in first.node.columns])
    limits = _Limits(tree, start.key(), first)
    is_bound = start.is_bound

    def body(variable: Collection) -> Collection:
        nonlocal is_bound
        lowering.loops[int(tree.fields["id"])] = from_collection(variable, columns, names)
        relation = lowering.relation(recursion)
        is_bound = relation.is_bound
        if is_bound != start.is_bound:
            return variable
        return limits.apply(relation.rows(named(recursion, relation)).declare(first.node.columns))

    rows = limits.first.iterate(body)
    return from_collection(limits.checked(rows), columns, names) if is_bound == start.is_bound else None


class _Limits:
    """The limits of a loop, as Spark has them: on its rounds, and on its rows."""

    def __init__(self, tree: Tree, key: Sequence[str], first: Collection) -> None:
        """`first` is the anchor; rows that differ in `key` belong to separate loops."""
        self._limit = None if tree.fields.get("limit") is None else int(tree.fields["limit"])
        self._rounds, self._rows = int(tree.fields["maxDepth"]), int(tree.fields["maxRows"])
        if self._rounds == 0:
            raise SqlError("a recursive query without rounds is not supported in a maintained view")
        self._is_set = bool(tree.fields.get("isSet"))
        self._key, self._fields = key, tuple(first.node.columns)
        self._anchor = first.distinct() if self._is_set else first
        self.first = self._anchor if self._limit is None else self._top(self._anchor)
        """The rows that the loop begins with."""

    def apply(self, rows: Collection) -> Collection:
        """The rows of the loop: the anchor and rows of the recursive part, within the limits."""
        if self._limit is not None:
            return self._top(self._anchor, rows.step(AddRound()))
        if self._is_set:
            rows = self._anchor.concat(rows).distinct()
            return rows if self._rounds < 0 else rows.step(CheckNewRounds(self._rounds))
        return self._anchor.concat(rows if self._rounds < 0 else rows.step(CheckRounds(self._rounds)))

    def _top(self, anchor: Collection, *others: Collection) -> Collection:
        """The rows within the LIMIT, of the anchor and of others that have a column for their round."""
        rows = projected(anchor, (*columns_of(self._fields).items(), (_ROUND, Literal(_ROUND_FIELD.type, False, 0))))
        rows = rows.concat(*others)
        if self._is_set:
            rows = top_rows(rows, [field.name for field in self._fields], 1, 0, [SortKey(_ROUND)])
        rows = top_rows(rows, self._key, self._limit, 0, [SortKey(_ROUND)])
        if self._rounds > 0:
            rows = rows.step(CheckRoundColumn(self._rounds))
        return rows.select(*(field.name for field in self._fields))

    def checked(self, rows: Collection) -> Collection:
        """The result of the loop, with an error if it has too many rows; a LIMIT makes the check unnecessary."""
        if self._limit is not None or self._rows < 0:
            return rows
        counted = sums.aggregate(rows, self._key, ((_COUNT, sums.Count()),))
        return rows.concat(counted.step(linear.CalledFlatMap(self._fields, CheckRowCount(self._rows, self._fields))))


def loop_variable(lowering: Lowering, tree: Tree, required: Required) -> Relation:
    """The reference of a recursive query to itself."""
    variable = lowering.loops[int(tree.fields["loopId"])]
    names = {attribute.expr_id: attribute.fields["name"] for attribute in tree.expressions("output")}
    return variable.with_outputs(dict(zip(names, variable.outputs.values(), strict=True)), names)
