"""Columns that are added to tables: rows are as in a model, and views that do not have the column go on."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ikebana.engine import Engine
from ikebana.errors import DataflowError, DroppedError, SchemaError
from tests.dataflow.harness import Setup, collected, engine_of, examples, setups
from tests.engine.table_model import NUMBERS, Model, allowed, apply, create, expected, transactions

ADDED = [pa.field("n", pa.int8(), nullable=True), pa.field("t", pa.string(), nullable=False)]
DEFAULTS = [st.sampled_from([None, 3]), st.sampled_from(["", "a"])]


@examples(0.4)
@given(st.data(), setups(3), st.booleans())
def test_oracle_added_columns(data: Any, setup: Setup, is_keyed: bool) -> None:
    numbers = [pa.field(name, kind, nullable=False) for name, kind in NUMBERS.items()]
    model = Model("numbers", numbers, ["k"] if is_keyed else [])
    with engine_of(setup) as engine:
        table, views = create(engine, model), []
        engine.advance()
        for step in range(3):
            views.append((engine.install(f"all {step}", table), list(model.fields)))
            views.append((engine.install(f"by v {step}", table.arrange("v").rows()), list(model.fields)))
            for _ in range(data.draw(st.integers(0, 2))):
                (feeds,) = [data.draw(transactions([model]))]
                after, new = expected([model], feeds), engine.transaction()
                for feed in feeds:
                    apply(new, table, model, feed)
                assert allowed(new.commit) == (after is not None)
                model = after[0] if after else model
            if step < len(ADDED):
                default = data.draw(DEFAULTS[step])
                table = engine.add_column("numbers", ADDED[step], default)
                rows = Counter({(*row, default): count for row, count in model.rows.items()})
                model = Model("numbers", [*model.fields, ADDED[step]], model.key, rows)
            if data.draw(st.booleans()):
                views.pop(data.draw(st.integers(0, len(views) - 1)))[0].drop()
            for view, fields in views:
                names = [field.name for field in fields]
                shown: Counter[Any] = Counter()
                for row, count in model.rows.items():
                    shown[row[: len(fields)]] += count
                assert collected(view.read().select([*names, "diff"])) == dict(shown)
        for view, _ in views:
            view.drop()
        assert len(engine.catalog.dataflows()) == 1, "rows without the columns are no longer kept"


def test_what_is_refused() -> None:
    with Engine() as engine:
        table = engine.table("t", {"k": pa.int64()}, "k")
        engine.table("s", {"k": pa.int64()}, kind="stream")
        for name, field, default in (
            ("t", pa.field("k", pa.int64()), 1),
            ("t", pa.field("x", pa.int64(), nullable=False), None),
            ("t", pa.field("x", pa.int64()), "one"),
            ("s", pa.field("x", pa.int64()), 1),
        ):
            with pytest.raises(SchemaError):
                engine.add_column(name, field, default)
        view = engine.install("v", table)
        table.arrange(by="k")
        transaction = engine.transaction()
        transaction.insert(table, {"k": [1]})
        new = engine.add_column("t", pa.field("x", pa.int64()), 1)
        with pytest.raises(DroppedError):
            transaction.commit()
        with pytest.raises(DroppedError):
            table.insert({"k": [1]})
        new.insert({"k": [1], "x": [2]})
        assert view.to_arrow().to_pylist() == [{"k": 1}] and new.lookup(k=1).to_pylist() == [{"k": 1, "x": 2}]
        again = engine.install("again", table.select(renamed="k"))
        new.delete({"k": [1]})
        assert again.to_arrow().num_rows == view.to_arrow().num_rows == 0
        with pytest.raises(DataflowError, match="it is used by"):
            engine.drop_table("t")
        view.drop()
        again.drop()
        with pytest.raises(DataflowError, match="was dropped"):
            engine.install("late", table.select(renamed="k"))
        engine.drop_table("t")
