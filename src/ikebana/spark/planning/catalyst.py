"""Catalyst, Spark's optimiser, at work for a query: in a session of its own, with rules and settings of its own.

`Catalyst` is what it takes to speak with it; a `Workbench` is a session for one query, a clone of the user's. It sees
what that sees: settings, temporary views, registered functions. Whatever is done there, the user's session does not
notice. A clone takes less than a millisecond.

Expressions are replaced within a plan by giving Scala a map in place of a function: a map is a partial function. That
is how `now()` and parameters become subqueries, wherever they stand, without a look at the text.

Rules that are switched off (`_WITHOUT`) change plans in ways that help a batch and hurt here: they copy conditions,
merge subqueries, or evaluate what has to be seen. What else is set keeps lists of values and long names whole.
"""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from functools import cached_property
from typing import Any

from pyspark.errors import PySparkException
from pyspark.logger import PySparkLogger
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import BooleanType, StructType

from ikebana.errors import SqlError
from ikebana.expressions import Config
from ikebana.spark.errors import spark_error_summary
from ikebana.spark.naming import CASE, is_case_sensitive, quote
from ikebana.spark.planning.quick_ack import quick_acknowledgements
from ikebana.spark.planning.settings import refuse_settings
from ikebana.sql.planned import CLOCK, NOW

_RULES = "org.apache.spark.sql.catalyst.optimizer"
_PUSH_DOWN = f"{_RULES}.LimitPushDown"
_WITHOUT = (
    f"{_RULES}.InferFiltersFromConstraints",  # copies conditions, whole semi-joins too, and adds IS NOT NULL
    f"{_RULES}.InferFiltersFromGenerate",  # adds conditions that explode has anyway
    f"{_RULES}.DecimalAggregates",  # sums unscaled longs and doubles instead of decimals
    "org.apache.spark.sql.execution.planmerging.MergeSubplans",  # makes one subquery with a struct of several
    f"{_RULES}.MergeScalarSubqueries",  # its name before Spark 4.1
    f"{_RULES}.InferWindowGroupLimit",  # these three add limits that only save work in a batch
    _PUSH_DOWN,
    f"{_RULES}.LimitPushDownThroughWindow",
    f"{_RULES}.PushDownLeftSemiAntiJoin",  # these four rearrange what is better shared as it was written
    f"{_RULES}.PushLeftSemiLeftAntiThroughJoin",
    f"{_RULES}.PushDownJoinThroughUnion",
    f"{_RULES}.CollapseGroupedSumOfCount",
    f"{_RULES}.ConvertToLocalRelation",  # evaluates the query over rows that are part of it
    f"{_RULES}.PropagateEmptyRelation",
)
_EXCLUDED = "spark.sql.optimizer.excludedRules"
_SETTINGS = {
    _EXCLUDED: ",".join(_WITHOUT),
    "spark.sql.optimizer.inSetConversionThreshold": "1000000",  # longer lists of values would not be in the JSON
    "spark.sql.optimizer.runtime.bloomFilter.enabled": "false",
    "spark.sql.optimizer.dynamicPartitionPruning.enabled": "false",
    "spark.sql.cbo.enabled": "false",
    "spark.sql.cbo.joinReorder.enabled": "false",
    "spark.sql.python.filterPushdown.enabled": "false",  # conditions would vanish into the leaves
    "spark.sql.debug.maxToStringFields": "1000000",  # else lists of names are cut, in the JSON too
}

_RECURSION = {
    "maxDepth": ("spark.sql.cteRecursionLevelLimit", "100"),
    "maxRows": ("spark.sql.cteRecursionRowLimit", "1000000"),
}

_SUBQUERY = "org.apache.spark.sql.catalyst.expressions.PlanExpression"
_COMMAND = "org.apache.spark.sql.catalyst.plans.logical.Command"
_SCRIPTS = ("CompoundBody", "UnresolvedExecuteImmediate", "ExecuteImmediateQuery")  # the last until Spark 4.0
_ZONE = "spark.sql.session.timeZone"
_TIMESTAMP = re.compile(r'("value":"[-+0-9: .]+)(","dataType":"timestamp")')

MARK = "ikebana.table:"
"""How the name of a column begins that only says which table a leaf is."""


