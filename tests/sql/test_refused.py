"""What cannot be maintained is refused before anything is installed, by an error that names it."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace

import pytest

from ikebana.errors import SqlError
from ikebana.expressions.core.tree import LEVELS
from ikebana.sql import Planned
from ikebana.sql.lowering.query import lower
from tests.sql import statements
from tests.sql.rows import rows
from tests.sql.statement_tables import StatementTables
from tests.sql.statements import STATEMENTS, planned

REFUSED = {
    "void_refused": "the column 'nothing' is NULL without a type",
    "exists_rollup_refused": "the query reads 'nation' where Spark's plan does not have it",
    "scalar_several_refused": "a correlated scalar subquery that may have several rows is not supported",
    "last_refused": "last is not supported",
    "random_refused": "Rand is not deterministic",
}


@pytest.fixture(scope="module")
def world() -> Iterator[StatementTables]:
    with StatementTables(1, rows()) as world:
        yield world


def check(world: StatementTables, plan: Planned, words: str) -> None:
    """It is refused with these words, and leaves nothing."""
    before = world.engine.status()
    with pytest.raises(SqlError, match=re.escape(words)):
        world.install("it", plan)
    assert (world.engine.views, len(world.engine.status())) == ({}, len(before))
    world.install("it", planned("filter"))  # the name is free
    world.engine.views["it"].drop()


def test_all_that_is_refused_is_named() -> None:
    assert REFUSED.keys() == {name for name in STATEMENTS if name.endswith("_refused")}


@pytest.mark.parametrize("name", REFUSED)
def test_statements_that_cannot_be_maintained(world: StatementTables, name: str) -> None:
    check(world, planned(name), REFUSED[name])


def test_regression_errors_that_nobody_expected_name_what_they_are_about(world: StatementTables) -> None:
    plan = edited("filter", ('"condition":', '"no condition":'))
    check(world, plan, "Filter is not supported here in a maintained view")
    with pytest.raises(SqlError) as caught:
        lower(plan, world.tables)
    assert caught.value.detail == "KeyError: 'condition'"
    assert isinstance(caught.value.__cause__, KeyError)
    plan = edited("texts", ('"class":"[a-zA-Z.]*Length",', '"class":"x.Multiply",'))
    check(world, plan, "the expression Multiply is not supported here in a maintained view")


def test_expressions_that_are_nested_too_deeply(world: StatementTables) -> None:
    def negated(times: int) -> Planned:
        negation = '{"class":"x.Not","num-children":1,"child":0},' * times
        return edited("filter", (r'"condition":\[', f'"condition":[{negation}'))

    world.install("deep", negated(LEVELS // 2 * 2 - 10))
    assert world.answer("deep") == world.answer("deep")
    world.engine.views["deep"].drop()
    check(world, negated(LEVELS), f"nested more than {LEVELS} levels deep")


# Plans that no recorded statement has, made by editing recorded plans.


def edited(name: str, *edits: tuple[str, str]) -> Planned:
    """A recorded plan with parts of its JSON replaced; each pattern must match."""

    def edit(text: str) -> str:
        for old, new in edits:
            assert re.search(old, text), (old, text)
            text = re.sub(old, new, text)
        return text

    return statements.edited(planned(name), edit)


@pytest.mark.parametrize(
    ("name", "edit", "words"),
    [
        ("filter", (r"logical\.Filter\b", "logical.Sieve"), "Sieve is not supported"),
        ("explode", (r"expressions\.Explode\b", "expressions.Shatter"), "the generator Shatter is not supported"),
        ("join_left", (r"plans\.LeftOuter\$", "plans.LeftOften$"), "a join of type LeftOften is not supported"),
        ("aggregate", (r"aggregate\.Sum\b", "aggregate.Sketch"), "the aggregate Sketch is not supported"),
        ("texts", (r"expressions\.Upper\b", "expressions.Louder"), "the expression Louder is not supported"),
        ("ranks", (r"expressions\.DenseRank\b", "expressions.Podium"), "the window function Podium is not supported"),
        ("window_total", (r"aggregate\.Sum\b", "aggregate.Sketch"), "the aggregate Sketch over a window"),
        ("all_columns", (r'"ikebana\.table":"orders"', '"ikebana.table":"sold"'), "there is no table 'sold'"),
        ("values", (r'"ikebana\.constant":0', '"other":0'), "the query reads rows that are in no table"),
        ("python", (r'"udfDeterministic":true', '"udfDeterministic":false'), "is not deterministic"),
        ("filter", (r'"num-children":1', '"num-children":2'), "cannot parse Spark's plan"),
    ],
)
def test_plans_that_cannot_be_lowered(world: StatementTables, name: str, edit: tuple[str, str], words: str) -> None:
    check(world, edited(name, edit), words)


def test_limits_must_be_numbers(world: StatementTables) -> None:
    plan = planned("limit")
    nodes = [dict(node) for node in plan.nodes]
    for node in nodes:
        if "limitExpr" in node:
            node["limitExpr"] = [{"class": "x.Add", "num-children": 2}, *node["limitExpr"], *node["limitExpr"]]
    check(world, replace(plan, nodes=nodes), "a LIMIT or OFFSET that is not a number")


def test_a_column_may_be_called_as_views_call_multiplicities(world: StatementTables) -> None:
    plan = planned("some_columns")
    named = tuple(field.with_name(name) for field, name in zip(plan.columns, ("id", "diff"), strict=True))
    view = world.engine.install("named", lower(replace(plan, columns=named), world.tables).rows)
    assert view.read().schema.names == ["id", "diff", "diff_"]
    assert view.to_arrow().schema.names == ["id", "diff"]
    view.drop()


@pytest.mark.parametrize("name", ["with_aggregate", "window_of_groups", "join_lateral", "explode_filtered"])
def test_columns_inside_a_query_can_be_called_anything(world: StatementTables, name: str) -> None:
    words = {"with_aggregate": "total", "window_of_groups": "total", "join_lateral": "total", "explode_filtered": "tag"}
    plan = edited(name, (rf'"name":"{words[name]}"', '"name":"diff"'))
    view = world.engine.install("named", lower(plan, world.tables).rows)
    wanted = world.engine.install("wanted", lower(planned(name), world.tables).rows)
    assert view.to_arrow().equals(wanted.to_arrow())
    view.drop()
    wanted.drop()
