"""Functions that users give to collections: of whole columns, not of rows."""

from __future__ import annotations

import pyarrow as pa
import pytest

from ikebana.engine import Engine
from ikebana.errors import EvaluationError, SchemaError


def test_what_is_no_function_is_refused() -> None:
    with Engine() as engine:
        table = engine.table("people", {"name": pa.string(), "age": pa.int64()})
        for wrong in ("name = 'a'", None):
            with pytest.raises(SchemaError, match="needs a function"):
                table.filter(wrong)  # type: ignore[arg-type]
            with pytest.raises(SchemaError, match="needs a function"):
                table.map({"name": pa.string()}, wrong)  # type: ignore[arg-type]


def test_a_function_of_rows_is_an_error_of_its_view_alone() -> None:
    with Engine() as engine:
        table = engine.table("people", {"name": pa.string(), "age": pa.int64()})
        view = engine.install("wrong", table.filter(lambda row: row.name == "a"))  # type: ignore[attr-defined]
        table.insert({"name": ["a"], "age": [1]})
        with pytest.raises(EvaluationError, match="'dict' object has no attribute 'name'"):
            view.read()
        assert engine.install("right", table).to_arrow().num_rows == 1
