"""Access to Catalyst, Spark's optimiser: a query is planned in a separate session, with its own rules and settings.

`Catalyst` gives access to the optimiser of a user's SparkSession through Py4J. A `PlanningSession` is a session for one
query, a clone of the user's: it has the same settings, temporary views and registered functions, and nothing that is
done in it affects the user's session. Cloning takes less than a millisecond.

Expressions in a plan are replaced by passing Scala a map where it expects a function: a map is a partial function. This
is how `now()` and parameters become subqueries, wherever they are in the plan, without parsing the SQL text.

The rules that are switched off (`_EXCLUDED_RULES`) improve a batch query but harm a maintained one: they copy
conditions, merge subqueries, or evaluate what Ikebana has to see. Other settings ensure that the plan's JSON has all
values of long lists and all names.

Not guaranteed: that all of this works with other versions of Spark than the pinned one. Catalyst's classes are not a
public interface. A selection of queries is tested with the lowest version that is supported.
"""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from functools import cached_property
from typing import Any

from py4j.protocol import Py4JError, Py4JJavaError  # type: ignore[import-untyped]
from pyspark.errors import PySparkException
from pyspark.logger import PySparkLogger
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import BooleanType, StructType

from ikebana.errors import SqlError
from ikebana.expressions import Config
from ikebana.spark.errors import query_error, spark_error_summary
from ikebana.spark.naming import CASE, is_case_sensitive, quote
from ikebana.spark.planning.quick_ack import quick_acknowledgements
from ikebana.spark.planning.settings import refuse_settings
from ikebana.sql.planned import CLOCK, NOW

_OPTIMIZER = "org.apache.spark.sql.catalyst.optimizer"
_LIMIT_PUSH_DOWN = f"{_OPTIMIZER}.LimitPushDown"
_EXCLUDED_RULES = (
    f"{_OPTIMIZER}.InferFiltersFromConstraints",  # copies conditions, even semi-joins, and adds IS NOT NULL
    f"{_OPTIMIZER}.InferFiltersFromGenerate",  # adds conditions that explode implies
    f"{_OPTIMIZER}.DecimalAggregates",  # sums unscaled longs and doubles instead of decimals
    "org.apache.spark.sql.execution.planmerging.MergeSubplans",  # merges subqueries into one that returns a struct
    f"{_OPTIMIZER}.MergeScalarSubqueries",  # its name before Spark 4.1
    f"{_OPTIMIZER}.InferWindowGroupLimit",  # these three add limits, which only save work in a batch query
    _LIMIT_PUSH_DOWN,
    f"{_OPTIMIZER}.LimitPushDownThroughWindow",
    f"{_OPTIMIZER}.PushDownLeftSemiAntiJoin",  # these four rearrange joins and unions, which are rarely shared then
    f"{_OPTIMIZER}.PushLeftSemiLeftAntiThroughJoin",
    f"{_OPTIMIZER}.PushDownJoinThroughUnion",
    f"{_OPTIMIZER}.CollapseGroupedSumOfCount",
    f"{_OPTIMIZER}.ConvertToLocalRelation",  # evaluates the query over constant rows
    f"{_OPTIMIZER}.PropagateEmptyRelation",
)
_EXCLUDED_RULES_SETTING = "spark.sql.optimizer.excludedRules"
_SETTINGS = {
    _EXCLUDED_RULES_SETTING: ",".join(_EXCLUDED_RULES),
    "spark.sql.optimizer.inSetConversionThreshold": "1000000",  # the JSON lacks the values of longer lists
    "spark.sql.optimizer.runtime.bloomFilter.enabled": "false",
    "spark.sql.optimizer.dynamicPartitionPruning.enabled": "false",
    "spark.sql.cbo.enabled": "false",
    "spark.sql.cbo.joinReorder.enabled": "false",
    "spark.sql.python.filterPushdown.enabled": "false",  # would hide conditions in the leaves
    "spark.sql.debug.maxToStringFields": "1000000",  # longer lists of names are truncated, even in the JSON
}

_RECURSION_SETTINGS = {
    "maxDepth": ("spark.sql.cteRecursionLevelLimit", "100"),
    "maxRows": ("spark.sql.cteRecursionRowLimit", "1000000"),
}

