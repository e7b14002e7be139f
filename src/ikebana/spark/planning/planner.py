"""Plans queries, given as SQL text or DataFrames, with Spark: the one place that uses Catalyst.

    planner = Planner(spark)
    planner.add_table("orders", fields)
    planner.plan("SELECT status, count(*) FROM orders GROUP BY status")     # -> Planned
    planner.prepare("SELECT * FROM orders WHERE id = :id", {"id": "BIGINT"})

A text is resolved as in the user's session, with its settings, temporary views and functions; tables and views that
were added here take precedence. The user's session does not change. A DataFrame was resolved by the user's session;
tables in it are leaves of the data source `ikebana`.

Refused with a `SqlError`: what Spark refuses, commands, streams, reads of anything but tables of this session and at
most `MAX_CONSTANT_ROWS` constant rows, settings that are not supported (`settings`), and what the JSON of a plan does
not show (`refusing`). Nodes and expressions that the JSON shows are checked by lowering.

Cost: 10 to 30 ms for a query like those of TPC-H, most of it analysis, once Java is warm; the first takes a second.
Adding a table takes 15 ms. Plans are cached by text: the same text with the same settings and tables takes 0.2 ms,
unless it uses anything else that the user can redefine. A DataFrame is planned each time.
"""

from __future__ import annotations

import json
import re
import threading
from collections import OrderedDict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructField, StructType

from ikebana.errors import SqlError
from ikebana.expressions.core.types import arrow_type
from ikebana.spark.errors import spark_error_summary
from ikebana.spark.internals import parse_type
from ikebana.spark.naming import CASE, escape, mentioned, quote
from ikebana.spark.planning.catalyst import Catalyst, PlanningSession, schema_of
from ikebana.spark.planning.leaves import Leaves
from ikebana.spark.planning.refusing import refuse_analyzed, refuse_optimized
from ikebana.spark.planning.rewriting import Rewriting, needs_rewriting
from ikebana.spark.types import spark_schema
from ikebana.sql.planned import CLOCK, NOW, PARAMETERS, Planned

_CACHED_PLANS = 1000
"""How many plans are cached."""

_RECURSIVE = re.compile(r"\bRECURSIVE\b", re.IGNORECASE)
_VIEW_NODE = re.compile(r"\bView \(`((?:[^`]|``)*)`, \[")

Parameters = Mapping[str, pa.Field | pa.DataType | str]
"""The types of parameters by name: Arrow or SQL types. They are not null, unless given as a nullable Arrow field."""


@dataclass(frozen=True)
class _Table:
    """A table or view: Catalyst's relation, and a version that distinguishes it from others of the same name."""

    relation: Any
    version: int


@dataclass(frozen=True)
class _CacheKey:
    """The key of a cached plan: all that the plan depends on."""

    text: str
    parameters: tuple[tuple[str, str], ...]
    tables: tuple[tuple[str, int], ...]
    session: str


