"""Literals, comparison, arithmetic, conditions and casts without Java: fixed expectations, plain Python as a twin."""

from __future__ import annotations

import math
import operator
import pickle
import re
from collections.abc import Callable, Sequence
from datetime import UTC, date, datetime, timedelta
from decimal import ROUND_HALF_UP, Context, Decimal, localcontext
from fractions import Fraction
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ikebana import expressions
from ikebana.errors import EvaluationError, SqlError
from ikebana.expressions import Column, ColumnBatch, Config, Expression, Literal
from ikebana.expressions.core.base import BUILDERS
from ikebana.expressions.core.tree import Tree

NAN, INF = math.nan, math.inf


def build(kind: str, *children: Expression, ansi: bool = True, zone: str = "UTC", **fields: Any) -> Expression:
    """The translation of a Catalyst expression."""
    return BUILDERS[kind](Tree(kind, fields, ()), children, Config(ansi, zone))


def column(name: str, kind: pa.DataType, nullable: bool = True) -> Column:
    return Column(kind, nullable, name)


def constant(text: str | None, spark: str, zone: str = "UTC") -> Expression:
    return build("Literal", value=text, dataType=spark, zone=zone)


def evaluated(expression: Expression, **columns: pa.Array) -> list[Any]:
    """The values of an expression, after a check of its type and nullability."""
    array = expression.evaluate(ColumnBatch.from_columns(columns))
    array.validate(full=True)
    assert array.type == expression.type
    assert expression.nullable or not array.null_count
    return array.to_pylist()


def binary(kind: str, left: pa.Array, right: pa.Array, ansi: bool = True) -> list[Any]:
    expression = build(kind, column("a", left.type), column("b", right.type), ansi=ansi)
    return evaluated(expression, a=left, b=right)


def cast(values: Sequence[Any], kind: pa.DataType, spark: str, ansi: bool = True, zone: str = "UTC") -> list[Any]:
    array = pa.array(values, kind)
    return evaluated(build("Cast", column("a", kind), ansi=ansi, dataType=spark, timeZoneId=zone), a=array)


def test_every_module_that_registers_functions_is_imported() -> None:
    root = Path(expressions.__file__).parent
    registers = re.compile(r"^@?(builds|function|maps|conversion)\(", re.MULTILINE)
    modules = {path for path in root.rglob("*.py") if registers.search(path.read_text())}
    assert modules == {Path(str(module.__file__)) for module in expressions.FUNCTION_MODULES}


# Literals.


@pytest.mark.parametrize(
    ("text", "spark", "value"),
    [
        ("-128", "byte", -128),
        ("1.0E10", "double", 1e10),
        ("-Infinity", "double", -INF),
        ("1.50", "decimal(3,2)", Decimal("1.50")),
        ("true", "boolean", True),
        ("x'y", "string", "x'y"),
        (None, "integer", None),
        ("1998-09-02", "date", date(1998, 9, 2)),
        ("1577836800000000", "timestamp_ntz", datetime(2020, 1, 1)),
        ("2020-01-01 00:00:00.5", "timestamp", datetime(2020, 1, 1, 0, 0, 0, 500_000, UTC)),
        ("93600000000", "interval day to hour", timedelta(days=1, hours=2)),
        ("-14", "interval year to month", -14),
    ],
)
def test_literals_are_parsed_from_strings(text: str | None, spark: str, value: Any) -> None:
    literal = constant(text, spark)
    assert literal.nullable == (value is None)
    assert evaluated(literal, other=pa.nulls(2)) == [value, value]


def test_timestamps_are_local_times_of_the_session() -> None:
    literal = constant("2020-01-01 00:00:00", "timestamp", zone="America/New_York")
    assert isinstance(literal, Literal) and literal.value == datetime(2020, 1, 1, 5, tzinfo=UTC)


