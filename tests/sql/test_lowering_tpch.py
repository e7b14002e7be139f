"""The 22 queries of TPC-H, lowered without Java: maintained answers equal answers from scratch, and Spark's.

Spark's answers are recorded (`tests.sql.record_plans`); `tests.sql.test_tpch` compares on Spark.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from ikebana.engine import Engine
from ikebana.plan import ir
from ikebana.plan.sharing import walk
from ikebana.reducers.ordering import Foremost
from ikebana.sql.lowering.query import lower
from ikebana_bench.tpch.answers import wrong
from ikebana_bench.tpch.schemas import QUERIES
from ikebana_bench.tpch.stream import Changes, RefreshStream
from tests.sql import tpch
from tests.sql.statement_tables import difference, problems
from tests.sql.statements import planned

NAMES = [f"q{number}" for number in QUERIES]


@pytest.fixture(scope="module")
def stream(tmp_path_factory: pytest.TempPathFactory) -> RefreshStream:
    """All tables, with a fraction of orders and line items."""
    return RefreshStream(tpch.sample(tmp_path_factory.mktemp("tpch")), seed=3)


def installed(rows: Mapping[str, pa.Table], workers: int = 1, *, stream: bool = False) -> Engine:
    """An engine with these rows and all queries as views, which see none of the rows if `lineitem` is a stream."""
    engine = Engine(workers)
    tables = tpch.tables(engine, stream=stream)
    with engine.transaction():
        for name, table_rows in rows.items():
            engine.tables[name].insert(table_rows)
    for name in NAMES:
        engine.install(name, lower(planned(f"tpch/{name}"), tables).rows)
    return engine


def answers(engine: Engine) -> dict[str, pa.Table | str]:
    return {name: engine.views[name].to_arrow() for name in NAMES}


def test_all_queries_after_a_round_of_changes(stream: RefreshStream) -> None:
    engines = [installed(stream.snapshot, workers) for workers in (1, 2)]
    before = answers(engines[0])
    changes = stream.next_round()
    with installed(stream.snapshot) as fresh:
        expected = answers(fresh)
    for engine in engines:
        tpch.apply(engine, changes)
        assert not problems(answers(engine), expected, NAMES)
        engine.close()
    assert not [name for name in NAMES if not difference(before[name], expected[name])]


def test_all_queries_have_the_answers_of_spark(tmp_path: Path) -> None:
    tables = tpch.sample(tmp_path)
    with installed(tables) as engine:
        for changes in tpch.changes(tables)[1]:
            tpch.apply(engine, changes)
        actual = answers(engine)
    expected = tpch.answers()
    differences = {number: wrong(number, actual[f"q{number}"], expected[number]) for number in QUERIES}
    assert not {number: text for number, text in differences.items() if text}


@pytest.mark.parametrize("workers", [1, 2])
def test_line_items_that_stream_by_while_other_tables_change(stream: RefreshStream, workers: int) -> None:
    first, rounds = dict(stream.snapshot), [stream.next_round() for _ in range(3)]
    first["lineitem"] = first["lineitem"].slice(0, 0)
    with installed(first, workers, stream=True) as engine, installed(first) as reference:
        for changes in rounds:
            if lines := changes.get("lineitem"):  # in the table too, rows are only added
                changes["lineitem"] = Changes(numbered(lines.upserts, engine.epoch), lines.deletes.slice(0, 0))
            for either in (engine, reference):
                tpch.apply(either, changes)
            expected = answers(reference)
            assert not problems(answers(engine), expected, NAMES)
    assert len([name for name in NAMES if expected[name].num_rows]) > len(NAMES) / 2


def test_a_stream_is_joined_one_table_at_a_time_and_shares_their_indexes() -> None:
    with Engine() as engine:
        tables = tpch.tables(engine, stream=True)
        plan = list(walk(lower(planned("tpch/q9"), tables).rows.node))
    assert not [node for node in plan if isinstance(node, ir.Lookup)]
    joins = [node for node in plan if isinstance(node, ir.Join)]
    assert len(joins) == 5  # part, supplier, partsupp, orders, nation
    assert all(isinstance(join.right, ir.ArrangementView) for join in joins)  # in the tables' own indexes


def test_exists_with_a_comparison_looks_at_the_foremost_values() -> None:
    with Engine() as engine:
        plan = walk(lower(planned("tpch/q21"), tpch.tables(engine)).rows.node)
        reducers = [node.reducer for node in plan if isinstance(node, ir.Reduce)]
    assert [reducer.k for reducer in reducers if isinstance(reducer, Foremost)] == [2, 2]


def numbered(lines: pa.Table, epoch: int) -> pa.Table:
    """Line items with line numbers that are unique to the epoch."""
    at = lines.column_names.index("l_linenumber")
    return lines.set_column(at, lines.field(at), pc.add(lines["l_linenumber"], 1000 * epoch).cast(lines.field(at).type))


def test_columns_are_those_that_spark_has() -> None:
    tables = tpch.tables(Engine())
    for name in NAMES:
        plan = planned(f"tpch/{name}")
        fields = lower(plan, tables).rows.node.columns
        assert [(f.name, f.type) for f in fields] == [(f.name, f.type) for f in plan.columns], name
