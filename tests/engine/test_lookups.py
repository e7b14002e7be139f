"""Look-ups by key: the rows of a view or table that plain reading and filtering gives, asked of owners only."""

from __future__ import annotations

import os
import signal
import threading
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ikebana import kernels
from ikebana.cluster.inprocess import InProcess
from ikebana.cluster.processes import Processes
from ikebana.encoding import Schema
from ikebana.encoding.columns import match_columns
from ikebana.engine import Engine, Table, View
from ikebana.engine.lookups import owner
from ikebana.errors import DataflowError, DroppedError, EvaluationError, SchemaError, TimeError, WorkerLostError
from tests.dataflow.harness import Domain, domains, frozen
from tests.engine.test_following import POISON, poisoned
from tests.profiles import examples


def bag(table: pa.Table) -> Counter[Any]:
    return Counter(frozen(list(row.values())) for row in table.to_pylist())


def filtered(rows: pa.Table, keys: pa.Table) -> Counter[Any]:
    """The rows whose values in the columns of `keys` are those of one of its rows."""
    wanted = {frozen(list(key.values())) for key in keys.to_pylist()}
    chosen = [row for row in rows.to_pylist() if frozen([row[name] for name in keys.column_names]) in wanted]
    return Counter(frozen(list(row.values())) for row in chosen)


Steps = list[dict[tuple[int, int], int]]


def steps() -> st.SearchStrategy[Steps]:
    row = st.tuples(st.integers(0, 4), st.integers(0, 4))
    return st.lists(st.dictionaries(row, st.integers(0, 2), max_size=6), min_size=1, max_size=3)


@given(domain=domains(), workers=st.integers(1, 3), states=steps(), data=st.data())
@examples(1, quick=0.6)
def test_oracle_lookups_are_what_reading_and_filtering_gives(
    domain: Domain, workers: int, states: Steps, data: st.DataObject
) -> None:
    names = [field.name for field in domain.fields]
    with Engine(workers) as engine:
        rows = engine.input("rows", domain.fields, domain.by)
        view = engine.install("view", rows)
        before: Counter[Any] = Counter()
        for state in states:
            after = Counter({domain.row(*row): count for row, count in state.items()})
            changes = {row: after[row] - before[row] for row in {*after, *before}}
            rows.push(domain.columns(list(changes)), list(changes.values()))
            engine.advance()
            before = after
            by = data.draw(st.lists(st.sampled_from(names), min_size=1, unique=True))
            pairs = data.draw(st.lists(st.tuples(st.integers(0, 4), st.integers(0, 4)), min_size=1, max_size=3))
            keys = pa.table(domain.columns([domain.row(*pair) for pair in pairs])).select(by)
            assert bag(view.lookup(keys)) == filtered(view.to_arrow(), keys)
            (one,) = keys.slice(0, 1).to_pylist()
            assert bag(view.lookup(**one)) == filtered(view.to_arrow(), keys.slice(0, 1))


@pytest.fixture(params=[1, 2, 3])
def engine(request: pytest.FixtureRequest) -> Iterator[Engine]:
    with Engine(request.param) as engine:
        yield engine


@pytest.fixture
def table(engine: Engine) -> Table:
    table = engine.table("orders", {"id": pa.int64(), "who": pa.string(), "price": pa.int64()}, key="id")
    table.insert({"id": list(range(20)), "who": [f"c{at % 5}" for at in range(20)], "price": list(range(20))})
    return table


@pytest.fixture
def totals(engine: Engine, table: Table) -> View:
    return engine.install("totals", table.sum("who", "price"))


def total(totals: View, who: str) -> list[int]:
    return totals.lookup(who=who)["sum"].to_pylist()


def test_a_lookup_sees_every_transaction_before_it(engine: Engine, table: Table, totals: View) -> None:
    assert total(totals, "c1") == [1 + 6 + 11 + 16]
    table.upsert({"id": [1], "who": ["c1"], "price": [100]})
    assert total(totals, "c1") == [133]
    with engine.transaction():
        table.delete({"id": [6, 11, 16]})
        assert total(totals, "c1") == [133]
    assert (total(totals, "c1"), total(totals, "nobody")) == ([100], [])
    epoch = engine.epoch
    assert totals.lookup([{"who": "c1"}, {"who": "c2"}, {"who": "c2"}]).num_rows == 2
    assert engine.epoch == epoch


def test_tables_are_looked_up_by_key_and_by_other_columns(engine: Engine, table: Table) -> None:
    dataflows = engine.catalog.dataflows()
    assert table.lookup(id=7).to_pylist() == [{"id": 7, "who": "c2", "price": 7}]
    assert engine.catalog.dataflows() == dataflows
    assert sorted(table.lookup(who=["c0", "c4"])["id"].to_pylist()) == [0, 4, 5, 9, 10, 14, 15, 19]
    assert table.lookup({"price": 3, "who": "c3"})["id"].to_pylist() == [3]
    assert len(engine.catalog.dataflows()) == len(dataflows) + 2
    table.drop_arrangement("who")
    table.delete({"id": [4]})
    assert sorted(table.lookup(who="c4")["id"].to_pylist()) == [9, 14, 19]
    engine.drop_table("orders")
    assert not engine.catalog.dataflows()
    with pytest.raises(DroppedError, match="'orders' was dropped"):
        table.lookup(id=7)