def test_literals_are_values() -> None:
    nan, zero, minus = (constant(text, "double") for text in ("NaN", "0.0", "-0.0"))
    assert nan == constant("NaN", "double") == pickle.loads(pickle.dumps(nan))
    assert zero != minus and hash(zero) != hash(minus)
    assert constant("1", "integer") != constant("1", "long")


@pytest.mark.parametrize("spark", ["binary", {"type": "array", "elementType": "string", "containsNull": False}])
def test_literals_with_ambiguous_strings_are_refused(spark: Any) -> None:
    with pytest.raises(SqlError, match="literal of type"):
        constant("[B@6d8de10d", spark)


def test_assertions_about_nulls_are_their_child() -> None:
    child = column("a", pa.int64(), nullable=False)
    assert build("Alias", child) is child
    assert build("KnownNullable", child) == column("a", pa.int64())


# Comparison.


def test_nan_equals_nan_and_is_the_greatest() -> None:
    left, right = pa.array([NAN, NAN, 1.0, INF, 0.0, None, NAN]), pa.array([NAN, 1.0, NAN, NAN, -0.0, NAN, None])
    assert binary("EqualTo", left, right) == [True, False, False, False, True, None, None]
    assert binary("LessThan", left, right) == [False, False, True, True, False, None, None]
    assert binary("LessThanOrEqual", left, right) == [True, False, True, True, True, None, None]
    assert binary("GreaterThan", left, right) == [False, True, False, False, False, None, None]
    assert binary("GreaterThanOrEqual", left, right) == [True, True, False, False, True, None, None]
    assert binary("EqualNullSafe", left, right) == [True, False, False, False, True, False, False]


def test_strings_are_compared_by_bytes() -> None:
    left, right = pa.array(["\ue000", "a", ""]), pa.array(["𝄞", "A", None])
    assert binary("LessThan", left, right) == [True, False, None]


def test_decimals_of_other_scales_are_compared_exactly() -> None:
    left = pa.array([Decimal("0.1"), Decimal(10) ** 20], pa.decimal128(38, 1))
    right = pa.array([Decimal("0.10"), Decimal("0.01")], pa.decimal128(38, 37))
    assert binary("EqualTo", left, right) == [True, False]
    assert binary("GreaterThan", left, right) == [False, True]


def test_nulls_inside_are_equal() -> None:
    lists = pa.array([[1, None], [1], [1, 2], None], pa.list_(pa.int64()))
    others = pa.array([[1, None], [1, 2], [2, 1], [1]], pa.list_(pa.int64()))
    assert binary("EqualTo", lists, others) == [True, False, False, None]
    assert binary("LessThan", lists, others) == [False, True, True, None]
    kind = pa.map_(pa.string(), pa.int32())
    with pytest.raises(SqlError, match="comparing values of type map"):
        build("LessThan", column("a", kind), column("b", kind))


@pytest.mark.parametrize(
    ("candidates", "expected"),
    [(["1", "2"], [True, False, None]), (["1", None], [True, None, None]), ([None], [None, None, None])],
)
def test_in_with_nulls(candidates: list[str | None], expected: list[bool | None]) -> None:
    expression = build("In", column("a", pa.int32()), *(constant(candidate, "integer") for candidate in candidates))
    assert evaluated(expression, a=pa.array([1, 5, None], pa.int32())) == expected


def test_in_with_expressions() -> None:
    expression = build("In", column("a", pa.int32()), column("b", pa.int32()), constant("7", "integer"))
    one, other = pa.array([1, 7, 3, 3, None], pa.int32()), pa.array([1, 2, 2, None, 1], pa.int32())
    assert evaluated(expression, a=one, b=other) == [True, True, False, None, None]


def test_sets_without_their_values_are_refused() -> None:
    with pytest.raises(SqlError, match="IN with this many constants") as error:
        build("InSet", column("a", pa.int32()))
    assert "inSetConversionThreshold" in error.value.hint


