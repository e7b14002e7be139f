"""SQL functions without Spark: fixed expectations, plain twins, unsupported functions, and Python functions."""

from __future__ import annotations

import datetime
import math
import pickle
import re
from typing import Any

import cloudpickle
import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ikebana.errors import EvaluationError, SqlError
from ikebana.expressions import Column, ColumnBatch, Config, Expression, Literal, PythonFunction
from ikebana.expressions.core.base import BUILDERS
from ikebana.expressions.core.scalars import map_distinct
from ikebana.expressions.core.tree import Tree
from ikebana.expressions.nested.lists import Lists, ranks
from ikebana.expressions.strings.patterns import translate_java, translate_like
from ikebana.expressions.temporal import calendar
from ikebana.expressions.temporal.zones import to_clock, to_instant

TEXT, INT = pa.string(), pa.int32()
S, T = Column(TEXT, True, "s"), Column(TEXT, True, "t")
I = Column(INT, True, "i")  # noqa: E741, as in SQL


def text(value: str | None) -> Literal:
    return Literal(TEXT, value is None, value)


def number(value: int) -> Literal:
    return Literal(INT, False, value)


def build(kind: str, *children: Expression, config: Config | None = None, **fields: Any) -> Expression:
    """The translation of a Catalyst expression."""
    return BUILDERS[kind](Tree(kind, fields, ()), children, config or Config())


def run(expression: Expression, **columns: Any) -> list[Any]:
    arrays = {
        name: values if isinstance(values, pa.Array) else pa.array(values, {"i": INT}.get(name))
        for name, values in columns.items()
    }
    return expression.evaluate(ColumnBatch.from_columns(arrays)).to_pylist()


# Strings and patterns.


@pytest.mark.parametrize(
    ("pattern", "expected"),
    [
        ("a%", [True, True, False, None]),
        ("_", [False, False, True, None]),
        ("%\n%", [False, True, False, None]),
        ("a\\_%", [False, False, False, None]),
    ],
)
def test_like(pattern: str, expected: list[bool | None]) -> None:
    column = ["abc", "a\nb", "日", None]
    assert run(build("Like", S, text(pattern)), s=column) == expected
    assert run(build("Like", S, T), s=column, t=[pattern] * 4) == expected


@pytest.mark.parametrize(
    ("kind", "expected"),
    [
        ("LikeAll", [True, False, False, None]),
        ("LikeAny", [True, True, False, None]),
        ("NotLikeAll", [False, False, True, None]),
        ("NotLikeAny", [False, True, True, None]),
    ],
)
def test_like_with_several_patterns(kind: str, expected: list[bool | None]) -> None:
    several = build(kind, S, text("a%"), text("%c"), nameParts=f"[{kind}]")
    assert run(several, s=["abc", "ab", "b", None]) == expected


@pytest.mark.parametrize("pattern", ["a\\", "a\\b"])
def test_like_with_a_bad_escape_is_refused(pattern: str) -> None:
    with pytest.raises(SqlError, match="LIKE"):
        build("Like", S, text(pattern))
    with pytest.raises(EvaluationError, match="LIKE"):
        run(build("Like", S, T), s=["x"], t=[pattern])


@pytest.mark.parametrize(
    "pattern", ["a*+", "a++b", "[a[bc]]", "[a&&b]", r"\G", r"\p{IsGreek}", "(?x)a", "a(?s)b", "{2}", r"\R", "(", "[a"]
)
def test_what_java_means_otherwise_is_refused(pattern: str) -> None:
    with pytest.raises(SqlError, match="regular expression"):
        build("RLike", S, text(pattern))


def test_an_escaped_quantifier_is_none() -> None:
    assert translate_java(r"a\++").python.fullmatch("a++")
    assert run(build("RLike", S, text(r"^\?+$")), s=["??", "a"]) == [True, False]


PIECES = [
    "a",
    "b",
    ".",
    "[ab]",
    "[^a]",
    "(a|bc)",
    r"\w",
    r"\d",
    r"\s",
    "x?",
    "b*",
    "a{1,2}",
    "^",
    "$",
    r"\b",
    "é",
    r"\.",
]


@given(st.lists(st.sampled_from(PIECES), min_size=1, max_size=5), st.lists(st.text("abcxé1 .\n\r\u2028", max_size=6)))
def test_twin_regular_expressions_by_re2_and_by_python(pieces: list[str], texts: list[str]) -> None:
    pattern = "".join(pieces)
    column = ["", *texts]
    searched = [translate_java(pattern).python.search(value) is not None for value in column]
    assert run(build("RLike", S, text(pattern)), s=column) == searched
    replaced = build("RegExpReplace", S, text(pattern), text("<$0>"), number(1))
    assert run(replaced, s=column) == run(
        build("RegExpReplace", S, T, text("<$0>"), number(1)), s=column, t=[pattern] * len(column)
    )


