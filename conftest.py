"""Names that the doctests of `ikebana.engine.collection` can use without an import.

`numbers`: a collection of rows (k, v): (1, 10), (1, 20), (2, 30). `show(collection)`: the rows that an
engine computes for a collection.
"""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest


@pytest.fixture(autouse=True)
def doctest_names(request: pytest.FixtureRequest) -> None:
    if not isinstance(request.node, pytest.DoctestItem) or "ikebana.engine.collection" not in request.node.name:
        return
    from ikebana.engine import Engine

    engine = Engine()
    numbers = engine.input("numbers", {"k": pa.int64(), "v": pa.int64()})
    numbers.insert({"k": [1, 1, 2], "v": [10, 20, 30]})
    engine.advance()
    count = iter(range(1000))

    def show(collection: Any) -> list[tuple[Any, ...]]:
        table = engine.install(f"view {next(count)}", collection).read()
        return sorted(tuple(row.values()) for row in table.to_pylist())

    request.node.dtest.globs.update(numbers=numbers, show=show, pa=pa, pc=pc)
