"""A table is the one it was made as, not whichever has its name: in another engine, or after it was dropped."""

from __future__ import annotations

from collections.abc import Callable

import pyarrow as pa
import pytest

from ikebana.engine import Engine
from ikebana.engine.collection import Arrangement, Collection
from ikebana.errors import DataflowError

COLUMNS = {"id": pa.int64(), "v": pa.int64()}
MADE: dict[str, Callable[[Collection], Collection | Arrangement]] = {
    "as it is": lambda table: table,
    "counted": lambda table: table.count("v"),
    "arranged": lambda table: table.arrange("v"),
    "in a loop": lambda table: table.select("id").iterate(lambda rows: rows.distinct()),
}


@pytest.mark.parametrize("query", MADE)
def test_regression_of_another_engine(query: str) -> None:
    with Engine() as one, Engine() as other:
        tables = [engine.table("t", COLUMNS, key="id") for engine in (one, other)]
        other.table("u", COLUMNS)
        for table in (tables[1], other.input("i", COLUMNS)):
            made = MADE[query](table)
            for use in (lambda made=made: one.install("v", made), lambda made=made: one.explain(made)):
                with pytest.raises(DataflowError, match=f"reads '{table.name}', which belongs to another engine"):
                    use()
        one.install("v", MADE[query](tables[0]))
        other.install("v", MADE[query](tables[1]))


@pytest.mark.parametrize("query", MADE)
def test_regression_of_a_table_that_was_dropped(query: str) -> None:
    with Engine() as engine:
        old = engine.table("t", COLUMNS, key="id")
        made = MADE[query](old)
        engine.drop_table("t")
        with pytest.raises(DataflowError, match="cannot install 'v': it reads 't', which was dropped"):
            engine.install("v", made)
        new = engine.table("t", COLUMNS, key="id")
        new.insert({"id": [1], "v": [1]})
        with pytest.raises(DataflowError, match="which was dropped") as refused:
            engine.install("v", made)
        assert "tables and inputs that this engine has now" in refused.value.hint
        assert len(engine.install("v", MADE[query](new)).read()) == 1


def test_queries_of_one_engine_still_share() -> None:
    with Engine() as engine:
        table = engine.table("t", COLUMNS, key="id")
        engine.install("one", table.count("v"))
        assert "arrange by v  <- shared with one" in engine.explain(table.count("v"))