class Catalyst:
    """What it takes to speak with the optimiser of a user's SparkSession."""

    def __init__(self, spark: SparkSession) -> None:
        self.spark = spark
        context: Any = spark.sparkContext
        self.gateway = context._gateway
        self.jvm = context._jvm
        self._context = context._jsc
        self.sessions = self.object("org.apache.spark.sql.classic.SparkSession")
        self.skip_commands = self.jvm.org.apache.spark.sql.execution.CommandExecutionMode.SKIP()
        self.times: dict[str, Any] = {}
        """What is read in place of functions that say what time it is, by time zone."""
        self.settings = self.jvm.java.util.Properties()
        for key, value in _SETTINGS.items():
            self.settings.setProperty(key, value)

    def object(self, name: str) -> Any:
        """A Scala object."""
        package, _, short = name.rpartition(".")
        return getattr(getattr(getattr(self.jvm, package), f"{short}$"), "MODULE$")

    def is_a(self, kind: str, thing: Any) -> bool:
        """Whether a thing of Java's is of a class."""
        return bool(self.jvm.py4j.reflection.TypeUtil.isInstanceOf(kind, thing))

    @cached_property
    def configuration(self) -> Any:
        """What settings there are."""
        return self.object("org.apache.spark.sql.internal.SQLConf")

    @cached_property
    def patterns(self) -> Any:
        """Names for what may be in a plan."""
        return self.jvm.org.apache.spark.sql.catalyst.trees.TreePattern

    @cached_property
    def redefinable(self) -> Any:
        """What a plan may have that the user can define anew."""
        names = ("PYTHON_UDF", "SCALA_UDF", "SQL_SCALAR_FUNCTION", "SQL_TABLE_FUNCTION", "VARIABLE_REFERENCE")
        return self.seq(getattr(self.patterns, name)() for name in names)

    def seq(self, values: Iterable[Any]) -> Any:
        """A sequence of Scala's."""
        return self.jvm.org.apache.spark.api.python.PythonUtils.toSeq(list(values))

    def scala_map(self, pairs: Iterable[tuple[Any, Any]]) -> Any:
        """A Scala map, which is a partial function too."""
        entries = self.jvm.java.util.HashMap()
        for key, value in pairs:
            entries.put(key, value)
        return self.jvm.org.apache.spark.api.python.PythonUtils.toScalaMap(entries)

    def relation(self, name: str, schema: StructType) -> Any:
        """A temporary view whose only leaf can be recognised: the name of a hidden column says which table it is.

        It is made once, and can then be had by any number of sessions. Unlike metadata of columns, their names are in
        the JSON of a plan, and no rule removes columns of such a leaf.
        """
        marked = StructType([*schema.fields]).add(MARK + name, BooleanType(), nullable=False)
        nursery = self.spark._jsparkSession.newSession()
        nursery.conf().set(CASE, "true")  # columns are named exactly as they are
        with self._active(nursery):
            frame = nursery.createDataFrame(self._context.emptyRDD(), nursery.parseDataType(marked.json()))
            frame = frame.selectExpr(self.seq(quote(field.name) for field in schema))
            frame.createOrReplaceTempView(quote(name))
            return nursery.sessionState().catalog().getRawTempView(name).get()

    def is_case_sensitive(self) -> bool:
        """Whether names that differ in case alone are different names, in the user's session."""
        return is_case_sensitive(self.spark)

    def dataset(self, session: Any, plan: Any) -> Any:
        """A plan as Java's DataFrame."""
        return self.object("org.apache.spark.sql.classic.Dataset").ofRows(session, plan)

    def rows(self, plan: Any, limit: int) -> Any:
        """At most so many rows of a plan, as an Arrow table."""
        jdf = self.dataset(self.spark._jsparkSession, plan).limit(limit)
        return DataFrame(jdf, self.spark).toArrow()

    def fingerprint(self) -> str:
        """All that is set in the user's session, and the names of its own functions."""
        state = self.spark._jsparkSession.sessionState()
        return f"{state.conf().getAllConfs().toString()} {state.catalog().listTemporaryFunctions().toString()}"

    @contextmanager
    def bench(self, session: Any) -> Iterator[Workbench]:
        """A session in which a query of the given one can be planned. Errors of Spark's are `SqlError`s."""
        with _quietly(), quick_acknowledgements(self.gateway):
            clone = session.cloneSession()
            state = clone.sessionState()
            state.conf().setConf(self.settings)
            with self._active(clone):
                try:
                    yield Workbench(self, state, session.sessionState().conf())
                except PySparkException as error:
                    raise SqlError("Spark does not understand the query", detail=spark_error_summary(error)) from None

    @contextmanager
    def _active(self, session: Any) -> Iterator[None]:
        """Let a session be the one that catalogue and optimiser ask for settings."""
        before = self.sessions.getActiveSession()
        self.sessions.setActiveSession(session)
        try:
            yield
        finally:
            if before.isDefined():
                self.sessions.setActiveSession(before.get())
            else:
                self.sessions.clearActiveSession()


