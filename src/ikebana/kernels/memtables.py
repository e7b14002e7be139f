"""Memtables by address: programs insert rows, and restore them if they fail.

A memtable (`ikebana.trace.memtable`) has lanes of integers, each with twice its capacity: the second half keeps the
rows that may have to be restored. After the lanes of diffs there are two for each payload column, of values and of
nulls. The bytes of texts are copied to a heap that only grows; what a failed program has added there is overwritten.

Contract: nothing is written beyond the capacity or the heap: an insertion without room writes nothing, and returns
`SPILL`; it may be tried again. Two rows with equal hashes and different data are a collision: `RAISED`, and the program
must be undone.

Cost: all rows of the memtable are copied once in a program that writes to it, and moved by each insertion.
"""

from __future__ import annotations

from ikebana.kernels.addresses import batch_cells, cell
from ikebana.kernels.compile import helper
from ikebana.kernels.layout import (
    CAPACITY,
    COLUMNS,
    FIRST_DIFF_LANE,
    FORM,
    HEAP,
    HEAP_END,
    KEY,
    KEY_COLUMNS,
    LANES,
    ROWS,
    SAVED,
    SAVED_HEAP,
    TEXT_SLOT,
    WANTED_BYTES,
)
from ikebana.kernels.opcodes import DONE, RAISED, SPILL
from ikebana.kernels.payloads import GROUP, column_cells, same_stored
from ikebana.kernels.pointers import load, store
from ikebana.kernels.texts import copy_text, length_of_text


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
    store(table + 8 * SAVED_HEAP, load(table + 8 * HEAP))


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
    store(table + 8 * HEAP, load(table + 8 * SAVED_HEAP))


@helper
def lanes_of_memtable(table):
    """The number of lanes: of keys, values, times, diffs and payload."""
    return FIRST_DIFF_LANE + load(table + 8 * LANES) + 2 * load(table + 8 * COLUMNS)


@helper
def copy_rows(table, cells, source, target, rows):
    """Copy rows of every lane of a memtable, from one half to the other."""
    room = load(table + 8 * CAPACITY)
    base = cell(cells, KEY)
    for lane in range(lanes_of_memtable(table)):
        start = base + 16 * room * lane
        for row in range(rows):
            store(start + 8 * (target + row), load(start + 8 * (source + row)))


@helper
def insert_rows(table, arena, key, val, code, diffs, groups, rows, epoch, round_):
    """Insert rows, in order of key and value, all at one time, which is later than that of all rows of the memtable.

    The code lists the slots of their diffs from `diffs` on, and the groups of their payload columns, each with the
    slots that the column was copied to, from `groups` on.
    """
    if rows == 0:
        return DONE
    cells, room, lanes = memtable_cells(table), load(table + 8 * CAPACITY), load(table + 8 * LANES)
    stored = cell(cells, ROWS)
    if stored + rows > room:
        return SPILL
    lacking = bytes_of_texts(table, cells, arena, code, groups, rows)
    lacking -= load(table + 8 * HEAP_END) - load(table + 8 * HEAP)
    if lacking > 0:
        store(table + 8 * WANTED_BYTES, lacking)
        return SPILL
    save_rows(table)
    base, pitch, all_lanes = cell(cells, KEY), 16 * room, lanes_of_memtable(table)
    old, new, at = stored - 1, rows - 1, stored + rows - 1
    while new >= 0:
        new_key, new_val = arena[key, new], arena[val, new]
        while old >= 0:
            old_key = load(base + 8 * old)
            if old_key < new_key or (old_key == new_key and load(base + pitch + 8 * old) <= new_val):
                break
            for lane in range(all_lanes):
                store(base + pitch * lane + 8 * at, load(base + pitch * lane + 8 * old))
            old -= 1
            at -= 1
        store(base + 8 * at, new_key)
        store(base + pitch + 8 * at, new_val)
        store(base + 2 * pitch + 8 * at, epoch)
        store(base + 3 * pitch + 8 * at, round_)
        for lane in range(lanes):
            store(base + pitch * (FIRST_DIFF_LANE + lane) + 8 * at, arena[code[diffs + lane], new])
        insert_payload(table, cells, base + pitch * (FIRST_DIFF_LANE + lanes) + 8 * at, pitch, arena, code, groups, new)
        new -= 1
        at -= 1
    store(cells + 8 * ROWS, stored + rows)
    return RAISED if has_collision(table, cells) else DONE


@helper
def bytes_of_texts(table, cells, arena, code, groups, rows):
    """The number of bytes of all texts of some rows."""
    total = 0
    for number in range(load(table + 8 * COLUMNS)):
        if cell(column_cells(cells, number), FORM) == TEXT_SLOT:
            value, null = code[groups + GROUP * number + 2], code[groups + GROUP * number + 3]
            for row in range(rows):
                if arena[null, row] == 0:
                    total += length_of_text(arena[value, row])
    return total


@helper
def insert_payload(table, cells, place, pitch, arena, code, groups, row):
    """Write the payload of a row to the lanes from `place` on, `pitch` bytes apart; copy texts to the heap."""
    for number in range(load(table + 8 * COLUMNS)):
        at = groups + GROUP * number
        value, is_null = arena[code[at + 2], row], arena[code[at + 3], row]
        if is_null == 0 and cell(column_cells(cells, number), FORM) == TEXT_SLOT:
            heap = load(table + 8 * HEAP)
            value = copy_text(value, heap)
            store(table + 8 * HEAP, heap + length_of_text(value))
        store(place + pitch * 2 * number, value)
        store(place + pitch * (2 * number + 1), is_null)


@helper
def has_collision(table, cells):
    """Whether neighbouring rows of the memtable are equal in a lane, but not in the data behind it."""
    columns, keys = load(table + 8 * COLUMNS), load(table + 8 * KEY_COLUMNS)
    if columns == 0:
        return False
    base, pitch = cell(cells, KEY), 16 * load(table + 8 * CAPACITY)
    for row in range(1, cell(cells, ROWS)):
        if load(base + 8 * row) == load(base + 8 * (row - 1)):
            has_same_value = load(base + pitch + 8 * row) == load(base + pitch + 8 * (row - 1))
            if not same_stored(cells, row - 1, cells, row, 0, columns if has_same_value else keys):
                return True
    return False