@given(st.text("ab%_", max_size=5), st.lists(st.text("ab\n", max_size=5), min_size=1))
def test_twin_like(pattern: str, texts: list[str]) -> None:
    expected = [
        re.fullmatch(pattern.replace("%", ".*").replace("_", "."), value, re.DOTALL) is not None for value in texts
    ]
    assert run(build("Like", S, text(pattern)), s=texts) == expected
    assert [translate_like(pattern).python.search(value) is not None for value in texts] == expected


@given(st.text("aé日", max_size=5), st.integers(-7, 7), st.integers(-2, 8))
def test_twin_substring_with_literals_and_with_columns(value: str, start: int, length: int) -> None:
    literal = run(build("Substring", S, number(start), number(length)), s=[value, None])
    other = build("Substring", S, I, number(length))
    assert literal == run(other, s=[value, None], i=[start, start])


def test_a_replacement_that_names_no_group_raises() -> None:
    with pytest.raises(EvaluationError, match="replacement"):
        run(build("RegExpReplace", S, text("a"), text("$1"), number(1)), s=["a"])


@given(st.lists(st.one_of(st.none(), st.sampled_from("abc"))), st.data())
def test_each_distinct_computes_once(values: list[str | None], data: st.DataObject) -> None:
    others = data.draw(st.lists(st.one_of(st.none(), st.integers(0, 2)), min_size=len(values), max_size=len(values)))
    calls = []

    def compute(one: str, other: int) -> str:
        calls.append((one, other))
        return one * other

    result = map_distinct(compute, TEXT, pa.array(values, TEXT), pa.array(others, INT))
    assert result.to_pylist() == [
        None if one is None or other is None else one * other for one, other in zip(values, others, strict=True)
    ]
    assert len(calls) == len(set(calls))


# Dates and times.


@given(st.dates())
def test_twin_calendar(date: datetime.date) -> None:
    days = np.array([(date - datetime.date(1970, 1, 1)).days])
    assert (calendar.year(days), calendar.month(days), calendar.day(days)) == (date.year, date.month, date.day)
    assert calendar.weekday(days) == date.weekday()
    assert calendar.day_of_year(days) == date.timetuple().tm_yday
    assert calendar.year(calendar.thursday(days)) == date.isocalendar().year
    assert calendar.date(*(np.array([part]) for part in (date.year, date.month, date.day)))[0] == days


@given(st.integers(-(2**55), 2**57), st.sampled_from(["Europe/Berlin", "America/New_York", "Asia/Kolkata", "+05:30"]))
def test_clocks_show_instants_again(micros: int, zone: str) -> None:
    instant = np.array([micros])
    shown = to_clock(instant, zone)
    assert (to_clock(to_instant(shown, zone), zone) == shown).all()


@pytest.mark.parametrize(("year", "hours"), [(2037, 2), (2038, 2), (2050, 2), (2100, 2), (2399, 2), (9999, 2)])
def test_regression_clocks_change_after_2037(year: int, hours: int) -> None:
    """Arrow applies no daylight saving time after 2037."""
    july = np.array([np.datetime64(f"{year}-07-01", "us").astype(np.int64)])
    assert (to_clock(july, "Europe/Berlin") - july) // 3_600_000_000 == hours
    january = np.array([np.datetime64(f"{year}-01-01", "us").astype(np.int64)])
    assert (to_clock(january, "Europe/Berlin") - january) // 3_600_000_000 == 1


def test_adding_a_day_is_adding_to_the_clock() -> None:
    before = datetime.datetime(2021, 3, 27, 11, tzinfo=datetime.UTC)
    times = pa.array([before], pa.timestamp("us", "UTC"))
    day = Literal(pa.duration("us"), False, datetime.timedelta(days=1))
    added = build("TimestampAddInterval", Column(times.type, True, "x"), day, timeZoneId="Europe/Berlin")
    assert run(added, x=times) == [before + datetime.timedelta(hours=23)]


@pytest.mark.parametrize("pattern", ["yyyy-MM-dd z", "yyyy{", "w"])
def test_a_pattern_of_dates_that_is_not_supported_is_refused(pattern: str) -> None:
    time = Column(pa.timestamp("us", "UTC"), True, "x")
    with pytest.raises(SqlError, match="pattern"):
        build("DateFormatClass", time, text(pattern), timeZoneId="UTC")


