"""Functions that are null where others raise: try_add, try_divide, try_cast and the like.

A plan has them in two forms. `TryEval(x)` is null for the rows for which the evaluation of `x`, including its
arguments, raises. The other form is an operator that is null where itself would raise, while an error in an argument is
an error of the row: planning writes it as a call of a function whose name is that of the operator, preceded by `try_`.
Some of Spark's functions contain operators of the other mode than the session's: these are preceded by `ansi_` or
`legacy_`.

Cost: nothing if no row fails; otherwise the operator is evaluated a second time, for the other rows.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa

from ikebana.encoding.bad_rows import separate_bad_rows
from ikebana.expressions.core.base import BUILDERS, Call, Column, ColumnBatch, Config, Expression, builds, function
from ikebana.expressions.core.buffers import scatter
from ikebana.expressions.core.tree import Tree

_ARITHMETIC = ("Add", "Subtract", "Multiply", "Divide", "IntegralDivide", "Remainder", "Pmod")


def null_where_it_raises(expression: Expression, rows: ColumnBatch) -> pa.Array:
    """The values of an expression, null for the rows for which it raises."""

    def evaluate(index: Any) -> pa.Array:
        taken = pa.array(index)
        columns = {name: column.take(taken) for name, column in rows.columns.items()}
        return expression.evaluate(ColumnBatch.from_input(columns, len(index)))

    if not expression.can_raise:
        return expression.evaluate(rows)
    values, good, failures = separate_bad_rows(evaluate, rows.count, lambda: pa.nulls(0, expression.type))
    if not failures:
        return values
    is_good = np.zeros(rows.count, bool)
    is_good[good] = True
    return scatter(expression.type, rows.count, [(is_good, values)])


@builds("TryEval")
def _build_try_eval(tree: Tree, children: tuple[Expression, ...], config: Config) -> Expression:
    return Call(children[0].type, True, "try eval", children)


@function("try eval", lazy=True)
def _try_eval(call: Call, rows: ColumnBatch) -> pa.Array:
    (expression,) = call.arguments
    return null_where_it_raises(expression, rows)


@builds(*(f"try_{kind}" for kind in _ARITHMETIC))
def _build_try_arithmetic(tree: Tree, children: tuple[Expression, ...], config: Config) -> Expression:
    kind = tree.called.removeprefix("try_")
    inputs = tuple(Column(child.type, child.nullable, str(at)) for at, child in enumerate(children))
    operator = BUILDERS[kind](Tree(kind, {}, ()), inputs, replace(config, ansi=True))
    return Call(operator.type, True, "try", children, (operator,))


@builds(*(f"{mode}_{kind}" for mode in ("ansi", "legacy") for kind in _ARITHMETIC))
def _build_in_mode(tree: Tree, children: tuple[Expression, ...], config: Config) -> Expression:
    """An operator in another mode than that of the session."""
    mode, _, kind = tree.called.partition("_")
    return BUILDERS[kind](Tree(kind, {}, ()), children, replace(config, ansi=mode == "ansi"))


@function("try", lazy=True)
def _try(call: Call, rows: ColumnBatch) -> pa.Array:
    """An operator over columns that are named by the positions of the arguments."""
    (operator,) = call.options
    columns = {str(at): argument.evaluate(rows) for at, argument in enumerate(call.arguments)}
    return null_where_it_raises(operator, ColumnBatch.from_input(columns, rows.count))
