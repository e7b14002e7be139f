"""Lowering without Java: the answers of all statements, maintained through changes, against Spark's recorded ones.

All views are on one engine and share indexes. Tables are filled before the views are installed, or in steps afterwards:
after each step but the last the answers are those of a fresh engine without sharing, and finally those that Spark gave
(`tests.sql.record_plans`).
"""

from __future__ import annotations

import functools
from collections import defaultdict

import pyarrow as pa
import pytest

from ikebana.reducers.ordering import sort_table
from ikebana.sql.lowering.query import lower
from tests.sql.rows import arrow, rows
from tests.sql.statement_tables import StatementTables, difference, problems, wandering
from tests.sql.statements import STATEMENTS, answers, is_answered, planned

NAMES = [name for name in STATEMENTS if is_answered(name)]
CHOSEN = {"limit", "first_any"}
"""Statements that do not define which rows, or values, are chosen."""
UNORDERED = {"collect_set", "collect_distinct", "collect_nulls", "filter_of_values"}
"""Statements that do not define the order of lists."""
STEPS = 3


@functools.cache
def spark_answers(over: str = "rows") -> dict[str, pa.Table]:
    return {name: tables[0] for name, tables in answers(over).items()}


def against_spark(name: str, actual: pa.Table | str) -> str:
    """How an answer differs from Spark's."""
    expected = spark_answers()[name]
    if name in CHOSEN and not isinstance(actual, str):
        return difference(chosen(name, actual), chosen(name, expected))
    return difference(actual, expected, free_lists=name in UNORDERED)


def chosen(name: str, actual: pa.Table) -> pa.Table:
    """The part of an answer that all correct answers have in common."""
    if name == "limit":
        ids = {row["id"] for row in rows()["orders"]}
        return pa.table({"valid": [number in ids for number in actual["id"].to_pylist()]})
    statuses = defaultdict(set)
    for row in rows()["orders"]:
        statuses[row["customer"]].add(row["status"])
    pairs = zip(actual["customer"].to_pylist(), actual["status"].to_pylist(), strict=True)
    valid = [(customer, status in statuses[customer]) for customer, status in pairs]
    return pa.table({"customer": [customer for customer, _ in valid], "valid": [is_right for _, is_right in valid]})


def installed(workers: int, world_rows: dict[str, list[dict[str, object]]], *, share: bool = True) -> StatementTables:
    world = StatementTables(workers, world_rows, share=share)
    for name in NAMES:
        world.install(name)
    return world


@functools.cache
def history() -> list[tuple[dict[str, list[dict[str, object]]], dict[str, pa.Table | str]]]:
    """The steps, and the expected answers after each: those of a fresh engine, and after the last step Spark's."""
    *steps, last = wandering(rows(), STEPS, seed=5)
    return [*((state, fresh_answers(state)) for state in steps), (last, dict(spark_answers()))]


def fresh_answers(state: dict[str, list[dict[str, object]]]) -> dict[str, pa.Table | str]:
    with installed(1, state, share=False) as world:
        return world.answers()


@pytest.mark.parametrize("workers", [1, 2])
def test_oracle_rows_before_views_and_then_no_rows(workers: int) -> None:
    with installed(workers, rows()) as world:
        actual = world.answers()
        world.change_to({name: [] for name in rows()})
        emptied = world.answers()
    assert not [f"{name}: {text}" for name in NAMES if (text := against_spark(name, actual[name]))]
    assert not problems(emptied, spark_answers("nothing"), NAMES)


@pytest.mark.parametrize("workers", [1, pytest.param(2, marks=pytest.mark.thorough)])
def test_oracle_views_before_rows(workers: int) -> None:
    with installed(workers, history()[0][0]) as world:
        for number, (state, expected) in enumerate(history()[:-1]):
            world.change_to(state)
            assert not problems(world.answers(), expected, NAMES), f"after step {number}"
        world.change_to(history()[-1][0])
        actual = world.answers()
        assert not [f"{name}: {text}" for name in NAMES if (text := against_spark(name, actual[name]))]


def test_oracle_tables_without_rows() -> None:
    with installed(2, {name: [] for name in rows()}) as world:
        assert not problems(world.answers(), spark_answers("nothing"), NAMES)


def test_the_tests_are_worth_their_while() -> None:
    steps = [expected for _, expected in history()]
    same = {name for name in NAMES if not any(difference(step[name], steps[-1][name]) for step in steps)}
    assert same == {"values", "one_row", "recursive_numbers", "not_in_nullable", "aggregate_nothing"}
    empty = {name for name in NAMES if not spark_answers()[name].num_rows}
    assert empty == {"not_in_nullable"}


def test_columns_are_those_that_spark_has() -> None:
    with StatementTables() as world:
        for name in NAMES:
            plan = planned(name)
            fields = lower(plan, world.tables).rows.node.columns
            assert [(f.name, f.type) for f in fields] == [(f.name, f.type) for f in plan.columns], name


def test_the_order_in_which_rows_are_shown() -> None:
    ordered = []
    with StatementTables(1, rows()) as world:
        for name in NAMES:
            lowered = lower(planned(name), world.tables)
            if lowered.order:
                ordered.append(name)
                actual = sort_table(world.engine.install(name, lowered.rows).to_arrow(), lowered.order)
                assert not difference(actual, spark_answers()[name], in_order=True)
    assert ordered == ["order_by", "top", "top_offset", "offset", "top_of_groups"]


@pytest.mark.parametrize("workers", [1, 2])
def test_queries_see_of_a_stream_what_comes_later(workers: int) -> None:
    names = ["join", "join_left", "join_many", "aggregate", "join_semi", "top", "row_number", "scalar_correlated"]
    state = wandering(rows(), 2, seed=1)[0]
    early, late = state["orders"][::2], state["orders"][1::2]
    with StatementTables(workers, state | {"orders": []}, streams={"orders"}) as world:
        world.engine.tables["orders"].insert(arrow("orders", early))
        for name in names:
            world.install(name)
        world.engine.tables["orders"].insert(arrow("orders", late))
        world.change_to(rows() | {"orders": []})  # changes of other tables meet the rows that have arrived
        actual = world.answers()
    with StatementTables(1, rows() | {"orders": late}) as world:
        for name in names:
            world.install(name)
        assert not problems(actual, world.answers(), names)
