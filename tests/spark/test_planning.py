"""Planning: Catalyst's plans of SQL texts and DataFrames, how their leaves are recognised, and what is refused."""

from __future__ import annotations

import json
import re
import socket
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import cloudpickle
import pandas as pd
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from ikebana.errors import SqlError
from ikebana.expressions.core.tree import Tree, of_nodes
from ikebana.spark import Session, connect
from ikebana.spark.planning import Planner
from ikebana.spark.planning.leaves import MAX_CONSTANT_ROWS, numbered
from ikebana.spark.planning.quick_ack import quick_acknowledgements
from ikebana.spark.planning.refusing import refuse_analyzed, refuse_optimized
from ikebana.spark.types import fields_of
from ikebana.sql.planned import CLOCK, CONSTANT, NOW, PARAMETERS, TABLE, Planned
from tests.sql.record_plans import planner_of
from tests.sql.statements import PREPARED, STATEMENTS, TABLES, nested, planned

pytestmark = pytest.mark.spark


@pytest.fixture(scope="module")
def planner(spark: SparkSession) -> Planner:
    return planner_of(spark)


@pytest.fixture
def setting(spark: SparkSession) -> Iterator[Callable[[str, str], None]]:
    """Changes a setting of the user's session for the duration of a test."""
    with setting_of(spark) as set_it:
        yield set_it


@contextmanager
def setting_of(spark: SparkSession) -> Iterator[Callable[[str, str], None]]:
    """Changes settings of the user's session until the end of the block."""
    before: dict[str, str | None] = {}

    def set_it(key: str, value: str) -> None:
        before.setdefault(key, spark.conf.get(key, None))
        spark.conf.set(key, value)

    try:
        yield set_it
    finally:
        for key, value in before.items():
            spark.conf.unset(key) if value is None else spark.conf.set(key, value)


def leaves(plan: Planned) -> list[str | int]:
    """The tables of a plan, and the numbers of its constants."""
    return [
        (metadata := leaf.fields["output"][0][0]["metadata"]).get(TABLE, metadata.get(CONSTANT))
        for leaf in numbered(of_nodes(plan.nodes))
        if not leaf.children and leaf.kind not in ("OneRowRelation", "UnionLoopRef")
    ]


def expressions(plan: Planned) -> list[Tree]:
    """All expressions of a plan, those of its subqueries too."""
    return list(_expressions(of_nodes(plan.nodes)))


def _expressions(tree: Tree) -> Iterator[Tree]:
    def inside(value: Any) -> Iterator[Tree]:
        if isinstance(value, list) and value and isinstance(value[0], dict) and "class" in value[0]:
            yield from _expressions(of_nodes(value))
        elif isinstance(value, list):
            for item in value:
                yield from inside(item)

    yield tree
    for value in tree.fields.values():
        yield from inside(value)
    for child in tree.children:
        yield from _expressions(child)


def scalars(query_plan: Planned, table: str) -> list[str]:
    """The columns of a table that scalar subqueries read, one for each subquery."""
    return sorted(
        plan.expressions("projectList")[0].fields["name"]
        if plan.kind == "Project"
        else plan.expressions("output")[0].fields["name"]
        for expression in expressions(query_plan)
        if expression.kind == "ScalarSubquery" and leaves_of(plan := expression.expression("plan")) == [table]
    )


def leaves_of(plan: Tree) -> list[str]:
    return [node.fields["output"][0][0]["metadata"].get(TABLE) for node in numbered(plan) if not node.children]


# What was recorded.


@pytest.fixture(scope="class")
def in_utc(spark: SparkSession) -> Iterator[None]:
    with setting_of(spark) as set_it:
        set_it("spark.sql.session.timeZone", "UTC")
        yield


