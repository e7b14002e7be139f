"""Programs do the small sweeps of all statements, and of the queries of TPC-H, but for functions of the user's."""

from __future__ import annotations

from unittest.mock import patch

import pytest

from ikebana.engine import Engine
from ikebana.operators.program import ProgramBuilder
from ikebana.runtime import program as fusing
from ikebana.runtime.dataflow import Dataflow
from ikebana.sql.lowering.query import lower
from tests.dataflow.harness import cluster_of
from tests.sql import tpch
from tests.sql.rows import rows
from tests.sql.statement_tables import wandering
from tests.sql.statements import planned
from tests.sql.test_lowering import installed
from tests.sql.test_lowering_tpch import NAMES as QUERIES
from tests.sql.test_lowering_tpch import answers

VISITED = {
    "python": "a function of the user's",
    "python_nested": "a function of the user's",
    "recursive": "an index, in a loop, of columns that do not fit into 64 bits",
    "recursive_twice": "the same",
    "recursive_limit": "the same",
    "recursive_endless": "the same",
}
"""The statements that are visited, at least in part, and what prevents that they are compiled."""


def visited(engine: Engine) -> set[str]:
    """The dataflows of which some operators are visited."""
    return {name for name, flow in cluster_of(engine).workers[0].flows.items() if is_visited(flow)}


def is_visited(flow: Dataflow) -> bool:
    builder = ProgramBuilder(flow.workers)
    written = [builder.try_lower(operator, position) for position, operator in enumerate(flow._root.items)]
    return not all(written)


def test_programs_do_all_small_sweeps_of_statements() -> None:
    with installed(1, rows()) as tables:
        tables.answers()
        assert visited(tables.engine) == set(VISITED)


def test_invariance_statements_as_programs_and_by_visits() -> None:
    """Changes of single tables, a few rows at a time, are done both ways, which are compared in every trace."""
    first, *states = wandering(rows(), 4, seed=2)
    with patch.object(fusing, "FUSE", "both"), installed(1, first) as tables:
        tables.answers()
        for state in states:
            for name in state:
                tables.change_to({**tables.rows, name: state[name]})
                tables.answers()
        flows = cluster_of(tables.engine).workers[0].flows.values()
        assert sum(flow.programs_run for flow in flows) > 2 * len(flows)


def test_programs_do_all_small_sweeps_of_tpch(tmp_path_factory: pytest.TempPathFactory) -> None:
    with Engine() as engine:
        tables = tpch.tables(engine)
        with engine.transaction():
            for name, table_rows in tpch.sample(tmp_path_factory.mktemp("tpch")).items():
                engine.tables[name].insert(table_rows)
        for name in QUERIES:
            engine.install(name, lower(planned(f"tpch/{name}"), tables).rows)
        answers(engine)
        assert not visited(engine)
