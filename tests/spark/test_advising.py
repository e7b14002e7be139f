"""Advice on sessions, and estimates of `explain`. No Spark is needed for this: both are computed from the engine."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc
from hypothesis import given
from hypothesis import strategies as st

from ikebana.engine import Engine
from ikebana.spark.advising import advise

ROWS = 300


def shop(workers: int = 1, key: str | None = "id") -> Engine:
    engine = Engine(workers)
    orders = engine.table("orders", {"id": pa.int64(), "region": pa.string(), "total": pa.int64()}, key)
    orders.insert({"id": range(ROWS), "region": ["n", "e", "s"] * (ROWS // 3), "total": range(ROWS)})
    return engine


def test_nothing_to_advise() -> None:
    with shop() as engine:
        orders = engine.tables["orders"]
        engine.install("by region", orders.count("region"))
        engine.install("totals", orders.sum("region", "total"))
        orders.lookup(total=5)
        orders.arrange(by="region")
        engine.install("pairs", orders.arrange("region").join(orders.select("region", other="id").arrange("region")))
        engine.run()
        assert advise(engine) == []


def test_an_index_that_nobody_uses() -> None:
    with shop() as engine:
        orders = engine.tables["orders"]
        orders.arrange(by=["region", "total"])
        engine.run()
        (advice,) = advise(engine)
        assert advice.about == ("orders",) and advice.saves > 0
        assert "drop_arrangement(['region', 'total'])" in advice.advice
        orders.drop_arrangement(["region", "total"])
        assert advise(engine) == []


def test_a_table_without_a_key() -> None:
    with shop(workers=2, key=None) as engine:
        orders = engine.tables["orders"]
        joined = orders.arrange("id").join(orders.select("id", other="total").arrange("id"))
        engine.install("by id", joined)
        engine.install(
            "by region", orders.arrange("region").join(orders.select("region", other="id").arrange("region"))
        )
        engine.run()
        (advice,) = advise(engine)
        assert advice.about == ("orders",) and "key='id'" in advice.advice and advice.saves > 0
        orders.insert({"id": [1], "region": ["n"], "total": [7]})
        engine.run()
        assert advise(engine) == []


def test_parts_of_queries_that_several_views_compute() -> None:
    with shop() as engine:
        orders = engine.tables["orders"]
        totals = orders.sum("region", "total")
        engine.install("large", totals.filter(lambda c: pc.greater(c["sum"], 10)))
        engine.install("small", totals.filter(lambda c: pc.less(c["sum"], 10)))
        engine.run()
        (advice,) = advise(engine)
        assert advice.about == ("large", "small")
        assert "aggregates of orders by region" in advice.advice and "create a view" in advice.advice
        engine.views["small"].drop()
        assert advise(engine) == []
        engine.install("private", totals, share=False)
        engine.run()
        (advice,) = advise(engine)
        assert set(advice.about) == {"large", "private"} and "'private' without share=False" in advice.advice


@given(st.integers(1, 3), st.booleans())
def test_explain_knows_how_many_groups_there_are(workers: int, is_indexed: bool) -> None:
    """Without an index the number of groups is bounded by that of rows."""
    with shop(workers) as engine:
        orders = engine.tables["orders"]
        if is_indexed:
            orders.arrange(by="region")
        engine.run()
        counted = engine.explain(orders.count("region"))
        assert ("about" in counted) is is_indexed and ("at most" in counted) is not is_indexed
        if is_indexed:
            assert "about 72 B" in counted or "about 96 B" in counted or "about 120 B" in counted, counted
        filtered = engine.explain(orders.filter(lambda c: pc.equal(c["region"], "n")).count("region"))
        assert "at most" in filtered and "about" not in filtered
        by_key = engine.explain(orders.count("id"))
        assert "at most" not in by_key
