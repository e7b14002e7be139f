"""Programs read payload of every type where it is stored, and hash it as the encoding does."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ikebana import kernels
from ikebana.encoding import Schema, payload, slots
from ikebana.encoding.canonical import canonical
from ikebana.kernels import opcodes
from ikebana.time import Antichain
from ikebana.trace import Updates
from ikebana.trace.batch import StoredBatch
from ikebana.trace.cells import payload_fields, table_of
from ikebana.trace.description import Description
from ikebana.trace.updates import consolidate
from tests.profiles import examples

COLUMNS: list[tuple[pa.DataType, list[Any]]] = [
    *((pa.int8(), [-128, -1, 0, 127]), (pa.int16(), [-(2**15), -1, 0, 2**15 - 1])),
    *((pa.int32(), [-(2**31), -1, 0, 2**31 - 1]), (pa.int64(), [-(2**63), -1, 0, 2**63 - 1])),
    *((pa.uint8(), [0, 1, 255]), (pa.uint16(), [0, 2**16 - 1]), (pa.uint32(), [0, 2**32 - 1])),
    *((pa.uint64(), [0, 2**63, 2**64 - 1]), (pa.bool_(), [False, True])),
    (pa.float32(), [0.0, -0.0, 1.5, -1.5, float("inf"), float("-inf"), float("nan")]),
    (pa.float64(), [0.0, -0.0, 1e300, -1e-300, float("inf"), float("-inf"), float("nan")]),
    *((pa.date32(), [-1, 0, 20000]), (pa.timestamp("us"), [-1, 0, 2**62]), (pa.time64("us"), [0, 1])),
    (pa.decimal128(18, 2), [Decimal("-1.25"), Decimal(0), Decimal("9" * 16)]),
    (pa.decimal128(38, 2), [Decimal("-1.25"), Decimal(0), Decimal("9" * 16), Decimal("-" + "9" * 36)]),
    *((pa.string(), ["", "a", "\u00e9\u00e9", "x" * 40]), (pa.large_string(), ["", "b"]), (pa.binary(), [b"", b"\0"])),
    (pa.list_(pa.int32()), [[], [1, None], [3]]),
    (pa.struct({"a": pa.int32(), "b": pa.string()}), [{"a": 1, "b": "x"}, {"a": None, "b": None}]),
]
WIDE = Decimal("-" + "9" * 36)


@st.composite
def payloads(draw: Any) -> tuple[pa.Field, list[Any]]:
    """A column, and some of its values."""
    kind, values = draw(st.sampled_from(COLUMNS))
    nullable = draw(st.booleans())
    rows = draw(st.lists(st.sampled_from([*values, *([None] if nullable else [])]), min_size=1, max_size=12))
    return pa.field("x", kind, nullable), rows


def run(code: list[int], table: np.ndarray, arena: np.ndarray, rows: int) -> int:
    """Run instructions on one register."""
    counts, state = np.array([0, rows], np.int64), np.zeros(opcodes.STATE_CELLS, np.int64)
    scratch, cursors = np.empty((6, arena.shape[1]), np.int64), np.empty((2, 4), np.int64)
    traces, none = np.array([slots.address_of(table)], np.int64), np.zeros(0, np.int64)
    return int(kernels.run_program(np.array(code, np.int64), traces, none, state, arena, counts, scratch, cursors, 0))


@examples(3)
@given(payloads(), st.integers(0, 2))
def test_oracle_payload_is_loaded_and_hashed(case: tuple[pa.Field, list[Any]], skipped: int) -> None:
    field, values = case
    schema = Schema({"at": pa.int64()}, [field, pa.field("pad", pa.string(), nullable=False)])
    array = pa.array([*values[:1] * skipped, *values], field.type).slice(skipped)
    data = {"at": list(range(len(values))), "x": array, "pad": [""] * len(values)}
    updates = Updates.of(schema, data, times=(0,))
    description = Description(Antichain.of((0,)), Antichain.of((1,)), Antichain.of((0,)))
    batch = StoredBatch.of(consolidate(updates), description)
    assert [column.name for column in payload_fields(schema)] == ["x", "pad"]
    rows = len(values)
    arena = np.full((7, rows + 1), 77, np.int64)
    arena[0], arena[1, :rows] = 0, np.arange(rows)
    kind = slots.kind_of(field.type)
    bits = 0 if kind == opcodes.TEXT else slots.stored_bits(field.type)
    loads = [opcodes.LOAD, 8, 1, 0, 0, 1, 2, 3, opcodes.LOAD, 8, 1, 0, 1, 1, 4, 0]
    hashes = [opcodes.HASH, 14, 1, 5, -1, 2, 2, 3, kind, bits, 4, 0, opcodes.TEXT, 0]
    status = run([*loads, *hashes], table_of(batch), arena, rows)
    known = slots.values(array, field)
    if known is None:
        assert status == opcodes.RAISED and WIDE in values
        return
    assert status == opcodes.DONE
    nulls = slots.nulls(array)
    assert arena[3, :rows].tolist() == nulls.tolist()
    assert arena[5, :rows].tolist() == batch.updates.val.tolist()
    loaded = slots.to_canonical(arena[2, :rows], arena[3, :rows], field)
    assert payload.cells((loaded,)) == payload.cells((canonical(array),))
    assert (arena[:, rows] == [0, *[77] * 6]).all()


def test_long_texts_do_not_fit() -> None:
    field = pa.field("x", pa.string(), nullable=False)
    assert slots.values(pa.array(["x" * slots.MOST_BYTES]), field) is not None
    assert slots.values(pa.array(["x" * (slots.MOST_BYTES + 1)]), field) is None


@pytest.mark.parametrize("kind", [pa.string(), pa.decimal128(38, 2), pa.list_(pa.int64())])
def test_nothing_becomes_nothing(kind: pa.DataType) -> None:
    field = pa.field("x", kind, nullable=False)
    values = slots.values(pa.array([], kind), field)
    assert values is not None and not len(values[0])
    assert not len(slots.to_canonical(values[0], None, field))
