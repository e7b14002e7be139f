"""The tables over which the functions of `functions/*.sql` are evaluated: nulls, extreme values, non-ASCII strings."""

from __future__ import annotations

import math
from decimal import Decimal
from typing import Any

import pyarrow as pa

ROWS = 21
DAY = 86_400_000_000
BERLIN = "Europe/Berlin"


def padded(values: list[Any], more: Any) -> list[Any]:
    """A value for each row: `values`, then `more(0)`, `more(1)` and so on."""
    return values + [more(number) for number in range(ROWS - len(values))]


INTS = [1, 2, None, 0, -1, 3, -3, 5, 2**31 - 1, -(2**31), 2, 1, 4, 2, 3, 1, -2, 0, 7, 100, 300]
TEXTS = [
    *(None, "", "a", "abc", "Hello World", "a.b.c.d", "  pad  ", "ÄÖÜ straße", "xxabcxx", "a,b;c,,d"),
    *("日本語テキスト", "😀a😀", "line\nbreak", "aaaa", "ab%_\\c", "ABC def GHI", "tab\there", "123", "end\n"),
    *("ΑΣ ΟΔΟΣ ǆ", "a\r\nb\r\n"),
]
DOUBLES = [
    *(0.0, -0.0, None, 1.005, 2.675, 1234567.891, -1234.5, 0.5, 1.5, 2.5, math.nan, math.inf, -math.inf),
    *(1e22, 1e-10, 123456789012345.6, -0.001, 99.995, 0.125, -0.375, -2.5),
]
CUBES = [None if n == 2 else Decimal(n * n * n * 7919) / 10000 * (-1) ** n for n in range(ROWS)]

STRINGS = pa.table(
    {
        "s": TEXTS,
        "t": [*"a", None, "", *"bo. ßx,本😀\n", "aa", *"%D\t2dΣb"],
        "i": pa.array(INTS, pa.int32()),
        "l": padded([65, None, 0, -1, 256, 97, 300, 233, 2**63 - 1, -(2**63)], lambda n: n),
        "b": padded([b"abc", None, b"", b"\x00\xff", b"hello world"], lambda n: b"x" * n),
        "a": padded([["a", "b"], None, [], [None], ["x", None, "y"]], lambda n: ["q"] * n),
        "d": DOUBLES,
        "dec": pa.array(CUBES, pa.decimal128(20, 4)),
    }
)

DAYS = [
    *(None, 0, -1, -719162, 2932896, 18321, 18687, -25567, 11016, 59, 60, 19782, 20000, 18628, 18627, 18992, -1),
    *(-366, 365, 10957, 24855),
]
MICROS = [
    *(None, 0, -1, -62135596800000000, 253402300799999999, 18321 * DAY + 12345678901, 1616893199999999),
    *(1616893200000000, 1635641999999999, 1635642000000000, 1635638400000000, 1635640200000000, 1635645600000000),
    *(-2208988800000000, -129600000000000, 951782400000000, 10**15, 4102444800000000, 1719792000123456, 10**14),
    1583020800000000,
]
"""They include instants around changes of the offset in Berlin."""