@pytest.mark.usefixtures("in_utc")
class TestRecordedPlans:
    """The plans with which lowering is tested without Java are those that Spark makes: of some statements, others in
    each run, and of all of them in the thorough profile."""

    @given(st.sampled_from(sorted(STATEMENTS)))
    def test_of_statements(self, planner: Planner, name: str) -> None:
        assert_same(planner.plan(STATEMENTS[name]), planned(name))

    @given(st.sampled_from(sorted(PREPARED)))
    def test_of_statements_with_parameters(self, planner: Planner, name: str) -> None:
        assert_same(planner.prepare(*PREPARED[name]), planned(name))


def assert_same(actual: Planned, recorded: Planned) -> None:
    assert repr(of_nodes(actual.nodes)) == repr(of_nodes(recorded.nodes))
    assert [tree.kind for tree in expressions(actual)] == [tree.kind for tree in expressions(recorded)]
    assert actual.columns == recorded.columns
    assert actual.config == recorded.config
    assert actual.constants == recorded.constants
    assert [code.name for code in actual.functions.values()] == [code.name for code in recorded.functions.values()]
    assert leaves(actual) == leaves(recorded)


# Names.


@pytest.mark.parametrize("name", ["late orders", "a.b", "tick`ed", "Größe", "SELECT", "x'y"])
def test_tables_can_have_any_name(spark: SparkSession, name: str) -> None:
    planner = Planner(spark)
    planner.add_table(name, fields_of("id BIGINT NOT NULL, `odd one` STRING"))
    quoted = f"`{name.replace('`', '``')}`"
    plan = planner.plan(f"SELECT a.`odd one`, b.id FROM {quoted} a JOIN {quoted} b USING (id)")
    assert leaves(plan) == [name, name]
    assert plan.columns == (pa.field("odd one", pa.string()), pa.field("id", pa.int64(), nullable=False))


def test_names_that_differ_in_case_alone_are_told_apart(spark: SparkSession) -> None:
    planner = Planner(spark)
    for name in ("Orders", "ORDERS", "orders"):
        planner.add_table(name, fields_of("id BIGINT"))
    assert [leaves(planner.plan(f"SELECT * FROM {name}")) for name in ("ORDERS", "Orders")] == [["ORDERS"], ["Orders"]]


def test_tables_come_before_views_of_the_user(spark: SparkSession, planner: Planner) -> None:
    spark.range(3).createOrReplaceTempView("orders")
    try:
        assert leaves(planner.plan("SELECT * FROM ORDERS")) == ["orders"]
    finally:
        spark.catalog.dropTempView("orders")


def test_columns_are_as_spark_declares_them(spark: SparkSession, planner: Planner) -> None:
    text = "SELECT price, sum(price) AS total, count(*) AS n, max(note) AS note FROM orders GROUP BY price"
    empty = spark.createDataFrame([], TABLES["orders"])
    expected = spark.sql(text.replace("orders", "{orders}"), orders=empty).schema
    assert planner.plan(text).columns == fields_of(expected)


def test_views_and_functions_of_the_user_are_seen_as_they_are(spark: SparkSession, planner: Planner) -> None:
    for value in (1, 2):
        spark.sql(f"CREATE OR REPLACE TEMPORARY VIEW mine AS SELECT {value} AS x")
        spark.sql(f"CREATE OR REPLACE TEMPORARY FUNCTION one() RETURNS INT RETURN {value}")
        spark.udf.register("two", lambda x, value=value: x + value, "bigint")
        for text in ("SELECT x FROM mine JOIN orders", "SELECT one() AS x FROM orders"):
            plan = planner.plan(text)
            assert str(value) in [expression.fields.get("value") for expression in expressions(plan)], text
        (code,) = planner.plan("SELECT two(id) FROM orders").functions.values()
        assert cloudpickle.loads(code.function)(10) == 10 + value
    spark.catalog.dropTempView("mine")
    spark.sql("DROP TEMPORARY FUNCTION one")
    spark.sql("DROP TEMPORARY FUNCTION two")