def test_an_arrangement_for_lookups_is_shared_and_released_with_the_view(
    engine: Engine, table: Table, totals: View
) -> None:
    before = engine.catalog.dataflows()
    assert totals.lookup(sum=30)["who"].to_pylist() == ["c0"]
    assert totals.lookup(sum=[34, 38])["who"].to_pylist() in (["c1", "c2"], ["c2", "c1"])
    (index,) = set(engine.catalog.dataflows()) - set(before)
    by_sum = engine.install("by sum", totals.rows().arrange("sum"))
    assert by_sum.dataflow == index
    by_sum.drop()
    totals.drop()
    assert engine.catalog.dataflows() == before[:1]


class Asked(InProcess):
    """Records which workers were asked; None for all."""

    def __init__(self, workers: int) -> None:
        super().__init__(workers)
        self.asked: list[int | None] = []

    def ask(self, request: Any, worker: int | None = None) -> list[Any]:
        self.asked.append(worker)
        return super().ask(request, worker)


def test_one_request_to_the_owner_once_all_workers_had_no_errors() -> None:
    cluster = Asked(3)
    with Engine(cluster=cluster) as engine:
        table = engine.table("t", {"k": pa.int64(), "v": pa.int64()}, key="k")
        view = engine.install("sums", table.sum("k", "v"))
        table.insert({"k": list(range(9)), "v": list(range(9))})
        cluster.asked.clear()
        assert [view.lookup(k=at)["sum"].to_pylist() for at in range(9)] == [[at] for at in range(9)]
        assert cluster.asked[0] is None and set(cluster.asked[1:]) == {0, 1, 2}
        assert len(cluster.asked) == 9
        owners = [next(w.index for w in cluster.workers if w.read(view.dataflow, (0,), {"k": [at]})) for at in range(9)]
        assert cluster.asked[1:] == owners[1:]