class Planner:
    """Plans the queries of one session. It may be used from several threads."""

    def __init__(self, spark: SparkSession, owner: str = "") -> None:
        """`owner` identifies the session in the metadata of the data source."""
        self._catalyst, self._owner = Catalyst(spark), owner
        self._lock = threading.Lock()
        self._tables: dict[str, _Table] = {}
        self._versions = 0
        self._cache: OrderedDict[_CacheKey, Planned] = OrderedDict()
        clock = pa.field(NOW, pa.timestamp("us", "UTC"), nullable=False)
        self._clock = self._catalyst.relation(CLOCK, spark_schema([clock]))

    def add_table(self, name: str, fields: Iterable[pa.Field]) -> None:
        """Add a table or view, replacing another of that name."""
        relation = self._catalyst.relation(name, spark_schema(fields))
        with self._lock:
            self._versions += 1
            self._tables[name] = _Table(relation, self._versions)

    def drop_table(self, name: str) -> None:
        """Remove a table or view, if it was added."""
        with self._lock:
            self._tables.pop(name, None)

    def plan(self, query: str | DataFrame, names: Iterable[str] | None = None) -> Planned:
        """The plan of a query. `names` are the tables that a text mentions, if the caller has looked for them."""
        if isinstance(query, str):
            return self._planned_text(query, {}, names)
        return self._planned_frame(query)

    def prepare(self, text: str, parameters: Parameters, names: Iterable[str] | None = None) -> Planned:
        """The plan of a text with parameters, written `:name`; it reads them from the table `PARAMETERS`.

        A parameter becomes a scalar subquery. It cannot be used where Spark expects a constant, such as in LIMIT.
        `names` is as for `plan`.
        """
        fields = {name: parameter_field(name, kind) for name, kind in parameters.items()}
        return self._planned_text(text, fields, names)

    # Texts.

    def _planned_text(self, text: str, parameters: Mapping[str, StructField], names: Iterable[str] | None) -> Planned:
        tables = self._mentioned(text, names)
        key = _CacheKey(
            text,
            tuple((name, field.json()) for name, field in parameters.items()),
            tuple((name, table.version) for name, table in tables.items()),
            self._catalyst.fingerprint(),
        )
        with self._lock:
            cached = self._cache.get(key)
            if cached is not None:
                self._cache.move_to_end(key)
                return cached
        with self._catalyst.planning_session(self._catalyst.spark._jsparkSession) as session:
            for name, table in tables.items():
                session.add_table(name, table.relation)
            parsed = session.parsed(text)
            if _RECURSIVE.search(text):
                parsed = session.with_recursive_sets(parsed)
            if parameters:
                parsed = self._with_parameters(session, parsed, parameters)
            planned, is_cacheable, _ = self._finish(session, session.analyzed(parsed), {*tables, PARAMETERS, CLOCK})
        if is_cacheable:
            self._add_to_cache(key, planned)
        return planned

    def _mentioned(self, text: str, names: Iterable[str] | None) -> dict[str, _Table]:
        """The tables whose names occur in a text.

        Where names are not case-sensitive, a name that differs from others only in case must be written exactly.
        """
        with self._lock:
            names = mentioned(text, self._tables) if names is None else names
            tables = {name: self._tables[name] for name in names if name in self._tables}
        by_lower_name: dict[str, list[str]] = {}
        for name in tables:
            by_lower_name.setdefault(name.lower(), []).append(name)
        ambiguous = [alike for alike in by_lower_name.values() if len(alike) > 1]
        if not ambiguous or self._catalyst.is_case_sensitive():
            return tables
        others = {name for alike in ambiguous for name in alike if name != _written(alike, text)}
        return {name: table for name, table in tables.items() if name not in others}

    def _with_parameters(self, session: PlanningSession, parsed: Any, parameters: Mapping[str, StructField]) -> Any:
        session.add_table(PARAMETERS, self._catalyst.relation(PARAMETERS, StructType(list(parameters.values()))))
        return session.with_parameters(
            parsed, {name: f"(SELECT {quote(name)} FROM {quote(PARAMETERS)})" for name in parameters}
        )

    def _add_to_cache(self, key: _CacheKey, planned: Planned) -> None:
        with self._lock:
            self._cache[key] = planned
            if len(self._cache) > _CACHED_PLANS:
                self._cache.popitem(last=False)

    # DataFrames.

    def _planned_frame(self, frame: DataFrame) -> Planned:
        jdf = getattr(frame, "_jdf", None)
        if jdf is None:
            raise SqlError(
                f"cannot plan a {type(frame).__module__}.{type(frame).__name__}",
                hint="give SQL, or a DataFrame of the SparkSession that hosts the workers",
            )
        if frame.isStreaming:
            raise SqlError(
                "a view cannot read a stream",
                hint="follow the stream with a table, and read that: table.follow(stream)",
            )
        with self._catalyst.planning_session(frame.sparkSession._jsparkSession) as session:
            planned, _, leaves = self._finish(session, jdf.queryExecution().analyzed(), set())
            return replace(planned, computed=tuple(leaves.computed), is_constant=not leaves.reads_tables)

    # Both.

    def _finish(self, session: PlanningSession, analyzed: Any, tables: set[str]) -> tuple[Planned, bool, Leaves]:
        """The plan of a resolved query, whether it can be cached, and its leaves.

        It can be cached if it uses nothing that the user can redefine, besides the given tables.
        """
        columns, config = _columns(analyzed), session.config
        timed = session.with_time(analyzed, self._clock)
        shown = timed.toString()
        refuse_analyzed(shown, timed.containsPattern(self._catalyst.patterns.CURRENT_LIKE()))
        is_cacheable = not timed.containsAnyPattern(self._catalyst.redefinable) and _views(shown) <= tables
        optimized, text = self._shown(session, shown, session.optimized(timed, has_loops="UnionLoop" in shown))
        refuse_optimized(text)
        session.check_settings(text)
        nodes = json.loads(text)
        leaves = Leaves(self._catalyst, self._owner, optimized, session.recursion, session.recursive_sets)
        leaves.annotate(nodes)
        return Planned(nodes, config, columns, tuple(leaves.constants), leaves.functions), is_cacheable, leaves

    def _shown(self, session: PlanningSession, analyzed: str, optimized: Any) -> tuple[Any, str]:
        """The plan and its JSON, which shows all of its expressions. `analyzed` is the text of the analysed plan."""
        plan = session.without_nested_cases(optimized)
        text = session.json(plan)
        if needs_rewriting(analyzed, text):
            plan = session.without_nested_cases(Rewriting(self._catalyst, session).apply(optimized))
            text = session.json(plan)
        return plan, text


def _written(names: list[str], text: str) -> str:
    """The only one of several names, which differ only in case, that a text contains exactly."""
    exact = [name for name in names if escape(name) in text]
    if len(exact) == 1:
        return exact[0]
    raise SqlError(
        f"the query may mean {' or '.join(map(repr, names))}",
        detail="these names differ only in case",
        hint=f"set {CASE} to true, as it was when they were created",
    )


def _columns(plan: Any) -> tuple[pa.Field, ...]:
    return tuple(pa.field(c["name"], arrow_type(c["type"]), c["nullable"]) for c in schema_of(plan))


def _views(shown: str) -> set[str]:
    """The names of the views in the text of a plan."""
    return {name.replace("``", "`") for name in _VIEW_NODE.findall(shown)}


def parameter_field(name: str, kind: pa.Field | pa.DataType | str) -> StructField:
    """A parameter as a Spark field."""
    if isinstance(kind, str):
        try:
            return StructField(name, parse_type(kind), nullable=False)
        except PySparkException as error:
            raise SqlError(
                f"cannot parse the type {kind!r} of parameter {name!r}",
                detail=spark_error_summary(error),
                hint="give a SQL type such as 'BIGINT', or an Arrow type",
            ) from None
    field = kind.with_name(name) if isinstance(kind, pa.Field) else pa.field(name, kind, nullable=False)
    return spark_schema([field])[0]