def test_a_pattern_of_dates_in_a_column_is_refused() -> None:
    with pytest.raises(SqlError, match="not constant"):
        build("GetTimestamp", S, T, dataType="timestamp", failOnError=True)


# Numbers and hashes.


def test_rounding_by_what_is_printed() -> None:
    x = Column(pa.float64(), True, "x")
    halves = build("Round", x, number(2), ansiEnabled=True)
    assert run(halves, x=[2.675, 1.005, -0.125, None]) == [2.68, 1.01, -0.13, None]
    assert run(build("BRound", x, number(2), ansiEnabled=True), x=[0.125, 0.135]) == [0.12, 0.14]
    assert math.copysign(1, run(build("Round", x, number(0), ansiEnabled=True), x=[-0.4])[0]) == 1


def test_hashes_are_those_of_spark() -> None:
    assert run(build("Murmur3Hash", S, seed=42), s=["Spark", None]) == [228093765, 42]
    assert run(build("XxHash64", S, seed=42), s=["Spark", None]) == [-4294468057691064905, 42]


# Nested values.


@given(st.lists(st.one_of(st.none(), st.lists(st.one_of(st.none(), st.integers(0, 3))))))
def test_lists_from_and_to_arrays(values: list[list[int | None] | None]) -> None:
    array = pa.array([[9], *values, None], pa.list_(pa.int64())).slice(1)
    lists = Lists.from_array(array)
    is_valid = np.asarray(array.is_valid())
    assert lists.to_array(array.type, is_valid).equals(array)
    without_nulls = lists.drop_nulls().to_array(array.type, is_valid).to_pylist()
    assert without_nulls == [items and [item for item in items if item is not None] for items in [*values, None]]


def test_ranks_are_in_order() -> None:
    assert ranks(pa.array([2.0, math.nan, None, -0.0, 0.0, math.inf])).tolist() == [1, 3, -1, 0, 0, 2]
    assert ranks(pa.array(["é", "z", "a", "Z"])).tolist() == [3, 2, 1, 0]


# Unsupported functions.


@pytest.mark.parametrize("kind", ["Rand", "Uuid", "SparkPartitionID", "CurrentTimestamp", "Shuffle"])
def test_what_is_not_deterministic_is_refused(kind: str) -> None:
    with pytest.raises(SqlError, match=f"{kind} is not deterministic"):
        build(kind)


# Python functions.


def python(function: Any, kind: pa.DataType, *arguments: Expression, eval_type: int = 100) -> PythonFunction:
    return PythonFunction(kind, True, "mine", cloudpickle.dumps(function), arguments, eval_type)


def test_a_python_function_is_called_for_each_row() -> None:
    function = python(lambda s, i: f"{s}{i}", TEXT, S, I)
    assert run(function, s=["a", None], i=[1, None]) == ["a1", "NoneNone"]
    assert function.can_raise and function.columns == {"s", "i"} and str(function) == "mine(s, i)"


def test_what_a_python_function_returns_is_of_its_type() -> None:
    assert run(python(lambda i: i * 0.5, pa.float64(), I), i=[1, 3]) == [0.5, 1.5]
    assert run(python(lambda i: "x" if i == 1 else i, pa.int64(), I), i=[1, 3]) == [None, 3]
    assert run(python(lambda i: i, TEXT, I), i=[1, 3]) == ["1", "3"]
    assert run(python(lambda i: [i, None], pa.list_(pa.int64()), I), i=[1]) == [[1, None]]


def test_a_function_of_series_is_called_once() -> None:
    function = python(lambda s: s.str.len(), pa.int64(), S, eval_type=200)
    assert run(function, s=["a", "abc", None]) == [1, 3, None]
    shorter = python(lambda s: pd.Series([1]), pa.int64(), S, eval_type=200)
    with pytest.raises(EvaluationError, match="returned 1 values for 2 rows"):
        run(shorter, s=["a", "b"])


def test_an_error_of_a_python_function_names_it() -> None:
    with pytest.raises(EvaluationError, match="mine") as caught:
        run(python(lambda i: 1 // i, pa.int64(), I), i=[1, 0])
    assert "ZeroDivisionError" in caught.value.detail


def test_a_python_function_is_a_value() -> None:
    function = python(abs, pa.int64(), I)
    assert pickle.loads(pickle.dumps(function)) == function == python(abs, pa.int64(), I)
    with pytest.raises(SqlError, match='the Python function "mine" is not supported'):
        python(abs, pa.int64(), I, eval_type=201)