def test_errors_on_any_worker_are_errors_of_every_lookup(engine: Engine, table: Table) -> None:
    shares = engine.install("shares", table.map({"id": pa.int64(), "x": pa.int64()}, divided))
    for at in range(20):
        table.upsert({"id": [at], "who": ["c"], "price": [0]})
        for key in (at, 0, 1, 2, 3):
            with pytest.raises(EvaluationError, match="'shares' has no answer"):
                shares.lookup(id=key)
        table.upsert({"id": [at], "who": ["c"], "price": [at + 1]})
        assert shares.lookup(id=at)["x"].to_pylist() == [100 // (at + 1)]


def divided(columns: Any) -> Any:
    price = pc.if_else(pc.equal(columns["id"], 0), pc.max_element_wise(columns["price"], 0), columns["price"])
    return {"id": columns["id"], "x": pc.divide(100, price)}


def test_epochs_that_are_held_and_others(engine: Engine, table: Table, totals: View) -> None:
    with totals.hold() as held:
        table.delete({"id": [1, 6, 11, 16]})
        assert totals.lookup(who="c1", at=held.epoch)["sum"].to_pylist() == [34]
        assert totals.lookup({"who": "c1"}, at=engine.epoch - 1).num_rows == 0
        assert totals.lookup(sum=30, at=engine.epoch - 1)["who"].to_pylist() == ["c0"]
        table.insert({"id": [50], "who": ["c9"], "price": [9]})
        assert totals.lookup(sum=30).num_rows == 1
        with pytest.raises(TimeError, match="cannot look up rows of view 'totals' by sum at epoch 1"):
            totals.lookup(sum=30, at=1)
    table.insert({"id": [1], "who": ["c1"], "price": [5]})
    totals.wait(engine.epoch - 1)
    with pytest.raises(TimeError, match="cannot read view 'totals' at epoch 0"):
        totals.lookup(who="c1", at=0)
    with pytest.raises(TimeError, match="is still open"):
        totals.lookup(who="c1", at=engine.epoch)


@pytest.mark.parametrize(
    ("keys", "columns", "message"),
    [
        (None, {"name": "c1"}, "no column 'name'; its columns are 'who', 'sum'"),
        (None, {}, "no column is given"),
        ([], {}, "no column is given"),
        ([{"who": "c1"}, {"sum": 1}], {}, "of type list is not a key"),
        ("c1", {}, "of type str is not a key"),
        ({"who": "c1"}, {"sum": 3}, "both as an argument and by name"),
        (None, {"who": ["c1", "c2"], "sum": 3}, "'who' has several values"),
        (None, {"who": 7}, "column 'who' is not of type string"),
        (None, {"who": None}, "column 'who' has a null"),
        (None, {"sum": "many"}, "column 'sum' is not of type int64"),
        (None, {"who": ["c1", "c2"], "sum": [3]}, "the columns have different lengths"),
    ],
)
def test_keys_that_do_not_fit(totals: View, keys: Any, columns: dict[str, Any], message: str) -> None:
    with pytest.raises(SchemaError, match="cannot look up rows of view 'totals'") as raised:
        totals.lookup(keys, **columns)
    assert message in str(raised.value)
    assert total(totals, "c1") == [34]


def test_views_that_are_dropped_or_have_failed(engine: Engine, table: Table, totals: View) -> None:
    totals.drop()
    with pytest.raises(DataflowError, match="'totals' was dropped"):
        totals.lookup(who="c1")
    numbers = engine.table("numbers", {"k": pa.int64(), "v": pa.int64()}, key="k")
    numbers.insert({"k": [1], "v": [2]})
    view = engine.install("poisoned", poisoned(numbers))
    assert view.lookup(k=1).num_rows == view.lookup(v=2).num_rows == 1
    numbers.insert({"k": [2], "v": [POISON]})
    for key in ({"k": 1}, {"v": 2}):
        with pytest.raises(DataflowError, match="has failed"):
            view.lookup(key)
    stream = engine.table("stream", {"k": pa.int64()}, kind="stream")
    with pytest.raises(DataflowError, match="'stream'") as raised:
        stream.lookup(k=1)
    assert "it is a stream" in str(raised.value)


def test_an_arrangement_that_has_failed_is_built_again(engine: Engine, table: Table, totals: View) -> None:
    assert totals.lookup(sum=34)["who"].to_pylist() == ["c1"]
    failed = totals.index_by(("sum",)).dataflow
    engine.catalog.mark_failed(failed)
    assert totals.lookup(sum=34)["who"].to_pylist() == ["c1"]
    assert totals.index_by(("sum",)).dataflow != failed
    totals.drop()
    assert len(engine.catalog.dataflows()) == 1


def test_lookups_of_several_keys_are_of_one_epoch_whatever_other_threads_do(engine: Engine, table: Table) -> None:
    look_up_while_prices_move(engine, table, transactions=15)


def look_up_while_prices_move(engine: Engine, table: Table, transactions: int) -> None:
    """Each transaction moves an amount from one order to another, so that their sum is constant."""
    problems: list[Any] = []
    done = threading.Event()

    def read() -> None:
        try:
            while not done.is_set():
                prices = table.lookup(id=[2, 3])["price"].to_pylist()
                if sum(prices) != 5:
                    problems.append(prices)
        except Exception as error:
            problems.append(error)

    threads = [threading.Thread(target=read, daemon=True) for _ in range(3)]
    for thread in threads:
        thread.start()
    for at in range(transactions):
        table.upsert({"id": [2, 3], "who": ["x", "y"], "price": [at, 5 - at]})
        assert table.lookup(id=2)["price"].to_pylist() == [at]
    done.set()
    for thread in threads:
        thread.join(60)
    assert not problems and not any(thread.is_alive() for thread in threads)


@given(lanes=st.lists(st.integers(-(2**63), 2**63 - 1), max_size=20), workers=st.integers(1, 9))
@examples(1)
def test_twin_the_owner_of_one_key_is_where_rows_are_sent(lanes: list[int], workers: int) -> None:
    schema = Schema({"k": pa.int64()})
    owners = [owner(schema, [pa.array([lane])], workers) for lane in lanes]
    assert owners == kernels.shard_rows(np.array(lanes, np.int64), workers).tolist()


INTEGERS = (pa.int8(), pa.uint8(), pa.int32(), pa.int64(), pa.uint64(), pa.date32())


@given(value=st.integers(-(2**64), 2**64), kind=st.sampled_from(INTEGERS))
@examples(2)
def test_twin_a_column_of_one_integer_is_the_same_as_of_several(value: int, kind: pa.DataType) -> None:
    assert column_of([value], kind) == column_of((value,), kind)


def column_of(values: Sequence[int], kind: pa.DataType) -> pa.Array | str:
    """The values as a column of a type, or the error."""
    try:
        return match_columns({"k": values}, [pa.field("k", kind)])[0]
    except SchemaError as error:
        return error.what


def test_a_request_after_the_end_of_a_worker_raises_whether_or_not_that_is_known() -> None:
    with Engine(cluster=Processes(1)) as engine:
        engine.input("rows", {"k": pa.int64()})
        os.kill(engine.cluster.pids[0], signal.SIGKILL)  # type: ignore[attr-defined]
        for _ in range(2):
            with pytest.raises(WorkerLostError, match="worker 0 has died"):
                engine.status()
