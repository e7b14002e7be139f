"""Window functions against a plain twin that looks at each row's partition and frame by itself."""

from __future__ import annotations

import calendar
import math
import pickle
from collections import Counter
from collections.abc import Callable
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from fractions import Fraction
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ikebana.errors import EvaluationError
from ikebana.expressions import Column, Config, Expression
from ikebana.expressions.core.builders import add_interval
from ikebana.expressions.temporal.zones import DAY
from ikebana.reducers.sort_keys import SortKey
from ikebana.reducers.sums import Count, Mean, Sum
from ikebana.reducers.windows import (
    RUNNING,
    VALUE,
    WHOLE,
    DefaultValue,
    Extreme,
    Frame,
    Nth,
    Ntile,
    OverFrame,
    Rank,
    Shift,
    WindowCall,
    WindowReducer,
)
from ikebana.reducers.windows.partitions import maxima
from tests.profiles import examples
from tests.sql.maintained import Domain, Row, Rows, applied, check, histories, maybe, never, plain, plain_rows
from tests.sql.maintained import place as standing
from tests.sql.test_ordering import compare, in_order

MONEY = pa.decimal128(7, 2)
TABLE: list[Domain] = [
    (maybe("g", pa.string()), [None, "a"]),
    (maybe("i", pa.int32()), [None, -(1 << 31), -1, 0, 1, 2, 4, (1 << 31) - 1]),
    (maybe("x", pa.float64()), [None, -2.5, 0.0, 0.25, 1e6, math.inf, math.nan]),
    (maybe("d", MONEY), [None, Decimal("-1.25"), Decimal("0.10"), Decimal("99999.99")]),
    (never("t", pa.date32()), [date(2020, 1, 30), date(2020, 1, 31), date(2020, 2, 2), date(2020, 2, 29)]),
    (maybe("s", pa.string()), [None, "", "b", "é"]),
    (maybe("c", pa.bool_()), [None, False, True]),
]
NAMES = [field.name for field, _ in TABLE]
FIELDS = [field for field, _ in TABLE]


# The twin: for each row of an ordered partition, by its position.
class Place:
    """A row in its partition."""

    def __init__(self, rows: list[Row], at: int, keys: list[SortKey]) -> None:
        self.rows, self.at, self.keys = rows, at, keys
        self.row = rows[at]
        self.peers = [n for n, row in enumerate(rows) if self._by(row) == self._by(self.row)]

    def _by(self, row: Row) -> Any:
        return [compare(row[NAMES.index(key.column)], key) for key in self.keys]

    def frame(self, frame: Frame) -> list[Row]:
        if frame.unit == "range":
            return self._sliding(frame)
        lower = 0 if frame.lower is None else max(0, self.at + frame.lower)
        upper = len(self.rows) if frame.upper is None else max(0, self.at + frame.upper + 1)
        return self.rows[lower:upper]

    def _sliding(self, frame: Frame) -> list[Row]:
        """The rows in a buffer that goes along with the rows, which enter it and leave it in their order."""
        first = after = 0
        for at in range(self.at + 1):
            place = Place(self.rows, at, self.keys)
            while first < after and not place._is_reached(first, frame.lower, -1):
                first += 1
            while after < len(self.rows) and place._is_reached(after, frame.upper, 1):
                if first == after and not place._is_reached(after, frame.lower, -1):
                    first += 1
                after += 1
        return self.rows[first:after]

    def _is_reached(self, n: int, offset: Any, side: int) -> bool:
        """Whether a row is not beyond a bound."""
        row = self.rows[n]
        if offset is None:
            return True
        if offset == 0:
            return n >= self.peers[0] if side < 0 else n <= self.peers[-1]
        (key,) = self.keys
        at = NAMES.index(key.column)
        if isinstance(offset, Expression):
            bound = MOVES[offset](self.row[at])
        else:
            bound = moved(self.row[at], offset if key.ascending else -offset)
        position, limit = compare(row[at], key), compare(bound, key)
        return position == limit or (limit < position if side < 0 else position < limit)


def moved(value: Any, offset: Any) -> Any:
    """What is so far off, in 32 bits if it is a whole number."""
    if value is None:
        return None
    return (value + offset + (1 << 31)) % (1 << 32) - (1 << 31) if isinstance(value, int) else value + offset


