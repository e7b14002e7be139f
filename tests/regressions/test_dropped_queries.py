"""Queries that are dropped free their memory."""

from __future__ import annotations

import gc
import weakref

import numpy as np
import pyarrow as pa
import pytest

from ikebana import graph
from ikebana.engine import Engine
from ikebana.trace.handle import Trace
from tests.dataflow.harness import cluster_of


def traces() -> list[weakref.ref[Trace]]:
    return [weakref.ref(item) for item in gc.get_objects() if isinstance(item, Trace)]


@pytest.mark.usefixtures("no_garbage_collection", "small_sweeps_are_programs")
@pytest.mark.parametrize("workers", [1, 2])
def test_regression_the_indexes_of_a_dropped_query_are_freed_at_once(workers: int) -> None:
    """Its compiled program, which is part of reference cycles, kept them until Python searched for such cycles."""
    with Engine(workers, share=False) as engine:
        edges = engine.table("edges", {"src": pa.int64(), "dst": pa.int64()})
        edges.insert({"src": np.arange(100), "dst": np.arange(100) % 7})
        engine.run()
        before = len(traces())
        queries = {
            "count": edges.count("dst"),
            "join": edges.arrange("dst").join(edges.select(dst="src", to="dst").arrange("dst")),
            "distinct": edges.select("dst").distinct(),
            "components": graph.connected_components(edges),
        }
        for name, query in queries.items():
            view = engine.install(name, query)
            view.read()
            edges.insert({"src": [1000], "dst": [3]})
            view.read()
            flows = [flow for worker in cluster_of(engine).workers for flow in worker.flows.values()]
            assert any(flow.programs_run for flow in flows if flow.name == view.dataflow)
            del flows
            assert len(traces()) > before
            view.drop()
            del view
            engine.run()
            left = [trace.name for reference in traces() if (trace := reference()) is not None]
            assert len(left) == before, (name, left)
