"""Parts that occur several times in the expressions of a step: each is evaluated once for all rows.

`price * (1 - discount)` and `price * (1 - discount) * (1 + tax)` have a part in common. `Evaluation` evaluates such
parts first, as columns, and then the expressions over these columns.

Contract: the results are the same. Parts that may raise stay where they are, and so do those that only some rows need:
the branches of CASE, AND, OR and COALESCE. Cost: finding the parts takes a pass over the expressions, once.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import pyarrow as pa

from ikebana.expressions import Column, ColumnBatch, Expression
from ikebana.expressions.core.base import Call

_CONDITIONAL = frozenset({"and", "or", "case", "coalesce", "nanvl"})
"""Functions that do not evaluate their arguments for all rows."""


class Evaluation:
    """How some expressions over the same columns are evaluated."""

    def __init__(self, expressions: Sequence[Expression]) -> None:
        counts = Counter[Call]()
        for expression in expressions:
            _count(expression, counts)
        repeated = [part for part, count in counts.items() if count > 1 and not part.can_raise]
        names = _unused_names(expressions)
        columns = {part: Column(part.type, part.nullable, next(names)) for part in sorted(repeated, key=_size)}
        self._parts = [(column.name, _over(part, columns, is_defined=True)) for part, column in columns.items()]
        self._expressions = [_over(expression, columns) for expression in expressions]

    def __call__(self, rows: ColumnBatch) -> list[pa.Array]:
        """The results of the expressions for some rows."""
        for name, part in self._parts:
            rows = replace(rows, columns={**rows.columns, name: part.evaluate(rows)})
        return [expression.evaluate(rows) for expression in self._expressions]


def _count(expression: Expression, counts: Counter[Call]) -> None:
    """Count the calls in an expression that are evaluated for all rows.

    The parts of a part that is evaluated once are counted once: they need not be columns for its sake.
    """
    if not isinstance(expression, Call):
        return
    counts[expression] += 1
    is_known = counts[expression] > 1 and not expression.can_raise
    if not is_known and expression.function not in _CONDITIONAL:
        for argument in expression.arguments:
            _count(argument, counts)


def _over(expression: Expression, columns: Mapping[Any, Column], *, is_defined: bool = False) -> Expression:
    """An expression over the columns of its parts; with `is_defined`, the definition of such a column."""
    if expression in columns and not is_defined:
        return columns[expression]
    if not isinstance(expression, Call) or expression.function in _CONDITIONAL:
        return expression
    return expression.with_inputs(tuple(_over(argument, columns) for argument in expression.arguments))


def _size(expression: Expression) -> int:
    """The number of nodes of an expression; a part is smaller than what it is a part of."""
    return sum(1 for _ in expression.walk())


def _unused_names(expressions: Sequence[Expression]) -> Iterator[str]:
    """Names that no column of the expressions has."""
    used = frozenset[str]().union(*(expression.columns for expression in expressions))
    number = 0
    while True:
        number += 1
        if f"part {number}" not in used:
            yield f"part {number}"
