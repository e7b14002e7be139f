"""What every supported version of PySpark must do: tables, views, and queries that need more than the plan's JSON.

`make test-lowest` runs this file with the lowest versions of all dependencies. Features that only newer versions of
Spark have are tested elsewhere, with the pinned version.
"""

from __future__ import annotations

import pytest

from ikebana.spark import Session

pytestmark = pytest.mark.spark

QUERIES = {
    "sums": "SELECT k, sum(x) AS s, count(*) AS n FROM t GROUP BY k",
    "joins": "SELECT t.k, u.k, u.x FROM t LEFT JOIN t u ON t.id = u.id + 1",
    "tries": """SELECT k, try_divide(x, id - 1) AS r, CASE WHEN id > 1 THEN CASE WHEN id > 2 THEN try_cast(k AS INT) END
                ELSE 5 END AS c FROM t""",
    "pivot": "SELECT * FROM (SELECT k, id, x FROM t) PIVOT (sum(x) FOR id IN (1, 2))",
    "moments": "SELECT k, corr(x, id) AS c, try_sum(id) AS s, approx_count_distinct(x) AS d FROM t GROUP BY k",
    "constants": """SELECT array('a', 'b') AS a, X'00' AS b, k LIKE ANY ('a%') AS l, k LIKE '!%' ESCAPE '!' AS e,
                    to_json(struct(k)) AS j, from_json(k, 'x INT') AS f FROM t""",
    "windows": """SELECT id, row_number() OVER (PARTITION BY k ORDER BY x, id) AS r,
                  stddev(x) OVER (PARTITION BY k) AS d FROM t""",
    "sessions": """SELECT k, session_window.start AS s, count(*) AS n FROM t
                   GROUP BY k, session_window(timestamp_seconds(id), '1 minute')""",
}


def test_views_are_those_of_spark_after_changes(session: Session) -> None:
    table = session.create_table("t", "id BIGINT, k STRING, x DOUBLE, at TIMESTAMP", key="id")
    table.insert([(1, "a", 1.0, None), (2, "b", 2.5, None), (3, "a", None, None)])
    views = {name: session.view(name, query) for name, query in QUERIES.items()}
    table.upsert([(3, "b", 9.0, None), (4, "c", 0.5, None)])
    table.delete({"id": 1})
    assert [view.verify().difference for view in views.values()] == [""] * len(views)
    assert session.sql("SELECT max(n) AS n FROM sums").collect()[0].n == 2
    assert sorted(views["sums"].to_df().toPandas()["k"]) == ["b", "c"]
    statement = session.prepare("SELECT k FROM t WHERE id = :id", id="BIGINT")
    assert statement.read(id=4)["k"].to_pylist() == ["c"]
    statement.close()