def test_at_least_n_values_are_neither_null_nor_nan() -> None:
    expression = build("AtLeastNNonNulls", column("a", pa.float64()), column("b", pa.int64()), n=2)
    assert evaluated(expression, a=pa.array([1.0, NAN, None]), b=pa.array([1, 1, 1])) == [True, False, False]


def test_equal_floats_are_made_the_same_bits() -> None:
    expression = build("NormalizeNaNAndZero", column("a", pa.float64()))
    assert list(map(repr, evaluated(expression, a=pa.array([-0.0, NAN, 1.0])))) == ["0.0", "nan", "1.0"]


# Integer arithmetic.


@pytest.mark.parametrize("kind", [pa.int8(), pa.int16(), pa.int32(), pa.int64()], ids=str)
def test_overflow_raises_or_wraps(kind: pa.DataType) -> None:
    most = 2 ** (kind.bit_width - 1) - 1
    left, right = pa.array([most, 1, None], kind), pa.array([1, 1, most], kind)
    with pytest.raises(EvaluationError, match=r"overflow in a \+ b"):
        binary("Add", left, right)
    assert binary("Add", left, right, ansi=False) == [-most - 1, 2, None]
    assert binary("Add", left.slice(1), right.slice(1)) == [2, None]


@given(st.lists(st.tuples(*[st.integers(-(2**63), 2**63 - 1)] * 2), min_size=1))
def test_integers_wrap_as_in_java(pairs: list[tuple[int, int]]) -> None:
    def wrapped(number: int) -> int:
        return (number + 2**63) % 2**64 - 2**63

    def truncated(one: int, other: int) -> int:
        return abs(one) // abs(other) * (1 if (one < 0) == (other < 0) else -1)

    def remainder(one: int, other: int) -> int:
        return one - other * truncated(one, other)

    def positive(one: int, other: int) -> int:
        remaining = remainder(one, other)
        return remainder(wrapped(remaining + other), other) if remaining < 0 else remaining

    left, right = (pa.array(numbers, pa.int64()) for numbers in zip(*pairs, strict=True))
    total: dict[str, Callable[[int, int], int]] = {
        "Add": operator.add,
        "Subtract": operator.sub,
        "Multiply": operator.mul,
        "BitwiseXor": operator.xor,
    }
    partial = {"IntegralDivide": truncated, "Remainder": remainder, "Pmod": positive}
    for kind, twin in total.items():
        assert binary(kind, left, right, ansi=False) == [wrapped(twin(*pair)) for pair in pairs], kind
    for kind, twin in partial.items():
        expected = [wrapped(twin(*pair)) if pair[1] else None for pair in pairs]
        assert binary(kind, left, right, ansi=False) == expected, kind


def test_division_by_zero_raises_or_is_null() -> None:
    for kind in ("Divide", "Remainder", "Pmod"):
        left, right = pa.array([1.0, None, 6.0]), pa.array([0.0, 0.0, 2.0])
        with pytest.raises(EvaluationError, match="division by zero"):
            binary(kind, left, right)
        assert binary(kind, left, right, ansi=False)[:2] == [None, None]
        assert binary(kind, left.slice(1), right.slice(1))[0] is None


def test_nullable_only_where_it_can_be_null() -> None:
    left, right = column("a", pa.float64(), False), column("b", pa.float64(), False)
    assert not build("Divide", left, right).nullable
    assert build("Divide", left, right, ansi=False).nullable
    assert not build("Add", left, right, ansi=False).nullable
    small, large = column("a", pa.decimal128(15, 2), False), column("b", pa.decimal128(38, 2), False)
    assert not build("Multiply", small, small, ansi=False).nullable
    assert build("Multiply", large, large, ansi=False).nullable
    assert not build("Multiply", small, small).can_raise and build("Multiply", large, large).can_raise


def test_unsupported_operands_are_refused() -> None:
    with pytest.raises(SqlError, match=r"date32\[day\] \+ int32"):
        build("Add", column("a", pa.date32()), column("b", pa.int32()))


