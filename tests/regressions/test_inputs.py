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