_SUBQUERY_CLASS = "org.apache.spark.sql.catalyst.expressions.PlanExpression"
_COMMAND_CLASS = "org.apache.spark.sql.catalyst.plans.logical.Command"
_SCRIPT_NODES = ("CompoundBody", "UnresolvedExecuteImmediate", "ExecuteImmediateQuery")  # the last one in Spark 4.0
_TIME_ZONE_SETTING = "spark.sql.session.timeZone"
_TIMESTAMP_LITERAL = re.compile(r'("value":"[-+0-9: .]+)(","dataType":"timestamp")')

TABLE_COLUMN = "ikebana.table:"
"""The prefix of a hidden column, whose name tells which table a leaf of a plan reads."""


class Catalyst:
    """The optimiser of a user's SparkSession, through Py4J."""

    def __init__(self, spark: SparkSession) -> None:
        self.spark = spark
        context: Any = spark.sparkContext
        self.gateway = context._gateway
        self.jvm = context._jvm
        self._context = context._jsc
        self.sessions = self.object("org.apache.spark.sql.classic.SparkSession")
        self.skip_commands = self.jvm.org.apache.spark.sql.execution.CommandExecutionMode.SKIP()
        self.times: dict[str, Any] = {}
        """The expressions that replace functions of the current time, by time zone."""
        self.settings = self.jvm.java.util.Properties()
        for key, value in _SETTINGS.items():
            self.settings.setProperty(key, value)

    def object(self, name: str) -> Any:
        """A Scala object."""
        package, _, short = name.rpartition(".")
        return getattr(getattr(getattr(self.jvm, package), f"{short}$"), "MODULE$")

    def is_instance(self, class_name: str, value: Any) -> bool:
        """Whether a Java object is an instance of a class."""
        return bool(self.jvm.py4j.reflection.TypeUtil.isInstanceOf(class_name, value))

    @cached_property
    def configuration(self) -> Any:
        """Spark's registry of SQL settings."""
        return self.object("org.apache.spark.sql.internal.SQLConf")

    @cached_property
    def patterns(self) -> Any:
        """Catalyst's patterns, by which a plan tells which kinds of nodes it contains."""
        return self.jvm.org.apache.spark.sql.catalyst.trees.TreePattern

    @cached_property
    def redefinable(self) -> Any:
        """The patterns of what a user can redefine: a plan that has one of them is not cached."""
        names = ("PYTHON_UDF", "SCALA_UDF", "SQL_SCALAR_FUNCTION", "SQL_TABLE_FUNCTION", "VARIABLE_REFERENCE")
        return self.seq(pattern for name in names if (pattern := self._pattern(name)) is not None)

    def _pattern(self, name: str) -> Any | None:
        """A pattern; None if this version of Spark does not have it."""
        try:
            return getattr(self.patterns, name)()
        except Py4JError:
            return None

    def seq(self, values: Iterable[Any]) -> Any:
        """A Scala sequence."""
        return self.jvm.org.apache.spark.api.python.PythonUtils.toSeq(list(values))

    def scala_map(self, pairs: Iterable[tuple[Any, Any]]) -> Any:
        """A Scala map, which is also a partial function."""
        entries = self.jvm.java.util.HashMap()
        for key, value in pairs:
            entries.put(key, value)
        return self.jvm.org.apache.spark.api.python.PythonUtils.toScalaMap(entries)

    def relation(self, name: str, schema: StructType) -> Any:
        """A temporary view whose only leaf can be recognised in a plan: a hidden column has the name of the table.

        It is created once, and can be added to any number of sessions. The names of columns, unlike their metadata, are
        part of a plan's JSON, and no rule removes columns of such a leaf.
        """
        hidden = StructType([*schema.fields]).add(TABLE_COLUMN + name, BooleanType(), nullable=False)
        session = self.spark._jsparkSession.newSession()
        session.conf().set(CASE, "true")  # the names of columns are matched exactly
        with self.active(session):
            frame = session.createDataFrame(self._context.emptyRDD(), session.parseDataType(hidden.json()))
            frame = frame.selectExpr(self.seq(quote(field.name) for field in schema))
            frame.createOrReplaceTempView(quote(name))
            return session.sessionState().catalog().getRawTempView(name).get()

    def is_case_sensitive(self) -> bool:
        """Whether names are case-sensitive in the user's session."""
        return is_case_sensitive(self.spark)

    def dataset(self, session: Any, plan: Any) -> Any:
        """A plan as a Java DataFrame."""
        return self.object("org.apache.spark.sql.classic.Dataset").ofRows(session, plan)

    def rows(self, plan: Any, limit: int) -> Any:
        """The rows of a plan as an Arrow table, at most `limit`."""
        jdf = self.dataset(self.spark._jsparkSession, plan).limit(limit)
        return DataFrame(jdf, self.spark).toArrow()

    def fingerprint(self) -> str:
        """All settings of the user's session, and the names of its temporary functions, as a string."""
        return f"{self._user_settings.toString()} {self._user_catalog.listTemporaryFunctions().toString()}"

    @cached_property
    def _user_settings(self) -> Any:
        """The settings of the user's session, as a map in Java."""
        return self.spark._jsparkSession.sessionState().conf().settings()

    @cached_property
    def _user_catalog(self) -> Any:
        """The catalogue of the user's session."""
        return self.spark._jsparkSession.sessionState().catalog()

    @contextmanager
    def planning_session(self, session: Any) -> Iterator[PlanningSession]:
        """A clone of a session, to plan a query in. Spark's errors are raised as `SqlError`."""
        with quietly(), quick_acknowledgements(self.gateway):
            clone = session.cloneSession()
            state = clone.sessionState()
            state.conf().setConf(self.settings)
            with self.active(clone):
                try:
                    yield PlanningSession(self, state, session.sessionState().conf())
                except PySparkException as error:
                    raise query_error(error) from None
                except Py4JJavaError as error:
                    raise SqlError("Spark cannot plan the query", detail=spark_error_summary(error)) from error

    @contextmanager
    def active(self, session: Any) -> Iterator[None]:
        """Make a session the active one, whose settings the catalogue and the optimiser use."""
        before = self.sessions.getActiveSession()
        self.sessions.setActiveSession(session)
        try:
            yield
        finally:
            if before.isDefined():
                self.sessions.setActiveSession(before.get())
            else:
                self.sessions.clearActiveSession()