class Workbench:
    """A session for one query."""

    def __init__(self, catalyst: Catalyst, state: Any, given: Any) -> None:
        """`given` is what the user's session has set."""
        self._catalyst, self._state, self._given = catalyst, state, given

    @cached_property
    def config(self) -> Config:
        """What is set, as far as it decides what expressions mean."""
        conf = self._state.conf()
        return Config(
            ansi=bool(conf.ansiEnabled()),
            time_zone=str(conf.sessionLocalTimeZone()),
            decimal_precision_loss=bool(conf.decimalOperationsAllowPrecisionLoss()),
        )

    def check_settings(self, plan: str) -> None:
        """Raise if the JSON of a plan has what means something else under what the user has set."""
        refuse_settings(plan, self._given.getAllConfs().toString(), self._setting)

    def _setting(self, key: str) -> tuple[str, str]:
        """What a setting is, and what its default is."""
        entry = self._catalyst.configuration.getConfigEntry(key)
        return str(self._given.getConf(entry)), str(entry.defaultValueString())

    def show(self, name: str, relation: Any) -> None:
        """Make a table known, in place of any other of that name."""
        self._state.catalog().createTempView(name, relation, True)

    def parsed(self, text: str) -> Any:
        """The plan of a text, nothing in it resolved."""
        return self._query(self._state.sqlParser().parsePlan(text))

    def analyzed(self, parsed: Any) -> Any:
        """A plan in which everything is resolved."""
        return self._query(self._state.executePlan(parsed, self._catalyst.skip_commands).analyzed())

    def _query(self, plan: Any) -> Any:
        """A plan that is a query. Others are refused before they are resolved: that would run scripts."""
        name = str(plan.nodeName())
        if name in _SCRIPTS or self._catalyst.is_a(_COMMAND, plan):
            raise SqlError(f"{name} is not a query", hint="a view is made of SELECT; run other statements with Spark")
        return plan

    def expressions(self, *texts: str) -> list[Any]:
        """Expressions that are resolved, from their texts."""
        columns = self.analyzed(self.parsed(f"SELECT {', '.join(f'{each} AS `x`' for each in texts)}")).projectList()
        return [columns.apply(position).child() for position in range(len(texts))]

    def with_time(self, analyzed: Any, clock: Any) -> Any:
        """A plan that reads the present time from a table, where it had functions that say what time it is."""
        if not analyzed.containsPattern(self._catalyst.patterns.CURRENT_LIKE()):
            return analyzed
        zone, times = self.config.time_zone, self._catalyst.times
        if zone not in times:
            self.show(CLOCK, clock)
            times[zone] = self._times(f"(SELECT `{NOW}` FROM `{CLOCK}`)", zone)
        return analyzed.transformAllExpressionsWithSubqueries(times[zone])

    def _times(self, clock: str, zone: str) -> Any:
        """What is read in place of each function that says what time it is."""
        now, today, local = self.expressions(clock, f"CAST({clock} AS DATE)", f"CAST({clock} AS TIMESTAMP_NTZ)")
        kinds = self._catalyst.jvm.org.apache.spark.sql.catalyst.expressions
        there = self._catalyst.jvm.scala.Some(zone)
        pairs = [
            (kinds.CurrentTimestamp(), now),
            (kinds.Now(), now),
            (kinds.CurrentDate(there), today),
            (kinds.LocalTimestamp(there), local),
        ]
        return self._catalyst.scala_map(pairs)

    def with_parameters(self, parsed: Any, subqueries: Mapping[str, str]) -> Any:
        """A plan, nothing in it resolved, that has subqueries in place of the parameters of these names."""
        analysis = self._catalyst.jvm.org.apache.spark.sql.catalyst.analysis
        values = self.expressions(*subqueries.values())
        pairs = [(analysis.NamedParameter(name), value) for name, value in zip(subqueries, values, strict=True)]
        substituted = analysis.CTESubstitution.apply(parsed)  # what stands in WITH would not be reached
        return substituted.transformAllExpressionsWithSubqueries(self._catalyst.scala_map(pairs))

    @cached_property
    def recursion(self) -> dict[str, int]:
        """What limits recursive queries, under the names that loops have for it in plans."""
        conf = self._state.conf()
        return {name: int(conf.getConfString(key, default)) for name, (key, default) in _RECURSION.items()}

    def optimized(self, analyzed: Any, has_loops: bool) -> Any:
        """The plan that is lowered. In loops, a LIMIT goes where Spark puts it, since it may end them."""
        if has_loops:
            self._state.conf().setConfString(_EXCLUDED, ",".join(each for each in _WITHOUT if each != _PUSH_DOWN))
        return self._state.optimizer().execute(analyzed)

    def without_nested_cases(self, optimized: Any) -> Any:
        """A plan in which no CASE is inside another one: the JSON of one has all that is in it twice.

        Such ones become calls of a function, which have their conditions and values as arguments, in turn.
        """
        cases = Cases(self._catalyst)
        if not cases.are_in(optimized) or str(optimized.toString()).count("CASE WHEN") < 2:
            return optimized
        return cases.without(optimized, are_inside=False)

    def json(self, optimized: Any) -> str:
        """A plan's JSON, in which all timestamps are in UTC, and say so: clocks elsewhere show some times twice.

        Afterwards nothing else should be asked of this session: its time zone is another one.
        """
        self._state.conf().setConfString(_ZONE, "UTC")
        return _TIMESTAMP.sub(r"\1Z\2", optimized.toJSON())