def test_the_same_text_is_planned_once(planner: Planner) -> None:
    text = "SELECT status, count(*) FROM orders WHERE day < now() GROUP BY status"
    assert planner.plan(text) is planner.plan(text)
    assert planner.prepare(*PREPARED["by_key"]) is planner.prepare(*PREPARED["by_key"])
    assert planner.prepare(PREPARED["by_key"][0], {"id": "INT"}) is not planner.prepare(*PREPARED["by_key"])


def test_other_settings_and_other_tables_are_another_plan(spark: SparkSession, setting: Any) -> None:
    planner = Planner(spark)
    planner.add_table("t", fields_of("x INT"))
    plans = [planner.plan("SELECT x + 1 AS y FROM t")]
    setting("spark.sql.ansi.enabled", "false")
    plans.append(planner.plan("SELECT x + 1 AS y FROM t"))
    planner.add_table("t", fields_of("x BIGINT"))
    plans.append(planner.plan("SELECT x + 1 AS y FROM t"))
    assert [plan.config.ansi for plan in plans] == [True, False, False]
    assert [plan.columns[0].type for plan in plans] == [pa.int32(), pa.int32(), pa.int64()]
    planner.drop_table("t")
    with pytest.raises(SqlError, match="TABLE_OR_VIEW_NOT_FOUND"):
        planner.plan("SELECT x + 1 AS y FROM t")


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("CASE WHEN id = 1 THEN 2 ELSE ", " END"),
        ("CASE WHEN id > 1 THEN ", " ELSE 2 END"),
        ("CASE WHEN ", " > 1 THEN 2 ELSE id END"),
        ("(SELECT max(CASE WHEN id = 1 THEN 2 ELSE ", " END) FROM orders)"),
    ],
)
def test_regression_nested_cases_are_in_the_json_once(planner: Planner, before: str, after: str) -> None:
    depth = 3 if "SELECT" in before else 30
    inner = nested("CASE WHEN id = 3 THEN 4 ELSE ", "id", " END", 2)
    plan = planner.plan(f"SELECT {nested(before, inner, after, depth)} AS x FROM orders")
    assert json_of(plan).count('"class":"org.apache.spark.sql.catalyst.expressions.CaseWhen"') <= 2
    assert sum(expression.kind in ("UnresolvedFunction", "CaseWhen") for expression in expressions(plan)) <= depth + 4


def test_loops_say_what_limits_them(planner: Planner, setting: Any) -> None:
    def limits(rest: str, level: str = "") -> list[Any]:
        text = f"WITH RECURSIVE r(n) {level} AS (SELECT 1 UNION ALL SELECT n + 1 FROM r) SELECT (SELECT {rest}) AS x"
        (loop,) = (expression for expression in expressions(planner.plan(text)) if expression.kind == "UnionLoop")
        return [loop.fields.get(name) for name in ("maxDepth", "maxRows", "limit")]

    assert limits("max(n) FROM r") == [100, 1_000_000, None]
    assert limits("max(n) FROM r", "MAX RECURSION LEVEL 7") == [7, 1_000_000, None]
    setting("spark.sql.cteRecursionLevelLimit", "50")
    setting("spark.sql.cteRecursionRowLimit", "-1")
    assert limits("max(n) FROM (SELECT n FROM r LIMIT 5)") == [50, -1, 5]
    assert limits("max(n) FROM (SELECT n FROM r WHERE n > 1 LIMIT 5)") == [50, -1, None]


def test_the_users_session_does_not_change(spark: SparkSession, planner: Planner) -> None:
    def state() -> Any:
        active = spark._jvm.SparkSession.getActiveSession()  # type: ignore[union-attr]
        confs = spark._jsparkSession.sessionState().conf().getAllConfs().toString()
        return confs, spark.catalog.listTables(), active.get().equals(spark._jsparkSession)

    before = state()
    planner.plan("SELECT 1 AS here FROM orders WHERE day > now()")
    planner.prepare("SELECT :x AS it FROM orders", {"x": "INT"})
    planner.plan(spark.range(2).where("id > 1"))
    for text in ("SELECT nope FROM orders", "CREATE TEMPORARY VIEW v AS SELECT 1", "SET a.b = 3"):
        with pytest.raises(SqlError):
            planner.plan(text)
    assert state() == before


