"""What limits recursive queries, without Java: rounds, rows, and a LIMIT that ends them. Answers are Spark's."""

from __future__ import annotations

import re
from functools import partial

import pytest

from ikebana.sql.planned import Planned
from tests.sql.rows import rows
from tests.sql.statement_tables import StatementTables
from tests.sql.statements import edited, planned


def limited(**limits: int) -> Planned:
    """The numbers from 1 to 10, one in each round, with other limits."""
    plan = planned("recursive_numbers")
    for name, value in limits.items():
        plan = edited(plan, partial(_replaced_once, f'"{name}":-?[0-9]+', f'"{name}":{value}'))
    return plan


def _replaced_once(old: str, new: str, text: str) -> str:
    replaced, count = re.subn(old, new, text)
    assert count == 1
    return replaced


@pytest.mark.parametrize(
    ("limits", "problem"),
    [
        ({"maxDepth": 10}, ""),
        ({"maxDepth": 9}, "a recursive query has not ended after 9 rounds"),
        ({"maxDepth": 1}, "a recursive query has not ended after 1 rounds"),
        ({"maxDepth": -1, "maxRows": -1}, ""),
        ({"maxRows": 11}, ""),
        ({"maxRows": 10}, "a recursive query has 10 rows or more"),
    ],
)
def test_oracle_rounds_and_rows_are_limited_as_in_spark(limits: dict[str, int], problem: str) -> None:
    with StatementTables(2) as world:
        world.install("numbers", limited(**limits))
        answer = world.answer("numbers")
    if problem:
        assert isinstance(answer, str) and problem in answer
    else:
        assert not isinstance(answer, str) and sorted(answer["n"].to_pylist()) == list(range(1, 11))


def test_a_limit_keeps_the_earliest_rounds_through_changes() -> None:
    state = rows()
    edges = [{"src": n % 4, "dst": (n + 1) % 4, "weight": None} for n in range(4)]  # a circle: it never ends

    def depths(world: StatementTables) -> dict[int, int]:
        answer = world.answer("recursive_limit")
        assert not isinstance(answer, str), answer
        return dict(zip(answer["depth"].to_pylist(), answer["n"].to_pylist(), strict=True))

    with StatementTables(2, state | {"edges": edges}) as world:
        world.install("recursive_limit")
        assert depths(world) == {depth: 4 for depth in range(15)}
        world.change_to(state | {"edges": edges[:3]})
        assert depths(world) == {0: 3, 1: 3, 2: 2, 3: 1}
        world.change_to(state | {"edges": edges * 2})  # two ways on from each: 8, 16, 32 and what is left
        assert depths(world) == {0: 8, 1: 16, 2: 32, 3: 4}
        world.change_to(state | {"edges": []})
        assert depths(world) == {}
