"""Tables equal a plain model after any transactions, on any number of workers, staged by the driver or by clients."""

from __future__ import annotations

from collections import Counter
from typing import Any
from unittest.mock import patch

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ikebana.engine import Engine, Table, Transaction, View
from ikebana.errors import ChangeError
from ikebana.runtime import staging
from ikebana.runtime.staging import stages
from tests.dataflow.harness import Setup, cluster_of, collected, engine_of, examples, setups
from tests.engine.table_model import (
    Feed,
    Model,
    allowed,
    apply,
    columns_of,
    create,
    expected,
    models,
    rows_of,
    transactions,
)


def stage_by_clients(engine: Engine, transaction: Transaction, table: Table, model: Model, feed: Feed) -> None:
    """Stage a feed as tasks do: in parts, some of whose attempts fail, or are sent twice, straight to the owners."""
    size, counted = engine.cluster.size, []
    for part in range(feed.parts):
        rows = feed.rows[part * len(feed.rows) // feed.parts : (part + 1) * len(feed.rows) // feed.parts]
        name = model.name, feed.repeats, id(feed), part
        data, ops = columns_of(model.fields, [row for row, _ in rows]), [op for _, op in rows]
        for attempt in range(feed.failures[part] + 1):
            kept = len(rows) // (2 if attempt < feed.failures[part] else 1)
            half = {column: values[:kept] for column, values in data.items()}
            whose: Any = {"transaction": transaction.number, "part": name, "attempt": attempt, "workers": size}
            for _ in range(feed.repeats + 1):
                for worker, stage in stages(table.spec, half, ops[:kept], **whose):
                    engine.cluster.command(stage, worker)
        counted.append((name, feed.failures[part]))
    transaction._adopt(table, counted)


@examples(1.5)
@given(st.data(), setups(3), st.booleans(), st.sampled_from([staging.PIECE_BYTES, 16, 50]))
def test_oracle_transactions(data: Any, setup: Setup, by_clients: bool, piece: int) -> None:
    tables = models()
    with engine_of(setup) as engine, patch.multiple(staging, PIECE_BYTES=piece, DIVIDED_ROWS=0):
        real = [create(engine, model) for model in tables]
        views = [engine.install(f"all {table.name}", table) for table in real]
        sums = engine.install("sums", real[0].sum("v", "k"))
        joined = engine.install("joined", real[0].join(real[3].select("k", w="v"), on="k"))
        followers = [Follower(views[0]), Follower(sums)]
        for transaction in data.draw(st.lists(transactions(tables), max_size=5)):
            after, before = expected(tables, transaction), engine.epoch
            new = engine.transaction()
            for feed in transaction:
                if by_clients:
                    stage_by_clients(engine, new, real[feed.table], tables[feed.table], feed)
                else:
                    apply(new, real[feed.table], tables[feed.table], feed)
            cluster_of(engine).run_some(data.draw(st.integers(0, 40)))  # so that it may be asked amid a sweep
            assert allowed(new.commit) == (after is not None)
            assert engine.epoch == before + (after is not None)
            tables = after or tables
            late = data.draw(st.sampled_from([*views, sums, joined]))
            if engine.epoch == 0 or data.draw(st.booleans()):  # others happen while there is much left to do
                cluster_of(engine).run_some(data.draw(st.integers(0, 40)))
                followers.append(Follower(late))
                continue
            check_tables(tables, views)
            check_queries(tables, sums, joined)
            for follower in followers:
                follower.check()
            followers.append(Follower(late, data.draw(st.sampled_from([None, "now"]))))
        if engine.epoch:
            for follower in followers:
                follower.check()


def check_tables(tables: list[Model], views: list[View]) -> None:
    for view, model in zip(views, tables, strict=True):
        names = [column.name for column in model.fields]
        assert collected(view.read().select([*names, "diff"])) == dict(model.rows)


class Follower:
    """Adds up a view's changes, which must give the view."""

    def __init__(self, view: View, since: str | None = None) -> None:
        self.view, self.sums = view, Counter(collected(view.read())) if since == "now" else Counter[Any]()
        self.epoch = -1
        self.changes = view.changes(since)

    def check(self) -> None:
        read = collected(self.view.read())
        while (item := self.changes.take(0)) is not None:
            epoch, table = item
            assert self.epoch < epoch < self.view._coordinator.epoch
            self.epoch = epoch
            changes = collected(table)
            assert changes
            for row, diff in changes.items():
                self.sums[row] += diff
        assert {row: count for row, count in self.sums.items() if count} == read


def check_queries(tables: list[Model], sums: Any, joined: Any) -> None:
    numbers, bag = tables[0].rows, tables[3].rows
    totals: dict[int, int] = {}
    for k, v in numbers:
        totals[v] = totals.get(v, 0) + k
    assert collected(sums.read()) == {item: 1 for item in totals.items()}
    pairs = {(k, v, w): count for k, v in numbers for (b, w), count in bag.items() if b == k}
    assert collected(joined.read()) == pairs


@examples(0.3)
@given(st.data(), st.integers(1, 3))
def test_a_view_of_a_stream_sees_what_comes_after_it(data: Any, workers: int) -> None:
    engine = Engine(workers)
    stream = engine.table("stream", models()[0].fields, kind="stream")
    table = engine.table("table", models()[0].fields, key="k")
    seen: list[tuple[Any, dict[tuple[int, int], int]]] = []
    rows = st.lists(st.tuples(st.integers(0, 3), st.integers(0, 3)), max_size=3)
    for at, batch in enumerate(data.draw(st.lists(rows, min_size=1, max_size=5))):
        seen.append((engine.install(f"view {at}", stream.filter(lambda c: pc.greater_equal(c["v"], 0))), {}))
        with engine.transaction():
            stream.insert(columns_of(models()[0].fields, batch))
            table.upsert(columns_of(models()[0].fields, batch))
        for view, model in seen:
            for row in batch:
                model[row] = model.get(row, 0) + 1
            assert collected(view.read()) == model


NAMES = [pa.field("k", pa.int64(), nullable=False), pa.field("v", pa.string(), nullable=True)]


@examples(0.3)
@given(st.data(), st.integers(1, 3))
def test_oracle_changes_of_one_row_each(data: Any, workers: int) -> None:
    """A row that replaces another one, is equal to it, or deletes it: with values in lanes, and beside them."""
    for model in (Model("names", NAMES, ["k"]), *models()[:3]):
        with Engine(workers) as engine:
            table = create(engine, model)
            view = engine.install("all", table)
            changes = st.tuples(rows_of(model), st.sampled_from(["upsert", "upsert", "delete"]))
            for row, op in data.draw(st.lists(changes, max_size=20)):
                if model.change(row, op):
                    table.change(columns_of(model.fields, [row]), op)
                else:
                    with pytest.raises(ChangeError):
                        table.change(columns_of(model.fields, [row]), op)
                assert collected(view.read()) == model.rows