def test_several_threads_plan_at_once(planner: Planner) -> None:
    texts = [f"SELECT id + {n} AS x FROM orders WHERE id IN (SELECT order_id FROM items)" for n in range(12)]
    with ThreadPoolExecutor(4) as pool:
        plans = list(pool.map(planner.plan, texts))
    for n, plan in enumerate(plans):
        assert str(n) in [e.fields.get("value") for e in expressions(plan)] or n == 0
        assert leaves(plan) == ["orders", "items"]


# What is refused.


REFUSED = {
    "SELECT nope FROM orders": r"UNRESOLVED_COLUMN.*`nope`.*line 1 pos 7",
    "SELECT id\nFROM nowhere": r"TABLE_OR_VIEW_NOT_FOUND.*`nowhere`.*line 2 pos 5",
    "SELECT * FROM orders WHERE (": r"PARSE_SYNTAX_ERROR.*line 1, pos 27",
    "SELECT id,\n  price + day FROM orders": r"DATATYPE_MISMATCH.*line 2 pos 2",
    "CREATE TABLE t (x INT) USING parquet": "CreateTable is not a query",
    "SHOW TABLES": "ShowTables is not a query",
    "EXPLAIN SELECT * FROM orders": "ExplainCommand is not a query",
    "BEGIN CREATE TEMPORARY VIEW v AS SELECT 1; SELECT 2; END": "CompoundBody is not a query",
    "SELECT * FROM orders TABLESAMPLE (10 PERCENT)": "TABLESAMPLE is not supported",
    "SELECT id FROM orders WHERE id = :id": (
        r"UNBOUND_SQL_PARAMETER\] Found the unbound parameter: id\. SQLSTATE: 42P02; line 1 pos 33\n"
        r"  hint: prepare the query with a type for each parameter, such as session.prepare"
    ),
}


@pytest.mark.parametrize("text", REFUSED)
def test_refused_by_name(planner: Planner, text: str, caplog: pytest.LogCaptureFixture) -> None:
    with pytest.raises(SqlError) as caught:
        planner.plan(text)
    assert re.search(REFUSED[text], str(caught.value)), caught.value
    assert "\tat " not in str(caught.value) and "\n'" not in str(caught.value)
    assert caught.value.__cause__ is None
    assert not [record for record in caplog.records if record.name.endswith("QueryContextLogger")]


@pytest.mark.parametrize(
    "text",
    [
        "BEGIN CREATE TABLE left_behind (x INT) USING parquet; SELECT 1; END",
        "EXECUTE IMMEDIATE 'CREATE TABLE left_behind (x INT) USING parquet'",
        "CREATE TABLE left_behind USING parquet AS SELECT 1 AS x",
    ],
)
def test_commands_and_scripts_are_not_run(spark: SparkSession, planner: Planner, text: str) -> None:
    with pytest.raises(SqlError, match="is not a query"):
        planner.plan(text)
    assert not spark.catalog.tableExists("left_behind")


@pytest.mark.parametrize(
    ("text", "called"),
    [
        ("SELECT try_add(id, 1) FROM orders", {"try_Add"}),
        ("SELECT id FROM orders WHERE customer IN (SELECT try_cast(note AS BIGINT) FROM orders)", {"try_Cast"}),
        ("SELECT try_sum(id) FROM orders", {"try"}),
        ("SELECT try_to_timestamp(note) FROM orders", {"legacy_Cast"}),
        ("SELECT note LIKE 'a/_b' ESCAPE '/', note ILIKE 'a/_b' ESCAPE '/' FROM orders", {"like"}),
        ("SELECT note LIKE ALL ('a_b', 'b_c'), X'00' FROM orders", {"LikeAll", "binary"}),
        ("SELECT to_json(struct(id)), from_json(note, 'x INT') FROM orders", {"to_json", "from_json"}),
        ("SELECT note LIKE '%a_b%', id + 1, CAST(note AS INT) FROM orders", set()),
    ],
)
def test_what_the_json_lacks_is_written_as_calls(planner: Planner, text: str, called: set[str]) -> None:
    nodes = json.dumps(planner.plan(text).nodes)
    assert set(re.findall(r'"nameParts": "\[(\w+)\]"', nodes)) == called