# Decimals.

Operation = tuple[str, tuple[int, int], tuple[int, int], tuple[int, int]]

TYPES: list[Operation] = [  # from Spark's documentation and plans
    ("Add", (15, 2), (15, 2), (16, 2)),
    ("Add", (38, 10), (38, 0), (38, 6)),
    ("Subtract", (1, 0), (15, 2), (16, 2)),
    ("Multiply", (15, 2), (16, 2), (32, 4)),
    ("Multiply", (32, 4), (16, 2), (38, 6)),
    ("Multiply", (38, 10), (38, 10), (38, 6)),
    ("Divide", (15, 2), (15, 2), (33, 18)),
    ("Divide", (38, 10), (38, 10), (38, 6)),
    ("Remainder", (15, 2), (10, 4), (10, 4)),
    ("Pmod", (38, 38), (38, 0), (38, 38)),
]


@pytest.mark.parametrize(("kind", "left", "right", "result"), TYPES)
def test_types_of_decimals(kind: str, left: tuple[int, int], right: tuple[int, int], result: tuple[int, int]) -> None:
    expression = build(kind, column("a", pa.decimal128(*left)), column("b", pa.decimal128(*right)))
    assert expression.type == pa.decimal128(*result)


@st.composite
def decimal_columns(draw: st.DrawFn) -> tuple[pa.Array, pa.Array]:
    """Two columns of arbitrary decimal types, with small or arbitrary values."""
    rows, columns = draw(st.integers(1, 6)), []
    for _ in range(2):
        precision = draw(st.integers(1, 38))
        scale = draw(st.integers(0, precision))
        most = 10 ** draw(st.integers(1, precision)) - 1
        units = draw(st.lists(st.none() | st.integers(-most, most), min_size=rows, max_size=rows))
        columns.append(pa.array([decimal(unit, scale) for unit in units], pa.decimal128(precision, scale)))
    return columns[0], columns[1]


def decimal(units: int | None, scale: int) -> Decimal | None:
    return None if units is None else Decimal((int(units < 0), tuple(map(int, str(abs(units)))), -scale))


def half_up(number: Fraction, scale: int) -> int:
    size = math.floor(abs(number) * 10**scale + Fraction(1, 2))
    return -size if number < 0 else size


EXACT: dict[str, Callable[[Fraction, Fraction], Fraction]] = {
    "Add": operator.add,
    "Subtract": operator.sub,
    "Multiply": operator.mul,
    "Divide": operator.truediv,
}


@given(decimal_columns(), st.sampled_from(sorted(EXACT)))
def test_decimals_are_exact_then_rounded_half_up(columns: tuple[pa.Array, pa.Array], kind: str) -> None:
    left, right = columns
    expression = build(kind, column("a", left.type), column("b", right.type), ansi=False)
    expected: list[Decimal | None] = []
    for one, other in zip(left.to_pylist(), right.to_pylist(), strict=True):
        if one is None or other is None or (kind == "Divide" and not other):
            expected.append(None)
            continue
        units = half_up(EXACT[kind](Fraction(one), Fraction(other)), expression.type.scale)
        expected.append(decimal(units, expression.type.scale) if abs(units) < 10**expression.type.precision else None)
    assert evaluated(expression, a=left, b=right) == expected
    strict = build(kind, column("a", left.type), column("b", right.type))
    nulls = [not (a.is_valid and b.is_valid) for a, b in zip(left, right, strict=True)]
    if nulls == [value is None for value in expected]:
        assert evaluated(strict, a=left, b=right) == expected
    else:
        assert strict.can_raise
        with pytest.raises(EvaluationError):
            evaluated(strict, a=left, b=right)


