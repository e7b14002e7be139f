"""A small table with columns of all types, and in them nulls and whatever is on the verge of something.

Columns come in pairs, `i` and `i2`, so that over the rows many values of the one meet many of the other.
"""

from __future__ import annotations

from collections.abc import Sequence
from decimal import Decimal
from typing import Any

import pyarrow as pa

ROWS = 56

_INF, _NAN = float("inf"), float("nan")


def _whole(bits: int) -> list[int | None]:
    most = 2 ** (bits - 1) - 1
    return [0, 1, -1, None, most, -most - 1, 7, -7, most - 1, 2, -3, 100]


def _decimals(precision: int, scale: int) -> list[Decimal | None]:
    most = 10**precision - 1
    units = [0, 1, -1, None, most, -most, 5 * 10**scale, -5, 15, 10**scale, most // 2, -(10 ** (precision - 1)), 3, 125]
    return [None if unit is None else _decimal(unit if abs(unit) <= most else unit % 7, scale) for unit in units]


def _decimal(units: int, scale: int) -> Decimal:
    return Decimal((int(units < 0), tuple(map(int, str(abs(units)))), -scale))


_REALS = [
    *(0.0, -0.0, 1.0, None, _NAN, _INF, -_INF, 1.5, -2.5, 0.1, 1e7, 1e-3, 9.99e-4, 1.234e-5, 12345678.9, 123456.789),
    *(1e22, -1e300, 1e-310, 2147483647.0, -2147483648.9, 9.223372036854776e18, 127.9, -128.9, 0.125, 1e15, 3.0),
]
# Those that all versions of Java print alike.
_FLOATS = [number for number in _REALS if number not in (2147483647.0, -2147483648.9, 1e15)]
_WORDS = ["", "a", "b", None, "A", "ab", "aé", "é", "z", "日本", "𝄞", "\ue000", " a", "a ", "b", "a"]
_NUMERALS = [
    *("0", "1", "-1", None, "+7", " 12 ", "1.5", "-1.5", "1.", ".5", ".", "-.", "", " ", "abc", "1e3", "1E-2", "127"),
    *("128", "-128", "-129", "2147483647", "2147483648", "9223372036854775807", "9223372036854775808", "00012", "1 2"),
    *("-9223372036854775808", "99999999999999999999", "0.005", "0.0049", "-0.005", "12345.675", "NaN", "inf", "-Inf"),
    *(
        "Infinity",
        "+infinity",
        "1d",
        "2.5f",
        "0x1p3",
        "1e400",
        "1e-400",
        "\t5\n",
        "5\x7f",
        "1e40",
        "1e38",
        "1e-40",
        "--1",
    ),
    *("123456789012345678.125", "3.4028236e38", "1.17549435e-38", "true", "0E-3"),
]
_TRUTHS = ["t", "TRUE", "y", "Yes", "1", "f", "false", "N", "no", "0", None, "", "2", " true ", "tru", "on"]
_DATES = [
    *("2020-01-31", "2020-1-3", "2020", "2020-02", "2020-02-30", "2019-02-29", "2020-02-29", None, "", " 2020-05-06 "),
    *("2020-05-06 10:11", "2020-05-06Tx", "2020-05-06x", "20200506", "99999-01-01", "-0001-01-01", "+2020-01-02"),
    *(
        "0000-01-01",
        "9999-12-31",
        "9999999-01-01",
        "202-01-01",
        "2020-13-01",
        "2020-00-01",
        "2020-01-00",
        "2020-1-",
        "-",
    ),
    *("2020-01 ", "2020-01-01 ", "1582-10-10", "5881580-07-11", "5881580-07-12", "2020-001-01", "abc", "2020/01/01"),
]
_TIMES = [
    *("2020-01-31 10:11:12", "2020-01-31T10:11:12.5", "2020-01-31 10:11:12.123456789", "2020-01-31 1:2:3", None, ""),
    *("2020-01-31 10", "2020-01-31 10:11", "2020", "2020-02", "2020-02-03", "2020-01-31T", "2020-01-31 24:00:00"),
    *("2020-01-31 10:60:00", "2020-01-31 10:11:12Z", "2020-01-31 10:11:12+01:00", "2020-01-31 10:11:12 UTC"),
    *("2020-01-31 10:11:12.", "2020-01-31 10:11:12.1 Europe/Paris", "2020-01-31 10:11:12-8:30", "2020-02-30 00:00:00"),
    *("2020-03-08 02:30:00", "2020-11-01 01:30:00", "1883-11-18 12:01:00", "2020-01-31 10:11:12 Nowhere/City"),
    *("2020-01-31 10:11:12PST", "2020-01-31 10:11:12GMT+2", "2020-01-31 10:11:12+0130", "2020-01-31 10:11:12 EST"),
    *("12020-01-31 10:11:12", "-0100-01-31 10:11:12", " 2020-01-31 10:11:12 ", "294247-01-10 04:00:54.775807", "x"),
    *("294247-01-11 04:00:54", "999999-01-01 00:00:00", "2020-01-31 10:11Z", "2020-01-31 10:11:12+19:00", "20-01-31"),
    *("2020-01-31 10:11:12.1.2", "2020-01-31 10:11:12+01:30:15", "0001-01-01 00:00:00", "2020-01-31 10:11:12z"),
]
_DAYS = [0, 1, -1, None, 18262, -719162, 2932896, 2932897, -719528, -719529, 18628, 59, 18321, -141428]
_MICROS = [
    *(0, 1, -1, None, 1577836800000000, 1583634600000000, 1583650800000000, 1604208600000000, 1604212200000000),
    *(
        -2717650800000000,
        253402300799999999,
        253402300800000000,
        -62135596800000000,
        1580465472123400,
        1600000000000000,
    ),
]
_SPANS = [0, 1, -1, None, 86_400_000_000, -3_600_000_000, 2**63 - 1, -(2**63), 90_061_000_001]
_BYTES = [b"", b"a", b"ab", None, b"\x00", b"\x7f\x01", b"b", "é".encode()]
_LISTS = [[1, 2], [], None, [1, None], [1, None], [2], [1, 2, 3]]
_STRUCTS = [{"x": 1, "y": "a"}, {"x": 1, "y": None}, None, {"x": None, "y": None}, {"x": 2, "y": "a"}]


def _column(values: Sequence[Any], kind: pa.DataType, shift: int) -> pa.Array:
    """Values again and again; the second of a pair goes through them at another pace."""
    steps = (row // len(values) + row * 5 + 2 if shift else row for row in range(ROWS))
    return pa.array([values[step % len(values)] for step in steps], kind)


_PAIRS: dict[str, tuple[Sequence[Any], pa.DataType]] = {
    "b": (_whole(8), pa.int8()),
    "h": (_whole(16), pa.int16()),
    "i": (_whole(32), pa.int32()),
    "l": (_whole(64), pa.int64()),
    "f": (_FLOATS, pa.float32()),
    "d": (_REALS, pa.float64()),
    "c": (_decimals(5, 2), pa.decimal128(5, 2)),
    "p": (_decimals(15, 2), pa.decimal128(15, 2)),
    "g": (_decimals(18, 0), pa.decimal128(18, 0)),
    "w": (_decimals(38, 10), pa.decimal128(38, 10)),
    "k": (_decimals(38, 0), pa.decimal128(38, 0)),
    "z": (_decimals(38, 38), pa.decimal128(38, 38)),
    "q": (_decimals(20, 8), pa.decimal128(20, 8)),
    "t": ([True, False, None], pa.bool_()),
    "s": (_WORDS, pa.string()),
    "n": (_NUMERALS, pa.string()),
    "truth": (_TRUTHS, pa.string()),
    "day": (_DATES, pa.string()),
    "moment": (_TIMES, pa.string()),
    "dt": (_DAYS, pa.date32()),
    "ts": (_MICROS, pa.timestamp("us", "UTC")),
    "tn": (_MICROS, pa.timestamp("us")),
    "iv": (_SPANS, pa.duration("us")),
    "x": (_BYTES, pa.binary()),
    "a": (_LISTS, pa.list_(pa.field("element", pa.int32()))),
    "r": (_STRUCTS, pa.struct({"x": pa.int32(), "y": pa.string()})),
}


def table() -> pa.Table:
    """The table: a pair of columns for each type, a column of nulls, and one that is never null."""
    columns = {
        f"{name}{suffix}": _column(values, kind, shift)
        for name, (values, kind) in _PAIRS.items()
        for shift, suffix in enumerate(("", "2"))
    }
    fields = [pa.field(name, column.type) for name, column in columns.items()]
    row = pa.array(range(ROWS), pa.int32())
    return pa.table([*columns.values(), row], schema=pa.schema([*fields, pa.field("nn", pa.int32(), nullable=False)]))