class PlanningSession:
    """A session to plan one query in."""

    def __init__(self, catalyst: Catalyst, state: Any, user_conf: Any) -> None:
        """`user_conf` has the settings of the user's session, before they were changed for planning."""
        self._catalyst, self._state, self._user_conf = catalyst, state, user_conf
        self.recursive_sets: set[int] = set()
        """The ids of recursive queries that are written with UNION instead of UNION ALL."""

    @cached_property
    def config(self) -> Config:
        """The settings that determine how expressions are evaluated."""
        conf = self._state.conf()
        return Config(
            ansi=bool(conf.ansiEnabled()),
            time_zone=str(conf.sessionLocalTimeZone()),
            decimal_precision_loss=bool(conf.decimalOperationsAllowPrecisionLoss()),
        )

    def check_settings(self, plan: str) -> None:
        """Raise if the JSON of a plan has expressions that depend on a setting which is not supported."""
        refuse_settings(plan, self._user_conf.getAllConfs().toString(), self._setting)

    def _setting(self, key: str) -> tuple[str, str]:
        """The value of a setting, and its default."""
        entry = self._catalyst.configuration.getConfigEntry(key)
        return str(self._user_conf.getConf(entry)), str(entry.defaultValueString())

    def add_table(self, name: str, relation: Any) -> None:
        """Add a table, replacing any other of that name."""
        self._state.catalog().createTempView(name, relation, True)

    def parsed(self, text: str) -> Any:
        """The unresolved plan of a SQL text."""
        return self._query(self._state.sqlParser().parsePlan(text))

    def analyzed(self, parsed: Any) -> Any:
        """The resolved plan."""
        return self._query(self._state.executePlan(parsed, self._catalyst.skip_commands).analyzed())

    def _query(self, plan: Any) -> Any:
        """The plan, if it is a query. Others are refused before they are resolved, which would run scripts."""
        name = str(plan.nodeName())
        if name in _SCRIPT_NODES or self._catalyst.is_instance(_COMMAND_CLASS, plan):
            raise SqlError(
                f"{name} is not a query", hint="define a view by a SELECT; run other statements with spark.sql()"
            )
        return plan

    def expressions(self, *texts: str) -> list[Any]:
        """Resolved expressions, from their SQL texts."""
        columns = self.analyzed(self.parsed(f"SELECT {', '.join(f'{text} AS `x`' for text in texts)}")).projectList()
        return [columns.apply(position).child() for position in range(len(texts))]

    def with_time(self, analyzed: Any, clock: Any) -> Any:
        """A plan that reads the current time from the table `clock` in place of functions like now()."""
        if not analyzed.containsPattern(self._catalyst.patterns.CURRENT_LIKE()):
            return analyzed
        zone, times = self.config.time_zone, self._catalyst.times
        if zone not in times:
            self.add_table(CLOCK, clock)
            times[zone] = self._times(f"(SELECT `{NOW}` FROM `{CLOCK}`)", zone)
        return analyzed.transformAllExpressionsWithSubqueries(times[zone])

    def _times(self, clock: str, zone: str) -> Any:
        """The expressions that replace the functions of the current time, as a Scala map."""
        now, today, local = self.expressions(clock, f"CAST({clock} AS DATE)", f"CAST({clock} AS TIMESTAMP_NTZ)")
        expressions = self._catalyst.jvm.org.apache.spark.sql.catalyst.expressions
        some_zone = self._catalyst.jvm.scala.Some(zone)
        pairs = [
            (expressions.CurrentTimestamp(), now),
            (expressions.Now(), now),
            (expressions.CurrentDate(some_zone), today),
            (expressions.LocalTimestamp(some_zone), local),
        ]
        return self._catalyst.scala_map(pairs)

    def with_parameters(self, parsed: Any, subqueries: Mapping[str, str]) -> Any:
        """An unresolved plan with subqueries in place of parameters, by the names of the parameters."""
        analysis = self._catalyst.jvm.org.apache.spark.sql.catalyst.analysis
        values = self.expressions(*subqueries.values())
        pairs = [(analysis.NamedParameter(name), value) for name, value in zip(subqueries, values, strict=True)]
        substituted = analysis.CTESubstitution.apply(parsed)  # expressions inside WITH would not be replaced
        return substituted.transformAllExpressionsWithSubqueries(self._catalyst.scala_map(pairs))

    def with_recursive_sets(self, parsed: Any) -> Any:
        """An unresolved plan with UNION ALL in place of UNION in recursive queries, which Spark would refuse.

        The ids of these queries are remembered in `recursive_sets`.
        """
        substituted = self._catalyst.jvm.org.apache.spark.sql.catalyst.analysis.CTESubstitution.apply(parsed)
        pairs = list(self._recursive_unions(substituted))
        if not pairs:
            return parsed
        return substituted.transformDownWithSubqueries(self._catalyst.scala_map(pairs))

    def _recursive_unions(self, plan: Any) -> Iterator[tuple[Any, Any]]:
        """The nodes DISTINCT of a UNION in recursive queries, and the UNION ALL below each."""
        if plan.nodeName() == "CTERelationDef" and plan.hasSelfReferenceAsCTERef():
            below = plan.child()
            while below.nodeName() in ("SubqueryAlias", "UnresolvedSubqueryColumnAliases"):
                below = below.child()
            if below.nodeName() == "Distinct":
                self.recursive_sets.add(int(plan.id()))
                yield below, below.child()
        for child in scala_items(plan.children()):
            yield from self._recursive_unions(child)

    @cached_property
    def recursion(self) -> dict[str, int]:
        """The limits of recursive queries, by the names of the fields of loops in plans."""
        conf = self._state.conf()
        return {name: int(conf.getConfString(key, default)) for name, (key, default) in _RECURSION_SETTINGS.items()}

    def optimized(self, analyzed: Any, has_loops: bool) -> Any:
        """The optimised plan. If it has loops, LIMIT is pushed down as in Spark, since it may end a loop."""
        if has_loops:
            self._state.conf().setConfString(
                _EXCLUDED_RULES_SETTING, ",".join(rule for rule in _EXCLUDED_RULES if rule != _LIMIT_PUSH_DOWN)
            )
        return self._state.optimizer().execute(analyzed)

    def without_nested_cases(self, optimized: Any) -> Any:
        """A plan in which no CASE is nested in another one: the JSON of a CASE has all its children twice.

        A nested CASE becomes a call of a function `case`, whose arguments are its conditions and values in turn.
        """
        cases = Cases(self._catalyst)
        if not cases.occur_in(optimized) or str(optimized.toString()).count("CASE WHEN") < 2:
            return optimized
        return cases.without(optimized, is_nested=False)

    def json(self, optimized: Any) -> str:
        """A plan's JSON, with all timestamps in UTC: in other time zones some local times occur twice.

        It must be the last call of this session, whose time zone it changes.
        """
        self._state.conf().setConfString(_TIME_ZONE_SETTING, "UTC")
        return _TIMESTAMP_LITERAL.sub(r"\1Z\2", optimized.toJSON())


