"""The prepared statements of a session: those that have a name are found by it, and come back from storage.

A name belongs to one statement until that statement is closed. Statements without a name get a number, for errors and
listings only. Planning a statement takes a query to Spark's optimizer; the statement has
no result until it is opened for values of its parameters (`ikebana.sql.statements`).

Not stored: the values for which a statement is open.
"""

from __future__ import annotations

import itertools

from pyspark.sql import SparkSession

from ikebana.cluster.interrupts import complete_or_undo
from ikebana.engine.engine import Engine
from ikebana.operators.changes import Fields
from ikebana.spark.naming import resolve
from ikebana.spark.planning import Parameters
from ikebana.spark.querying import Queries
from ikebana.spark.relations import Relations
from ikebana.spark.stored_queries import StoredQueries
from ikebana.sql.statements import Statement


class PreparedStatements:
    """Prepares statements, and keeps those that have a name."""

    def __init__(self, engine: Engine, relations: Relations, queries: Queries, stored: StoredQueries | None) -> None:
        self._engine, self._relations, self._queries, self._stored = engine, relations, queries, stored
        self._numbers = itertools.count(1)  # for statements without a name
        self._by_name: dict[str, Statement] = {}

    def prepare(self, sql: str, parameters: Parameters, name: str, keep: int) -> Statement:
        """Prepare a statement; without a name ("") it is not kept."""
        planned, fields, tables = self._queries.prepare(sql, parameters)
        with self._relations.lock:
            shown = name or f"statement {next(self._numbers)}"

            def create() -> Statement:
                statement = Statement(self._engine, shown, planned, fields, tables, keep)
                if name:
                    self._keep(statement, sql, fields, keep)
                return statement

            return complete_or_undo(create, Statement.close)

    def _keep(self, statement: Statement, sql: str, parameters: Fields, keep: int) -> None:
        """Keep a statement under its name until it is closed, and store it."""
        self._by_name[statement.name] = statement
        statement.on_close = lambda: self._forget(statement.name)
        if self._stored is not None:
            self._stored.save_statement(statement.name, sql, parameters, keep)

    def _forget(self, name: str) -> None:
        del self._by_name[name]
        if self._stored is not None:
            self._stored.forget_statement(name)

    def find(self, name: str, spark: SparkSession) -> Statement:
        """The statement of this name; raises if there is none."""
        return resolve(self._by_name, name, "statement", spark)

    def names(self) -> tuple[str, ...]:
        """The names of the statements that have one."""
        return tuple(self._by_name)
