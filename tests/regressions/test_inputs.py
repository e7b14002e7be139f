"""Fixed bugs of inputs, each with a minimal case."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from ikebana import Engine


def test_regression_arrays_changed_after_a_push_do_not_change_what_was_pushed() -> None:
    """Users may reuse their arrays as soon as `push` returns."""
    with Engine() as engine:
        numbers = engine.input("numbers", {"x": pa.int64()})
        view = engine.install("view", numbers)
        given, diffs = np.array([1, 2]), np.array([1, 3])
        numbers.push({"x": given}, diffs)
        given[:], diffs[:] = 7, 9
        engine.advance()
        assert sorted(tuple(row.values()) for row in view.read().to_pylist()) == [(1, 1), (2, 3)]


def test_regression_a_table_without_rows_gets_a_column_after_changes() -> None:
    """Whoever inserted a row then waited for ever: for changes that the table's new dataflow does not have."""
    with Engine() as engine:
        table = engine.table("t", {"k": pa.int64()}, key="k")
        table.insert({"k": [1]})
        table.delete({"k": [1]})
        table = engine.add_column("t", pa.field("n", pa.int8()), None)
        table.insert({"k": [1], "n": [None]})
        assert table.lookup(k=1).num_rows == 1


def test_regression_rows_of_different_epochs_that_different_workers_own() -> None:
    """Each worker got the times of all rows, and failed at an epoch at which it had none."""
    with Engine(3) as engine:
        numbers = engine.input("numbers", {"x": pa.int64()})
        view = engine.install("view", numbers.distinct())
        for at in range(0, 12, 2):
            numbers.push({"x": [at, at + 1]}, [1, 1], epochs=[at, at + 1])
            for count in (at + 1, at + 2):
                engine.advance()
                assert view.read().num_rows == count