class Cases:
    """Finds CASE in Java's plans and expressions, and rewrites nested ones.

    Cost: a few calls of Java for each node above or inside such a CASE, about 2 ms for each level.
    """

    def __init__(self, catalyst: Catalyst) -> None:
        self._catalyst, self._pattern = catalyst, catalyst.patterns.CASE_WHEN()
        self._functions = catalyst.object("org.apache.spark.sql.catalyst.analysis.UnresolvedFunction")

    def occur_in(self, tree: Any) -> bool:
        """Whether a plan or expression contains a CASE."""
        return bool(tree.containsPattern(self._pattern))

    def without(self, plan: Any, is_nested: bool) -> Any:
        """A plan without nested CASEs; if the plan itself is inside a CASE (`is_nested`), without any CASE."""
        pairs = [(case, self._rewritten(case)) for case in self._outermost(plan) if is_nested or self._has_nested(case)]
        return plan.transformAllExpressionsWithSubqueries(self._catalyst.scala_map(pairs)) if pairs else plan

    def _outermost(self, plan: Any) -> Iterator[Any]:
        """The CASEs of a plan that are not inside another one."""
        if self.occur_in(plan):
            for expression in scala_items(plan.expressions()):
                yield from self._outermost_of(expression)
            for child in scala_items(plan.children()):
                yield from self._outermost(child)

    def _outermost_of(self, expression: Any) -> Iterator[Any]:
        if not self.occur_in(expression):
            return
        if expression.nodeName() == "CaseWhen":
            yield expression
        elif self._catalyst.is_instance(_SUBQUERY_CLASS, expression):
            yield from self._outermost(expression.plan())
        else:
            for child in scala_items(expression.children()):
                yield from self._outermost_of(child)

    def _has_nested(self, case: Any) -> bool:
        return any(self.occur_in(child) for child in scala_items(case.children()))

    def _rewritten(self, expression: Any) -> Any:
        """An expression with a call of `case` in place of each CASE."""
        if not self.occur_in(expression):
            return expression
        if self._catalyst.is_instance(_SUBQUERY_CLASS, expression):
            return expression.withNewPlan(self.without(expression.plan(), is_nested=True))
        children = self._catalyst.seq(self._rewritten(child) for child in scala_items(expression.children()))
        if expression.nodeName() == "CaseWhen":
            return self._functions.apply("case", children, False)
        return expression.withNewChildren(children)


def scala_items(values: Any) -> list[Any]:
    """The elements of a Scala sequence."""
    return [values.apply(index) for index in range(values.size())]


def schema_of(plan: Any) -> list[dict[str, Any]]:
    """The columns of a plan as in Spark's JSON: `name`, `type`, `nullable`, `metadata`."""
    return json.loads(plan.schema().json())["fields"]


@contextmanager
def quietly() -> Iterator[None]:
    """Suppress PySpark's log message for each error, with Java's stack trace: the error is raised."""
    loggers = [PySparkLogger.getLogger(name) for name in ("SQLQueryContextLogger", "DataFrameQueryContextLogger")]
    discard = _Discard()  # a new one, since other threads may add and remove theirs
    for logger in loggers:
        logger.addFilter(discard)
    try:
        yield
    finally:
        for logger in loggers:
            logger.removeFilter(discard)


class _Discard(logging.Filter):
    """Discards all records."""

    def filter(self, record: logging.LogRecord) -> bool:
        return False