@given(decimal_columns(), *[st.sampled_from(["Add", "Subtract", "Multiply", "Divide"])] * 2, st.booleans())
def test_invariance_decimals_inside_others(
    columns: tuple[pa.Array, pa.Array], kind: str, other: str, ansi: bool
) -> None:
    """An operation inside another one has the effect of a column with its results."""
    left, right = columns
    a, b = column("a", left.type), column("b", right.type)
    inner = build(kind, a, build("Subtract", constant("1", "decimal(1,0)"), b, ansi=ansi), ansi=ansi)
    rows = {"a": left, "b": right}
    nested, stepwise = build(other, inner, b, ansi=ansi), build(other, column("c", inner.type), b, ansi=ansi)
    try:
        expected = evaluated(stepwise, c=inner.evaluate(ColumnBatch.from_columns(rows)), **rows)
    except EvaluationError as error:
        with pytest.raises(EvaluationError, match=re.escape(str(error).splitlines()[0])):
            evaluated(nested, **rows)
    else:
        assert evaluated(nested, **rows) == expected


@given(decimal_columns())
def test_rounding_decimals_to_another_type(columns: tuple[pa.Array, pa.Array]) -> None:
    source, other = columns
    target = other.type
    expression = build(
        "Cast", column("a", source.type), ansi=False, dataType=f"decimal({target.precision},{target.scale})"
    )
    with localcontext(Context(prec=80, rounding=ROUND_HALF_UP)):
        rounded = [
            None if number is None else number.quantize(Decimal(1).scaleb(-target.scale))
            for number in source.to_pylist()
        ]
        expected = [
            None if number is None or abs(number.scaleb(target.scale)) >= 10**target.precision else number
            for number in rounded
        ]
    assert evaluated(expression, a=source) == expected


def test_a_price_with_discount_and_tax() -> None:
    money = pa.decimal128(15, 2)
    one = constant("1", "decimal(1,0)")
    price = build("Multiply", column("e", money), build("Subtract", one, column("d", money)))
    charge = build("Multiply", price, build("Add", one, column("t", money)))
    columns = {
        "e": pa.array([Decimal("21168.23"), None], money),
        "d": pa.array([Decimal("0.04"), Decimal("0.09")], money),
        "t": pa.array([Decimal("0.02"), Decimal("0.06")], money),
    }
    assert evaluated(charge, **columns) == [Decimal("20727.930816"), None]


def test_values_at_null_positions_do_not_matter() -> None:
    garbage = pa.Array.from_buffers(
        pa.decimal128(38, 0), 2, [pa.py_buffer(b"\x01"), pa.py_buffer(b"\x02" + bytes(15) + b"\x7f" * 16)]
    )
    assert binary("Multiply", garbage, garbage) == [Decimal(4), None]
    assert binary("Divide", garbage, garbage) == [Decimal(1), None]


def test_decimals_and_their_unscaled_values() -> None:
    money = pa.decimal128(7, 2)
    units = build("UnscaledValue", column("a", money))
    assert evaluated(units, a=pa.array([Decimal("1.25"), None], money)) == [125, None]
    from_unscaled = build("MakeDecimal", column("a", pa.int64()), precision=5, scale=2, ansi=False)
    assert evaluated(from_unscaled, a=pa.array([125, 10**5, None])) == [Decimal("1.25"), None, None]


# Conditions.

TRUTH = pa.array([True, False, None])


@pytest.mark.parametrize("kind", ["And", "Or"])
@pytest.mark.parametrize("lazy", [False, True])
def test_three_valued_logic(kind: str, lazy: bool) -> None:
    left = pa.array([value for value in (True, False, None) for _ in range(3)])
    right: Expression = column("b", pa.bool_())
    columns = {"a": left, "b": pa.concat_arrays([TRUTH] * 3)}
    if lazy:  # a cast that may raise
        right = build("Cast", column("b", pa.string()), dataType="boolean")
        columns["b"] = columns["b"].cast(pa.string())
    result = evaluated(build(kind, column("a", pa.bool_()), right), **columns)
    expected = {
        "And": [True, False, None, False, False, False, None, False, None],
        "Or": [True, True, True, True, False, None, True, None, None],
    }
    assert right.can_raise == lazy and result == expected[kind]


