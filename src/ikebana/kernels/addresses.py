"""Traces by address: how compiled programs read stored batches where they are, and write memtables.

A trace is described to a program by a table of integers (`ikebana.trace.memtable`): a header, then `CELLS` integers for
the memtable and for each batch. Row `i` of a batch has

    key       at  KEY   + i * KEY_STEP          and the value likewise
    time      number t: TIX + i * TIX_STEP (32 bits), or i itself if TIX is 0
    epoch     at  EPOCH + t * EPOCH_STEP        and the round likewise; round 0 if ROUND is 0
    diff j    at  DIFF  + i * DIFF_STEP + j * DIFF_LANE_STEP

A step of 0 is a constant lane. Rows are in order of (key, value, time).

Contract: addresses are valid for as long as the table is, which holds on to the batches. Only memtables are written, by
`insert_rows` and `restore_rows`, never beyond their capacity: an insertion without room writes nothing.

Cost: a few nanoseconds for each cell that is in the processor's cache.
"""

from __future__ import annotations

from ikebana.kernels.compile import helper
from ikebana.kernels.layout import (
    CAPACITY,
    CELLS,
    DIFF,
    DIFF_LANE_STEP,
    DIFF_STEP,
    EPOCH,
    EPOCH_STEP,
    FIRST_DIFF_LANE,
    GREATEST,
    HEADER,
    KEY,
    KEY_STEP,
    LANES,
    ROUND,
    ROUND_STEP,
    ROWS,
    SAVED,
    TIX,
    TIX_STEP,
    VAL,
    VAL_STEP,
)
from ikebana.kernels.pointers import load, load_half, store

# Reading.


@helper
def batch_cells(table, batch):
    """The address of the cells of a batch."""
    return table + 8 * (HEADER + batch * CELLS)


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


# Memtables.


@helper
def memtable_cells(table):
    return batch_cells(table, 0)


@helper
def save_rows(table):
    """Keep a copy of the memtable's rows, unless the present program has done so."""
    if load(table + 8 * SAVED) >= 0:
        return
    cells, room = memtable_cells(table), load(table + 8 * CAPACITY)
    rows = cell(cells, ROWS)
    copy_rows(table, cells, 0, room, rows)
    store(table + 8 * SAVED, rows)


@helper
def restore_rows(table):
    """Undo what the present program has written."""
    rows = load(table + 8 * SAVED)
    if rows < 0:
        return
    cells, room = memtable_cells(table), load(table + 8 * CAPACITY)
    copy_rows(table, cells, room, 0, rows)
    store(cells + 8 * ROWS, rows)
    store(table + 8 * SAVED, -1)


@helper
def copy_rows(table, cells, source, target, rows):
    """Copy rows of every lane of a memtable, from one half to the other."""
    room = load(table + 8 * CAPACITY)
    base = cell(cells, KEY)
    for lane in range(FIRST_DIFF_LANE + load(table + 8 * LANES)):
        start = base + 16 * room * lane
        for row in range(rows):
            store(start + 8 * (target + row), load(start + 8 * (source + row)))


@helper
def insert_rows(table, arena, key, val, diffs, first_diff, rows, epoch, round_):
    """Insert rows, in order of key and value, all at one time, which is later than that of all rows of the memtable.

    `diffs[first_diff:]` lists the slots of their diffs. Returns whether there was room.
    """
    if rows == 0:
        return True
    cells, room, lanes = memtable_cells(table), load(table + 8 * CAPACITY), load(table + 8 * LANES)
    stored = cell(cells, ROWS)
    if stored + rows > room:
        return False
    save_rows(table)
    base, pitch = cell(cells, KEY), 16 * room
    old, new, at = stored - 1, rows - 1, stored + rows - 1
    while new >= 0:
        new_key, new_val = arena[key, new], arena[val, new]
        while old >= 0:
            old_key = load(base + 8 * old)
            if old_key < new_key or (old_key == new_key and load(base + pitch + 8 * old) <= new_val):
                break
            for lane in range(FIRST_DIFF_LANE + lanes):
                store(base + pitch * lane + 8 * at, load(base + pitch * lane + 8 * old))
            old -= 1
            at -= 1
        store(base + 8 * at, new_key)
        store(base + pitch + 8 * at, new_val)
        store(base + 2 * pitch + 8 * at, epoch)
        store(base + 3 * pitch + 8 * at, round_)
        for lane in range(lanes):
            store(base + pitch * (FIRST_DIFF_LANE + lane) + 8 * at, arena[diffs[first_diff + lane], new])
        new -= 1
        at -= 1
    store(cells + 8 * ROWS, stored + rows)
    return True