def test_texts_that_look_like_what_is_refused(planner: Planner) -> None:
    for text in ("ESCAPE", '"class":"org.apache.spark.sql.catalyst.expressions.InSet"', "[B@0"):
        assert planner.plan(f"SELECT id FROM orders WHERE note = '{text}' OR note LIKE '%a_b%'").nodes


@pytest.mark.parametrize("name", ["catalyst.expressions.ScalaUDF", "catalyst.expressions.InSet", "hive.HiveSimpleUDF"])
def test_what_the_json_does_not_have_is_refused(name: str) -> None:
    with pytest.raises(SqlError, match="is not supported"):
        refuse_optimized(f'[{{"class":"org.apache.spark.sql.{name}","num-children":0}}]')


def test_times_that_would_stand_still_are_refused() -> None:
    with pytest.raises(SqlError, match=r"(?s)current_date\(\) is not supported.*write now\(\)"):
        refuse_analyzed("Project [current_date(Some(UTC)) AS current_date()#1]", has_current=True)
    refuse_analyzed("Project [scalar-subquery#64 [] AS current_date()#1]", has_current=True)


def test_only_small_data_can_be_part_of_a_query(spark: SparkSession, planner: Planner, tmp_path: Path) -> None:
    (tmp_path / "x.csv").write_text("1\n")
    with pytest.raises(SqlError, match=r"(?s)can only read tables of this session.*csv.*load it into a table"):
        planner.plan(spark.read.schema("x INT").csv(str(tmp_path)))
    with pytest.raises(SqlError, match=f"more than {MAX_CONSTANT_ROWS} rows"):
        planner.plan(spark.range(MAX_CONSTANT_ROWS + 1))
    with pytest.raises(SqlError, match="cannot read a stream"):
        planner.plan(spark.readStream.format("rate").load())
    with pytest.raises(SqlError, match="cannot plan a"):
        planner.plan(SimpleNamespace())  # type: ignore[arg-type]


# Rows that are part of a query.


def test_rows_of_frames_and_values_are_constants(spark: SparkSession, planner: Planner, zone: str) -> None:
    rows = [(1, "x", Decimal("1.50"), datetime(2024, 7, 1, 12, tzinfo=UTC), date(2024, 7, 1), [1, 2]), (2, *[None] * 5)]
    columns = "a INT NOT NULL, b STRING, c DECIMAL(10,2), d TIMESTAMP, e DATE, f ARRAY<INT>"
    frame = spark.createDataFrame(rows, columns)
    for source in (frame, spark.createDataFrame(frame.toPandas(), columns)):
        plan = planner.plan(source.where("a < 5"))
        (constant,) = plan.constants
        assert [tuple(row.values()) for row in constant.to_pylist()] == rows
        assert constant.schema.field("d").type == pa.timestamp("us", "UTC")
        assert leaves(plan) == [0]


def test_constants_are_numbered_as_they_occur(spark: SparkSession, planner: Planner) -> None:
    plan = planner.plan(
        "SELECT * FROM orders JOIN VALUES (1), (2) AS a(x) ON id = x "
        "WHERE price > (SELECT max(y) FROM VALUES (3.5) AS b(y)) AND id IN (SELECT id FROM range(3))"
    )
    assert sorted(map(str, leaves(plan))) == ["0", "1", "2", "orders"]
    by_number = dict(zip(leaves_in_order(plan), plan.constants, strict=True))
    assert {tuple(table.column_names): table.num_rows for table in by_number.values()} == {
        ("x",): 2,
        ("y",): 1,
        ("id",): 3,
    }
    for leaf in numbered(of_nodes(plan.nodes)):
        metadata = leaf.fields["output"][0][0]["metadata"] if not leaf.children else {}
        if CONSTANT in metadata:
            names = [attribute["name"] for (attribute,) in leaf.fields["output"]]
            assert plan.constants[metadata[CONSTANT]].column_names == names


