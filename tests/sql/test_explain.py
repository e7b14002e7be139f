"""How statements are planned: the golden files of `explained/`, and which arrangements plans share.

`python -m tests.sql.test_explain` rewrites the golden files, after an intended change of plans.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from ikebana.engine import Engine
from ikebana.sql import SourceTable
from ikebana.sql.lowering.query import lower
from tests.sql.rows import FIELDS
from tests.sql.statements import KEYS, planned
from tests.sql.tpch import tables as tpch_tables

EXPLAINED = Path(__file__).with_name("explained")

GOLDEN = {
    "filter": "one step",
    "join": "by key one way; the other way by an index that leads to the key",
    "join_many": "a delta join of four tables",
    "join_semi": "distinct keys, looked up as a table is",
    "aggregate": "a sum of parts, and two extremes",
    "top": "first in buckets, then of all",
    "top_of_partition": "row numbers of the first rows alone",
    "tpch/q3": "three tables, an aggregate and the first rows",
    "tpch/q5": "a delta join of six tables",
}
"""What each file shows."""


def engine_for(name: str) -> tuple[Engine, dict[str, SourceTable]]:
    """An engine with empty tables, so that plans do not depend on estimates."""
    engine = Engine()
    if name.startswith("tpch"):
        return engine, tpch_tables(engine)
    return engine, {
        table: SourceTable(table, engine.table(table, fields, KEYS.get(table)), KEYS.get(table, ()))
        for table, fields in FIELDS.items()
    }


def explained(name: str) -> str:
    engine, tables = engine_for(name)
    return engine.explain(lower(planned(name), tables).rows) + "\n"


def file_of(name: str) -> Path:
    return EXPLAINED / f"{name.replace('/', '_')}.txt"


@pytest.mark.parametrize("name", GOLDEN)
def test_golden_explain(name: str) -> None:
    assert explained(name) == file_of(name).read_text(encoding="utf-8"), GOLDEN[name]


def test_later_statements_share_what_earlier_ones_have_built() -> None:
    engine, tables = engine_for("join")
    engine.install("join", lower(planned("join"), tables).rows)
    text = engine.explain(lower(planned("join_many"), tables).rows)
    assert "arrange by customer  <- shared with join" in text
    assert "arrange by nation  <- built here" in text
    assert "arrange by id  <- reused from table orders" in text


def test_q5_builds_of_orders_and_customer_only_what_q3_has_not() -> None:
    engine, tables = engine_for("tpch/q5")
    engine.install("q3", lower(planned("tpch/q3"), tables).rows)
    lines = engine.explain(lower(planned("tpch/q5"), tables).rows).splitlines()
    arranged = {line.split("arrange ")[1] for line in lines if "arrange " in line and "see above" not in line}
    assert {
        "by o_orderkey  <- reused from table orders",
        "by c_custkey  <- reused from table customer",
        "by o_custkey  <- shared with q3",
        "by l_orderkey  <- shared with q3",
        "by c_nationkey  <- built here",
    } <= arranged
    assert not any(text.startswith("by o_") and text.endswith("built here") for text in arranged)


def test_statements_that_say_the_same_are_one() -> None:
    engine, tables = engine_for("join")
    first, again = (lower(planned("join"), tables).rows for _ in range(2))
    assert first.node is again.node
    engine.install("first", first)
    before = len(engine.status())
    engine.install("again", again)
    assert len(engine.status()) == before


def main() -> None:
    EXPLAINED.mkdir(exist_ok=True)
    for name in GOLDEN:
        file_of(name).write_text(explained(name), encoding="utf-8")


if __name__ == "__main__":
    main()
