"""Functions that users give to collections: of whole columns, not of rows."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from ikebana.engine import Engine
from ikebana.errors import SchemaError


def test_functions_of_rows_are_refused() -> None:
    with Engine() as engine:
        table = engine.table("people", {"name": pa.string(), "age": pa.int64()})
        for wrong in (lambda row: row.name == "a", lambda row: row["name"] == "a", "name = 'a'", None):
            with pytest.raises(SchemaError, match=r"whole columns|needs a function"):
                table.filter(wrong)  # type: ignore[arg-type]
        with pytest.raises(SchemaError, match="whole columns"):
            table.map({"name": pa.string()}, lambda row: {"name": row.name})  # type: ignore[attr-defined]
        table.filter(lambda c: pc.greater(c["age"], pc.max(c["age"])))
