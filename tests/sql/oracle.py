"""Spark as the oracle of expressions: the same text, the same rows, the same values, types and errors.

    oracle = Oracle(spark, table)                       # a small Arrow table; Spark's types follow from Arrow's
    oracle.check(["i + 1", "cast(s as date)"], ansi=True)

`check` plans all texts with Spark in one query, translates the expressions of its optimised plan, evaluates them here
and in Spark (one job for all), and fails with a list of all differences: values (bit by bit for floats; any NaN equals
any other), types, nulls where `nullable` says there are none, and, row by row, whether evaluating raises (of many rows
that raise here, Spark is asked about a dozen).

Texts may refer to the table's columns; a constant text is folded by Spark into a literal, as it is in real plans. A
text that Spark itself refuses counts as a difference. Timestamps without a zone are Spark's `timestamp_ntz`, durations
are intervals of days, Arrow's null type is void; there is no Arrow type for intervals of months: make them with
`make_ym_interval`. Rows are evaluated as slices of longer arrays, so that a function that forgets offsets is found.

Cost: two jobs or so for any number of texts, and about a millisecond for each text and row that raises.
"""

from __future__ import annotations

import pickle
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any
from unittest.mock import patch

import pyarrow as pa
from py4j.protocol import Py4JError, get_return_value
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession, functions
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import YearMonthIntervalType

from ikebana.errors import EvaluationError
from ikebana.expressions import Column, ColumnBatch, Config, Expression, translate
from ikebana.expressions.core.tree import Tree, parse
from ikebana.expressions.core.types import arrow_type
from ikebana.spark.planning.catalyst import Catalyst
from ikebana.spark.planning.rewriting import Rewriting

_ROW = "row_"
_SAMPLED = 5
_ASKED = 12
_RULES = "org.apache.spark.sql.catalyst.optimizer."
_CONF = {
    "spark.sql.optimizer.excludedRules": f"{_RULES}ConvertToLocalRelation",  # else the values replace the expressions
    "spark.sql.optimizer.inSetConversionThreshold": "1000000",
    "spark.sql.debug.maxToStringFields": "100000",
    "spark.sql.codegen.wholeStage": "true",  # as users have it
    "spark.sql.codegen.factoryMode": "FALLBACK",
}


@dataclass
class _Case:
    """A text, its translation, and the rows for which it raises here."""

    text: str
    name: str
    expression: Expression | None = None
    good: list[int] = field(default_factory=list)
    bad: list[int] = field(default_factory=list)
    values: list[Any] = field(default_factory=list)
    differences: list[str] = field(default_factory=list)

    def differ(self, what: str) -> None:
        self.differences.append(f"{self.text}: {what}")


