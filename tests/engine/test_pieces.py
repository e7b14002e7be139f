"""Large changes of tables are sent in pieces, and take effect as one; `test_oracle_tables` has random ones."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from ikebana.engine import Engine
from ikebana.errors import ChangeError
from ikebana.runtime import staging
from ikebana.runtime.messages import Stage
from ikebana.runtime.staging import INSERT, in_pieces


@pytest.fixture
def small_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    """Pieces of a few rows."""
    monkeypatch.setattr(staging, "PIECE_BYTES", 64)
    monkeypatch.setattr(staging, "DIVIDED_ROWS", 0)
    monkeypatch.setattr(staging, "SPREAD_ROWS", 10)


def test_pieces_are_bounded_and_have_all_rows_in_order(small_pieces: None) -> None:
    columns = pa.array(range(100)), pa.array([f"text {number}" for number in range(100)])
    ops = np.arange(100, dtype=np.int8) % 3
    pieces = list(in_pieces(Stage(1, "table", None, 0, columns, ops)))
    assert len(pieces) > 10
    assert max(sum(column.nbytes for column in piece.columns) for piece in pieces) <= 2 * 64
    for at, column in enumerate(columns):
        assert pa.concat_arrays([piece.columns[at] for piece in pieces]).equals(column)
    assert np.concatenate([piece.ops for piece in pieces]).tolist() == ops.tolist()


def test_a_small_change_is_one_piece() -> None:
    stage = Stage(1, "table", None, 0, (pa.array([1]),), INSERT)
    assert list(in_pieces(stage)) == [stage]
    empty = Stage(1, "table", None, 0, (pa.array([], pa.int64()),), INSERT)
    assert list(in_pieces(empty)) == [empty]


@pytest.mark.parametrize("workers", [1, 2])
def test_nothing_of_a_change_in_pieces_is_applied_if_a_row_is_rejected(small_pieces: None, workers: int) -> None:
    with Engine(workers=workers) as engine:
        table = engine.table("table", {"k": pa.int64(), "v": pa.int64()}, key="k")
        table.insert({"k": [7], "v": [1]})
        with pytest.raises(ChangeError):
            table.insert({"k": list(range(100)), "v": [0] * 100})
        assert engine.install("rows", table).to_arrow().to_pylist() == [{"k": 7, "v": 1}]


@pytest.mark.parametrize("workers", [1, 2])
def test_rows_of_streams_arrive_in_pieces(small_pieces: None, workers: int) -> None:
    with Engine(workers=workers) as engine:
        stream = engine.table("stream", {"k": pa.int64()}, kind="stream")
        view = engine.install("view", stream.count("k"))
        stream.insert({"k": [number % 3 for number in range(300)]})
        assert {row["k"]: row["count"] for row in view.to_arrow().to_pylist()} == {0: 100, 1: 100, 2: 100}
