"""A grammar of SQL: random queries over given tables that Spark accepts, whose answers are determined.

Every sub-query names its columns c0, c1, ... and every relation has an alias of its own, so that all names are plain.
A column has a kind: one of those that tables have, "inexact" for floating-point results that may differ in the last
digit, or "array". The latter two are only shown, never compared, grouped or sorted by.

What would not be determined is left out: rows under LIMIT, row numbers and frames of rows are sorted by all columns of
their input. What would fail is left out too: no divisor is zero, factors are literals, texts are not read as numbers.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from tests.sql.random_tables import DATES, LIKELY, STRINGS, TYPES, Table


class Ref(NamedTuple):
    """A column that an expression may use."""

    text: str
    kind: str


@dataclass(frozen=True)
class Query:
    """A query, and the kinds of its columns, which are called c0, c1, ..."""

    text: str
    kinds: tuple[str, ...]


KINDS = tuple(TYPES)
NUMBERS = ("int", "bigint", "decimal", "double")
OPERATORS = ("=", "<", ">", "<=", ">=", "<>", "<=>")
SHOWN = ("inexact", "array")

INT = ["({int} + {int})", "({int} - {int})", "({int} * {n})", "length({string})", "year({date})", "month({date})"]
INT += ["datediff({date}, {date})", "cast({boolean} as int)", "abs({int})", "sign({int})::int", "hour({timestamp})"]
INT += ["pmod({int}, {p})", "({int} % nullif({int}, 0))", "instr({string}, {string})", "dayofweek({date})", "-{int}"]
INT += ["cast({decimal} as int)", "day({date})", "quarter({date})", "ascii({string})"]
BIGINT = ["({bigint} + {int})", "({bigint} - {bigint})", "cast({int} as bigint)", "({int} div nullif({int}, 0))"]
BIGINT += ["abs({bigint})", "cast(floor({decimal}) as bigint)", "ceil({double})"]
DECIMAL = ["({decimal} + {decimal})", "({decimal} - {decimal})", "({decimal} * {d})", "cast({int} as decimal(8, 2))"]
DECIMAL += ["round({decimal}, 1)", "abs({decimal})", "({decimal} / nullif({decimal}, 0))", "-{decimal}"]
DECIMAL += ["({decimal} * {decimal})", "({decimal} % nullif({decimal}, 0))", "cast({bigint} as decimal(20, 0))"]
STRING = [
    "upper({string})",
    "lower({string})",
    "concat({string}, {string})",
    "({string} || {string})",
    "trim({string})",
]
STRING += ["substring({string}, {p}, 2)", "replace({string}, 'a', 'z')", "cast({int} as string)", "left({string}, 1)"]
STRING += [
    "cast({date} as string)",
    "lpad({string}, 4, '*')",
    "reverse({string})",
    "concat_ws('-', {string}, {string})",
]
STRING += [
    "cast({decimal} as string)",
    "cast({boolean} as string)",
    "date_format({date}, 'yyyy-MM')",
    "initcap({string})",
]
STRING += [
    "right({string}, 2)",
    "repeat({string}, 2)",
    "translate({string}, 'ab', 'ba')",
    "regexp_replace({string}, '[ab]+', '.')",
]
DATE = ["date_add({date}, {n})", "date_sub({date}, {int})", "({date} + interval '1' month)", "last_day({date})"]
DATE += ["add_months({date}, {n})", "trunc({date}, 'MM')", "cast({timestamp} as date)", "({date} - interval '1' day)"]
TIMESTAMP = ["({timestamp} + interval '1' hour)", "date_trunc('HOUR', {timestamp})", "cast({date} as timestamp)"]
DOUBLE = ["({double} + {double})", "({double} - {double})", "({double} * {n})", "cast({int} as double)"]
DOUBLE += ["({int} / nullif({int}, 0))", "abs({double})", "cast({decimal} as double)"]
FORMS = {"int": INT, "bigint": BIGINT, "decimal": DECIMAL, "string": STRING, "date": DATE, "timestamp": TIMESTAMP}
FORMS |= {"double": DOUBLE}
"""Expressions of each kind; {kind} stands for another expression, {n}, {p} and {d} for small numbers."""

ANY = ["case when {boolean} then {x} else {x} end", "coalesce({x}, {x})", "nullif({x}, {x})", "if({boolean}, {x}, {x})"]
ANY += ["case when {boolean} then {x} when {boolean} then {x} end", "greatest({x}, {x})", "least({x}, {x})"]
ANY += ["nvl2({x}, {x}, {x})"]

PREDICATES = [
    "{x} is null",
    "{x} is not null",
    "not ({boolean})",
    "({boolean} and {boolean})",
    "({boolean} or {boolean})",
]
PREDICATES += [
    "{string} like {pattern}",
    "{string} not like {pattern}",
    "{x} in ({literals})",
    "{x} not in ({literals})",
]
PREDICATES += [
    "{x} between {x} and {x}",
    "({boolean}) is true",
    "({boolean}) is not false",
    "startswith({string}, 'a')",
]
PREDICATES += ["{string} rlike '^a.*b?$'", "{int} < {decimal}", "{bigint} >= {int}", "contains({string}, 'b')"]
PREDICATES += ["{date} <= {timestamp}", "(({boolean}) is null)"]

FRAMES = ("rows between 1 preceding and current row", "rows between unbounded preceding and current row")
FRAMES += ("rows between 1 preceding and 1 following", "rows between current row and unbounded following")
FRAMES += ("rows between 2 preceding and 1 preceding", "rows between unbounded preceding and unbounded following")


WHOLE = "rows between unbounded preceding and unbounded following"
"""A frame in which rows that are equal have equal values, whatever other windows of the query order them by."""

RANGES = ("range between {one} preceding and {two} following", "range between {one} preceding and current row")
RANGES += ("range between current row and {one} following", "range between unbounded preceding and {one} preceding")
RANGES += (
    "range between {one} following and unbounded following",
    "range between unbounded preceding and {two} following",
)
OFFSETS = {
    "int": [["1", "2"]],
    "bigint": [["1", "3000000000"]],
    "decimal": [["0.25", "1.5", "0.005"]],
    "double": [["0.25", "1.1", "0.5"]],
    "date": [["1", "30"], ["interval 1 day", "interval 31 days"], ["interval 1 month", "interval 2 month"]],
    "timestamp": [["interval 50 minutes", "interval 100 minutes"], ["interval 1 month", "interval 2 month"]],
}
"""How far frames may be off, by kind: both bounds are of one list."""


MAY_FAIL = "/* may fail */ "
"""How queries begin that fail in Spark exactly when they must fail here."""

FAILING = (
    f"{MAY_FAIL}select {{k}}, 10 / {{v}} as q from {{t}}",
    f"{MAY_FAIL}select count(*) as n from {{t}} where 10 div {{v}} > 1",
    f"{MAY_FAIL}select 10 div {{v}} as g, count(*) as n from {{t}} group by 1",
    f"{MAY_FAIL}select sum(10 div {{v}}) as s, max({{k}}) as m from {{t}}",
    f"{MAY_FAIL}select a.{{k}}, 10 div a.{{v}} as q from {{t}} a join {{t}} b on a.{{k}} = b.{{k}}",
)


class Grammar:
    """Makes queries over some tables."""

    def __init__(self, r: random.Random, tables: Sequence[Table]) -> None:
        self._r, self._tables = r, tables
        self._aliases = 0

    def query(self, depth: int = 2) -> str:
        """The text of a query, with so many levels below the first."""
        if self._chance(0.05):
            return self._failing()
        return self._wide().text if self._chance(0.03) else self._any(depth).text

    # Queries.

    def _any(self, depth: int) -> Query:
        forms: list[tuple[Callable[[int], Query], int]] = [(self._select, 5), (self._grouped, 5), (self._plain, 2)]
        if depth:
            forms += [(self._set_operation, 3), (self._sorted, 2), (self._windowed, 3), (self._with, 2)]
            forms += [(self._sets_of_groups, 2), (self._distinct, 1), (self._union_of_any, 1)]
        return self._pick_of(forms)(depth)

    def _failing(self) -> str:
        """A query that has no answer while a number is zero."""
        table = self._r.choice(self._tables)
        numbers = [column.name for column in table.columns if column.kind in ("int", "bigint")]
        return self._r.choice(FAILING).format(t=table.name, k=table.columns[0].name, v=self._r.choice(numbers))

    def _wide(self) -> Query:
        """Many subqueries over one table, or a table joined with itself many times."""
        table, width = self._tables[0], self._r.randint(4, 9)
        key = table.columns[0].name
        if self._chance(0.5):
            columns = [self._r.choice(table.columns) for _ in range(width)]
            numbers = [f"(select count(distinct {column.name}) from {table.name})" for column in columns]
            others = [f"(select max({column.name}) from {table.name})" for column in columns]
            shown = [(f"t.{key}", "int"), *((text, "bigint") for text in numbers[::2])]
            shown += [(text, column.kind) for text, column in zip(others[1::2], columns[1::2], strict=True)]
            return self._made(shown, f"from {table.name} t")
        aliases = [self._alias() for _ in range(width)]
        joins = [f"join {table.name} {alias} on {alias}.{key} = {aliases[0]}.{key}" for alias in aliases[1:]]
        refs = [Ref(f"{alias}.{self._r.choice(table.columns).name}", "") for alias in aliases]
        kinds = {column.name: column.kind for column in table.columns}
        return self._made(
            [(ref.text, kinds[ref.text.split(".")[1]]) for ref in refs],
            f"from {table.name} {aliases[0]} {' '.join(joins)}",
        )

    def _select(self, depth: int) -> Query:
        return self._selecting(depth, [self._kind() for _ in range(self._r.randint(1, 4))])

    def _plain(self, depth: int) -> Query:
        """All columns of what is joined, as they are."""
        source, scope = self._source(depth)
        kept = self._r.sample(scope, min(len(scope), self._r.randint(1, 5)))
        return self._made([(ref.text, ref.kind) for ref in kept], f"from {source}{self._where(scope, depth)}")

    def _selecting(self, depth: int, kinds: Sequence[str], distinct: str = "") -> Query:
        source, scope = self._source(depth)
        items = [(self._expression(kind, scope, 2), kind) for kind in kinds]
        if depth and self._chance(0.15):
            items.append((self._scalar(scope, depth - 1), "int"))
        return self._made(items, f"from {source}{self._where(scope, depth)}", distinct)

    def _distinct(self, depth: int) -> Query:
        return self._selecting(depth, [self._kind() for _ in range(self._r.randint(1, 2))], "distinct ")

    def _grouped(self, depth: int) -> Query:
        source, scope = self._source(depth)
        keys = self._keys(scope, self._r.randint(0, 2))
        shown = [(key.text, key.kind) for key in keys]
        shown += [self._aggregate(scope) for _ in range(self._r.randint(1, 3))]
        having = f" having {self._having(scope)}" if self._chance(0.3) else ""
        group = f" group by {', '.join(key.text for key in keys)}" if keys else ""
        return self._made(shown, f"from {source}{self._where(scope, depth)}{group}{having}")

    def _sets_of_groups(self, depth: int) -> Query:
        source, scope = self._source(depth)
        keys = self._r.sample(_exact(scope), min(2, len(_exact(scope)))) or [Ref("1", "int")]
        names = ", ".join(key.text for key in keys)
        sets = ", ".join([f"({names})", *(f"({key.text})" for key in keys[1:]), "()"])
        group = self._r.choice([f"rollup({names})", f"cube({names})", f"grouping sets ({sets})"])
        shown = [(key.text, key.kind) for key in keys]
        shown += [self._aggregate(scope) for _ in range(self._r.randint(1, 2))]
        if self._chance(0.5):
            shown.append((f"cast(grouping({keys[0].text}) as int)", "int"))
        return self._made(shown, f"from {source}{self._where(scope, depth)} group by {group}")

    def _set_operation(self, depth: int) -> Query:
        kinds = [self._kind() for _ in range(self._r.randint(1, 3))]
        operator = self._r.choice(["union all", "union", "intersect", "except", "intersect all", "except all"])
        left, right = (self._selecting(depth - 1, kinds) for _ in range(2))
        shared = min(len(left.kinds), len(right.kinds))
        left, right = self._first(left, shared), self._first(right, shared)
        return Query(f"{left.text} {operator} {right.text}", left.kinds)

    def _first(self, query: Query, count: int) -> Query:
        """Only the first columns."""
        alias = self._alias()
        shown = ", ".join(f"{alias}.c{at}" for at in range(count))
        return Query(f"select {shown} from ({query.text}) {alias}", query.kinds[:count])

    def _union_of_any(self, depth: int) -> Query:
        """Both halves are the same query, over what may differ."""
        part = self._any(depth - 1)
        return Query(f"(select * from ({part.text})) union all (select * from ({part.text}))", part.kinds)

    def _sorted(self, depth: int) -> Query:
        """The first rows, by all columns."""
        inner, alias = self._any(depth - 1), self._alias()
        order = [f"{alias}.c{at}" for at, kind in enumerate(inner.kinds) if kind not in SHOWN]
        if len(order) < len(inner.kinds):
            return inner
        self._r.shuffle(order)
        parts = [f"{column}{self._r.choice(['', ' desc', ' nulls last', ' desc nulls first'])}" for column in order]
        offset = f" offset {self._r.randint(1, 2)}" if self._chance(0.4) else ""
        text = f"select * from ({inner.text}) {alias} order by {', '.join(parts)} limit {self._r.randint(1, 5)}{offset}"
        return Query(text, inner.kinds)

    def _windowed(self, depth: int) -> Query:
        source, scope = self._source(depth)
        shown = [(ref.text, ref.kind) for ref in self._r.sample(scope, min(2, len(scope)))]
        shown += [self._window(scope) for _ in range(self._r.randint(1, 2))]
        return self._made(shown, f"from {source}{self._where(scope, 0)}")

    def _with(self, depth: int) -> Query:
        inner, name = self._any(depth - 1), f"w{self._alias()}"
        left, right = self._alias(), self._alias()
        scope = [Ref(f"{left}.c{at}", kind) for at, kind in enumerate(inner.kinds)]
        body, kinds = f"select * from {name} {left}{self._where(scope, 0)}", inner.kinds
        others = [Ref(f"{right}.c{at}", kind) for at, kind in enumerate(inner.kinds)]
        pairs = [(ours, theirs) for ours, theirs in zip(scope, others, strict=True) if ours.kind not in SHOWN]
        if pairs and self._chance(0.6):
            ours, theirs = self._r.choice(pairs)
            body = f"select {left}.* from {name} {left} join {name} {right} on {ours.text} = {theirs.text}"
        return Query(f"with {name} as ({inner.text}) {body}", kinds)

    def _made(self, items: Sequence[tuple[str, str]], rest: str, distinct: str = "") -> Query:
        shown = ", ".join(f"{text} as c{at}" for at, (text, _) in enumerate(items))
        return Query(f"select {distinct}{shown} {rest}", tuple(kind for _, kind in items))

    # Sources.

    def _source(self, depth: int) -> tuple[str, list[Ref]]:
        text, scope = self._relation(depth)
        for _ in range(self._r.choices([0, 1, 2], [5, 4, 1 if depth else 0])[0]):
            other, more = self._relation(depth - 1 if depth > 1 else 0)
            text, scope = self._joined(text, scope, other, more)
        return text, scope

    def _relation(self, depth: int) -> tuple[str, list[Ref]]:
        alias = self._alias()
        if depth and self._chance(0.3):
            inner = self._any(depth - 1)
            return f"({inner.text}) {alias}", [Ref(f"{alias}.c{at}", kind) for at, kind in enumerate(inner.kinds)]
        table = self._r.choice(self._tables)
        return f"{table.name} {alias}", [Ref(f"{alias}.{column.name}", column.kind) for column in table.columns]

    def _joined(self, text: str, scope: list[Ref], other: str, more: list[Ref]) -> tuple[str, list[Ref]]:
        how = self._r.choices(
            ["join", "left join", "right join", "full join", "left semi join", "left anti join", "cross join"],
            [6, 4, 2, 3, 2, 2, 1],
        )[0]
        if how == "cross join":
            return f"{text} {how} {other}", scope + more
        condition = self._condition(scope, more, how)
        kept = scope if "semi" in how or "anti" in how else scope + more
        return f"{text} {how} {other} on {condition}", kept

    def _condition(self, scope: list[Ref], more: list[Ref], how: str) -> str:
        """Mostly an equality, sometimes with more, sometimes only an inequality."""
        pairs = [(a, b) for a in _exact(scope) for b in _exact(more) if _comparable(a.kind, b.kind)]
        if not pairs:
            return self._predicate(_exact(scope) + _exact(more), 1)
        left, right = self._r.choice(pairs)
        operator = "=" if self._chance(0.8) else self._r.choice(OPERATORS)
        parts = [f"{left.text} {operator} {right.text}"]
        if self._chance(0.2):
            left, right = self._r.choice(pairs)
            parts.append(f"{left.text} {self._r.choice(OPERATORS)} {right.text}")
        if self._chance(0.25):
            parts.append(self._predicate(scope + more, 1))
        return " and ".join(parts)

    # Conditions and sub-queries.

    def _where(self, scope: list[Ref], depth: int) -> str:
        if self._chance(0.5):
            return ""
        condition = self._predicate(scope, 2)
        if depth and self._chance(0.4):
            condition = self._asking(scope, depth - 1)
            if self._chance(0.3):
                condition += f" {self._r.choice(['and', 'or'])} {self._predicate(scope, 1)}"
        return f" where {condition}"

    def _asking(self, scope: list[Ref], depth: int) -> str:
        """A predicate with a sub-query."""
        ref = self._r.choice(_exact(scope) or [Ref("1", "int")])
        inner, more = self._relation(depth)
        fitting = [item for item in more if item.kind == ref.kind] or [Ref(self._literal(ref.kind), ref.kind)]
        other = self._r.choice(fitting)
        where = f" where {self._correlation(scope, more)}" if self._chance(0.4) else self._where(more, 0)
        match self._r.randrange(4):
            case 0:
                return f"{ref.text} in (select {other.text} from {inner}{where})"
            case 1:
                return f"{ref.text} not in (select {other.text} from {inner}{where})"
            case 2:
                negated = self._r.choice(["", "not "])
                return f"{negated}exists (select 1 from {inner} where {self._correlation(scope, more)})"
            case _:
                return f"{self._number(scope)} {self._r.choice(OPERATORS[:6])} {self._scalar(scope, depth)}"

    def _correlation(self, scope: list[Ref], more: list[Ref]) -> str:
        pairs = [(a, b) for a in _exact(scope) for b in _exact(more) if a.kind == b.kind]
        if not pairs:
            return self._predicate(more, 1)
        outer, inner = self._r.choice(pairs)
        parts = [f"{inner.text} = {outer.text}"]
        if self._chance(0.3):
            parts.append(self._predicate(more, 1))
        return " and ".join(parts)

    def _scalar(self, scope: list[Ref], depth: int) -> str:
        """A sub-query with one number."""
        inner, more = self._relation(depth)
        numbers = [ref for ref in more if ref.kind == "int"]
        aggregate = self._r.choice(
            ["count(*)", *(f"{f}({ref.text})" for ref in numbers for f in ("max", "min", "sum", "count"))]
        )
        where = f" where {self._correlation(scope, more)}" if self._chance(0.6) else ""
        return f"(select {aggregate} from {inner}{where})"

    def _number(self, scope: list[Ref]) -> str:
        return self._expression(self._r.choice(["int", "bigint", "decimal"]), scope, 1)

    def _having(self, scope: list[Ref]) -> str:
        numbers = [ref for ref in scope if ref.kind in ("int", "bigint", "decimal")]
        counted = [f"count(*) {self._r.choice(['>', '<=', '='])} {self._r.randint(1, 3)}"]
        return self._r.choice(
            counted + [f"{f}({ref.text}) > {self._r.randint(0, 3)}" for ref in numbers for f in ("sum", "min")]
        )

    # Aggregates and windows.

    def _keys(self, scope: list[Ref], count: int) -> list[Ref]:
        exact = _exact(scope)
        keys = [self._r.choice(exact) for _ in range(count) if exact]
        if keys and self._chance(0.25):
            expression = self._expression(keys[0].kind, [keys[0]], 1)
            if keys[0].text in expression:  # not a number alone, which would be that of a column
                keys[0] = Ref(expression, keys[0].kind)
        return list(dict.fromkeys(keys))

    def _aggregate(self, scope: list[Ref]) -> tuple[str, str]:
        exact = _exact(scope)
        if not exact or self._chance(0.15):
            return "count(*)", "bigint"
        ref = self._r.choice(exact)
        text = self._expression(ref.kind, scope, 1) if self._chance(0.25) else ref.text
        forms = [(f"count({text})", "bigint"), (f"min({text})", ref.kind), (f"max({text})", ref.kind)]
        forms += [(f"count(distinct {text})", "bigint"), (f"collect_set({text})", "array")]
        if ref.kind in NUMBERS:
            summed = _sum_kind(ref.kind)
            average = "decimal" if ref.kind == "decimal" else "inexact"
            forms += [(f"sum({text})", summed)] * 3 + [(f"avg({text})", average)] * 2
            forms += [
                (f"sum(distinct {text})", summed),
                (f"stddev({text})", "inexact"),
                (f"var_pop({text})", "inexact"),
            ]
        if ref.kind == "boolean":
            forms += [(f"any({text})", "boolean"), (f"every({text})", "boolean"), (f"count_if({text})", "bigint")]
        text, kind = self._r.choice(forms + self._of_values(ref, text))
        if self._chance(0.3) and "filter" not in text:
            nulls = next((suffix for suffix in (" ignore nulls", " respect nulls") if text.endswith(suffix)), "")
            text = f"{text.removesuffix(nulls)} filter (where {self._predicate(scope, 1)}){nulls}"
        return text, kind

    def _of_values(self, ref: Ref, text: str) -> list[tuple[str, str]]:
        """Aggregates that are no sums: such that it does not matter in which order rows come."""
        given, nulls = self._literal(ref.kind), self._r.choice(["", " ignore nulls", " respect nulls"])
        forms = [(f"{f}({text}){nulls}", "array") for f in ("collect_list", "collect_set", "array_agg")]
        forms += [(f"max_by({text}, {text})", ref.kind), (f"min_by({text}, {text})", ref.kind)]
        forms += [(f"{f}({text}) filter (where {text} = {given}){nulls}", ref.kind) for f in ("first", "any_value")]
        forms += [(f"first({text}) filter (where {text} is null)", ref.kind), (f"mode({text}, true)", ref.kind)]
        if ref.kind in NUMBERS:
            forms += [
                (f"percentile({text}, {self._r.choice(['0', '0.3', '1'])})", "inexact"),
                (f"median({text})", "inexact"),
            ]
        return forms

    def _window(self, scope: list[Ref]) -> tuple[str, str]:
        exact = _exact(scope)
        if len(exact) < len(scope) or not exact:
            return f"count(*) over ({self._partition(exact)})", "bigint"
        order = list(exact)
        self._r.shuffle(order)
        total = ", ".join(f"{ref.text}{self._r.choice(['', ' desc', ' nulls last'])}" for ref in order)
        ref, partition = self._r.choice(exact), self._partition(exact)
        numbers = [candidate for candidate in exact if candidate.kind in NUMBERS]
        summed = self._r.choice(numbers) if numbers else Ref("1", "int")
        function, kind = self._r.choice(
            [
                *(("sum", _sum_kind(summed.kind)), ("count", "bigint"), ("min", summed.kind), ("max", summed.kind)),
                ("avg", "decimal" if summed.kind == "decimal" else "inexact"),
            ]
        )
        call = f"{function}({summed.text})"
        shifted = f"{self._r.choice(['lag', 'lead'])}({ref.text}, {self._r.randint(1, 2)})"
        partial = f"{ref.text}{self._r.choice(['', ' desc'])}"
        if self._chance(0.3):
            call = f"{call} filter (where {self._predicate(scope, 1)})"
        if ref.kind in OFFSETS and self._chance(0.25):
            return f"{call} over ({partition} order by {partial} {self._range(ref.kind)})", kind
        if self._chance(0.2):
            value = self._of_frame(ref, scope)
            return f"{value} over ({partition} order by {total} {WHOLE})", ref.kind
        return self._r.choice(
            [
                (f"row_number() over ({partition} order by {total})", "int"),
                (f"{self._r.choice(['rank', 'dense_rank'])}() over ({partition} order by {partial})", "int"),
                (f"{shifted} over ({partition} order by {total})", ref.kind),
                (f"{call} over ({partition})", kind),
                (f"{call} over ({partition} order by {partial})", kind),
                (f"{call} over ({partition} order by {total} {self._r.choice(FRAMES)})", kind),
            ]
        )

    def _range(self, kind: str) -> str:
        """A frame with offsets from the value of a kind."""
        offsets = self._r.choice(OFFSETS[kind])
        one, two = self._r.choice(offsets), self._r.choice(offsets)
        return self._r.choice(RANGES).format(one=one, two=two)

    def _of_frame(self, ref: Ref, scope: list[Ref]) -> str:
        """A value of one of the rows in a frame."""
        nulls = self._r.choice(["", " ignore nulls", " respect nulls"])
        if self._chance(0.3):
            return f"nth_value({ref.text}, {self._r.randint(1, 3)}){nulls}"
        where = f" filter (where {self._predicate(scope, 1)})" if self._chance(0.5) else ""
        return f"{self._r.choice(['first_value', 'last_value', 'any_value'])}({ref.text}){where}{nulls}"

    def _partition(self, exact: list[Ref]) -> str:
        return f"partition by {self._r.choice(exact).text}" if exact and self._chance(0.8) else ""

    # Expressions.

    def _expression(self, kind: str, scope: Sequence[Ref], depth: int) -> str:
        if kind == "boolean" and depth and self._chance(0.5):
            return f"({self._predicate(scope, depth - 1)})"
        fitting = [ref.text for ref in scope if ref.kind == kind]
        if not depth or self._chance(0.45):
            return self._r.choice(fitting) if fitting and self._chance(0.85) else self._literal(kind)
        form = self._r.choice(FORMS[kind] if kind in FORMS and self._chance(0.75) else ANY)
        return self._filled(form, kind, scope, depth - 1)

    def _predicate(self, scope: Sequence[Ref], depth: int) -> str:
        kind = self._r.choice([ref.kind for ref in scope if ref.kind not in SHOWN] or ["int"])
        if not depth or self._chance(0.4):
            left = self._expression(kind, scope, min(depth, 1))
            return f"{left} {self._r.choice(OPERATORS)} {self._expression(kind, scope, 0)}"
        return self._filled(self._r.choice(PREDICATES), kind, scope, depth - 1)

    def _filled(self, form: str, kind: str, scope: Sequence[Ref], depth: int) -> str:
        """A form with something in each gap."""
        filled = ""
        while "{" in form:
            before, _, rest = form.partition("{")
            gap, _, form = rest.partition("}")
            filled += before + self._gap(gap, kind, scope, depth)
        return filled + form

    def _gap(self, gap: str, kind: str, scope: Sequence[Ref], depth: int) -> str:
        match gap:
            case "n":
                return str(self._r.randint(-2, 3))
            case "p":
                return str(self._r.randint(1, 3))
            case "d":
                return self._r.choice(["0.5", "2", "1.25", "10"])
            case "x":
                return self._expression(kind, scope, depth)
            case "literals":
                return ", ".join(self._literal(kind) for _ in range(self._r.randint(1, 3)))
            case "pattern":
                return self._r.choice(["'a%'", "'%b'", "'_'", "'%a%b%'", "'x\\\\_y'", "''", "'a_c'"])
            case "boolean" if not depth:
                return self._predicate(scope, 0)
            case _:
                return self._expression(gap, scope, depth)

    def _literal(self, kind: str) -> str:
        if self._chance(0.05):
            return f"cast(null as {TYPES[kind][0]})"
        r = self._r
        match kind:
            case "int":
                return str(r.randint(0, 5))
            case "bigint":
                return f"{r.randint(0, 5)}L"
            case "decimal":
                return r.choice(["0.00", "1.25", "2.00", "1.5", "999.99"])
            case "string":
                return f"'{r.choice(STRINGS)}'"
            case "date":
                return f"date'{r.choice(DATES)}'"
            case "timestamp":
                return f"timestamp'2020-02-28 2{r.randint(2, 3)}:50:00'"
            case "boolean":
                return r.choice(["true", "false"])
            case _:
                return r.choice(["0.5D", "1.0D", "0.25D"])

    # Chances.

    def _alias(self) -> str:
        self._aliases += 1
        return f"r{self._aliases}"

    def _kind(self) -> str:
        return self._r.choices(list(LIKELY), list(LIKELY.values()))[0]

    def _chance(self, share: float) -> bool:
        return self._r.random() < share

    def _pick_of(self, forms: Sequence[tuple[Callable[[int], Query], int]]) -> Callable[[int], Query]:
        return self._r.choices([form for form, _ in forms], [weight for _, weight in forms])[0]


def _exact(scope: Sequence[Ref]) -> list[Ref]:
    return [ref for ref in scope if ref.kind not in SHOWN]


def _sum_kind(kind: str) -> str:
    return {"int": "bigint", "double": "inexact"}.get(kind, kind)


def _comparable(a: str, b: str) -> bool:
    return a == b or {a, b} <= set(NUMBERS)
