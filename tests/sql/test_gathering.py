"""Aggregates of a group's values, against plain Python."""

from __future__ import annotations

import math
import pickle
from collections import Counter
from collections.abc import Callable
from datetime import timedelta
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ikebana.errors import EvaluationError
from ikebana.reducers.gathering import (
    Collect,
    ExtremeBy,
    FilteredCall,
    GatherCall,
    Gathering,
    Mode,
    Percentile,
    gather,
)
from tests.profiles import examples
from tests.sql.maintained import Domain, Row, Rows, applied, check, histories, maybe, never, place, plain

TABLE: list[Domain] = [
    (maybe("g", pa.string()), [None, "a"]),
    (maybe("i", pa.int32()), [None, -5, 0, 1, 2, 2_000_000_000]),
    (maybe("x", pa.float64()), [None, -2.5, 0.0, 0.1, 1e6, math.inf, math.nan]),
    (maybe("y", pa.float64()), [None, 0.1, 7.25, 1e9]),
    (maybe("d", pa.decimal128(7, 2)), [None, Decimal("-1.25"), Decimal("0.10"), Decimal("99999.99")]),
    (maybe("t", pa.duration("us")), [None, timedelta(microseconds=1), timedelta(days=-2)]),
    (maybe("s", pa.string()), [None, "", "b", "é"]),
    (maybe("f", pa.int64()), [None, 0, 1, 3]),
    (maybe("c", pa.bool_()), [None, False, True]),
]
FIELDS = [field for field, _ in TABLE]
NAMES = [field.name for field in FIELDS]


def values(rows: list[Row], column: str) -> list[Any]:
    cells = [row[NAMES.index(column)] for row in rows]
    return sorted((value for value in cells if value is not None), key=place)


def collected(call: Collect, rows: list[Row]) -> Any:
    cells = values(rows, call.column)
    if call.with_nulls:
        cells = [None] * sum(row[NAMES.index(call.column)] is None for row in rows) + cells
    return list({plain(value): value for value in cells}.values()) if call.distinct else cells


def extreme_by(call: ExtremeBy, rows: list[Row]) -> Any:
    at, by = NAMES.index(call.column), NAMES.index(call.by)
    keys = values(rows, call.by)
    if not keys:
        return None
    best = plain(keys[-1 if call.greatest else 0])
    candidates = [row[at] for row in rows if row[by] is not None and plain(row[by]) == best]
    return max(candidates, key=lambda value: (value is not None, 0 if value is None else place(value)))


def mode(call: Mode, rows: list[Row]) -> Any:
    cells = values(rows, call.column)
    often = Counter(map(plain, cells))
    best = [value for value in cells if often[plain(value)] == max(often.values())]
    return best[-1 if call.greatest else 0] if best else None


