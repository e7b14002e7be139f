"""The debug mode in which nothing may be written beyond a memtable."""

from __future__ import annotations

from unittest.mock import patch

import pyarrow as pa
import pytest

from ikebana.engine import Engine
from ikebana.runtime import program
from ikebana.trace import memtable
from tests.dataflow.harness import cluster_of


@pytest.mark.usefixtures("small_sweeps_are_programs")
@pytest.mark.parametrize("workers", [1, 2])
def test_programs_do_not_write_beyond_memtables(workers: int) -> None:
    with patch.object(memtable, "GUARDS", 8), patch.object(program, "CHECKS_BOUNDS", True), Engine(workers) as engine:
        source = engine.input("source", {"k": pa.int64(), "s": pa.string()})
        view = engine.install("view", source.distinct().count("k"))
        for number in range(60):  # more than a new memtable has room for
            source.insert({"k": [number % 3] * 2, "s": [f"{number} {'x' * number}", "again"]})
            engine.advance()
            view.wait(engine.epoch - 1)
        assert sorted(view.to_arrow()["count"].to_pylist()) == [21, 21, 21]
        flows = [flow for worker in cluster_of(engine).workers for flow in worker.flows.values()]
        assert sum(flow.programs_run for flow in flows) > 60
        tables = [flow.reader.trace.spine.memtable for flow in flows]
        written = next(table for table in tables if table is not None)
        written.check_bounds()
        written._guards[0] = 0
        with pytest.raises(AssertionError, match="beyond the memtable"):
            written.check_bounds()
