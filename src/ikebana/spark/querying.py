"""Queries of a session as collections: SQL and DataFrames over its tables and views, which Spark plans, and others.

`Queries` tells Spark's planner about the tables and views that a query mentions. The planner is created with the first
query; a session without queries does not pay for it.
"""

from __future__ import annotations

import threading
import warnings
from collections.abc import Callable, Iterable, Mapping
from weakref import WeakKeyDictionary

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType

from ikebana.engine import Engine
from ikebana.engine.collection import Arrangement, Collection
from ikebana.errors import ConstantRowsWarning, SchemaError
from ikebana.operators.changes import Fields
from ikebana.plan import ir
from ikebana.spark.clock import Clock
from ikebana.spark.naming import mentioned
from ikebana.spark.planning import Parameters, Planner, parameter_field
from ikebana.spark.relations import Relations
from ikebana.spark.table import Table
from ikebana.spark.types import fields_of
from ikebana.spark.view import View
from ikebana.sql import LoweredQuery, Planned, SourceTable
from ikebana.sql.lowering.query import lower
from ikebana.sql.planned import CLOCK

Query = str | DataFrame | Collection | Arrangement
"""The definition of a view: SQL text, a DataFrame, or a collection."""

Relation = str | Table | View | DataFrame | Collection
"""A table or view, its name, or a query over tables and views."""


class _WithClock(dict[str, SourceTable]):
    """Tables by name; the clock is created when it is looked up."""

    def __init__(self, tables: Mapping[str, SourceTable], clock: Callable[[], SourceTable]) -> None:
        super().__init__(tables)
        self._clock = clock

    def __missing__(self, name: str) -> SourceTable:
        if name != CLOCK:
            raise KeyError(name)
        return self._clock()


class Queries:
    """Plans and lowers the queries of one session."""

    def __init__(self, spark: SparkSession, engine: Engine, owner: str, relations: Relations) -> None:
        """`owner` identifies the session in the metadata of its DataFrames."""
        self._spark, self._engine, self._owner, self._relations = spark, engine, owner, relations
        self._clock: Clock | None = None
        self._lowered: WeakKeyDictionary[Planned, LoweredQuery] = (
            WeakKeyDictionary()
        )  # by plan, for as long as the planner caches it
        self._planner: Planner | None = None
        self._known: dict[str, SourceTable] = {}
        self._lock = threading.Lock()

    def lower(self, query: Query, what: str) -> LoweredQuery:
        """A query as a collection over tables and views, and the order in which its rows are shown.

        `what` names the query in errors and warnings. Warnings point to the second caller: the user's call of a method.
        """
        if isinstance(query, Arrangement):
            return LoweredQuery(query.rows())
        if isinstance(query, Collection):
            return LoweredQuery(query)
        if isinstance(query, str | DataFrame):
            return self._lower_with_spark(query, what)
        raise SchemaError(
            f"{what} cannot be created from a value of type {type(query).__name__}",
            hint="give SQL, a DataFrame, or a collection such as table.filter(...) or table.count(...)",
        )

    def rows_of(self, source: Relation, what: str) -> Collection:
        """A table or view, its name, or a DataFrame over tables and views, as a collection.

        `what` says what it is to be, in errors.
        """
        if isinstance(source, str):
            return self._relations.source(source).rows
        if isinstance(source, Table):
            return source._inner
        if isinstance(source, View):
            return source.rows()
        if isinstance(source, DataFrame | Collection):
            return self.lower(source, what).rows
        raise SchemaError(
            f"{what} cannot be a value of type {type(source).__name__}",
            hint="give a table or view of the session, its name, or a DataFrame",
        )

    def _lower_with_spark(self, query: str | DataFrame, what: str) -> LoweredQuery:
        tables = self._tables()
        names = mentioned(query, tables) if isinstance(query, str) else []
        planned = self._planner_of(tables, names).plan(query, names)
        if planned.is_constant or planned.computed:
            warnings.warn(_warning(planned, what), ConstantRowsWarning, stacklevel=4)
        lowered = self._lowered.get(planned)
        if lowered is None:
            lowered = self._lowered[planned] = lower(planned, _WithClock(tables, self._running_clock))
        return lowered

    def prepare(self, text: str, parameters: Parameters) -> tuple[Planned, Fields, Mapping[str, SourceTable]]:
        """The plan of a SQL text with parameters, the fields of the parameters, and the tables by name."""
        tables = self._tables()
        spark_fields = [parameter_field(name, kind) for name, kind in parameters.items()]
        names = mentioned(text, tables)
        planned = self._planner_of(tables, names).prepare(text, parameters, names)
        return planned, fields_of(StructType(spark_fields)), _WithClock(tables, self._running_clock)

    def _tables(self) -> dict[str, SourceTable]:
        """The present tables and views, by name."""
        with self._relations.lock:
            return dict(self._relations.sources)

    def _running_clock(self) -> SourceTable:
        """The table of the clock, which is started by the first query that reads the time."""
        with self._lock:
            if self._clock is None:
                self._clock = Clock(self._engine)
            return self._clock.table

    def clock(self) -> ir.Node:
        """The source of the current time."""
        self._running_clock()
        return self._engine.tables[CLOCK].node

    def close(self) -> None:
        """Stop the clock."""
        with self._lock:
            if self._clock is not None:
                self._clock.close()

    def _planner_of(self, tables: Mapping[str, SourceTable], names: Iterable[str]) -> Planner:
        """The planner, after adding the tables of these names and removing tables that were dropped.

        Adding a table takes about ten milliseconds, so a view that no query reads is never added.
        """
        with self._lock:
            if self._planner is None:
                self._planner = Planner(self._spark, self._owner)
            for name in [name for name, table in self._known.items() if tables.get(name) is not table]:
                self._planner.drop_table(name)
                del self._known[name]
            for name in names:
                if name not in self._known:
                    self._planner.add_table(name, tables[name].rows.node.columns)
                    self._known[name] = tables[name]
            return self._planner


def _warning(planned: Planned, what: str) -> str:
    """Why a view, or part of it, will never change, and what to do."""
    rows = "; ".join(f"rows with the columns {names}" for names in planned.computed)
    if planned.is_constant:
        return (
            f"{what} never changes: its DataFrame reads no table or view of this session"
            + (f", only {rows}, which were computed when the DataFrame was created" if rows else "")
            + ". If it was computed from a table, for instance by transpose() or checkpoint(), write the query in SQL, "
            "or as a DataFrame over table.to_df()."
        )
    return (
        f"a part of {what} never changes: its DataFrame has {rows}, as they were when it was created. If they "
        "were computed from a table, for instance by transpose() or checkpoint(), write that part in SQL, or as a "
        "DataFrame over table.to_df(); if they are constant data of your own, load them into a table, or ignore "
        "ikebana.ConstantRowsWarning."
    )