def leaves_in_order(plan: Planned) -> list[int]:
    return [int(number) for number in re.findall(rf'"{CONSTANT}":(\d+)', json_of(plan))]


def json_of(plan: Planned) -> str:
    return json.dumps(plan.nodes, separators=(",", ":"))


def test_a_frame_without_columns_is_refused(spark: SparkSession, planner: Planner) -> None:
    with pytest.raises(SqlError, match="without columns"):
        planner.plan(spark.createDataFrame([(), ()], StructType()).select(F.lit(1).alias("x")))


# Functions.


def test_functions_can_be_called(spark: SparkSession, planner: Planner) -> None:
    ballast = "x" * 100_000
    by_row = F.udf(lambda x: x + len(ballast), "bigint")
    by_column = F.pandas_udf(lambda x: x * 2, "double")
    frame = spark.range(3).select(by_row(by_row("id")).alias("a"), by_column(F.col("id").cast("double")).alias("b"))
    plan = planner.plan(frame)
    kinds = {code.type: cloudpickle.loads(code.function) for code in plan.functions.values()}
    assert kinds[pa.int64()](1) == 100_001
    assert list(kinds[pa.float64()](pd.Series([1.5]))) == [3.0]
    assert {code.eval_type for code in plan.functions.values()} == {101, 200}
    used = {expression.fields["resultId"]["id"] for expression in expressions(plan) if expression.kind == "PythonUDF"}
    assert used == set(plan.functions)


def test_functions_that_are_broadcast_are_refused(spark: SparkSession, planner: Planner) -> None:
    ballast = "x" * 3_000_000
    variable = spark.sparkContext.broadcast([1, 2, 3])
    for function in (lambda x: x + len(ballast), lambda x: x + len(variable.value)):
        with pytest.raises(SqlError, match=r"(?s)'<lambda>' cannot be part of a view.*broadcast"):
            planner.plan(spark.range(3).select(F.udf(function, "bigint")("id")))


def test_functions_in_subqueries_are_found(planner: Planner) -> None:
    plan = planner.plan(
        "SELECT id FROM orders WHERE doubled(id) > (SELECT max(doubled(line)) FROM items) AND shouted(status) = 'A!'"
    )
    assert sorted(code.name for code in plan.functions.values()) == ["doubled", "doubled", "shouted"]


# Time.


@pytest.mark.parametrize(
    "text",
    [
        "now()",
        "current_timestamp()",
        "current_timestamp",
        "current_date()",
        "curdate()",
        "localtimestamp()",
        "unix_timestamp()",
    ],
)
def test_what_time_it_is_is_read_from_a_table(planner: Planner, zone: str, text: str) -> None:
    plan = planner.plan(f"SELECT {text} AS it FROM orders WHERE EXISTS (SELECT 1 FROM items WHERE {text} IS NOT NULL)")
    assert set(scalars(plan, CLOCK)) == {NOW}
    literals = [expression.fields["dataType"] for expression in expressions(plan) if expression.kind == "Literal"]
    assert not {"timestamp", "date", "timestamp_ntz", "long"} & set(literals)
    assert not plan.columns[0].nullable


def test_frames_too_can_ask_what_time_it_is(spark: SparkSession, planner: Planner, session: Session) -> None:
    session.create_table("ticks", "at TIMESTAMP, x INT")
    frame = session.read("ticks").where(F.col("at") > F.current_timestamp() - F.expr("INTERVAL 5 MINUTES"))
    assert scalars(planner_for(session).plan(frame), CLOCK) == [NOW]