COUNTS = [1, 2, None, 0, -1, 3, -3, 5, 12, -12, 25, 31, 60, 24, 2000, 29, -2, 30, 7, 100, 300]
SECONDS = ["0.5", None, "-1.25", "59.999999", "60", "60.000001", "1583020800.123456", "61", "-1", "99999999.5"]
SPANS = [
    *(0, None, 1, -1, DAY, -DAY, DAY + 1, -DAY - 1, 36 * 3600 * 10**6, 3600 * 10**6, -3600 * 10**6, 90061001001),
    *(-90061001001, DAY * 30, DAY * 365, -DAY * 365, 1800 * 10**6, 86399999999, 5, 6, 2**62),
]
TIMES = pa.table(
    {
        "dt": pa.array(DAYS, pa.int32()).cast(pa.date32()),
        "dt2": pa.array(padded([1, None, 30, 5, 2932896, 18350, 18321, 0, 10957, 31], lambda n: 90 * n))
        .cast(pa.int32())
        .cast(pa.date32()),
        "ts": pa.array(MICROS, pa.timestamp("us", "UTC")),
        "ts2": pa.array(MICROS[::-1], pa.timestamp("us", "UTC")),
        "ntz": pa.array(MICROS, pa.timestamp("us")),
        "ntz2": pa.array(MICROS[::-1], pa.timestamp("us")),
        "i": pa.array(COUNTS, pa.int32()),
        "big": pa.array([2**31 - 1, -(2**31), *COUNTS[2:]], pa.int32()),
        "l": padded([1, 2, None, 0, -1, 1583020800, 2**63 - 1, -(2**63), 10**12, 10**10], lambda n: n - 5),
        "sp": pa.array(SPANS, pa.duration("us")),
        "d": padded([0.5, None, math.nan, math.inf, 1e30, -1.5, 1583020800.1234567], float),
        "dec": pa.array(padded([seconds and Decimal(seconds) for seconds in SECONDS], Decimal), pa.decimal128(16, 6)),
        "s": [
            *(None, "", "Mon", "TU", "wednesday", "month", "YEAR", "quarter", "week", "hour", "Asia/Tokyo", BERLIN),
            *("2020-02-29", "2020-02-30", "2020/02/29", "2020-02-29 10:11:12", "2020-02-29 10:11:12.123", "20200229"),
            *("UTC", "29.2.2020", "2020-02-29T10:11:12+02:00"),
        ],
        "w": padded(["Mon", "TU", "wednesday", "Sunday", "SAT", None], lambda n: "FR"),
        "z": padded(["Asia/Tokyo", BERLIN, "UTC", "+05:30", None, "America/New_York"], lambda n: BERLIN),
        "f": [
            *("month", "YEAR", "quarter", "week", "hour", "bad", None, "day", "minute", "second", "millisecond"),
            *("microsecond", "MM", "dd", "yy", "mon", "yyyy", "week", "DAY", "hour", "quarter"),
        ],
        "good": [None, "2020-02-29 10:11:12", "1999-12-31 23:59:59"]
        + ["2021-03-28 02:30:00", "2021-10-31 02:30:00", "0001-01-01 00:00:00"] * 6,
    }
)

ROUNDED = [0, 1, 15, 25, -15, 45, -45, 2, -1, 21, 20]
SMALL = ["0.05", "0.15", "0.25", "-0.05", "-0.15", "99.95", "99.99", "-99.99", "15", "25", "5", "-5", "-25", "45.5"]
NUMBERS = pa.table(
    {
        "d": DOUBLES,
        "f": pa.array(DOUBLES, pa.float32()),
        "x": padded([0.5, -0.5, None, math.nan, math.inf, -math.inf, 100.0, 27.0, 1e-3], lambda n: float(n - 4)),
        "dec": pa.array(CUBES, pa.decimal128(20, 4)),
        "dec2": pa.array(padded([None, *map(Decimal, SMALL)], Decimal), pa.decimal128(4, 2)),
        "dec3": pa.array(
            padded([Decimal("9" * 38), Decimal("-" + "9" * 38), None], lambda n: Decimal(n * 10**30 + 5)),
            pa.decimal128(38, 0),
        ),
        "i": pa.array(padded([2**31 - 1, -(2**31), None, *ROUNDED], lambda n: n), pa.int32()),
        "sh": pa.array(padded([2**15 - 1, -(2**15), None, *ROUNDED], lambda n: n), pa.int16()),
        "l": padded([2**63 - 1, -(2**63), None, *ROUNDED], lambda n: n),
        "bo": padded([None, True], lambda n: n % 2 == 0),
        "s": [
            *(
                None,
                "",
                "10",
                "ff",
                "FF",
                "-10",
                "zz",
                "100000000000000000000",
                "-15",
                " 12 ",
                "1.5",
                "7fffffffffffffff",
            ),
            *(
                "ffffffffffffffff",
                "10000000000000000",
                "g",
                "18446744073709551615",
                "18446744073709551616",
                "-ff",
                "+5",
            ),
            *("0", "-1"),
        ],
        "w": padded([None, "", "日本語", "é", "ü" * 20], lambda n: "abcdefgh"[: n % 9] + "z" * n * 4),
        "b": padded([None, b""], lambda n: b"\xff\x80" * n),
        "dt": TIMES["dt"],
        "ts": TIMES["ts"],
        "sp": TIMES["sp"],
        "a": pa.array(padded([[1, 2], None, [], [None], [3, None]], lambda n: list(range(n))), pa.list_(pa.int32())),
        "st": pa.array(
            [None if n == 3 else {"p": n, "q": None if n == 4 else str(n)} for n in range(ROWS)],
            pa.struct([("p", pa.int64()), ("q", pa.string())]),
        ),
    }
)

