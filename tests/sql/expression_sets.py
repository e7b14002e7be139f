"""Sets of expressions that are compared with Spark: literals, operators, casts, and the functions of `functions/*.sql`.

Each set is evaluated over one small table, in a time zone, with and without ANSI mode. Exponentials and similar
functions, whose last digit may differ, are rounded.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa

from tests.sql import extremes, function_tables

NUMBERS = "bhilfd"
DECIMALS = "cpgwkzq"
ORDERED = (*NUMBERS, *"cpwkztsx", "dt", "ts", "tn", "iv")


LITERALS = [
    *("1Y", "-128Y", "1S", "1", "-2147483648", "9223372036854775807L", "1.5", "-0.0000001", "true", "false", "null"),
    *("12345678901234567890123456789012345678", "1.0e10d", "double('NaN')", "double('-Infinity')", "-0.0d", "1e-5f"),
    *("'x''y'", "''", "'日本'", "date'2020-02-29'", "date'0001-01-01'", "date'12020-01-31'", "date'-0100-01-31'"),
    *("timestamp'2020-06-01 12:34:56.789'", "timestamp'12020-01-31 10:11:12'", "timestamp'-0100-01-31 10:11:12'"),
    *("timestamp_ntz'2020-06-01 12:34:56.789'", "timestamp_ntz'12020-01-31 10:11:12'", "interval '-3' hour"),
    *("interval '1 02:03:04.5' day to second", "interval '1-2' year to month", "interval '-5' month"),
    *(f"cast(null as {kind})" for kind in ("int", "string", "decimal(10,2)", "date", "timestamp", "array<int>")),
]


def comparisons() -> Iterator[str]:
    for name in ORDERED:
        for operator in ("=", "<=>", "<", "<=", ">", ">=", "!="):
            yield f"{name} {operator} {name}2"
        yield from (f"{name} is null", f"{name} is not null", f"{name} in ({name}2, {name})", f"{name} <=> null")
    yield from ("a = a2", "a <=> a2", "a != a2", "r = r2", "r <=> r2", "c = p", "c < w", "l = i", "i = l2", "p >= 5")
    yield from ("i in (1, 2, null)", "i in (1, 7)", "i not in (1, null)", "nn in (1, 2)", "i between 0 and 7")
    yield from ("d in (1.0d, double('nan'))", "f in (float(1.5), float('nan'), null)", "c in (0.01, 5.00)")
    yield from (
        "s in ('a', '日本')",
        "s in ('a', null)",
        "s > 'a'",
        "t in (true)",
        "ts = timestamp'2020-01-01 00:00:00'",
    )
    yield from ("dt in (date'1970-01-01', date'2020-01-01')", "i in (1, i2 + 1)", "0.0d = d", "d = double('nan')")
    yield from (f"d {operator} double('nan')" for operator in ("<", "<=", ">", ">=", "<=>"))
    yield from ("isnan(d)", "isnan(f)", "t and t2", "t or t2", "not t", "t and i > 0", "i > 0 or t", "c > 0.001")


def arithmetic() -> Iterator[str]:
    for name in NUMBERS:
        yield from (f"{name} {operator} {name}2" for operator in "+-*/%")
        yield from (f"pmod({name}, {name}2)", f"-{name}", f"+{name}", f"abs({name})")
        yield from (f"greatest({name}, {name}2)", f"least({name}, {name}2, {name})")
    for name in "bil":
        yield from (f"{name} {operator} {name}2" for operator in ("div", "&", "|", "^"))
        yield f"~{name}"
    for name in "il":
        yield from (f"{shift}({name}, i2)" for shift in ("shiftleft", "shiftright", "shiftrightunsigned"))
    months = "make_ym_interval(b, i2 % 12)"
    for number in ("b2", "i2", "l2", "c2", "w2", "d2", "f2"):
        yield from (f"iv * {number}", f"iv / {number}", f"{months} * {number}", f"{months} / {number}")
    yield from (f"{months} + {months}", f"-{months}", f"abs({months})", "cast(i as interval month)", "iv * 0.5d")
    yield from ("iv + iv2", "iv - iv2", "-iv", "abs(iv)", "iv div iv2", "greatest(s, s2)", "least(dt, dt2)")
    yield from (
        "l + i",
        "i + b",
        "d + i",
        "f * d",
        "p + i",
        "1 - c",
        "c * 2",
        "p * (1 - c) * (1 + c)",
        "c / 3",
        "p % 7",
    )


def decimals() -> Iterator[str]:
    for one in DECIMALS:
        for other in DECIMALS:
            if one <= other:
                yield from (f"{one} {operator} {other}2" for operator in ("+", "-", "*", "/", "%", "div"))
                yield f"pmod({one}, {other}2)"
        yield from (f"-{one}", f"abs({one})", f"greatest({one}, {one}2)", f"least({one}, {one}2)")


CONDITIONS = [
    *("if(t, i, i2)", "if(i > 0, 'x', s)", "case when i > 0 then 1 when i < 0 then -1 end", "nanvl(d, d2)"),
    *("case when t then p when t2 then p2 else 0 end", "case i when 1 then 'one' when 2 then 'two' else s end"),
    *("coalesce(i, i2, 5)", "coalesce(s, 'x')", "nvl2(i, s, s2)", "nullif(i, i2)", "ifnull(d, d2)", "coalesce(a, a2)"),
    *("case when i2 != 0 then i / i2 end", "case when i2 = 0 then 0 else i % i2 end", "if(i > 100, 0, i + 1)"),
    *("coalesce(i, i2 + 1)", "i2 != 0 and i / i2 > 1", "i2 = 0 or i div i2 > 1", "coalesce(i, cast(n as int), 3)"),
    *("case when b < 100 then cast(b + 1 as tinyint) when h > 0 then 2Y else cast(n as tinyint) end", "nanvl(f, f2)"),
    *("nanvl(d, 1 / d2)", "if(t, a, a2)", "if(t, r, r2)", "case when t then x when t2 then x2 end", "if(t, ts, ts2)"),
    *("if(t, dt, date'2020-01-01')", "if(t, iv, iv2)", "case when i is null then null when i = 0 then 'z' end"),
    *("coalesce(null, i)", "case when t then null else c end", "i = 1 and t or s = 'a' and t2", "if(t, c, c2) * 2"),
]


WHOLE = ("tinyint", "smallint", "int", "bigint")
DECIMAL = ("decimal(5,2)", "decimal(38,10)", "decimal(38,38)", "decimal(38,0)", "decimal(3,0)", "decimal(20,8)")
NUMERIC = (*WHOLE, "float", "double", *DECIMAL)
TEMPORAL = ("date", "timestamp", "timestamp_ntz")


def casts(ansi: bool) -> Iterator[str]:
    targets = {
        **dict.fromkeys([*NUMBERS, *DECIMALS], (*NUMERIC, "boolean", "string", "timestamp")),
        "t": (*NUMERIC, "string"),
        "s": ("binary", "int", "boolean", "date"),
        "n": (*NUMERIC, "boolean"),
        "truth": ("boolean",),
        "day": TEMPORAL,
        "moment": TEMPORAL,
        "x": ("string",),
        "dt": ("string", "timestamp", "timestamp_ntz"),
        "tn": ("string", "date", "timestamp"),
        "ts": (*NUMERIC, "string", "date", "timestamp_ntz"),
    }
    yield from (f"cast({name} as {kind})" for name, kinds in targets.items() for kind in kinds)
    yield from (f"cast(a as array<{kind}>)" for kind in ("string", "bigint", "tinyint", "decimal(5,2)"))
    yield from ("cast(array(n, n2) as array<int>)", "cast(r as struct<x: string, y: string>)", "if(t, a, array(l))")
    yield from ("cast(r as struct<z: tinyint, w: int>)", "cast(array(r, r2) as array<struct<x: double, y: binary>>)")
    if not ansi:
        yield from (f"cast({name} as binary)" for name in "bhil")
        yield from ("cast(t as timestamp)", "cast(ts as boolean)", "cast(dt as int)", "cast(dt as decimal(5,2))")


@dataclass(frozen=True)
class ExpressionSet:
    """Expressions, and the table over which they are evaluated."""

    table: pa.Table
    zone: str
    texts: Callable[[bool], list[str]]
    """The expressions, with or without ANSI mode."""

    are_functions: bool = False
    """Whether their nullability is compared as well, over columns that are not null."""

    modes: tuple[bool, ...] = (True, False)
    """With and without ANSI mode."""

    def not_null(self) -> pa.Table:
        """A row of the table whose columns are declared not null."""
        columns = {name: self.table[name].drop_null().slice(0, 1) for name in self.table.column_names}
        schema = pa.schema([pa.field(field.name, field.type, False) for field in self.table.schema])
        return pa.table(columns).cast(schema)


def _over_extremes(texts: Callable[[bool], Iterator[str] | list[str]], zone: str = "UTC") -> ExpressionSet:
    return ExpressionSet(extremes.table(), zone, lambda ansi: list(texts(ansi)))


def _literals(zone: str, texts: list[str]) -> ExpressionSet:
    return ExpressionSet(extremes.table(), zone, lambda _: texts, modes=(True,))


def _functions(name: str, table: pa.Table, zone: str = "UTC") -> ExpressionSet:
    lines = (Path(__file__).parent / "functions" / f"{name}.sql").read_text().splitlines()
    return ExpressionSet(table, zone, lambda _: lines, are_functions=True)


def _casts_of_times(_: bool) -> list[str]:
    texts = [f"cast({name} as {kind})" for name in ("moment", "dt", "tn") for kind in ("timestamp", "string")]
    return [*texts, *(f"cast(ts as {kind})" for kind in ("string", "date", "timestamp_ntz"))]


_NEW_YORK, _BERLIN = "America/New_York", function_tables.BERLIN

SETS = {
    "literals": _literals("UTC", LITERALS),
    "literals_in_new_york": _literals(_NEW_YORK, [literal for literal in LITERALS if "timestamp" in literal]),
    "comparisons": _over_extremes(lambda _: comparisons()),
    "arithmetic": _over_extremes(lambda _: arithmetic()),
    "decimals": _over_extremes(lambda _: decimals()),
    "conditions": _over_extremes(lambda _: CONDITIONS),
    "casts": _over_extremes(casts),
    "casts_in_new_york": _over_extremes(_casts_of_times, _NEW_YORK),
    "strings": _functions("strings", function_tables.STRINGS),
    "codes": _functions("codes", function_tables.STRINGS),
    "dates": _functions("dates", function_tables.TIMES),
    "times": _functions("times", function_tables.TIMES, _BERLIN),
    "formats": _functions("formats", function_tables.TIMES, _BERLIN),
    "maths": _functions("maths", function_tables.NUMBERS),
    "floats": _functions("floats", function_tables.NUMBERS),
    "hashes": _functions("hashes", function_tables.NUMBERS),
    "nested": _functions("nested", function_tables.NESTED),
    "maps": _functions("maps", function_tables.NESTED),
    "json": _functions("json", function_tables.JSON, _BERLIN),
    "tries": _functions("tries", extremes.table()),
}

RUNS = [(name, ansi) for name, expressions in SETS.items() for ansi in expressions.modes]
"""All sets, with and without ANSI mode."""

RUN_IDS = [f"{name}-{'ansi' if ansi else 'not-ansi'}" for name, ansi in RUNS]
