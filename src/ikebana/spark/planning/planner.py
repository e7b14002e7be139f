"""Queries, as SQL text or DataFrames, planned by Spark: the one place that speaks with Catalyst.

    planner = Planner(spark)
    planner.add_table("orders", fields)
    planner.plan("SELECT status, count(*) FROM orders GROUP BY status")     # -> Planned
    planner.prepare("SELECT * FROM orders WHERE id = :id", {"id": "BIGINT"})

A text is resolved as in the user's session, with its settings, temporary views and functions; tables and views that
were added here come first. The user's session does not change. A DataFrame has been resolved by the user's session;
tables in it are leaves of the data source `ikebana`.

What is refused, with a `SqlError`: what Spark refuses, commands, streams, reads of anything but tables of this session
and at most `MOST_ROWS` rows that are part of the query, settings that are not obeyed (`settings`), and what the JSON of
a plan does not tell (`refusing`). Nodes and expressions that are in the JSON are left to lowering.

Cost: 10 to 30 ms for a query like those of TPC-H, once Java is warm, most of it analysis; the first takes a second. A
table takes 15 ms to be added. Plans are kept by text: the same text again, under the same settings and over the same
tables, takes 0.3 ms, unless it has anything else that the user can define anew. A DataFrame is planned each time.
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
from pyspark.sql.types import StructField, StructType, _parse_datatype_string

from ikebana.errors import SqlError
from ikebana.expressions.core.types import arrow_type
from ikebana.spark.errors import spark_error_summary
from ikebana.spark.naming import CASE, escape, mentioned, quote
from ikebana.spark.planning.catalyst import Catalyst, Workbench, schema_of
from ikebana.spark.planning.leaves import Leaves
from ikebana.spark.planning.refusing import refuse_analyzed, refuse_optimized
from ikebana.spark.types import spark_schema
from ikebana.sql.planned import CLOCK, NOW, PARAMETERS, Planned

_KEPT = 1000
"""So many plans are kept."""

_VIEW = re.compile(r"\bView \(`((?:[^`]|``)*)`, \[")

Parameters = Mapping[str, pa.Field | pa.DataType | str]
"""The types of parameters by name: Arrow's or DDL text. They are never null, unless a field says so."""


@dataclass(frozen=True)
class _Table:
    """A table or view: how Catalyst sees it, and a number that tells it from others of its name."""

    relation: Any
    version: int


@dataclass(frozen=True)
class _Key:
    """What a plan depends on, if it depends on nothing else."""

    text: str
    parameters: tuple[tuple[str, str], ...]
    tables: tuple[tuple[str, int], ...]
    session: str