class Cases:
    """Finds CASE in plans and expressions of Java's, and rewrites those that are nested.

    Java is asked a few times for each node above or inside such a CASE, about 2 ms for each level.
    """

    def __init__(self, catalyst: Catalyst) -> None:
        self._catalyst, self._pattern = catalyst, catalyst.patterns.CASE_WHEN()
        self._functions = catalyst.object("org.apache.spark.sql.catalyst.analysis.UnresolvedFunction")

    def are_in(self, tree: Any) -> bool:
        """Whether there is any CASE in a plan or expression."""
        return bool(tree.containsPattern(self._pattern))

    def without(self, plan: Any, are_inside: bool) -> Any:
        """A plan without nested ones; if they all are inside another, without any."""
        pairs = [
            (case, self._rewritten(case)) for case in self._outermost(plan) if are_inside or self._has_others(case)
        ]
        return plan.transformAllExpressionsWithSubqueries(self._catalyst.scala_map(pairs)) if pairs else plan

    def _outermost(self, plan: Any) -> Iterator[Any]:
        """Those of a plan that are in no other."""
        if self.are_in(plan):
            for expression in _listed(plan.expressions()):
                yield from self._outermost_of(expression)
            for child in _listed(plan.children()):
                yield from self._outermost(child)

    def _outermost_of(self, expression: Any) -> Iterator[Any]:
        if not self.are_in(expression):
            return
        if expression.nodeName() == "CaseWhen":
            yield expression
        elif self._catalyst.is_a(_SUBQUERY, expression):
            yield from self._outermost(expression.plan())
        else:
            for child in _listed(expression.children()):
                yield from self._outermost_of(child)

    def _has_others(self, case: Any) -> bool:
        return any(self.are_in(child) for child in _listed(case.children()))

    def _rewritten(self, expression: Any) -> Any:
        """An expression, each CASE in it replaced."""
        if not self.are_in(expression):
            return expression
        if self._catalyst.is_a(_SUBQUERY, expression):
            return expression.withNewPlan(self.without(expression.plan(), are_inside=True))
        children = self._catalyst.seq(self._rewritten(child) for child in _listed(expression.children()))
        if expression.nodeName() == "CaseWhen":
            return self._functions.apply("case", children, False)
        return expression.withNewChildren(children)


def _listed(values: Any) -> list[Any]:
    """The elements of a sequence of Scala's."""
    return [values.apply(at) for at in range(values.size())]


def schema_of(plan: Any) -> list[dict[str, Any]]:
    """The columns of a plan as Spark's JSON has them: `name`, `type`, `nullable`, `metadata`."""
    return json.loads(plan.schema().json())["fields"]


@contextmanager
def _quietly() -> Iterator[None]:
    """Without what PySpark logs for each error, with Java's stack: it is raised, and that is enough."""
    loggers = [PySparkLogger.getLogger(name) for name in ("SQLQueryContextLogger", "DataFrameQueryContextLogger")]
    nothing = _Nothing()  # of its own: another thread may be at it too
    for logger in loggers:
        logger.addFilter(nothing)
    try:
        yield
    finally:
        for logger in loggers:
            logger.removeFilter(nothing)


class _Nothing(logging.Filter):
    """Lets nothing be logged."""

    def filter(self, record: logging.LogRecord) -> bool:
        return False
