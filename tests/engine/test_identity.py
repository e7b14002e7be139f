"""A table is not identified by its name: not in another engine, and not after it was dropped."""

from __future__ import annotations

from collections.abc import Callable

import pyarrow as pa
import pytest

from ikebana.engine import Engine
from ikebana.engine.collection import Arrangement, Collection
from ikebana.errors import DataflowError

COLUMNS = {"id": pa.int64(), "v": pa.int64()}
QUERIES: dict[str, Callable[[Collection], Collection | Arrangement]] = {
    "as it is": lambda table: table,
    "counted": lambda table: table.count("v"),
    "arranged": lambda table: table.arrange("v"),
    "in a loop": lambda table: table.select("id").iterate(lambda rows: rows.distinct()),
}


@pytest.mark.parametrize("query", QUERIES)
def test_regression_of_another_engine(query: str) -> None:
    with Engine() as one, Engine() as other:
        tables = [engine.table("t", COLUMNS, key="id") for engine in (one, other)]
        other.table("u", COLUMNS)
        for table in (tables[1], other.input("i", COLUMNS)):
            plan = QUERIES[query](table)
            for use in (lambda plan=plan: one.install("v", plan), lambda plan=plan: one.explain(plan)):
                with pytest.raises(DataflowError, match=f"reads '{table.name}', which belongs to another engine"):
                    use()
        one.install("v", QUERIES[query](tables[0]))
        other.install("v", QUERIES[query](tables[1]))


@pytest.mark.parametrize("query", QUERIES)
def test_regression_of_a_table_that_was_dropped(query: str) -> None:
    with Engine() as engine:
        old = engine.table("t", COLUMNS, key="id")
        plan = QUERIES[query](old)
        engine.drop_table("t")
        with pytest.raises(DataflowError, match="cannot install 'v': it reads 't', which was dropped"):
            engine.install("v", plan)
        new = engine.table("t", COLUMNS, key="id")
        new.insert({"id": [1], "v": [1]})
        with pytest.raises(DataflowError, match="which was dropped") as refused:
            engine.install("v", plan)
        assert "tables and inputs that this engine has now" in refused.value.hint
        assert len(engine.install("v", QUERIES[query](new)).read()) == 1


def test_queries_of_one_engine_still_share() -> None:
    with Engine() as engine:
        table = engine.table("t", COLUMNS, key="id")
        engine.install("one", table.count("v"))
        assert "arrange by v  <- shared with one" in engine.explain(table.count("v"))
