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

Cost: a few nanoseconds for each cell that is in the processor's cache. One that is not takes a hundred, and each step
of a binary search waits for the step before. So `first_rows` searches for up to `AT_ONCE` keys side by side: the
processor waits for many cells at once, and mispredicts no branches. Then `prefetch_rows` asks for what is read next.
Of many ascending keys, all but the first are sought from where the last was found (`first_rows_from`).
"""

from __future__ import annotations

from ikebana.kernels.compile import helper
from ikebana.kernels.layout import (
    BATCHES,
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
from ikebana.kernels.pointers import load, load_half, prefetch

AT_ONCE, FEW_KEYS = 16, 4
"""How many keys are searched for at once. Fewer than `FEW_KEYS` are searched for one by one: then the processor
predicts the next steps, and loads what they need ahead of time."""


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
def first_rows(cells, wanted, count, found):
    """Write what `first_row` returns for some keys, `count` of them and at most `AT_ONCE`."""
    if count < FEW_KEYS:
        for at in range(count):
            found[at] = first_row(cells, wanted[at])
        return
    search_side_by_side(cells, wanted, count, found, 0, cell(cells, ROWS))


@helper
def first_rows_from(cells, wanted, count, found, start):
    """The same for ascending keys, none of which is before the row `start`: near rows are quickly found."""
    base, step, rows = cell(cells, KEY), cell(cells, KEY_STEP), cell(cells, ROWS)
    width = AT_ONCE
    while start + width < rows and load(base + (start + width) * step) < wanted[count - 1]:
        width *= 2
    search_side_by_side(cells, wanted, count, found, start, min(width, rows - start))


@helper
def search_side_by_side(cells, wanted, count, found, start, left):
    """Write the first row of each key, if it is one of the `left` rows from `start` on, or the row after them."""
    base, step = cell(cells, KEY), cell(cells, KEY_STEP)
    found[:count] = start
    while left > 0:
        half = (left + 1) >> 1
        for at in range(count):
            found[at] += half * (load(base + (found[at] + half - 1) * step) < wanted[at])
        left -= half
    prefetch_rows(cells, count, found)


@helper
def search_batches(table, wanted, found):
    """Write what `first_row` returns in each batch of a trace for the first of some keys, at most `AT_ONCE`."""
    for batch in range(load(table + 8 * BATCHES)):
        first_rows(batch_cells(table, batch), wanted, min(len(wanted), AT_ONCE), found[batch])


@helper
def first_row_of_value_from(cells, key, val, start):
    """The same as `first_row_of_value`, given the first row of the key: few rows of a key are quickly passed."""
    rows = cell(cells, ROWS)
    low, width = start, 1
    while low + width <= rows and key_at(cells, low + width - 1) == key and val_at(cells, low + width - 1) < val:
        low += width
        width *= 2
    left = min(width - 1, rows - low)
    while left > 0:
        half = (left + 1) >> 1
        middle = low + half - 1
        if key_at(cells, middle) == key and val_at(cells, middle) < val:
            low += half
        left -= half
    return low


@helper
def prefetch_rows(cells, count, found):
    """Prefetch the numbers of the times of some rows, and their diffs."""
    for at in range(count):
        prefetch(cell(cells, TIX) + found[at] * cell(cells, TIX_STEP))
        prefetch(cell(cells, DIFF) + found[at] * cell(cells, DIFF_STEP))


@helper
def end_of_key(cells, key):
    """The row after the last row with a key of at most `key`."""
    if key == GREATEST:
        return cell(cells, ROWS)
    return first_row(cells, key + 1)