A, B = column("a", pa.int32()), column("b", pa.int32())
QUOTIENT = build("Remainder", A, B)
IS_ZERO = build("EqualTo", B, constant("0", "integer"))
NOT_ZERO = build("Not", IS_ZERO)


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        (build("If", NOT_ZERO, QUOTIENT, constant("-1", "integer")), [1, -1, -1]),
        (build("CaseWhen", NOT_ZERO, QUOTIENT), [1, None, None]),
        (build("CaseWhen", IS_ZERO, A, build("EqualTo", QUOTIENT, A), B, QUOTIENT), [1, 7, None]),
        (build("Coalesce", A, QUOTIENT), [7, 7, 7]),
        (build("And", NOT_ZERO, build("EqualTo", QUOTIENT, A)), [False, False, None]),
        (build("Or", IS_ZERO, build("EqualTo", QUOTIENT, A)), [False, True, None]),
    ],
    ids=["if", "case", "cases", "coalesce", "and", "or"],
)
def test_branches_that_are_not_reached_do_not_raise(expression: Expression, expected: list[Any]) -> None:
    a, b = pa.array([7, 7, 7], pa.int32()), pa.array([2, 0, None], pa.int32())
    assert expression.can_raise
    assert evaluated(expression, a=a, b=b) == expected
    with pytest.raises(EvaluationError):
        evaluated(QUOTIENT, a=a, b=b)


def test_nan_is_replaced() -> None:
    expression = build("NaNvl", column("a", pa.float64()), column("b", pa.float64()))
    one, other = pa.array([NAN, NAN, 1.0, None]), pa.array([2.0, None, 2.0, 2.0])
    assert evaluated(expression, a=one, b=other) == [2.0, None, 1.0, None]


@given(st.lists(st.tuples(*[st.none() | st.floats(width=64)] * 3), min_size=1))
def test_greatest_and_least_leave_out_nulls(rows: list[tuple[float | None, ...]]) -> None:
    def order(number: float) -> float | tuple[Any, ...]:
        return (math.isnan(number), 0.0 if math.isnan(number) else number)

    arrays = {name: pa.array(values, pa.float64()) for name, values in zip("abc", zip(*rows, strict=True), strict=True)}
    columns = [column(name, pa.float64()) for name in arrays]
    for kind, twin in (("Greatest", max), ("Least", min)):
        expected = [
            twin(present, key=order) if (present := [x for x in row if x is not None]) else None for row in rows
        ]
        assert list(map(repr, evaluated(build(kind, *columns), **arrays))) == list(map(repr, expected))


# Casts.


def test_numbers_are_printed_as_java_does() -> None:
    numbers = [0.0, -0.0, 1.0, 1e7, 9999999.0, 1e-3, 9.99e-4, 1.5e10, 123456.789, 1e22, NAN, INF, -INF, -1.25e-7, None]
    assert cast(numbers, pa.float64(), "string") == [
        *("0.0", "-0.0", "1.0", "1.0E7", "9999999.0", "0.001", "9.99E-4", "1.5E10", "123456.789", "1.0E22"),
        *("NaN", "Infinity", "-Infinity", "-1.25E-7", None),
    ]


@given(st.lists(st.floats(allow_nan=False), min_size=1))
def test_printed_numbers_are_read_back(numbers: list[float]) -> None:
    printed = cast(numbers, pa.float64(), "string")
    assert list(map(repr, map(float, printed))) == list(map(repr, numbers))
    assert list(map(repr, cast(printed, pa.string(), "double"))) == list(map(repr, numbers))


