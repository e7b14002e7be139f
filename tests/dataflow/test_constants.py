"""Constants, and collections without columns: what `tests.dataflow.expressions` does not show."""

from __future__ import annotations

import cloudpickle
import numpy as np
import pyarrow as pa
import pytest

from ikebana.engine import Engine
from ikebana.engine.collection import constant
from tests.dataflow.harness import cluster_of, pairs, pairs_input, read, settle

FEW = pa.table({"k": [1, 2, 2, 5]}, schema=pa.schema([pa.field("k", pa.int64(), nullable=False)]))


@pytest.mark.parametrize("workers", [1, 2, 3])
@pytest.mark.parametrize("share", [True, False])
def test_a_view_over_constants_alone_is_there_at_every_epoch(workers: int, share: bool) -> None:
    engine = Engine(workers, share=share)
    view = engine.install("few", constant(FEW).count("k"))
    for epoch in (1, 2, 9):
        engine.advance(epoch)
        assert read(view) == {(1, 1): 1, (2, 2): 1, (5, 1): 1}
    assert [view.read(at).num_rows for at in range(9)] == [3] * 9
    assert {status.upper for status in engine.status()} == {9}
    changes = view.changes(timeout=0)
    engine.run()
    assert [epoch for epoch, _ in changes] == [8]


def test_constants_take_a_single_sweep() -> None:
    engine = Engine(2)
    numbers, ones = pairs_input(engine), constant(FEW)
    alone = engine.install("alone", ones)
    joined = engine.install("joined", numbers.join(ones, on="k"))
    for value in range(5):
        numbers.insert(pairs((2, value)))
        engine.advance()
        assert sum(read(joined).values()) == 2 * (1 + value)
        assert read(alone) == {(1,): 1, (2,): 2, (5,): 1}
    for worker in cluster_of(engine).workers:
        assert worker.flows[alone.dataflow].sweeps == 1


def test_what_waits_for_constants_does_not_ask_others_to_run_ahead() -> None:
    """Regression: a source that is complete for ever made its neighbours' maintainers sweep at every epoch."""
    engine = Engine()
    numbers = pairs_input(engine)
    joined = engine.install("joined", numbers.count("k").join(constant(FEW), on="k"))
    numbers.insert(pairs((2, 1)))
    engine.advance()
    assert read(joined) == {(2, 1): 2}
    flows = cluster_of(engine).workers[0].flows
    before = {name: flow.sweeps for name, flow in flows.items()}
    for _ in range(3):
        engine.advance()
        settle(engine)
    assert {name: flow.sweeps for name, flow in flows.items()} == before


def test_equal_constants_are_one_node_and_travel() -> None:
    again = pa.table({"k": pa.chunked_array([[1, 2], [2, 5]])}, schema=FEW.schema)
    assert constant(FEW).node is constant(again).node
    assert cloudpickle.loads(cloudpickle.dumps(constant(FEW).node)) is constant(FEW).node
    assert constant(FEW).node is not constant(FEW.slice(1)).node
    assert constant(FEW.select([])).node is not constant(FEW.slice(1).select([])).node


def test_constants_are_copied() -> None:
    given = np.array([1, 2, 3])
    collection = constant(pa.table({"k": pa.array(given)}))
    given[:] = 0
    engine = Engine()
    view = engine.install("view", collection)
    engine.advance()
    assert read(view) == {(1,): 1, (2,): 1, (3,): 1}


@pytest.mark.parametrize("workers", [1, 2])
def test_one_row_without_columns(workers: int) -> None:
    engine = Engine(workers)
    one = constant(FEW.slice(0, 1).select([]))
    view = engine.install("one", one.map({"x": pa.int64()}, lambda columns: {"x": [1]}))
    engine.advance()
    assert read(view) == {(1,): 1}


# Without columns.
@pytest.mark.parametrize("workers", [1, 2, 3])
@pytest.mark.parametrize("share", [True, False])
def test_collections_without_columns(workers: int, share: bool) -> None:
    engine = Engine(workers, share=share)
    numbers = pairs_input(engine)
    rows = numbers.select()
    views = {
        "rows": rows,
        "distinct": rows.distinct(),
        "count": rows.count(()),
        "consolidated": rows.concat(rows.negate(), rows).consolidate(),
        "squared": rows.arrange().join(rows.arrange()),
        "crossed": numbers.select(w="v").arrange_by(()).join(constant(FEW).arrange_by(())).select().count(()),
        "looped": rows.iterate(lambda it: it.concat(rows).distinct()),
    }
    installed = {name: engine.install(name, view) for name, view in views.items()}

    def answers() -> dict[str, dict[tuple[int, ...], int]]:
        return {name: read(view) for name, view in installed.items()}

    numbers.insert(pairs((1, 5), (1, 6), (2, 7)))
    engine.advance()
    assert answers() == {
        "rows": {(): 3},
        "distinct": {(): 1},
        "count": {(3,): 1},
        "consolidated": {(): 3},
        "squared": {(): 9},
        "crossed": {(12,): 1},
        "looped": {(): 1},
    }
    assert installed["squared"].to_arrow().num_rows == 9
    numbers.remove(pairs((1, 5), (1, 6)))
    engine.advance()
    assert [sum(answer.values()) for answer in answers().values()] == [1] * 7
    numbers.remove(pairs((2, 7)))
    engine.advance()
    assert not any(answers().values())
