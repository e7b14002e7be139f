"""Sums in lanes, and the aggregates made of them, against Python's own arithmetic."""

from __future__ import annotations

import decimal
import math
import pickle
from collections import Counter
from collections.abc import Callable
from datetime import timedelta
from decimal import Decimal
from fractions import Fraction
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ikebana.engine import Engine
from ikebana.errors import EvaluationError
from ikebana.expressions.core.types import mean_type, sum_type
from ikebana.reducers.sums import Aggregate, Count, Mean, Sum, Variance, aggregate, join, lanes_of, split
from ikebana.reducers.sums.aggregates import rounded
from ikebana.reducers.sums.parts import PartSums, Present, Whole
from tests.profiles import examples
from tests.sql.maintained import Domain, Row, Rows, check, histories, maybe, never

DIGITS = decimal.Context(prec=100)
KINDS = [pa.int8(), pa.int16(), pa.int32(), pa.int64(), pa.duration("us")]
KINDS += [pa.decimal128(digits, 1) for digits in (1, 9, 10, 18, 19, 20, 28, 29, 38)]


def bounds(kind: pa.DataType) -> tuple[int, int]:
    if pa.types.is_decimal(kind):
        return 1 - 10**kind.precision, 10**kind.precision - 1
    return -(1 << kind.bit_width - 1), (1 << kind.bit_width - 1) - 1


def decimal_of(number: int, kind: pa.DataType) -> Decimal:
    return DIGITS.scaleb(Decimal(number), -kind.scale)


def array_of(numbers: list[int | None], kind: pa.DataType) -> pa.Array:
    if pa.types.is_decimal(kind):
        return pa.array([None if number is None else decimal_of(number, kind) for number in numbers], kind)
    return pa.array(numbers, kind)


@st.composite
def weighed(draw: Any, kind: pa.DataType) -> list[tuple[int | None, int]]:
    """Numbers of a type, and how often each is added."""
    least, greatest = bounds(kind)
    numbers = st.integers(least, greatest), st.integers(0, min(greatest, 2**64 - 1))
    number = st.one_of(st.sampled_from([None, least, greatest, 0, -1]), *numbers)
    return draw(st.lists(st.tuples(number, st.sampled_from([1, -1, 2, 100_000_000])), max_size=5))


def lanes_of_sums(pairs: list[tuple[int | None, int]], kind: pa.DataType) -> np.ndarray:
    """The sums of lanes, of a slice of a longer array."""
    array = array_of([0, *(number for number, _ in pairs)], kind).slice(1)
    weights = np.array([weight for _, weight in pairs], np.int64)
    lanes = split(array)
    assert len(lanes) == lanes_of(kind)
    return np.array([[np.sum(lane * weights)] for lane in lanes], np.int64)


@pytest.mark.parametrize("kind", KINDS, ids=str)
@given(data=st.data())
@examples(0.3)
def test_twin_lanes(kind: pa.DataType, data: st.DataObject) -> None:
    pairs = data.draw(weighed(kind))
    total = sum((number or 0) * weight for number, weight in pairs)
    result = join(lanes_of_sums(pairs, kind))
    assert result.to_list() == [total]
    assert result.floats().tolist() == [float(total)]
    assert bool(result.fit_a_word[0]) == (-(1 << 63) <= total < 1 << 63)
    assert int(result.low[0]) % (1 << 64) == total % (1 << 64)
    for bound in (1, 2, 10**18, 10**19, 10**38, max(1, abs(total)), abs(total) + 1):
        if bound < 1 << 127:
            assert bool(result.below(bound)[0]) == (abs(total) < bound)


def finished(call: Aggregate, pairs: list[tuple[int | None, int]], kind: pa.DataType) -> Any:
    count = np.array([sum(weight for number, weight in pairs if number is not None)])
    lanes = {Whole("x", kind): lanes_of_sums(pairs, kind), Present(("x",)): count.reshape(1, 1)}
    column = call.finish(PartSums(count, lanes, {}))
    column.validate(full=True)
    assert column.type == call.type
    return column.cast(pa.int64())[0].as_py() if pa.types.is_duration(kind) else column[0].as_py()


def half_up(value: Fraction) -> int:
    return int(abs(value) + Fraction(1, 2)) * (1 if value >= 0 else -1)


def twin_of_sum(total: int, count: int, kind: pa.DataType, ansi: bool) -> Any:
    if count == 0:
        return None
    if pa.types.is_decimal(kind):
        fits = abs(total) < 10 ** sum_type(kind).precision
        return decimal_of(total, kind) if fits else "error" if ansi else None
    if -(1 << 63) <= total < 1 << 63:
        return total
    return "error" if ansi or pa.types.is_duration(kind) else (total + (1 << 63)) % (1 << 64) - (1 << 63)