def test_decimals_are_printed_plainly_in_ansi_mode() -> None:
    numbers = [Decimal("1E-7"), Decimal("-1E-7"), Decimal(0), Decimal("1.5"), None]
    kind = pa.decimal128(20, 7)
    assert cast(numbers, kind, "string") == ["0.0000001", "-0.0000001", "0.0000000", "1.5000000", None]
    assert cast(numbers, kind, "string", ansi=False) == ["1E-7", "-1E-7", "0E-7", "1.5000000", None]


@given(
    st.lists(
        st.floats(-1e12, 1e12) | st.integers(-(10**6), 10**6).map(lambda thousandths: thousandths / 1000), min_size=1
    )
)
def test_floats_become_the_decimals_they_print_as(numbers: list[float]) -> None:
    with localcontext(Context(prec=60, rounding=ROUND_HALF_UP)):
        expected = [Decimal(repr(number)).quantize(Decimal("0.01")) for number in numbers]
    assert cast(numbers, pa.float64(), "decimal(20,2)") == expected


@given(st.lists(st.dates() | st.none(), min_size=1))
def test_dates_are_printed_and_read_back(days: list[date | None]) -> None:
    printed = cast(days, pa.date32(), "string")
    assert printed == [None if day is None else day.isoformat() for day in days]
    assert cast(printed, pa.string(), "date") == days


def test_dates_in_parts_and_beyond_four_digits() -> None:
    texts = [
        "2020",
        "2020-2",
        "2020-02-3 x",
        " 2020-02-29 ",
        "2019-02-29",
        "20200101",
        "+12020-01-31",
        "-0001-12-31",
        "x",
    ]
    assert cast(texts[:5], pa.string(), "date", ansi=False) == [
        *(date(2020, 1, 1), date(2020, 2, 1), date(2020, 2, 3), date(2020, 2, 29), None),
    ]
    days = build("Cast", column("a", pa.string()), ansi=False, dataType="date")
    again = evaluated(build("Cast", days, dataType="string"), a=pa.array(texts[5:]))
    assert again == [None, "+12020-01-31", "-0001-12-31", None]


def test_clocks_that_are_set_forward_and_back() -> None:
    """A local time that is skipped moves an hour later; an ambiguous local time is the earlier instant."""
    strings = ["2020-03-08 02:30:00", "2020-11-01 01:30:00", "2020-01-01 00:00:00.120"]
    expected = [
        datetime(2020, 3, 8, 7, 30, tzinfo=UTC),
        datetime(2020, 11, 1, 5, 30, tzinfo=UTC),
        datetime(2020, 1, 1, 5, 0, 0, 120_000, UTC),
    ]
    instants = cast(strings, pa.string(), "timestamp", zone="America/New_York")
    assert instants == expected
    printed = cast(instants, pa.timestamp("us", "UTC"), "string", zone="America/New_York")
    assert printed == ["2020-03-08 03:30:00", "2020-11-01 01:30:00", "2020-01-01 00:00:00.12"]


def test_zones_in_timestamps() -> None:
    texts = [
        "2020-01-01T00:00:00Z",
        "2020-01-01 00:00:00+01:30",
        "2020-01-01 00:00:00 Europe/Paris",
        "2020-01-01 0:0:0?",
    ]
    assert cast(texts, pa.string(), "timestamp", ansi=False) == [
        datetime(2020, 1, 1, tzinfo=UTC),
        datetime(2019, 12, 31, 22, 30, tzinfo=UTC),
        datetime(2019, 12, 31, 23, tzinfo=UTC),
        None,
    ]


def test_times_of_the_current_day_are_refused() -> None:
    with pytest.raises(EvaluationError, match="a time without a date"):
        cast(["12:30:00"], pa.string(), "timestamp", ansi=False)