class Oracle:
    """Rows that expressions are evaluated for, here and in Spark."""

    def __init__(self, spark: SparkSession, table: pa.Table, time_zone: str = "UTC") -> None:
        self._time_zone = time_zone
        self._session = spark.newSession()
        for key, value in {**_CONF, "spark.sql.session.timeZone": time_zone}.items():
            self._session.conf.set(key, value)
        self._table = table.append_column(pa.field(_ROW, pa.int32(), False), pa.array(range(len(table)), pa.int32()))
        schema = from_arrow_schema(self._table.schema, prefer_timestamp_ntz=True)
        self._frame = self._session.createDataFrame(self._table, schema)
        self._columns = {name: self._table[name].combine_chunks() for name in self._table.column_names}
        self._count = len(table)
        self._selected: dict[tuple[str, ...], DataFrame] = {}
        self._catalyst = Catalyst(self._session)

    def check(self, texts: Sequence[str], *, ansi: bool) -> None:
        """Fail with all differences between Spark and Ikebana."""
        differences = self.differences(texts, ansi=ansi)
        assert not differences, f"{len(differences)} differences (ansi={ansi})\n" + "\n".join(differences)

    def differences(self, texts: Sequence[str], *, ansi: bool) -> list[str]:
        """The differences between Spark and Ikebana, one line each."""
        self._use(ansi)
        cases = [_Case(text, f"e{number}") for number, text in enumerate(dict.fromkeys(texts))]
        self._translate(planned := self._planned(cases), ansi)
        for case in planned:
            self._evaluate_here(case)
        self._compare([case for case in planned if case.expression is not None])
        return [line for case in cases for line in case.differences]

    def translated(self, text: str, *, ansi: bool) -> Expression:
        """The expression that a text becomes."""
        self._use(ansi)
        self._translate([case := _Case(text, "e0")], ansi)
        assert case.expression is not None, case.differences
        return case.expression

    def _use(self, ansi: bool) -> None:
        """Plan and print in this session: a plan's JSON has timestamps in the time zone of the active one."""
        self._session.conf.set("spark.sql.ansi.enabled", str(ansi).lower())
        self._session._jvm.org.apache.spark.sql.classic.SparkSession.setActiveSession(self._session._jsparkSession)

    def _select(self, cases: Sequence[_Case]) -> DataFrame:
        """The texts as columns; the same DataFrame for the same texts, since Spark plans it once."""
        columns = (self._session.conf.get("spark.sql.ansi.enabled"), *(f"{case.text} as {case.name}" for case in cases))
        if columns not in self._selected:
            self._selected[columns] = self._frame.selectExpr(*columns[1:])
        return self._selected[columns]

    def _planned(self, cases: Sequence[_Case]) -> list[_Case]:
        """The cases that Spark can plan."""
        try:
            self._select(cases)
            return list(cases)
        except PySparkException as error:
            if len(cases) == 1:
                cases[0].differ(f"Spark refuses it: {str(error).splitlines()[0]}")
                return []
            middle = len(cases) // 2
            return self._planned(cases[:middle]) + self._planned(cases[middle:])

    # Translating.

    def _translate(self, cases: Sequence[_Case], ansi: bool) -> None:
        if not cases:
            return
        with self._catalyst.planning_session(self._session._jsparkSession) as planning:
            optimized = self._select(cases)._jdf.queryExecution().optimizedPlan()
            plan = parse(Rewriting(self._catalyst, planning).apply(optimized).toJSON())
        aliases = {alias.fields["name"]: alias for alias in plan.expressions("projectList")}
        below = _Below(plan, Config(ansi, self._time_zone))
        for case in cases:
            try:
                case.expression = translate(aliases[case.name], below.leaf, below.config)
                hash(case.expression)
                assert pickle.loads(pickle.dumps(case.expression)) == case.expression, "it is not a value"
            except Exception as error:
                case.differ(f"cannot be translated: {type(error).__name__} {error}")
                case.expression = None

    # Evaluating here.

    def _rows(self, expression: Expression, numbers: Sequence[int]) -> ColumnBatch:
        """The columns that an expression reads, for some of the rows, as slices of longer arrays."""
        index = pa.array([0, *numbers, 0])
        columns = {name: self._columns[name].take(index).slice(1, len(numbers)) for name in expression.columns}
        return ColumnBatch(columns, len(numbers))

    def _evaluate_here(self, case: _Case) -> None:
        if case.expression is None:
            return
        every = list(range(self._count))
        try:
            try:
                case.expression.evaluate(self._rows(case.expression, every))
                case.good = every
            except EvaluationError:
                for row in every:
                    (case.bad if self._raises_here(case.expression, row) else case.good).append(row)
                if not case.bad:
                    case.differ("raises for all rows together, for none of them alone")
                elif not case.expression.can_raise:
                    case.differ("raises, though it says that it cannot")
            array = case.expression.evaluate(self._rows(case.expression, case.good))
            array.validate(full=True)
            self._check_alone(case, plain(array))
            case.expression.evaluate(self._rows(case.expression, []))
        except Exception as error:
            case.differ(f"fails here: {type(error).__name__} {error}")
            case.expression = None
            return
        if array.type != case.expression.type:
            case.differ(f"is said to be {case.expression.type}, and is {array.type}")
        elif len(array) != len(case.good):
            case.differ(f"has {len(array)} values for {len(case.good)} rows")
        elif array.null_count and not case.expression.nullable:
            case.differ("is null, though it says that it cannot be")
        case.values = plain(array)

    def _check_alone(self, case: _Case, together: list[Any]) -> None:
        """Check for some of the rows that a row alone has the same value as among others."""
        assert case.expression is not None
        for row, value in list(zip(case.good, together, strict=True))[::_SAMPLED]:
            alone = plain(case.expression.evaluate(self._rows(case.expression, [row])))
            if alone != [value]:
                case.differ(f"row {row} {self._shown(case, row)}: {value!r} among others, {alone} alone")

    def _raises_here(self, expression: Expression, row: int) -> bool:
        try:
            expression.evaluate(self._rows(expression, [row]))
            return False
        except EvaluationError:
            return True

    # Evaluating in Spark, and comparing.

    def _compare(self, cases: Sequence[_Case]) -> None:
        for case, (kind, values) in zip(cases, self._in_spark(cases), strict=True):
            if isinstance(values, str):
                case.differ(f"Spark raises where nothing is raised here: {values}")
                continue
            assert case.expression is not None
            if kind != case.expression.type:
                case.differ(f"Spark's type is {kind}, here {case.expression.type}")
            for row, here in zip(case.good, case.values, strict=True):
                if values[row] != here:
                    case.differ(f"row {row} {self._shown(case, row)}: Spark has {values[row]!r}, here {here!r}")
            self._compare_errors(case)

    def _shown(self, case: _Case, row: int) -> dict[str, Any]:
        assert case.expression is not None
        rows = self._rows(case.expression, [row])
        return {name: plain(rows.columns[name])[0] for name in sorted(case.expression.columns)}

    def _in_spark(self, cases: Sequence[_Case]) -> list[tuple[pa.DataType, Any]]:
        """The type of each case, and its values for all good rows, or the error that Spark raises."""
        if not cases:
            return []
        try:
            guarded = [_Case(self._guarded(case), case.name) for case in cases]
            frame = self._select(guarded)
            kinds = [arrow_type(struct_field["type"]) for struct_field in frame.schema.jsonValue()["fields"]]
            months = {
                struct_field.name: _in_months(struct_field.name, struct_field.dataType)
                for struct_field in frame.schema
                if isinstance(struct_field.dataType, YearMonthIntervalType)
            }
            whole = frame.withColumns(months).toArrow()
            columns = [whole[case.name].combine_chunks() for case in cases]
            return [
                (kind, plain(column if pa.types.is_nested(kind) else column.cast(kind)))
                for kind, column in zip(kinds, columns, strict=True)
            ]
        except (PySparkException, Py4JError) as error:
            if len(cases) == 1:
                return [(pa.null(), str(error).splitlines()[0])]
            middle = len(cases) // 2
            return self._in_spark(cases[:middle]) + self._in_spark(cases[middle:])

    def _guarded(self, case: _Case) -> str:
        """The text, evaluated only for rows that do not raise here."""
        if not case.bad:
            return case.text
        good = ", ".join(map(str, case.good)) or "-1"
        return f"case when {_ROW} in ({good}) then {case.text} end"

    def _compare_errors(self, case: _Case) -> None:
        """Check that Spark raises for rows that raise here: for a dozen of them, spread evenly."""
        if not case.bad:
            return
        nodes = [self._select([case])._jdf.queryExecution().optimizedPlan()]
        while nodes[-1].children().size():
            nodes.append(nodes[-1].children().head())
        relation = nodes.pop()
        package = self._session._jvm.org.apache.spark.sql.catalyst.expressions
        projections = [
            package.InterpretedMutableProjection(node.projectList(), node.children().head().output())
            for node in reversed(nodes)
        ]
        data = relation.data()
        with patch("py4j.java_gateway.get_return_value", get_return_value):  # else errors are translated, and logged
            for row in case.bad[:: 1 + len(case.bad) // _ASKED]:
                try:
                    result = data.apply(row)
                    for projection in projections:
                        result = projection.apply(result)
                    case.differ(f"row {row} {self._shown(case, row)}: raises here, Spark has {result.toString()}")
                except Py4JError:
                    pass


class _Below:
    """The attributes of a plan's topmost projection: columns, or expressions of projections below it."""

    def __init__(self, plan: Tree, config: Config) -> None:
        self.config = config
        self._computed: dict[int, Tree] = {}
        while plan.children:
            plan = plan.only_child
            if plan.kind == "Project":
                aliases = [alias for alias in plan.expressions("projectList") if alias.kind == "Alias"]
                self._computed.update({alias.expr_id: alias for alias in aliases})

    def leaf(self, tree: Tree) -> Expression | None:
        if tree.kind != "AttributeReference":
            return None
        if tree.expr_id in self._computed:
            return translate(self._computed[tree.expr_id], self.leaf, self.config)
        return Column(arrow_type(tree.fields["dataType"]), tree.fields["nullable"], tree.fields["name"])


def _in_months(name: str, kind: YearMonthIntervalType) -> Any:
    """An interval as a number, for which Arrow has a type."""
    if kind.startField == kind.endField:
        return functions.expr(f"cast({name} as int) * {12 if kind.startField == kind.YEAR else 1}")
    return functions.expr(f"cast(extract(year from {name}) * 12 + extract(month from {name}) as int)")


def plain(array: pa.Array) -> list[Any]:
    """Values that are equal only if they are identical: times as integers, floats as strings."""
    kind = array.type
    if pa.types.is_temporal(kind):
        return array.cast(pa.int32() if kind.bit_width == 32 else pa.int64()).to_pylist()
    if pa.types.is_floating(kind):
        return [None if value is None else repr(value) for value in array.to_pylist()]
    if pa.types.is_list(kind) or pa.types.is_map(kind):
        return [plain(scalar.values) if scalar.is_valid else None for scalar in array]
    if pa.types.is_struct(kind):
        fields: list[Mapping[str, Any]] = [
            dict(zip(kind.names, values, strict=True)) for values in zip(*map(plain, array.flatten()), strict=True)
        ]
        return [value if valid else None for value, valid in zip(fields, array.is_valid().to_pylist(), strict=True)]
    return array.to_pylist()