def twin_of_mean(total: int, count: int, kind: pa.DataType, ansi: bool) -> Any:
    if count == 0:
        return None
    if pa.types.is_integer(kind):
        return float(total) / count
    if pa.types.is_duration(kind):
        return half_up(Fraction(total, count)) if -(1 << 63) <= total < 1 << 63 else "error"
    result = mean_type(kind)
    mean = half_up(Fraction(total * 10 ** (result.scale - kind.scale), count))
    fits = abs(mean) < 10**result.precision and abs(total) < 10 ** sum_type(kind).precision
    return decimal_of(mean, result) if fits else "error" if ansi else None


@pytest.mark.parametrize("kind", KINDS, ids=str)
@given(data=st.data(), ansi=st.booleans())
@examples(0.3)
def test_twin_sums_and_means(kind: pa.DataType, data: st.DataObject, ansi: bool) -> None:
    pairs = [(number, abs(weight)) for number, weight in data.draw(weighed(kind))]
    total = sum((number or 0) * weight for number, weight in pairs)
    count = sum(weight for number, weight in pairs if number is not None)
    for call, twin in ((Sum, twin_of_sum), (Mean, twin_of_mean)):
        expected = twin(total, count, kind, ansi)
        if expected == "error":
            with pytest.raises(EvaluationError, match="of 'x' overflows"):
                finished(call("x", kind, ansi=ansi), pairs, kind)
        else:
            assert finished(call("x", kind, ansi=ansi), pairs, kind) == expected


@given(one=st.integers(-(10**42), 10**42), other=st.sampled_from([1, 2, 3, 7, 10**9, -2]))
def test_twin_rounding(one: int, other: int) -> None:
    expected = half_up(Fraction(one, other))
    assert rounded(one, other) == max(-(1 << 127) + 1, min(expected, (1 << 127) - 1))


def test_mean_of_decimals_rounds_once() -> None:
    """2 / 13 * 10**4 is 1538.46...: Spark's division keeps more digits, and cuts them off before it rounds."""
    kind = pa.decimal128(38, 34)
    assert finished(Mean("x", kind), [(2, 1), (0, 12)], kind) == Decimal("1538E-38")


# Maintained.
FLOATS = [
    None,
    0.1,
    -0.1,
    1e300,
    -1e300,
    5e-324,
    -0.0,
    3.0,
    1e16,
    math.inf,
    -math.inf,
    math.nan,
    1.7976931348623157e308,
]
TAME = [None, 0.1, -0.2, 1e9, 5e-324, 7.25, 1e-200, 3e154]
TABLE: list[Domain] = [
    (maybe("g", pa.string()), [None, "a", "b"]),
    (maybe("i", pa.int64()), [None, 1, -5, (1 << 63) - 1, -(1 << 63)]),
    (never("s", pa.int16()), [-3, 0, 7]),
    (maybe("d", pa.decimal128(20, 2)), [None, Decimal("0.05"), Decimal("-999999999999999999.99")]),
    (maybe("t", pa.duration("us")), [None, timedelta(microseconds=1), timedelta(days=-3)]),
]
FLOATING: list[Domain] = [
    (never("g", pa.int64()), [1, 2]),
    (maybe("x", pa.float64()), FLOATS),
    (maybe("y", pa.float64()), TAME),
    (maybe("f", pa.float32()), [None, 0.5, 16777216.0]),
    (maybe("i", pa.int64()), [None, 4]),
]


def grouped(rows: list[Row], width: int) -> dict[Row, list[Row]]:
    groups: dict[Row, list[Row]] = {}
    for row in rows:
        groups.setdefault(row[:width], []).append(row)
    return groups


def present(rows: list[Row], at: int) -> list[Any]:
    return [row[at] for row in rows if row[at] is not None]


def of_column(at: int, function: Callable[[list[Any]], Any]) -> Callable[[list[Row]], Any]:
    return lambda rows: function(present(rows, at)) if present(rows, at) else None


def wrapped(values: list[int]) -> int:
    return (sum(values) + (1 << 63)) % (1 << 64) - (1 << 63)


def mean_of_decimals(values: list[Decimal]) -> Decimal:
    total = sum(int(value.scaleb(2)) for value in values)
    return decimal_of(half_up(Fraction(total * 10**4, len(values))), pa.decimal128(24, 6))


WHOLE: dict[str, tuple[Aggregate, Callable[[list[Row]], Any]]] = {
    "rows": (Count(), len),
    "both": (Count(("i", "d")), lambda rows: sum(row[1] is not None and row[3] is not None for row in rows)),
    "sum_i": (Sum("i", pa.int64(), ansi=False), of_column(1, wrapped)),
    "avg_i": (Mean("i", pa.int64()), of_column(1, lambda values: float(sum(values)) / len(values))),
    "sum_s": (Sum("s", pa.int16(), column_nullable=False), of_column(2, sum)),
    "sum_d": (Sum("d", pa.decimal128(20, 2)), of_column(3, sum)),
    "avg_d": (Mean("d", pa.decimal128(20, 2)), of_column(3, mean_of_decimals)),
    "sum_t": (Sum("t", pa.duration("us")), of_column(4, lambda values: sum(values, timedelta()))),
}


def float_sum(values: list[float]) -> float:
    strange = [value for value in values if not math.isfinite(value)]
    return sum(strange) if strange else rounded_fraction(sum(map(Fraction, values), Fraction()))