def a_month_later(value: date) -> date:
    month = value.replace(day=1) + timedelta(days=31)
    return min(value + timedelta(days=31), month.replace(day=calendar.monthrange(month.year, month.month)[1]))


_DATE = Column(pa.date32(), False, VALUE)
MOVES: dict[Any, Callable[[date], date]] = {
    add_interval(_DATE, -2 * DAY, False, Config()): lambda value: value - timedelta(days=2),
    add_interval(_DATE, 3 * DAY, False, Config()): lambda value: value + timedelta(days=3),
    add_interval(_DATE, 1, True, Config()): a_month_later,
}
"""Bounds of dates, and what they are."""


def value_at(rows: list[Row], at: int, column: str) -> Any:
    return rows[at][NAMES.index(column)] if 0 <= at < len(rows) else None


def values(rows: list[Row], column: str) -> list[Any]:
    cells = [row[NAMES.index(column)] for row in rows]
    return [value for value in cells if value is not None]


def shifted(call: Shift, place: Place) -> Any:
    at = place.at + call.by
    if call.ignore_nulls and call.by:
        later = range(place.at + 1, len(place.rows)) if call.by > 0 else range(place.at - 1, -1, -1)
        positions = [n for n in later if value_at(place.rows, n, call.column) is not None]
        at = positions[abs(call.by) - 1] if len(positions) >= abs(call.by) else -1
    if 0 <= at < len(place.rows):
        return value_at(place.rows, at, call.column)
    if isinstance(call.default, DefaultValue):
        return call.default.value
    return None if call.default is None else place.row[NAMES.index(call.default)]


def nth(call: Nth, place: Place) -> Any:
    frame = place.frame(call.frame)
    if call.where is not None:
        frame = [row for row in frame if row[NAMES.index(call.where)]]
    if call.ignore_nulls:
        frame = [row for row in frame if row[NAMES.index(call.column)] is not None]
    return value_at(frame, call.nth - 1 if call.nth > 0 else len(frame) + call.nth, call.column)


def ranked(call: Rank, place: Place) -> Any:
    first, last, size = place.peers[0], place.peers[-1], len(place.rows)
    firsts = {Place(place.rows, at, place.keys).peers[0] for at in range(first)}
    return {
        "row_number": place.at + 1,
        "rank": first + 1,
        "dense_rank": len(firsts) + 1,
        "percent_rank": first / (size - 1) if size > 1 else 0.0,
        "cume_dist": (last + 1) / size,
    }[call.function]


def extreme(call: Extreme, place: Place) -> Any:
    cells = values(place.frame(call.frame), call.column)
    return (max if call.greatest else min)(cells, key=standing) if cells else None


