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
`make_ym_interval`.

Cost: two jobs or so for any number of texts, and about a millisecond for each text and row that raises.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any
from unittest.mock import patch

import pyarrow as pa
from py4j.protocol import Py4JError, get_return_value
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession, functions
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import YearMonthIntervalType

from ikebana.expressions import Config
from ikebana.expressions.core.types import arrow_type
from ikebana.spark.planning.catalyst import Catalyst
from ikebana.spark.planning.rewriting import Rewriting
from tests.sql.expression_cases import Case, EvaluatedRows, cases_of, plain, translate_cases

_ROW = "row_"
_ASKED = 12
_RULES = "org.apache.spark.sql.catalyst.optimizer."
_CONF = {
    "spark.sql.optimizer.excludedRules": f"{_RULES}ConvertToLocalRelation",  # else the values replace the expressions
    "spark.sql.optimizer.inSetConversionThreshold": "1000000",
    "spark.sql.debug.maxToStringFields": "100000",
    "spark.sql.codegen.wholeStage": "true",  # as users have it
    "spark.sql.codegen.factoryMode": "FALLBACK",
}


class Oracle(EvaluatedRows):
    """Rows that expressions are evaluated for, here and in Spark."""

    def __init__(self, spark: SparkSession, table: pa.Table, time_zone: str = "UTC") -> None:
        self._time_zone = time_zone
        self._session = spark.newSession()
        for key, value in {**_CONF, "spark.sql.session.timeZone": time_zone}.items():
            self._session.conf.set(key, value)
        self._table = table.append_column(pa.field(_ROW, pa.int32(), False), pa.array(range(len(table)), pa.int32()))
        schema = from_arrow_schema(self._table.schema, prefer_timestamp_ntz=True)
        self._frame = self._session.createDataFrame(self._table, schema)
        super().__init__(self._table)
        self._selected: dict[tuple[str, ...], DataFrame] = {}
        self._catalyst = Catalyst(self._session)

    def check(self, texts: Sequence[str], *, ansi: bool) -> None:
        """Fail with all differences between Spark and Ikebana."""
        differences = self.differences(texts, ansi=ansi)
        assert not differences, f"{len(differences)} differences (ansi={ansi})\n" + "\n".join(differences)

    def differences(self, texts: Sequence[str], *, ansi: bool) -> list[str]:
        """The differences between Spark and Ikebana, one line each."""
        cases, _ = self.compared(texts, ansi=ansi)
        return [line for case in cases for line in case.differences]

    def compared(self, texts: Sequence[str], *, ansi: bool) -> tuple[list[Case], str]:
        """The texts with their values here and all differences, and the plan for those that Spark does not refuse."""
        self._use(ansi)
        cases = cases_of(texts)
        planned = self._planned(cases)
        plan = self._translate(planned, ansi)
        for case in planned:
            self.evaluate(case)
        self._compare([case for case in planned if case.expression is not None])
        return cases, plan

    def nullability(self, texts: Sequence[str], *, ansi: bool) -> tuple[list[bool], str]:
        """Whether Spark says that the values of texts may be null, and its plan for the texts."""
        self._use(ansi)
        cases = cases_of(texts)
        plan = self._plan(cases)
        output = self._select(cases)._jdf.queryExecution().optimizedPlan().output()
        return [output.apply(number).nullable() for number in range(len(cases))], plan

    def _use(self, ansi: bool) -> None:
        """Plan and print in this session: a plan's JSON has timestamps in the time zone of the active one."""
        self._session.conf.set("spark.sql.ansi.enabled", str(ansi).lower())
        self._session._jvm.org.apache.spark.sql.classic.SparkSession.setActiveSession(self._session._jsparkSession)

    def _select(self, cases: Sequence[Case]) -> DataFrame:
        """The texts as columns; the same DataFrame for the same texts, since Spark plans it once."""
        columns = (self._session.conf.get("spark.sql.ansi.enabled"), *(f"{case.text} as {case.name}" for case in cases))
        if columns not in self._selected:
            self._selected[columns] = self._frame.selectExpr(*columns[1:])
        return self._selected[columns]

    def _planned(self, cases: Sequence[Case]) -> list[Case]:
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

    def _plan(self, cases: Sequence[Case]) -> str:
        """Spark's plan for the texts, as JSON."""
        with self._catalyst.planning_session(self._session._jsparkSession) as planning:
            optimized = self._select(cases)._jdf.queryExecution().optimizedPlan()
            return str(Rewriting(self._catalyst, planning).apply(optimized).toJSON())

    def _translate(self, cases: Sequence[Case], ansi: bool) -> str:
        """Translate the expressions of Spark's plan; return the plan."""
        if not cases:
            return ""
        plan = self._plan(cases)
        translate_cases(cases, plan, Config(ansi, self._time_zone))
        return plan

    # Evaluating in Spark, and comparing.

    def _compare(self, cases: Sequence[Case]) -> None:
        for case, (kind, values) in zip(cases, self._in_spark(cases), strict=True):
            if isinstance(values, str):
                case.differ(f"Spark raises where nothing is raised here: {values}")
                continue
            assert case.expression is not None
            if kind != case.expression.type:
                case.differ(f"Spark's type is {kind}, here {case.expression.type}")
            for row, here in zip(case.good, case.values, strict=True):
                if values[row] != here:
                    case.differ(f"row {row} {self.shown(case, row)}: Spark has {values[row]!r}, here {here!r}")
            self._compare_errors(case)

    def _in_spark(self, cases: Sequence[Case]) -> list[tuple[pa.DataType, Any]]:
        """The type of each case, and its values for all good rows, or the error that Spark raises."""
        if not cases:
            return []
        try:
            guarded = [Case(self._guarded(case), case.name) for case in cases]
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

    def _guarded(self, case: Case) -> str:
        """The text, evaluated only for rows that do not raise here."""
        if not case.bad:
            return case.text
        good = ", ".join(map(str, case.good)) or "-1"
        return f"case when {_ROW} in ({good}) then {case.text} end"

    def _compare_errors(self, case: Case) -> None:
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
                    case.differ(f"row {row} {self.shown(case, row)}: raises here, Spark has {result.toString()}")
                except Py4JError:
                    pass


def _in_months(name: str, kind: YearMonthIntervalType) -> Any:
    """An interval as a number, for which Arrow has a type."""
    if kind.startField == kind.endField:
        return functions.expr(f"cast({name} as int) * {12 if kind.startField == kind.YEAR else 1}")
    return functions.expr(f"cast(extract(year from {name}) * 12 + extract(month from {name}) as int)")
