"""Lowering without Java: the answers of all statements, maintained through changes, against Spark's recorded ones.

All views live on one engine, where they share what they can. Tables are filled before the views are installed, or in
steps after: after each step answers are those of an engine that has seen nothing else and shares nothing, and at last
those that Spark gave (`tests.sql.record_plans`).
"""

from __future__ import annotations

import functools
from collections import defaultdict

import pyarrow as pa
import pytest

from ikebana.reducers.ordering import sort_table
from ikebana.sql.lowering.query import lower
from tests.sql.rows import arrow, rows
from tests.sql.statements import STATEMENTS, answers, is_answered, planned
from tests.sql.world import World, difference, problems, wandering

NAMES = [name for name in STATEMENTS if is_answered(name)]
CHOSEN = {"limit", "first_any"}
"""Statements that leave it open which rows, or values, are meant."""
UNORDERED = {"collect_set", "collect_distinct", "collect_nulls", "filter_of_values"}
"""Statements that leave the order of lists open."""
STEPS = 3


@functools.cache
def spark_answers(over: str = "rows") -> dict[str, pa.Table]:
    return {name: tables[0] for name, tables in answers(over).items()}


def against_spark(name: str, found: pa.Table | str) -> str:
    """How an answer differs from Spark's."""
    wanted = spark_answers()[name]
    if name in CHOSEN and not isinstance(found, str):
        return difference(chosen(name, found), chosen(name, wanted))
    return difference(found, wanted, free_lists=name in UNORDERED)


def chosen(name: str, found: pa.Table) -> pa.Table:
    """What an answer has in common with all that are right."""
    if name == "limit":
        ids = {row["id"] for row in rows()["orders"]}
        return pa.table({"valid": [each in ids for each in found["id"].to_pylist()]})
    statuses = defaultdict(set)
    for row in rows()["orders"]:
        statuses[row["customer"]].add(row["status"])
    pairs = zip(found["customer"].to_pylist(), found["status"].to_pylist(), strict=True)
    valid = [(customer, status in statuses[customer]) for customer, status in pairs]
    return pa.table({"customer": [customer for customer, _ in valid], "valid": [is_right for _, is_right in valid]})


def installed(workers: int, world_rows: dict[str, list[dict[str, object]]], *, share: bool = True) -> World:
    world = World(workers, world_rows, share=share)
    for name in NAMES:
        world.install(name)
    return world


@functools.cache
def history() -> list[tuple[dict[str, list[dict[str, object]]], dict[str, pa.Table | str]]]:
    """The steps, and what is right after each."""
    found = []
    for state in wandering(rows(), STEPS, seed=5):
        with installed(1, state, share=False) as world:
            found.append((state, world.answers()))
    return found


@pytest.mark.parametrize("workers", [1, 2])
def test_oracle_rows_before_views(workers: int) -> None:
    with installed(workers, rows()) as world:
        found = world.answers()
    assert not [f"{name}: {text}" for name in NAMES if (text := against_spark(name, found[name]))]


@pytest.mark.parametrize("workers", [1, 2])
def test_oracle_views_before_rows(workers: int) -> None:
    with installed(workers, history()[0][0]) as world:
        for number, (state, wanted) in enumerate(history()):
            world.change_to(state)
            found = world.answers()
            assert not problems(found, wanted, NAMES), f"after step {number}"
        assert not [f"{name}: {text}" for name in NAMES if (text := against_spark(name, found[name]))]


def test_oracle_tables_without_rows() -> None:
    with installed(1, rows()) as world:
        world.change_to({name: [] for name in rows()})
        emptied = world.answers()
    with installed(2, {name: [] for name in rows()}) as world:
        never_filled = world.answers()
    for found in (emptied, never_filled):
        assert not problems(found, spark_answers("nothing"), NAMES)


def test_the_tests_are_worth_their_while() -> None:
    found = [each for _, each in history()]
    same = {name for name in NAMES if not any(difference(each[name], found[-1][name]) for each in found)}
    assert same == {"values", "one_row", "recursive_numbers", "not_in_nullable", "aggregate_nothing"}
    empty = {name for name in NAMES if not spark_answers()[name].num_rows}
    assert empty == {"not_in_nullable"}


def test_columns_are_those_that_spark_has() -> None:
    with World() as world:
        for name in NAMES:
            plan = planned(name)
            found = lower(plan, world.tables).rows.node.columns
            assert [(each.name, each.type) for each in found] == [(each.name, each.type) for each in plan.columns], name


def test_the_order_in_which_rows_are_shown() -> None:
    ordered = []
    with World(1, rows()) as world:
        for name in NAMES:
            lowered = lower(planned(name), world.tables)
            if lowered.order:
                ordered.append(name)
                found = sort_table(world.engine.install(name, lowered.rows).to_arrow(), lowered.order)
                assert not difference(found, spark_answers()[name], in_order=True)
    assert ordered == ["order_by", "top", "top_offset", "offset", "top_of_groups"]


@pytest.mark.parametrize("workers", [1, 2])
def test_queries_see_of_a_stream_what_comes_later(workers: int) -> None:
    names = ["join", "join_left", "join_many", "aggregate", "join_semi", "top", "row_number", "scalar_correlated"]
    state = wandering(rows(), 2, seed=1)[0]
    early, late = state["orders"][::2], state["orders"][1::2]
    with World(workers, state | {"orders": []}, streams={"orders"}) as world:
        world.engine.tables["orders"].insert(arrow("orders", early))
        for name in names:
            world.install(name)
        world.engine.tables["orders"].insert(arrow("orders", late))
        world.change_to(rows() | {"orders": []})  # changes of other tables meet what has come
        found = world.answers()
    with World(1, rows() | {"orders": late}) as world:
        for name in names:
            world.install(name)
        assert not problems(found, world.answers(), names)