def test_timestamps_are_in_utc(planner: Planner, zone: str) -> None:
    plan = planner.plan(
        "SELECT TIMESTAMP '2024-07-01 12:00:00.5' AS a, TIMESTAMP '2024-11-03 01:30:00-05:00' AS b, "
        "TIMESTAMP '2024-11-03 01:30:00-04:00' AS c, TIMESTAMP '1500-01-01 00:00:00+00:00' AS d FROM orders"
    )
    values = [expression.fields["value"] for expression in expressions(plan) if expression.kind == "Literal"]
    expected = ["2024-07-01 16:00:00.5Z", "2024-11-03 06:30:00Z", "2024-11-03 05:30:00Z", "1500-01-01 00:00:00Z"]
    assert values == expected
    assert plan.config.time_zone == zone


# Parameters.


PARAMETRIC: dict[str, tuple[dict[str, Any], list[str]]] = {
    "SELECT * FROM orders WHERE id = :a": ({"a": "BIGINT"}, ["a"]),
    "SELECT id FROM orders WHERE status IN (:a, :b, 'x')": ({"a": "STRING", "b": "STRING"}, ["a", "b"]),
    "SELECT id FROM orders WHERE day BETWEEN :a AND :a + INTERVAL 3 DAYS": ({"a": "DATE"}, ["a", "a"]),
    "SELECT id, price * :a AS p FROM orders": ({"a": pa.decimal128(5, 2)}, ["a"]),
    "SELECT o.id FROM orders o JOIN items i ON o.id = i.order_id AND i.quantity > :a": ({"a": "INT"}, ["a"]),
    "SELECT o.id FROM orders o LEFT JOIN items i ON o.id = i.order_id AND o.price > :a": ({"a": "INT"}, ["a"]),
    "SELECT status, sum(price) AS s FROM orders GROUP BY status HAVING sum(price) > :a": ({"a": "DECIMAL(9,2)"}, ["a"]),
    "WITH w AS (SELECT * FROM orders WHERE id > :a) SELECT id FROM w WHERE EXISTS (SELECT 1 FROM items "
    "WHERE order_id = w.id AND line = :b)": ({"a": "INT", "b": "INT"}, ["a", "b"]),
    "SELECT ':a' AS t, `odd :a`, id::INT AS i /* :a */ FROM odd WHERE id = :a -- :a": ({"a": "INT"}, ["a"]),
    "SELECT id FROM orders WHERE coalesce(customer, :a) = :a": ({"a": pa.field("a", pa.int64())}, ["a", "a"]),
    "SELECT :`odd one` AS x FROM orders": ({"odd one": "INT"}, ["odd one"]),
}


@pytest.mark.parametrize("text", PARAMETRIC)
def test_parameters_are_read_from_a_table(spark: SparkSession, text: str) -> None:
    planner = planner_of(spark)
    planner.add_table("odd", fields_of("id BIGINT, `odd :a` INT"))
    parameters, expected = PARAMETRIC[text]
    plan = planner.prepare(text, parameters)
    assert scalars(plan, PARAMETERS) == expected
    assert "mergedValue" not in json_of(plan)


def test_parameters_have_the_types_they_were_given(planner: Planner) -> None:
    plan = planner.prepare(
        "SELECT :a AS a, :b AS b, :c AS c FROM orders",
        {"a": "ARRAY<INT>", "b": pa.timestamp("us", "UTC"), "c": pa.field("whatever", pa.int16(), nullable=False)},
    )
    assert [field.type for field in plan.columns] == [
        pa.list_(pa.field("element", pa.int32())),
        pa.timestamp("us", "UTC"),
        pa.int16(),
    ]


