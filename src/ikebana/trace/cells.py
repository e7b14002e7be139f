"""The cells of a batch: the addresses by which compiled programs read it (`ikebana.kernels.addresses`).

A batch never changes, so its cells are made once, and kept with it.

Contract: addresses are valid as long as the batch.

Cost: some microseconds, and one more for each payload column.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from ikebana.encoding import slots
from ikebana.encoding.lanes import Lane
from ikebana.encoding.schema import Schema
from ikebana.encoding.slots import address_of
from ikebana.kernels import layout, opcodes
from ikebana.trace.batch import StoredBatch


def payload_fields(schema: Schema) -> tuple[pa.Field, ...]:
    """The columns that are stored as payload: of the key, then of the value."""
    return tuple(field for side in (schema.key, schema.val) if not side.exact for field in side.fields)


def cells_of(batch: StoredBatch) -> Lane:
    """The cells of a batch."""
    return table_of(batch)[layout.HEADER :]


def table_of(batch: StoredBatch) -> Lane:
    """A table with a header and the cells of this batch alone."""
    cached = batch.addresses
    if not cached:
        times = np.ascontiguousarray(batch.times)
        schema = batch.schema
        header = np.zeros(layout.HEADER, np.int64)
        header[layout.BATCHES] = 1
        header[layout.COLUMNS], header[layout.KEY_COLUMNS] = len(batch.payload), schema.key.payload_columns
        cells = _lane_cells(batch, times)
        for field, array in zip(payload_fields(schema), batch.payload, strict=True):
            cells += _column_cells(array, field)
        cached += np.array([*header, *cells], np.int64), times
    return cached[0]


def _lane_cells(batch: StoredBatch, times: Lane) -> list[int]:
    """The addresses and strides of a batch's lanes."""
    updates = batch.updates
    epoch, step = address_of(times), times.strides[0]
    round_ = epoch + 8 if times.shape[1] > 1 else 0
    key, val, tix, diffs = updates.key, updates.val, updates.tix, updates.diffs
    return [
        len(batch),
        address_of(key),
        key.strides[0],
        address_of(val),
        val.strides[0],
        address_of(tix),
        tix.strides[0],
        epoch,
        step,
        round_,
        step,
        address_of(diffs),
        diffs.strides[1],
        diffs.strides[0],
    ]


def _column_cells(array: pa.Array, field: pa.Field) -> list[int]:
    """Where the values of a payload column are."""
    kind, buffers = slots.kind_of(field.type), array.buffers()
    nulls = buffers[0].address if array.null_count else 0
    place = 0 if buffers[1] is None else buffers[1].address
    if kind == opcodes.TEXT:
        step, data = 8, 0 if buffers[2] is None else buffers[2].address
    else:
        step, data = array.type.bit_width // 8, 0
    return [slots.FORMS[kind], place + step * array.offset, step, data, nulls, array.offset]
