"""SQL statements of a session: which text is which statement. No Spark is needed for this."""

from __future__ import annotations

import pytest

from ikebana.errors import SqlError
from ikebana.spark.commands import (
    Command,
    CreateTable,
    CreateView,
    Delete,
    Drop,
    Explain,
    Insert,
    Query,
    Show,
    parse,
)


@pytest.mark.parametrize(
    ("text", "command"),
    [
        ("SELECT 1", Query("SELECT 1")),
        (
            "  -- why\n/* and */ (with a as (select 1) select * from a); ",
            Query("(with a as (select 1) select * from a)"),
        ),
        ("values (1, ';')", Query("values (1, ';')")),
        ("from t |> select a", Query("from t |> select a")),
        ("Create Materialized View late AS\nSELECT 1", CreateView("late", "SELECT 1")),
        ("CREATE OR REPLACE MATERIALIZED VIEW `a ``b` AS SELECT 1", CreateView("a `b", "SELECT 1", replace=True)),
        ("CREATE MATERIALIZED VIEW IF NOT EXISTS v AS SELECT 1", CreateView("v", "SELECT 1", if_not_exists=True)),
        ("CREATE TABLE t (a INT)", CreateTable("t", "a INT")),
        (
            "CREATE TABLE IF NOT EXISTS t (id BIGINT NOT NULL, s STRUCT<a: INT, b: ARRAY<DECIMAL(10, 2)>>, "
            "`the key` STRING, CONSTRAINT pk PRIMARY KEY (id, `the key`));",
            CreateTable(
                "t",
                "id BIGINT NOT NULL, s STRUCT<a: INT, b: ARRAY<DECIMAL(10, 2)>>, `the key` STRING",
                ("id", "the key"),
                if_not_exists=True,
            ),
        ),
        (
            "create table t (id bigint primary key, x int comment 'a, b')",
            CreateTable("t", "id bigint, x int comment 'a, b'", ("id",)),
        ),
        ("INSERT INTO t VALUES (1, 'a')", Insert("t", (), "VALUES (1, 'a')")),
        ("insert into table t (a, `b c`) select 1, 2", Insert("t", ("a", "b c"), "select 1, 2")),
        ("INSERT INTO t (SELECT 1)", Insert("t", (), "(SELECT 1)")),
        ("DELETE FROM t", Delete("t")),
        ("DELETE FROM t WHERE a = 'WHERE' -- all\n;", Delete("t", "a = 'WHERE'")),
        ("DROP VIEW v", Drop("view", "v")),
        ("DROP MATERIALIZED VIEW IF EXISTS v", Drop("view", "v", if_exists=True)),
        ("DROP TABLE IF EXISTS t CASCADE", Drop("table", "t", if_exists=True, cascade=True)),
        ("SHOW TABLES", Show("tables")),
        ("show materialized views", Show("views")),
        ("EXPLAIN SELECT 1", Explain("SELECT 1")),
    ],
)
def test_statements(text: str, command: Command) -> None:
    assert parse(text) == command


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "does not run this statement"),
        ("UPDATE t SET a = 1", "does not run this statement"),
        ("CREATE VIEW v AS SELECT 1", "CREATE MATERIALIZED VIEW"),
        ("CREATE FUNCTION f AS 'x'", "creates tables and materialized views only"),
        ("CREATE MATERIALIZED VIEW v SELECT 1", "AS is expected before 'SELECT'"),
        ("CREATE MATERIALIZED VIEW v AS", "a query is expected at the end"),
        ("CREATE MATERIALIZED VIEW AS SELECT 1", "AS is expected before 'SELECT'"),
        ("CREATE TABLE t", r"\( is expected at the end"),
        ("CREATE TABLE t (a INT", "not complete"),
        ("CREATE TABLE t (a INT,)", "not complete"),
        ("CREATE TABLE t (a INT PRIMARY KEY, b INT, PRIMARY KEY (b))", "2 primary keys"),
        ("CREATE TABLE t (a INT) USING parquet", "nothing more is expected before 'USING'"),
        ("INSERT OVERWRITE t SELECT 1", "INTO is expected"),
        ("INSERT INTO t (a b) VALUES (1)", "are names"),
        ("DELETE FROM t AS x", "WHERE is expected"),
        ("DROP VIEW 'v'", "a name is expected"),
        ("DROP TABLE a.b", "have one part"),
        ("SHOW COLUMNS", "VIEWS is expected"),
    ],
)
def test_other_statements_are_refused(text: str, message: str) -> None:
    with pytest.raises(SqlError, match=message):
        parse(text)


def test_sql_is_text() -> None:
    with pytest.raises(SqlError, match="int is not SQL"):
        parse(5)  # type: ignore[arg-type]