@pytest.mark.parametrize(
    ("text", "parameters", "said"),
    [
        ("SELECT id FROM orders LIMIT :n", {"n": "INT"}, "limit expression must evaluate to a constant"),
        ("SELECT id FROM orders WHERE id = :n", {"m": "INT"}, "UNBOUND_SQL_PARAMETER"),
        ("SELECT id FROM orders WHERE id = :n", {"n": "DATE"}, "DATATYPE_MISMATCH"),
        ("SELECT id FROM orders WHERE id = :n", {"n": "NUMBER"}, "cannot parse the type 'NUMBER' of parameter 'n'"),
    ],
)
def test_parameters_that_are_refused(planner: Planner, text: str, parameters: Any, said: str) -> None:
    with pytest.raises(SqlError, match=said):
        planner.prepare(text, parameters)


# DataFrames of tables.


def planner_for(session: Session) -> Planner:
    return Planner(session.spark, session._address.session)


def test_frames_of_tables_are_recognised(spark: SparkSession, session: Session) -> None:
    table = session.create_table("late orders", "id BIGINT, name STRING", key="id")
    session.view("names", table.select("name"))
    planner = planner_for(session)
    frames: list[tuple[DataFrame, list[str]]] = [
        (session.read("late orders"), ["late orders"]),
        (table.to_df().where("id > 3").groupBy("name").count(), ["late orders"]),
        (spark.read.format("ikebana").load("late orders"), ["late orders"]),
        (table.to_df().alias("a").join(table.to_df().select("id").alias("b"), "id"), ["late orders", "late orders"]),
        (table.to_df().join(session.read("names"), "name", "left_anti"), ["late orders", "names"]),
        (table.to_df().cache(), ["late orders"]),
    ]
    for frame, expected in frames:
        plan = planner.plan(frame)
        assert leaves(plan) == expected
        assert plan.columns == fields_of(frame.schema)
    frames[-1][0].unpersist()


def test_views_of_the_user_over_frames_are_recognised(spark: SparkSession, session: Session) -> None:
    table = session.create_table("t", "id BIGINT, name STRING", key="id")
    table.to_df().createOrReplaceTempView("theirs")
    plan = planner_for(session).plan("WITH w AS (SELECT * FROM theirs) SELECT * FROM w a JOIN w b ON a.id = b.id + 1")
    assert leaves(plan) == ["t", "t"]
    assert plan.columns[0].metadata is None
    spark.catalog.dropTempView("theirs")


def test_frames_that_do_not_show_the_present_of_this_session_are_refused(spark: SparkSession, session: Session) -> None:
    table = session.create_table("t", "id BIGINT", key="id")
    epoch = table.insert([{"id": 1}])
    with connect(spark, workers=1) as other:
        other.create_table("t", "id BIGINT", key="id")
        for frame in (session.read("t", at=epoch), other.read("t")):
            with pytest.raises(SqlError, match="a view can only read tables of this session"):
                planner_for(session).plan(frame)


# Prompt answers.


def test_long_answers_are_read_whole_and_the_connection_is_as_before(spark: SparkSession) -> None:
    gateway: Any = spark.sparkContext._gateway
    jvm: Any = spark._jvm
    repeat = jvm.org.apache.commons.lang3.StringUtils.repeat
    connection = gateway._gateway_client.get_thread_connection()
    before = connection.stream
    with quick_acknowledgements(gateway):
        assert connection.stream is not before
        for length in (0, 1, 8191, 8192, 8193, 300_000):
            assert repeat("ä", length) == "ä" * length
    assert connection.stream is before
    assert repeat("b", 20_000) == "b" * 20_000


@pytest.mark.parametrize(
    "gateway", [None, SimpleNamespace(_gateway_client=SimpleNamespace(get_thread_connection=lambda: None))]
)
def test_other_gateways_are_left_alone(gateway: Any) -> None:
    before = repr(gateway)
    with quick_acknowledgements(gateway):
        assert repr(gateway) == before


def test_systems_without_the_option_are_left_alone(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(socket, "TCP_QUICKACK")
    gateway: Any = spark.sparkContext._gateway
    before = gateway._gateway_client.get_thread_connection().stream
    with quick_acknowledgements(gateway):
        assert gateway._gateway_client.get_thread_connection().stream is before