def microseconds(value: Any) -> float:
    return float(value // timedelta(microseconds=1)) if isinstance(value, timedelta) else float(value)


def percentile(call: Percentile, rows: list[Row]) -> Any:
    at = NAMES.index(call.column)
    weighed = [row for row in rows for _ in range(1 if call.frequency is None else row[NAMES.index("f")] or 0)]
    cells = values(weighed, call.column)[:: -1 if call.descending else 1]
    if not cells:
        return None

    def one(fraction: float) -> Any:
        if call.discrete:
            number = microseconds(cells[max(0, math.ceil(len(cells) * fraction) - 1)])
        else:
            position = (len(cells) - 1) * fraction
            low, high = (microseconds(cells[index]) for index in (math.floor(position), math.ceil(position)))
            exact = math.floor(position) == math.ceil(position) or low == high
            number = low if exact else low + (position - math.floor(position)) * (high - low)
        return timedelta(microseconds=int(number)) if pa.types.is_duration(FIELDS[at].type) else number

    return [one(fraction) for fraction in call.fractions] if call.many else one(call.fractions[0])


TWINS: dict[type, Callable[[Any, list[Row]], Any]] = {
    Collect: collected,
    ExtremeBy: extreme_by,
    Mode: mode,
    Percentile: percentile,
    FilteredCall: lambda call, rows: TWINS[type(call.call)](call.call, [row for row in rows if row[NAMES.index("c")]]),
}


@st.composite
def calls(draw: Any, name: str) -> GatherCall:
    column, other = draw(st.sampled_from(NAMES)), draw(st.sampled_from(NAMES))
    flag, flags = draw(st.booleans()), [draw(st.booleans()) for _ in range(3)]
    fractions = draw(st.lists(st.sampled_from([0.0, 0.1, 0.3, 0.5, 0.9, 1.0]), min_size=1, max_size=3))
    numeric, frequency = draw(st.sampled_from(["i", "x", "d", "t"])), draw(st.sampled_from([None, "f"]))
    call = draw(
        st.sampled_from(
            [
                Collect(name, column, flag, flags[0]),
                ExtremeBy(name, column, other, flag),
                Mode(name, column, flag),
                Percentile(name, numeric, tuple(fractions), *flags, frequency),
            ]
        )
    )
    return FilteredCall(call.name, call, "c") if draw(st.booleans()) else call


@st.composite
def several(draw: Any) -> tuple[GatherCall, ...]:
    by_name = {call.name: call for call in (draw(calls(f"c{at}")) for at in range(draw(st.integers(1, 3))))}
    return tuple(by_name.values())


def twin(chosen: tuple[GatherCall, ...], rows: list[Row], by: int) -> Rows:
    result: Rows = Counter()
    for key in {row[:by] for row in rows}:
        group = [row for row in rows if row[:by] == key]
        result[(*key, *(plain(TWINS[type(call)](call, group)) for call in chosen))] += 1
    return result


@given(chosen=several(), data=st.data())
@examples(1)
def test_twin_any_call(chosen: tuple[GatherCall, ...], data: st.DataObject) -> None:
    row = st.tuples(*(st.sampled_from(domain) for _, domain in TABLE))
    rows = Counter(data.draw(st.dictionaries(row, st.sampled_from([1, 1, 2, 3, -1]), max_size=10)))
    bag = [row for row, count in rows.items() for _ in range(count)]
    key = data.draw(st.sampled_from([0, 1]))
    result = applied(Gathering(chosen), FIELDS[:key], FIELDS[key:], rows)
    assert result == twin(chosen, bag, key)
    assert pickle.loads(pickle.dumps(chosen)) == chosen


@given(chosen=several(), data=st.data())
@examples(0.3)
def test_oracle_maintained(chosen: tuple[GatherCall, ...], data: st.DataObject) -> None:
    by = data.draw(st.sampled_from([0, 1]))
    check(
        TABLE,
        data.draw(histories(TABLE)),
        lambda rows: gather(rows, NAMES[:by], chosen),
        lambda rows: twin(chosen, rows, by),
        data.draw(st.sampled_from([1, 2])),
    )


@pytest.mark.parametrize(
    ("values", "fraction", "expected"),
    [
        ([1, 2, 5, 7, 10], 0.3, 2.5999999999999996),
        ([1, 2, 5, 7, 10], 0.4, 3.8000000000000003),
        ([1, 2, 5, 7, 10], 0.8, 7.6000000000000005),
        ([-2.5, 0.0, 0.25, 3.7, 3.7], 0.2, -0.5),
        ([0.1, 1e6], 0.3, 300000.06999999995),
        ([-1.1, 0.1, 0.25, 1e6], 0.3, -0.020000000000000018),
        ([-2.5, 0.25], 0.77, -0.38249999999999984),
    ],
)
def test_digits_are_those_of_spark(values: list[float], fraction: float, expected: float) -> None:
    rows: Rows = Counter((1, value) for value in values)
    call = Percentile("p", "x", (fraction,))
    result = applied(Gathering((call,)), [never("g", pa.int64())], [never("x", pa.float64())], rows)
    assert result == Counter([(1, plain(expected))])


def test_negative_frequencies_are_refused() -> None:
    rows: Rows = Counter([(1, 1, -1)])
    call = Percentile("p", "x", (0.5,), frequency="f")
    val = [never("x", pa.int32()), never("f", pa.int64())]
    with pytest.raises(EvaluationError, match="'f' of a percentile is negative"):
        applied(Gathering((call,)), [never("g", pa.int64())], val, rows)
