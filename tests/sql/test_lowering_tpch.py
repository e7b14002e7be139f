"""The 22 queries of TPC-H, lowered without Java: after changes, their answers are those of Spark.

Spark's answers are recorded (`tests.sql.record_plans`); `tests.sql.test_tpch` compares on Spark.
"""

from __future__ import annotations

from collections.abc import Mapping

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from ikebana.engine import Engine
from ikebana.plan import ir
from ikebana.plan.sharing import readers_of, walk
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
def sample(tmp_path_factory: pytest.TempPathFactory) -> dict[str, pa.Table]:
    """All tables, with a fraction of orders and line items."""
    return tpch.sample(tmp_path_factory.mktemp("tpch"))


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


@pytest.mark.parametrize("workers", [1, 2])
def test_all_queries_have_the_answers_of_spark_after_changes(sample: dict[str, pa.Table], workers: int) -> None:
    with installed(sample, workers) as engine:
        before = answers(engine)
        for changes in tpch.changes(sample)[1]:
            tpch.apply(engine, changes)
        actual = answers(engine)
    expected = tpch.answers()
    differences = {number: wrong(number, actual[f"q{number}"], expected[number]) for number in QUERIES}
    assert not {number: text for number, text in differences.items() if text}
    assert not [name for name in NAMES if not difference(before[name], actual[name])]


def test_line_items_that_stream_by_while_other_tables_change(sample: dict[str, pa.Table]) -> None:
    stream = RefreshStream(sample, seed=3)
    rounds = [stream.next_round() for _ in range(3)]
    first = {**sample, "lineitem": sample["lineitem"].slice(0, 0)}
    engines = [installed(first, workers, stream=True) for workers in (1, 2)]
    reference = installed(first)
    for changes in rounds:
        if lines := changes.get("lineitem"):  # in the table too, rows are only added
            changes["lineitem"] = Changes(numbered(lines.upserts, reference.epoch), lines.deletes.slice(0, 0))
        for engine in (reference, *engines):
            tpch.apply(engine, changes)
        expected = answers(reference)
        for engine in engines:
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


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("name", ["q2", "q17", "q20"])
def test_an_aggregate_in_a_join_has_only_the_groups_that_the_join_can_use(name: str, stream: bool) -> None:
    with Engine() as engine:
        plan = lower(planned(f"tpch/{name}"), tpch.tables(engine, stream=stream)).rows.node
    readers = readers_of(plan, {"part"})  # of which a condition selects few
    reductions = [node for node in walk(plan) if isinstance(node, ir.Reduce)]
    assert reductions and all(node.digest in readers for node in reductions)


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