def tile(call: Ntile, place: Place) -> int:
    sizes = [len(place.rows) // call.parts + (n < len(place.rows) % call.parts) for n in range(call.parts)]
    ends = np.cumsum(sizes)
    return int(np.searchsorted(ends, place.at, side="right")) + 1


def half_up(value: Fraction) -> int:
    return int(abs(value) + Fraction(1, 2)) * (1 if value >= 0 else -1)


def over_frame(call: OverFrame, place: Place) -> Any:
    frame, aggregate = place.frame(call.frame), call.aggregate
    if isinstance(aggregate, Count):
        return sum(all(row[NAMES.index(name)] is not None for name in aggregate.columns) for row in frame)
    cells = values(frame, aggregate.column)
    if not cells:
        return None
    if isinstance(aggregate, Sum):
        return sum(cells)
    if aggregate.kind == MONEY:
        return Decimal(half_up(Fraction(int(sum(cells).scaleb(2)) * 10**4, len(cells)))).scaleb(-6)
    return float(sum(cells)) / len(cells)


TWINS: dict[type, Callable[[Any, Place], Any]] = {
    Shift: shifted,
    Nth: nth,
    Rank: ranked,
    Extreme: extreme,
    Ntile: tile,
    OverFrame: over_frame,
}


def twin(logic: WindowReducer, rows: list[Row]) -> Rows:
    result: Rows = Counter()
    keys = list(logic.order)
    for key in {row[:1] for row in rows}:
        partition = in_order([row for row in rows if row[:1] == key], NAMES, keys)
        places = [Place(partition, at, keys) for at in range(len(partition))]
        for place in places:
            result[(*place.row, *(TWINS[type(call)](call, place) for call in logic.calls))] += 1
    return result


# Random calls.
FRAMES = [
    RUNNING,
    WHOLE,
    Frame("range", None, None),
    Frame("range", 0, None),
    Frame("range", 0, 0),
    Frame("rows", None, 0),
    Frame("rows", 0, None),
    Frame("rows", -1, 1),
    Frame("rows", 1, 2),
    Frame("rows", -3, -2),
    Frame("rows", None, -1),
    Frame("rows", 2, None),
    Frame("rows", 1, 0),
]
OFFSETS: dict[str, list[Any]] = {
    "i": [-1, 1, -3, (1 << 31) - 1, -(1 << 31) + 1],
    "x": [-0.25, 1.5, 3.0],
    "d": [Decimal("-1.35"), Decimal("1.00"), Decimal("0.01")],
    "t": list(MOVES),
}


@st.composite
def frames(draw: Any, keys: list[SortKey]) -> Frame:
    if len(keys) == 1 and keys[0].column in OFFSETS and draw(st.booleans()):
        bound = st.sampled_from([None, 0, *OFFSETS[keys[0].column]])
        return Frame("range", draw(bound), draw(bound))
    return draw(st.sampled_from(FRAMES))


@st.composite
def calls(draw: Any, name: str, keys: list[SortKey]) -> WindowCall:
    column, frame, flag = draw(st.sampled_from(NAMES)), draw(frames(keys)), draw(st.booleans())
    ranks = ["row_number", "rank", "dense_rank", "percent_rank", "cume_dist"]
    summed = {"i": pa.int32(), "x": pa.float64(), "d": MONEY}
    other, kind = draw(st.sampled_from(sorted(summed.items())))
    return draw(
        st.sampled_from(
            [
                Rank(name, draw(st.sampled_from(ranks))),
                Ntile(name, draw(st.sampled_from([1, 2, 3, 7]))),
                Shift(name, column, draw(st.integers(-2, 2)), draw(st.sampled_from([None, column])), flag),
                Shift(name, "i", draw(st.integers(-2, 2)), DefaultValue(77), flag),
                Nth(name, column, draw(st.sampled_from([1, -1, 2])), frame, flag, draw(st.sampled_from([None, "c"]))),
                Extreme(name, column, flag, frame),
                OverFrame(name, Count(draw(st.sampled_from([(), ("i",), ("i", "s")]))), frame),
                OverFrame(name, Sum(other, kind), frame),
                OverFrame(name, Mean(other, kind), frame),
            ]
        )
    )


@st.composite
def logics(draw: Any) -> WindowReducer:
    keys = draw(st.lists(st.builds(SortKey, st.sampled_from(NAMES), st.booleans(), st.booleans()), max_size=2))
    count = draw(st.integers(1, 3))
    return WindowReducer(tuple(keys), tuple(draw(calls(f"w{at}", keys)) for at in range(count)))


@given(logic=logics(), data=st.data())
@examples(1)
def test_twin_any_call(logic: WindowReducer, data: st.DataObject) -> None:
    row = st.tuples(*(st.sampled_from(domain) for _, domain in TABLE))
    rows = Counter(data.draw(st.dictionaries(row, st.sampled_from([1, 1, 2, 3, -1]), max_size=12)))
    bag = [row for row, count in rows.items() for _ in range(count)]
    result = applied(logic, FIELDS[:1], FIELDS[1:], rows)
    assert result == plain_rows(twin(logic, bag))
    assert pickle.loads(pickle.dumps(logic)) == logic


@given(logic=logics(), data=st.data())
@examples(0.3)
def test_oracle_maintained(logic: WindowReducer, data: st.DataObject) -> None:
    check(
        TABLE,
        data.draw(histories(TABLE)),
        lambda rows: rows.arrange_by(["g"]).reduce(logic).rows(),
        lambda rows: twin(logic, rows),
        data.draw(st.sampled_from([1, 2])),
    )


@given(numbers=st.lists(st.integers(0, 9), max_size=40), data=st.data())
def test_twin_maxima(numbers: list[int], data: st.DataObject) -> None:
    bound = st.integers(0, len(numbers))
    ranges = data.draw(st.lists(st.tuples(bound, bound).map(sorted), max_size=20))
    lower, upper = (np.array([span[side] for span in ranges], np.int64) for side in (0, 1))
    result = maxima(np.array(numbers, np.int64), lower, upper, -1)
    assert result.tolist() == [max(numbers[first:after], default=-1) for first, after in ranges]


def test_sums_over_frames_overflow_as_sums_do() -> None:
    key, val = [never("g", pa.int64())], [never("i", pa.int64()), never("n", pa.int64())]
    rows: Rows = Counter([(1, 1, (1 << 63) - 1), (1, 2, 1), (1, 3, -5)])
    order, total = (SortKey("i"),), Sum("n", pa.int64(), column_nullable=False)
    with pytest.raises(EvaluationError, match="overflows"):
        applied(WindowReducer(order, (OverFrame("w", total),)), key, val, rows)
    wrapping = WindowReducer(order, (OverFrame("w", Sum("n", pa.int64(), ansi=False)),))
    assert {row[1]: row[3] for row in applied(wrapping, key, val, rows)} == {
        1: (1 << 63) - 1,
        2: -(1 << 63),
        3: (1 << 63) - 5,
    }


def test_bounds_overflow_where_spark_looks_at_them() -> None:
    key, val = [never("g", pa.int64())], [never("i", pa.int8())]
    counted = OverFrame("n", Count(), Frame("range", -1, 1, checked=True))
    logic = WindowReducer((SortKey("i"),), (counted,))
    assert applied(logic, key, val, Counter([(1, 126), (1, 127)])) == Counter([(1, 126, 2), (1, 127, 2)])
    with pytest.raises(EvaluationError, match="a bound of a RANGE frame overflows"):
        applied(logic, key, val, Counter([(1, 1), (1, 127)]))
    with pytest.raises(EvaluationError, match="it does not fit into int8"):
        applied(logic, key, val, Counter([(1, -128), (1, 1)]))


def test_bounds_are_days_of_clocks() -> None:
    key, val = [never("g", pa.int64())], [never("t", pa.timestamp("us", "UTC"))]
    start = datetime(2020, 3, 8, 4, tzinfo=UTC)  # of a day of 23 hours
    hours = [start + timedelta(hours=offset) for offset in (0, 23, 24)]
    zone = Config(time_zone="America/New_York")
    tomorrow = add_interval(Column(val[0].type, False, VALUE), DAY, False, zone)
    logic = WindowReducer((SortKey("t"),), (OverFrame("n", Count(), Frame("range", 0, tomorrow)),))
    result = applied(logic, key, val, Counter((1, hour) for hour in hours))
    assert [row[-1] for row in sorted(result)] == [2, 2, 1]
    result = applied(logic, key, val, Counter((1, hour - timedelta(days=1)) for hour in hours))
    assert [row[-1] for row in sorted(result)] == [3, 2, 1]


def test_bounds_of_floats_are_floats() -> None:
    key, val = [never("g", pa.int64())], [never("x", pa.float32())]
    at, above = float(np.float32(1.1) + np.float32(1.1)), float(np.float32(1.1))
    logic = WindowReducer((SortKey("x"),), (OverFrame("n", Count(), Frame("range", -1.1, 0)),))
    result = applied(logic, key, val, Counter([(1, above), (1, at)]))
    assert result == Counter([(1, plain(above), 1), (1, plain(at), 2)])


def test_infinities_leave_frames_again() -> None:
    key, val = [never("g", pa.int64())], [never("i", pa.int64()), never("x", pa.float64())]
    rows: Rows = Counter([(1, 1, 1.0), (1, 2, math.inf), (1, 3, 5.0), (1, 4, 1.0)])
    logic = WindowReducer((SortKey("i"),), (OverFrame("w", Sum("x", pa.float64()), Frame("rows", -1, 0)),))
    expected = {1: 1.0, 2: math.inf, 3: math.inf, 4: 6.0}
    assert {row[1]: row[3] for row in applied(logic, key, val, rows)} == {at: plain(x) for at, x in expected.items()}