class Planner:
    """Plans the queries of one session. May be used from several threads."""

    def __init__(self, spark: SparkSession, owner: str = "") -> None:
        """`owner` is what the data source's metadata says about tables of this session."""
        self._catalyst, self._owner = Catalyst(spark), owner
        self._lock = threading.Lock()
        self._tables: dict[str, _Table] = {}
        self._versions = 0
        self._kept: OrderedDict[_Key, Planned] = OrderedDict()
        clock = pa.field(NOW, pa.timestamp("us", "UTC"), nullable=False)
        self._clock = self._catalyst.relation(CLOCK, spark_schema([clock]))

    def add_table(self, name: str, fields: Iterable[pa.Field]) -> None:
        """Make a table or view known, in place of another of that name."""
        relation = self._catalyst.relation(name, spark_schema(fields))
        with self._lock:
            self._versions += 1
            self._tables[name] = _Table(relation, self._versions)

    def drop_table(self, name: str) -> None:
        """Forget a table or view; one that is not known is no error."""
        with self._lock:
            self._tables.pop(name, None)

    def plan(self, query: str | DataFrame, names: Iterable[str] | None = None) -> Planned:
        """The plan of a query. `names` are the tables that a text mentions, if the caller knows them (`mentioned`)."""
        if isinstance(query, str):
            return self._planned_text(query, {}, names)
        return self._planned_frame(query)

    def prepare(self, text: str, parameters: Parameters, names: Iterable[str] | None = None) -> Planned:
        """The plan of a text with `:name` for parameters: it reads them from the table `PARAMETERS`.

        Each is a scalar subquery, wherever an expression may stand; not where Spark wants a constant, as in LIMIT.
        """
        fields = {name: parameter_field(name, given) for name, given in parameters.items()}
        return self._planned_text(text, fields, names)

    # Texts.

    def _planned_text(self, text: str, parameters: Mapping[str, StructField], names: Iterable[str] | None) -> Planned:
        tables = self._mentioned(text, names)
        key = _Key(
            text,
            tuple((name, field.json()) for name, field in parameters.items()),
            tuple((name, table.version) for name, table in tables.items()),
            self._catalyst.fingerprint(),
        )
        with self._lock:
            kept = self._kept.get(key)
            if kept is not None:
                self._kept.move_to_end(key)
                return kept
        with self._catalyst.bench(self._catalyst.spark._jsparkSession) as bench:
            for name, table in tables.items():
                bench.show(name, table.relation)
            parsed = bench.parsed(text)
            if parameters:
                parsed = self._with_parameters(bench, parsed, parameters)
            planned, is_fixed, _ = self._finish(bench, bench.analyzed(parsed), {*tables, PARAMETERS, CLOCK})
        if is_fixed:
            self._keep(key, planned)
        return planned

    def _mentioned(self, text: str, names: Iterable[str] | None) -> dict[str, _Table]:
        """The tables whose names occur in a text.

        Where names are not case-sensitive, a name that differs from others in case alone must be written exactly.
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

    def _with_parameters(self, bench: Workbench, parsed: Any, parameters: Mapping[str, StructField]) -> Any:
        bench.show(PARAMETERS, self._catalyst.relation(PARAMETERS, StructType(list(parameters.values()))))
        return bench.with_parameters(
            parsed, {name: f"(SELECT {quote(name)} FROM {quote(PARAMETERS)})" for name in parameters}
        )

    def _keep(self, key: _Key, planned: Planned) -> None:
        with self._lock:
            self._kept[key] = planned
            if len(self._kept) > _KEPT:
                self._kept.popitem(last=False)

    # DataFrames.

    def _planned_frame(self, frame: DataFrame) -> Planned:
        jdf = getattr(frame, "_jdf", None)
        if jdf is None:
            raise SqlError(
                f"cannot plan a {type(frame).__module__}.{type(frame).__name__}",
                hint="give SQL text, or a DataFrame of the SparkSession that hosts the workers",
            )
        if frame.isStreaming:
            raise SqlError("a view cannot read a stream", hint="let a table follow it: table.follow(stream)")
        with self._catalyst.bench(frame.sparkSession._jsparkSession) as bench:
            planned, _, leaves = self._finish(bench, jdf.queryExecution().analyzed(), set())
            return replace(planned, computed=tuple(leaves.computed), is_constant=not leaves.reads_tables)

    # Both.

    def _finish(self, bench: Workbench, analyzed: Any, tables: set[str]) -> tuple[Planned, bool, Leaves]:
        """What becomes of a resolved query, whether it has nothing that the user can define anew, and its leaves."""
        columns, config = _columns(analyzed), bench.config
        timed = bench.with_time(analyzed, self._clock)
        shown = timed.toString()
        refuse_analyzed(shown, timed.containsPattern(self._catalyst.patterns.CURRENT_LIKE()))
        is_fixed = not timed.containsAnyPattern(self._catalyst.redefinable) and _views(shown) <= tables
        optimized = bench.without_nested_cases(bench.optimized(timed, has_loops="UnionLoop" in shown))
        text = bench.json(optimized)
        refuse_optimized(text, optimized.toString)
        bench.check_settings(text)
        nodes = json.loads(text)
        leaves = Leaves(self._catalyst, self._owner, optimized, bench.recursion)
        leaves.explain(nodes)
        plan = json.dumps(nodes, separators=(",", ":"))
        return Planned(plan, config, columns, tuple(leaves.constants), leaves.functions), is_fixed, leaves


def _written(names: list[str], text: str) -> str:
    """The one of some names, which differ in case alone, that stands in a text as it is."""
    exact = [name for name in names if escape(name) in text]
    if len(exact) == 1:
        return exact[0]
    raise SqlError(
        f"the query may mean {' or '.join(map(repr, names))}",
        detail="Spark does not tell names apart by case alone",
        hint=f"set {CASE} to true, as it was when they were created",
    )


def _columns(plan: Any) -> tuple[pa.Field, ...]:
    return tuple(pa.field(each["name"], arrow_type(each["type"]), each["nullable"]) for each in schema_of(plan))


def _views(shown: str) -> set[str]:
    """The names of the views that the text of a plan shows."""
    return {name.replace("``", "`") for name in _VIEW.findall(shown)}


def parameter_field(name: str, given: pa.Field | pa.DataType | str) -> StructField:
    """A parameter as Spark has it."""
    if isinstance(given, str):
        try:
            return StructField(name, _parse_datatype_string(given), nullable=False)
        except PySparkException as error:
            raise SqlError(
                f"cannot read the type {given!r} of parameter {name!r}", detail=spark_error_summary(error)
            ) from None
    field = given.with_name(name) if isinstance(given, pa.Field) else pa.field(name, given, nullable=False)
    return spark_schema([field])[0]
