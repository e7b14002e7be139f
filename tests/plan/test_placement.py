"""Rows that are with their owners, as far as the plan says so, are there, and are not exchanged."""

from __future__ import annotations

from collections import Counter
from collections.abc import Generator, Iterator, Sequence
from contextlib import contextmanager
from typing import Any
from unittest.mock import patch

import pyarrow as pa
import pytest
from hypothesis import given

from ikebana.engine import Engine
from ikebana.engine.collection import Collection, constant, iterate
from ikebana.graph.plans import pairs
from ikebana.operators.exchange import Exchange
from ikebana.operators.partition import split_updates
from ikebana.plan import ir
from ikebana.plan.placement import PlacedNodes
from ikebana.plan.render import Renderer
from ikebana.trace import Updates
from tests.dataflow.dataflow_run import DataflowRun, histories
from tests.dataflow.harness import Domain, Setup, engine_of, examples, setups
from tests.dataflow.test_programs import cases, fused, lowered_operators


class CheckedRows(Exchange):
    """Takes the place of an exchange that was left out: all rows must be with their owners."""

    def __init__(self, worker: int, workers: int, seen: list[int]) -> None:
        super().__init__(workers, lambda parts: pytest.fail("nothing is sent"))
        object.__setattr__(self, "_place", (worker, seen))

    def by_key(self, parts: Sequence[Updates]) -> Generator[object, None, list[Updates]]:
        worker, seen = self._place  # type: ignore[attr-defined]
        split = split_updates(parts, self.workers)
        assert all(part is None or owner == worker for owner, part in enumerate(split))
        seen.append(sum(map(len, parts)))
        return list(parts)
        yield


@contextmanager
def checked_rows() -> Iterator[list[int]]:
    """Check all rows that are not exchanged; yield how many there were, visit by visit."""
    seen: list[int] = []
    exchange = Renderer._exchange

    def checked(self: Renderer, node: ir.Arrange | ir.Lookup) -> Exchange | None:
        context = self._context
        if context.workers > 1 and self._placed.is_placed(node.source, node.schema.key):
            return CheckedRows(context.worker, context.workers, seen)
        return exchange(self, node)

    with patch.object(Renderer, "_exchange", checked):
        yield seen


def test_oracle_rows_that_are_not_exchanged_are_with_their_owners() -> None:
    """In random dataflows on several workers, with loops, retractions and whatever messages are late."""
    seen: list[int] = []

    @examples(3)
    @given(setups(3), cases(histories))
    def check(setup: Setup, case: tuple[str, Domain, Any, Any]) -> None:
        _, domain, program, history = case
        with fused("never"), lowered_operators(), checked_rows() as rows, engine_of(setup) as engine:
            DataflowRun(engine, domain, program).live_through(history)
        seen.extend(rows)

    check()
    assert any(seen)


NUMBERS = {"k": pa.int64(), "v": pa.int64()}


def placed_by(collection: Collection) -> set[tuple[str, ...]]:
    """The keys by which the rows of a collection are placed."""
    return {tuple(field.name for field in key.fields) for key in PlacedNodes().of(collection.node)}


def test_what_rows_are_placed_by() -> None:
    engine = Engine()
    numbers, others = engine.input("numbers", NUMBERS), engine.input("others", NUMBERS).select(k="k", w="v")
    counts, total = numbers.count("k"), numbers.count(())
    assert placed_by(numbers) == set()
    assert placed_by(counts) == {("k",)}
    assert placed_by(counts.select(x="k", y="count")) == {("x",)}
    assert placed_by(counts.select(y="count")) == set()
    assert placed_by(counts.filter(lambda columns: columns["count"])) == {("k",)}
    assert placed_by(counts.map({"k": pa.int64()}, lambda columns: columns)) == set()
    assert placed_by(counts.concat(others.count("k"))) == {("k",)}
    assert placed_by(counts.concat(numbers.select(k="k", count="v"))) == set()
    assert placed_by(counts.concat(counts.select(k="count", count="k"))) == set()
    assert placed_by(numbers.join(others, "k")) == {("k",)}
    assert placed_by(numbers.join(others, "k").select(x="k", y="v")) == {("x",)}
    assert placed_by(numbers.half_join(others.arrange("k"))) == {("k",)}
    assert placed_by(numbers.half_join(others.arrange("k")).half_join(others.select(v="k", x="w").arrange("v"))) == {
        ("v",)
    }
    assert placed_by(total) == {()}
    assert placed_by(total.map({"n": pa.int64()}, lambda columns: columns)) == {()}
    assert placed_by(constant(pa.table({"k": [1, 2]}))) == set()


def test_regression_a_column_of_the_other_side_was_taken_for_the_key() -> None:
    """Edges that meet in a node: `dst` of the left edge is the key, and `dst` of the right edge is not."""
    edges = Engine().input("edges", {"src": pa.int64(), "dst": pa.int64()})
    incoming, outgoing = edges.arrange("dst"), edges.arrange("src")
    assert placed_by(pairs(incoming, outgoing, {"a": "src"}, {"b": "dst"})) == set()
    assert placed_by(pairs(incoming, outgoing, {"a": "src"}, {"via": "src", "b": "dst"})) == {("via",)}
    assert placed_by(pairs(incoming, outgoing, {"a": "src", "via": "dst"}, {"b": "dst"})) == {("via",)}


@pytest.mark.parametrize("workers", [2, 3])
def test_regression_paths_of_two_edges_were_counted_on_several_workers_apart(workers: int) -> None:
    rows = [(node, (node * node + step) % 20) for node in range(20) for step in (1, 7)]
    with Engine(workers) as engine:
        edges = engine.input("edges", {"src": pa.int64(), "dst": pa.int64()})
        paths = pairs(edges.arrange("dst"), edges.arrange("src"), {"a": "src"}, {"b": "dst"})
        view = engine.install("paths by end", paths.count("b"))
        edges.insert({"src": [src for src, _ in rows], "dst": [dst for _, dst in rows]})
        engine.advance()
        expected = Counter(end for _, middle in rows for start, end in rows if start == middle)
        assert {row["b"]: row["count"] for row in view.read().to_pylist()} == expected


def test_variables_of_loops_are_placed_by_nothing() -> None:
    """A variable gets rows of its result, of which nothing is known yet."""
    seen: list[set[tuple[str, ...]]] = []

    def body(variables: dict[str, Collection]) -> dict[str, Collection]:
        distinct = variables["x"].distinct("k")
        seen.extend([placed_by(variables["x"]), placed_by(distinct)])
        return {"x": distinct}

    numbers = Engine().input("numbers", NUMBERS)
    result = iterate(body, {"x": numbers.distinct("k")})["x"]
    assert seen == [set(), {("k",)}]
    assert placed_by(result) == {("k",)}


def test_keys_that_may_be_null_have_other_owners() -> None:
    engine, placed = Engine(), PlacedNodes()
    numbers = engine.input("numbers", NUMBERS).count("k")
    others = engine.input("others", [pa.field("k", pa.int64(), nullable=True)]).count("k")
    (key,) = placed.of(numbers.node)
    assert placed.is_placed(numbers.node, key)
    assert not placed.is_placed(others.node, key)