def rounded_fraction(value: Fraction) -> float:
    try:
        return value.numerator / value.denominator
    except OverflowError:
        return math.inf if value > 0 else -math.inf


def variance(freedom: int) -> Callable[[list[float]], float | None]:
    def compute(values: list[float]) -> float | None:
        if len(values) <= freedom:
            return None
        exact = list(map(Fraction, values))
        mean = sum(exact) / len(exact)
        return rounded_fraction(sum((value - mean) ** 2 for value in exact) / (len(exact) - freedom))

    return compute


def deviation(values: list[float]) -> float | None:
    squared = variance(1)(values)
    return None if squared is None else math.sqrt(squared)


BINNED: dict[str, tuple[Aggregate, Callable[[list[Row]], Any]]] = {
    "rows": (Count(), len),
    "sum_x": (Sum("x", pa.float64()), of_column(1, float_sum)),
    "avg_x": (Mean("x", pa.float64()), of_column(1, lambda values: float_sum(values) / len(values))),
    "sum_f": (Sum("f", pa.float32()), of_column(3, float_sum)),
    "var_y": (Variance("y", sample=False, root=False), of_column(2, variance(0))),
    "std_y": (Variance("y", sample=True, root=True), of_column(2, deviation)),
    "sum_i": (Sum("i", pa.int64()), of_column(4, sum)),
}


@pytest.mark.parametrize(
    ("table", "calls", "by"),
    [(TABLE, WHOLE, 1), (TABLE, WHOLE, 0), (FLOATING, BINNED, 1), (FLOATING, BINNED, 0)],
    ids=["by a string", "all", "floats by a number", "all floats"],
)
@given(data=st.data())
@examples(0.2)
def test_oracle_maintained(table: list[Domain], calls: Any, by: int, data: st.DataObject) -> None:
    names = [field.name for field, _ in table[:by]]
    chosen = data.draw(st.lists(st.sampled_from(sorted(calls)), min_size=1, max_size=4, unique=True))

    def twin(rows: list[Row]) -> Rows:
        return Counter((*key, *(calls[name][1](group) for name in chosen)) for key, group in grouped(rows, by).items())

    picked = tuple((name, calls[name][0]) for name in chosen)
    check(
        table,
        data.draw(histories(table)),
        lambda rows: aggregate(rows, names, picked),
        twin,
        data.draw(st.sampled_from([1, 2])),
    )


def test_sums_of_floats_come_back() -> None:
    """What came and went leaves no trace, however large it was."""
    with Engine() as engine:
        source = engine.input("rows", (never("g", pa.int64()), never("x", pa.float64())))
        view = engine.install("view", aggregate(source, ["g"], (("s", Sum("x", pa.float64(), column_nullable=False)),)))
        source.insert({"g": [1, 1, 1], "x": [0.1, 0.2, 1e300]})
        engine.advance()
        source.remove({"g": [1], "x": [1e300]})
        engine.advance()
        assert view.read().column("s").to_pylist() == [math.fsum([0.1, 0.2])]


def test_regression_the_status_of_selected_sums_of_floats() -> None:
    """The column with the bins of floats was taken for one of the source, which a later step did not have."""
    with Engine() as engine:
        source = engine.input("rows", (never("g", pa.int64()), never("x", pa.float64()))).select(h="g", y="x")
        engine.install("view", aggregate(source, ["h"], (("s", Sum("y", pa.float64(), column_nullable=False)),)))
        engine.advance()
        assert engine.status()


def test_columns_named_like_slots() -> None:
    fields = (never("slot", pa.int64()), never("lane 0", pa.int64()), never("x", pa.float64()))
    with Engine() as engine:
        source = engine.input("rows", fields)
        calls = (("x", Sum("x", pa.float64(), column_nullable=False)),)
        view = engine.install("view", aggregate(source, ["slot", "lane 0"], calls))
        source.insert({"slot": [1, 1], "lane 0": [2, 2], "x": [0.5, 0.25]})
        engine.advance()
        assert view.read().to_pylist() == [{"slot": 1, "lane 0": 2, "x": 0.75, "diff": 1}]


def test_an_overflow_is_an_error_until_it_is_gone() -> None:
    with Engine() as engine:
        source = engine.input("rows", (never("i", pa.int64()),))
        view = engine.install("view", aggregate(source, [], (("s", Sum("i", pa.int64(), column_nullable=False)),)))
        source.insert({"i": [(1 << 63) - 1, 1]})
        engine.advance()
        with pytest.raises(EvaluationError, match="overflows"):
            view.read()
        source.remove({"i": [1]})
        engine.advance()
        assert view.to_arrow()["s"].to_pylist() == [(1 << 63) - 1]


def test_calls_are_values() -> None:
    calls = [call for call, _ in (*WHOLE.values(), *BINNED.values())]
    assert pickle.loads(pickle.dumps(calls)) == calls
    assert len({*calls, *pickle.loads(pickle.dumps(calls))}) == len(set(calls))
