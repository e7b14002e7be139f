"""Rows compared with a single value that changes are those that satisfy the comparison, whatever changes."""

from __future__ import annotations

import itertools
import math
import operator
import random
from collections.abc import Callable
from decimal import Decimal
from typing import Any, cast

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ikebana.engine import Engine, Table
from ikebana.expressions import Column, ColumnBatch
from ikebana.expressions.core.base import BUILDERS, Config, Expression
from ikebana.expressions.core.tree import Tree
from ikebana.expressions.numbers.magnitudes import magnitude
from ikebana.sql.inner_joins import InnerJoin
from ikebana.sql.lowering import thresholds
from ikebana.sql.lowering.context import Lowering
from ikebana.sql.relation import Relation

DECIMALS = st.integers(-(10**37), 10**37) | st.integers(-2000, 2000) | st.integers(-(2**64), 2**64)
VALUES: dict[pa.DataType, st.SearchStrategy[Any]] = {
    pa.int32(): st.integers(-(2**31), 2**31 - 1) | st.integers(-20, 20),
    pa.int64(): st.integers(-(2**63), 2**63 - 1) | st.integers(-20, 20),
    pa.float64(): st.floats() | st.integers(-20, 20).map(float),
    pa.decimal128(38, 2): DECIMALS.map(lambda number: Decimal(number).scaleb(-2)),
    pa.date32(): st.dates(),
}


@pytest.mark.parametrize("kind", VALUES, ids=str)
@given(st.data(), st.integers(1, 20))
def test_oracle_magnitudes_keep_the_order(kind: pa.DataType, data: st.DataObject, bits: int) -> None:
    values = data.draw(st.lists(VALUES[kind] | st.none()))
    rows = ColumnBatch.from_input({"value": pa.array(values, kind)}, len(values))
    magnitudes, coarse = (
        magnitude(Column(kind, True, "value"), used).evaluate(rows).to_pylist() for used in (bits, bits - 1)
    )
    assert [number is None for number in magnitudes] == [value is None for value in values]
    present = [at for at, value in enumerate(values) if value is not None]
    for one, other in itertools.permutations(present, 2):
        if magnitudes[one] < magnitudes[other]:
            assert rank(values[one]) < rank(values[other])
        elif magnitudes[one] == magnitudes[other]:
            assert coarse[one] == coarse[other]


def rank(value: Any) -> tuple[bool, Any]:
    """Numbers in the order of Spark: NaN is the greatest."""
    is_nan = isinstance(value, float) and math.isnan(value)
    return is_nan, 0.0 if is_nan else value


# Joins.

COMPARISONS: dict[str, Callable[[Any, Any], bool]] = {
    "LessThan": operator.lt,
    "LessThanOrEqual": operator.le,
    "GreaterThan": operator.gt,
    "GreaterThanOrEqual": operator.ge,
}


class Attributes:
    """As much of a `Lowering` as joins need: new attributes."""

    def __init__(self) -> None:
        self._numbers = itertools.count(-1, -1)

    def new_attribute(self) -> int:
        return next(self._numbers)


def compared(rows: Table, single: Table, kind: str, *, swapped: bool) -> Relation:
    """The rows whose value compares so with the only row of a table."""
    value = Column(rows.node.columns[1].type, True, "value")
    relations = [
        Relation(rows, {1: Column(pa.int64(), False, "id"), 2: value}, {1: "id", 2: "value"}),
        Relation(single.select("value"), {3: value}, {3: "value"}, unique=()),
    ]
    join = InnerJoin(relations)
    operands: list[Expression] = [join.columns[2], join.columns[3]]
    join.require(BUILDERS[kind](Tree(kind, {}, ()), tuple(operands[::-1] if swapped else operands), Config()))
    return thresholds.joined(cast(Lowering, Attributes()), join, [1], {1: "id", 2: "value", 3: "value"})


def some_values(kind: pa.DataType, r: random.Random) -> Any:
    """A value, often one near 1,000, rarely null."""
    number = r.choice([r.randint(990, 1010), r.randint(0, 2000), r.randint(-(10**9), 10**9), 1000, 0])
    if r.random() < 0.05:
        return None
    if pa.types.is_floating(kind):
        return r.choice([float(number), number / 7, math.nan, -0.0, math.inf] if r.random() < 0.3 else [float(number)])
    return Decimal(number).scaleb(-2) if pa.types.is_decimal(kind) else number


@pytest.mark.parametrize("workers", [1, 2])
@pytest.mark.parametrize("kind", [pa.int64(), pa.float64(), pa.decimal128(19, 2), pa.decimal128(38, 2)], ids=str)
@pytest.mark.parametrize(("comparison", "swapped"), list(itertools.product(COMPARISONS, [False, True])))
def test_oracle_rows_beyond_a_value_that_changes(
    comparison: str, swapped: bool, kind: pa.DataType, workers: int
) -> None:
    r = random.Random(f"{comparison} {swapped} {kind}")
    with Engine(workers) as engine:
        fields = [pa.field("id", pa.int64(), False), pa.field("value", kind)]
        rows, single = (engine.table(name, fields, key="id") for name in ("rows", "single"))
        view = engine.install("view", compared(rows, single, comparison, swapped=swapped).materialised().source)
        expected: dict[int, Any] = {}
        for turn in range(12):
            changed = {r.randrange(40): some_values(kind, r) for _ in range(r.randint(0, 15))}
            removed = [number for number in expected if number not in changed and r.random() < 0.1]
            threshold = None if turn == 4 else some_values(kind, r)
            with engine.transaction():
                rows.upsert({"id": list(changed), "value": pa.array(changed.values(), kind)})
                rows.delete({"id": pa.array(removed, pa.int64())})
                if turn in (0, 6):
                    single.delete({"id": pa.array([0] if turn else [], pa.int64())})
                else:
                    single.upsert({"id": [0], "value": pa.array([threshold], kind)})
            expected = {number: value for number, value in (expected | changed).items() if number not in removed}
            is_absent = turn in (0, 6) or threshold is None
            assert sorted(view.to_arrow()["id"].to_pylist()) == (
                [] if is_absent else sorted(chosen(expected, threshold, comparison, swapped))
            )


def chosen(rows: dict[int, Any], threshold: Any, comparison: str, swapped: bool) -> list[int]:
    """The rows that satisfy a comparison."""
    return [
        number
        for number, value in rows.items()
        if value is not None
        and COMPARISONS[comparison](*((rank(threshold), rank(value)) if swapped else (rank(value), rank(threshold))))
    ]


def test_a_small_change_of_the_value_meets_few_rows() -> None:
    """Rows far from the value are not read when it changes a little."""
    with Engine() as engine:
        fields = [pa.field("id", pa.int64(), False), pa.field("value", pa.int64())]
        rows, single = (engine.table(name, fields, key="id") for name in ("rows", "single"))
        rows.insert({"id": range(5000), "value": range(0, 50_000, 10)})
        single.insert({"id": [0], "value": [20_001]})
        view = engine.install("view", compared(rows, single, "GreaterThan", swapped=False).materialised().source)
        assert view.to_arrow().num_rows == 2999
        changes = view.changes(since="now", timeout=5)
        single.upsert({"id": [0], "value": [20_011]})
        _, change = next(changes)
        assert change.to_pydict() == {"id": [2001], "diff": [-1]}
