"""Expressions with parts in common have the results that they have one by one, and evaluate the parts once."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ikebana.expressions import Column, ColumnBatch, Expression
from ikebana.expressions.core import base
from ikebana.expressions.core.base import Call
from ikebana.operators.repeated_parts import Evaluation

X, Y = (Column(pa.bool_(), True, name) for name in "xy")

EXPRESSIONS = st.recursive(
    st.sampled_from([X, Y]),
    lambda inner: st.builds(
        lambda name, left, right: Call(pa.bool_(), True, name, (left, right)),
        st.sampled_from(["and", "or", "equal"]),
        inner,
        inner,
    ),
    max_leaves=6,
)
VALUES = st.lists(st.tuples(*[st.sampled_from([None, True, False])] * 2), min_size=1, max_size=5)


def batch_of(rows: list[Any]) -> ColumnBatch:
    columns = {name: pa.array([row[at] for row in rows], pa.bool_()) for at, name in enumerate("xy")}
    return ColumnBatch.from_input(columns, len(rows))


@given(st.lists(EXPRESSIONS, min_size=1, max_size=4), VALUES)
def test_oracle_repeated_parts(expressions: list[Expression], rows: list[Any]) -> None:
    batch = batch_of(rows)
    expected = [expression.evaluate(batch) for expression in expressions]
    assert all(one.equals(other) for one, other in zip(Evaluation(expressions)(batch), expected, strict=True))


def test_a_repeated_part_is_evaluated_once(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[Call] = []
    run = base.FUNCTIONS["equal"].run

    def counting(call: Call, *arguments: Any) -> pa.Array:
        calls.append(call)
        return run(call, *arguments)

    monkeypatch.setitem(base.FUNCTIONS, "equal", base.Function(counting, base.FUNCTIONS["equal"].lazy))
    same = Call(pa.bool_(), True, "equal", (X, Y))
    whole = Call(pa.bool_(), True, "equal", (same, X))
    Evaluation([same, whole, whole])(batch_of([(True, False)]))
    assert len(calls) == 2
    calls.clear()
    branch = Call(pa.bool_(), True, "and", (same, X))
    Evaluation([same, branch])(batch_of([(True, False)]))
    assert len(calls) == 2, "AND decides for which rows its arguments are evaluated"


def test_a_part_of_one_repeated_part_is_no_column() -> None:
    inner = Call(pa.bool_(), True, "equal", (X, Y))
    whole = Call(pa.bool_(), True, "equal", (inner, X))
    outer = Call(pa.bool_(), True, "equal", (whole, Y))
    assert [part for _, part in Evaluation([whole, outer])._parts] == [whole]
    assert len(Evaluation([whole, outer, inner])._parts) == 2