INTEGERS = pa.list_(pa.int32())
NESTED = pa.table(
    {
        "a": pa.array(
            padded([[1, 2], None, [], [None], [3, None, 4], [5, 5, 1], [2, 1, None, 2]], lambda n: [*range(n)]),
            INTEGERS,
        ),
        "a2": pa.array(padded([[9], [1], None, [7], [], [5, None], [2, 2]], lambda n: [n]), INTEGERS),
        "sa": padded([["b", "a"], None, [], [None], ["x", None, "y"], ["é", "日本", "z"], [""]], lambda n: ["k"] * n),
        "da": padded(
            [[1.0, math.nan, -0.0, 0.0], None, [], [None], [math.inf, math.nan, None]], lambda n: [-n / 2, n / 2]
        ),
        "ll": pa.array(
            padded([[[1], [2, 3]], None, [], [None], [[1], None], [[], [None]]], lambda n: [[n], [n, n]]),
            pa.list_(INTEGERS),
        ),
        "st": pa.array(
            [None if n == 3 else {"p": None if n == 5 else n, "q": None if n == 4 else str(n)} for n in range(ROWS)],
            pa.struct([("p", pa.int64()), ("q", pa.string())]),
        ),
        "sta": pa.array(
            [None if n == 3 else [{"p": n}, None, {"p": None}][: n % 4] for n in range(ROWS)],
            pa.list_(pa.struct([("p", pa.int32())])),
        ),
        "m": pa.array(
            padded([[("a", 1), ("b", None)], None, [], [("c", 3)]], lambda n: [("a", n), ("b", n + 1), (str(n), n)]),
            pa.map_(pa.string(), pa.int32()),
        ),
        "m2": pa.array(
            padded([[("c", 1)], [("a", 1)], None, [("c", None)]], lambda n: [("k", n), (str(n + 1), None)]),
            pa.map_(pa.string(), pa.int32()),
        ),
        "sta2": pa.array(
            [None if n == 3 else [{"p": 1, "q": "x"}, {"p": n, "q": None}, None][: n % 4] for n in range(ROWS)],
            pa.list_(pa.struct([("p", pa.int32()), ("q", pa.string())])),
        ),
        "i": pa.array([1, 2, None, 0, -1, 3, -3, 5, 1, 2, 2, 1, 4, 2, 3, 1, -2, 0, 7, 10, 30], pa.int32()),
        "j": pa.array([1, None, 3, 0, 1, -3, 3, 2, 2, 2, 2, 1, 0, 5, 3, 1, 2, 1, 7, 1, 3], pa.int32()),
        "l": list(range(ROWS)),
        "s": padded(["a", None, "b", "c", "x", "日本", ""], lambda n: ["k", "a", "b", "zz", "5"][n % 5]),
    }
)

TEXTS_OF_JSON = [
    *(None, "", " ", "null", '{"x":1,"y":"q"}', '{"x": "bad", "y": [1, 2]}', '{"y":{"z": 1.50, "w": [true]}}', "nope"),
    *("[1, 2]", '{"x":2147483648}', '{"x":null,"y":null}', '{"x":1.25e1}', '{"x":1', "{'x':3}", '{"x":true} trailing'),
    *('{"x":"2020-02-29","y":"2020-02-29 10:11:12.5"}', '{"x":123.456,"y":[{"z":1},{"z":"a"},null]}', "{}", "[]"),
    *('[{"x":1},{"x":"2"}]', '{"x":"\\u00e9\\n\\"","y":"日本"}'),
]
JSON = pa.table(
    {
        "js": TEXTS_OF_JSON,
        "i": NUMBERS["i"],
        "s": STRINGS["s"],
        "d": NUMBERS["d"],
        "f": pa.array([0.5, None, math.nan, math.inf, 1e20] * 4 + [1.1], pa.float32()),
        "bo": NUMBERS["bo"],
        "dec": NUMBERS["dec"],
        "dt": TIMES["dt"],
        "ts": TIMES["ts"],
        "ntz": TIMES["ntz"],
        "a": NESTED["a"],
        "m": NESTED["m"],
        "b": STRINGS["b"],
    }
)
