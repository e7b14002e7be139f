"""Traces by address: how compiled programs read stored batches where they are.

A trace is described to a program by a table of integers (`ikebana.trace.memtable`): a header, then `CELLS` integers for
the memtable and for each batch, followed by those of its payload columns (`ikebana.kernels.payloads`). Row `i` of a
batch has

    key       at  KEY   + i * KEY_STEP          and the value likewise
    time      number t: TIX + i * TIX_STEP (32 bits), or i itself if TIX is 0
    epoch     at  EPOCH + t * EPOCH_STEP        and the round likewise; round 0 if ROUND is 0
    diff j    at  DIFF  + i * DIFF_STEP + j * DIFF_LANE_STEP

A step of 0 is a constant lane. Rows are in order of (key, value, time).

Contract: addresses are valid for as long as the table is, which holds on to the batches. Only memtables are written
(`ikebana.kernels.memtables`).

Cost: a few nanoseconds for each cell that is in the processor's cache.
"""

from __future__ import annotations

from ikebana.kernels.compile import helper
from ikebana.kernels.layout import (
    CELLS,
    COLUMN_CELLS,
    COLUMNS,
    DIFF,
    DIFF_LANE_STEP,
    DIFF_STEP,
    EPOCH,
    EPOCH_STEP,
    GREATEST,
    HEADER,
    KEY,
    KEY_STEP,
    ROUND,
    ROUND_STEP,
    ROWS,
    TIX,
    TIX_STEP,
    VAL,
    VAL_STEP,
)
from ikebana.kernels.pointers import load, load_half


@helper
def batch_cells(table, batch):
    """The address of the cells of a batch."""
    return table + 8 * (HEADER + batch * (CELLS + COLUMN_CELLS * load(table + 8 * COLUMNS)))


@helper
def cell(cells, number):
    return load(cells + 8 * number)


@helper
def key_at(cells, row):
    return load(cell(cells, KEY) + row * cell(cells, KEY_STEP))


@helper
def val_at(cells, row):
    return load(cell(cells, VAL) + row * cell(cells, VAL_STEP))


@helper
def time_at(cells, row):
    """The epoch and the round of a row."""
    position = row
    if cell(cells, TIX) != 0:
        position = load_half(cell(cells, TIX) + row * cell(cells, TIX_STEP))
    epoch = load(cell(cells, EPOCH) + position * cell(cells, EPOCH_STEP))
    rounds = cell(cells, ROUND)
    if rounds == 0:
        return epoch, 0
    return epoch, load(rounds + position * cell(cells, ROUND_STEP))


@helper
def diff_at(cells, row, lane):
    return load(cell(cells, DIFF) + row * cell(cells, DIFF_STEP) + lane * cell(cells, DIFF_LANE_STEP))


@helper
def first_row(cells, key):
    """The first row with a key of at least `key`."""
    base, step = cell(cells, KEY), cell(cells, KEY_STEP)
    low, high = 0, cell(cells, ROWS)
    while low < high:
        middle = (low + high) >> 1
        if load(base + middle * step) < key:
            low = middle + 1
        else:
            high = middle
    return low


@helper
def first_row_of_value(cells, key, val):
    """The first row with at least this key and value."""
    low, high = 0, cell(cells, ROWS)
    while low < high:
        middle = (low + high) >> 1
        present = key_at(cells, middle)
        if present < key or (present == key and val_at(cells, middle) < val):
            low = middle + 1
        else:
            high = middle
    return low


@helper
def end_of_key(cells, key):
    """The row after the last row with a key of at most `key`."""
    if key == GREATEST:
        return cell(cells, ROWS)
    return first_row(cells, key + 1)