@pytest.mark.parametrize(
    ("values", "kind", "spark", "legacy"),
    [
        (["1.5", " 7 ", "x", ""], pa.string(), "integer", [1, 7, None, None]),
        (["128", "-128"], pa.string(), "byte", [None, -128]),
        ([300, -1], pa.int32(), "byte", [44, -1]),
        ([3e10, NAN, -2.9], pa.float64(), "integer", [2**31 - 1, 0, -2]),
        ([Decimal("1234.56"), Decimal("9.99")], pa.decimal128(6, 2), "decimal(3,1)", [None, Decimal("10.0")]),
        (["yes", "maybe"], pa.string(), "boolean", [True, None]),
        (["1e3", "1,5"], pa.string(), "decimal(6,1)", [Decimal("1000.0"), None]),
        (["1.5d", "one"], pa.string(), "double", [1.5, None]),
        (["2020-01-01", "2020-13-01"], pa.string(), "date", [date(2020, 1, 1), None]),
        (["2020-01-01", "today"], pa.string(), "timestamp_ntz", [datetime(2020, 1, 1), None]),
    ],
)
def test_casts_that_fail(values: list[Any], kind: pa.DataType, spark: str, legacy: list[Any]) -> None:
    assert cast(values, kind, spark, ansi=False) == legacy
    with pytest.raises(EvaluationError, match=r"cannot cast .* from") as error:
        cast(values, kind, spark)
    assert "cast(a)" in error.value.detail


def test_case_excludes_values_that_cannot_be_cast() -> None:
    """The advice in the hint of a failed cast works."""
    text = column("a", pa.string())
    number = build("Cast", text, dataType="integer")
    values = pa.array(["1", "x"])
    with pytest.raises(EvaluationError) as error:
        evaluated(number, a=values)
    assert "CASE WHEN" in error.value.hint and "spark.sql.ansi.enabled=false" in error.value.hint
    is_valid = build("Not", build("EqualTo", text, constant("x", "string")))
    assert evaluated(build("CaseWhen", is_valid, number), a=values) == [1, None]
    assert evaluated(build("Cast", text, ansi=False, dataType="integer"), a=values) == [1, None]


def test_hints_about_ansi_mode_are_only_given_where_it_helps() -> None:
    longest = pa.array([2**63 - 1], pa.int64()).view(pa.duration("us"))
    with pytest.raises(EvaluationError, match="overflow") as error:
        binary("Add", longest, longest)
    assert "CASE WHEN" in error.value.hint and "ansi" not in error.value.hint


def test_casts_that_are_not_supported_are_refused() -> None:
    with pytest.raises(SqlError, match="a cast from int32 to interval year"):
        build("Cast", column("a", pa.int32()), dataType="interval year")
    months = Tree("Literal", {"value": "5", "dataType": "interval month"}, ())
    for spark in ("integer", "string"):
        with pytest.raises(SqlError, match=f"a cast from int32 to {spark}"):
            BUILDERS["Cast"](Tree("Cast", {"dataType": spark}, (months,)), (column("a", pa.int32()),), Config())
    with pytest.raises(SqlError, match="a cast from list"):
        build("Cast", column("a", pa.list_(pa.duration("us"))), dataType="string")


def test_branches_select_only_the_columns_they_read() -> None:
    """A branch is evaluated with only the columns that it reads."""
    case = build("If", NOT_ZERO, QUOTIENT, constant("-1", "integer"))
    wide = {"other": pa.array([["x"], None, []])}
    assert evaluated(case, a=pa.array([7, 7, 7], pa.int32()), b=pa.array([2, 0, 5], pa.int32()), **wide) == [1, -1, 2]


@pytest.mark.parametrize(("number", "expected"), [("3.0", [-5, None]), ("-2", [8, None]), ("2.5", [-6, None])])
def test_intervals_divided_by_numbers_are_rounded_half_up(number: str, expected: list[Any]) -> None:
    by = constant(number, "double" if "." in number else "integer")
    expression = build("DivideYMInterval", column("a", pa.int32()), by)
    assert evaluated(expression, a=pa.array([-15, None], pa.int32())) == expected
