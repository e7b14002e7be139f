"""Extension: the values that several traces have in common for the keys of a row, read where they are stored.

For each row, the rows of its key are found in every batch of every trace: a *range* of rows, in order of value. The
trace with the fewest rows *proposes* its values in order; the others *validate* them, each searching on from where its
last search ended. A value that all have is an extension of the row. Its multiplicity is the product of those that the
traces have at the row's time; a trace of which only *existence* counts has the factor 1.

Traces are read by address (`ikebana.kernels.addresses`); their lanes are exact.

Cost: a binary search for each row and batch, unless the row before has the same key; then, for each value of the
smallest trace, a search in the others in time logarithmic in the distance.
"""

from __future__ import annotations

import numpy as np

from ikebana.kernels.addresses import batch_cells, cell, diff_at, first_row, key_at, time_at, val_at
from ikebana.kernels.compile import helper, kernel
from ikebana.kernels.layout import BATCHES, GREATEST, KEY, KEY_STEP, ROWS, TIX, TIX_STEP, VAL, VAL_STEP
from ikebana.kernels.opcodes import DONE, FULL
from ikebana.kernels.pointers import load
from ikebana.kernels.probes import is_visible

STORED, START, END, CURSOR, SINCE = range(5)
"""A range of rows: the cells of its batch, its first row, the row after its last, the next row to be read, and the
epoch of all rows of the batch, or `VARIED`."""

VARIED = -1

RANGES, SIZE = range(2)
"""Of a trace: the number of ranges, and of their rows."""

TABLE, MODE, EXISTS, TRACE_CELLS = range(4)
"""What a trace is to an extension: its table, which rows are visible, and whether only existence counts."""

NEXT_ROW, WANTED, EXTENSION_CELLS = range(3)
"""The state of an extension: the next row, and the room that it needs if there was not enough."""


@helper
def end_of_run(base, step, start, end, bound):
    """The first position from `start` on with an integer of at least `bound`, in ascending integers."""
    if start >= end or load(base + start * step) >= bound:
        return start
    low, stride = start, 1
    while low + stride < end and load(base + (low + stride) * step) < bound:
        low += stride
        stride *= 2
    high = min(low + stride, end)
    while high - low > 1:
        middle = (low + high) >> 1
        if load(base + middle * step) < bound:
            low = middle
        else:
            high = middle
    return high


@helper
def only_epoch(cells):
    """The epoch of all rows of a batch, or `VARIED` if they may have several."""
    if cell(cells, TIX) != 0 and cell(cells, TIX_STEP) == 0:
        return time_at(cells, 0)[0]
    return VARIED


@helper
def find_ranges(table, key, ranges, sizes, at):
    """Write where the rows of a key are in the batches of the trace at a position."""
    found, total = 0, 0
    for batch in range(load(table + 8 * BATCHES)):
        cells = batch_cells(table, batch)
        rows = cell(cells, ROWS)
        start = first_row(cells, key)
        if start < rows and key_at(cells, start) == key:
            end = rows
            if key != GREATEST:
                end = end_of_run(cell(cells, KEY), cell(cells, KEY_STEP), start, rows, key + 1)
            ranges[at, found, STORED] = cells
            ranges[at, found, START] = start
            ranges[at, found, END] = end
            ranges[at, found, SINCE] = only_epoch(cells)
            found += 1
            total += end - start
    sizes[at, RANGES] = found
    sizes[at, SIZE] = total


@helper
def visible_count(traces, ranges, sizes, at, value, first, now):
    """The multiplicity of a value in the ranges of a trace. The cursors move to it, and past it."""
    total, mode = 0, traces[at, MODE]
    for number in range(sizes[at, RANGES]):
        cells, end = ranges[at, number, STORED], ranges[at, number, END]
        base, step = cell(cells, VAL), cell(cells, VAL_STEP)
        row = end_of_run(base, step, ranges[at, number, CURSOR], end, value)
        while row < end and load(base + row * step) == value:
            epoch, round_ = time_at(cells, row)
            if is_visible(epoch, round_, mode, first, now, 0):
                total += diff_at(cells, row, 0)
            row += 1
        ranges[at, number, CURSOR] = row
    if traces[at, EXISTS] != 0:
        return 1 if total > 0 else 0
    return total


@helper
def next_value(ranges, sizes, at):
    """Whether the cursors of a trace have rows left, and their least value."""
    is_left, value = False, 0
    for number in range(sizes[at, RANGES]):
        row = ranges[at, number, CURSOR]
        if row < ranges[at, number, END]:
            candidate = val_at(ranges[at, number, STORED], row)
            if not is_left or candidate < value:
                is_left, value = True, candidate
    return is_left, value


@helper
def new_ranges(traces):
    """Space for the ranges of traces, and for their sizes."""
    most = 1
    for at in range(traces.shape[0]):
        most = max(most, load(traces[at, TABLE] + 8 * BATCHES))
    return np.empty((traces.shape[0], most, 5), np.int64), np.zeros((traces.shape[0], 2), np.int64)


@helper
def smallest(sizes):
    """The position of the trace with the fewest rows."""
    best = 0
    for at in range(1, sizes.shape[0]):
        if sizes[at, SIZE] < sizes[best, SIZE]:
            best = at
    return best


@helper
def is_plain(traces, ranges, sizes, at, first, now):
    """Whether all rows of a key are in one batch and visible, so that no value has several versions."""
    if sizes[at, RANGES] != 1:
        return False
    epoch = ranges[at, 0, SINCE]
    return epoch != VARIED and is_visible(epoch, 0, traces[at, MODE], first, now, 0)


@helper
def count_at(cells, row, exists):
    """The multiplicity of a row that has no other versions."""
    count = diff_at(cells, row, 0)
    if exists != 0:
        return 1 if count > 0 else 0
    return count


@helper
def intersect(traces, ranges, proposer, out, value_slot, diff_slot, written):
    """Write the values that the plain ranges of two traces have in common, like `extend_row`."""
    other = 1 - proposer
    one_exists, other_exists = traces[proposer, EXISTS], traces[other, EXISTS]
    one, start, end = ranges[proposer, 0, STORED], ranges[proposer, 0, START], ranges[proposer, 0, END]
    two, row, other_end = ranges[other, 0, STORED], ranges[other, 0, START], ranges[other, 0, END]
    base, step = cell(one, VAL), cell(one, VAL_STEP)
    other_base, other_step = cell(two, VAL), cell(two, VAL_STEP)
    for at in range(start, end):
        value = load(base + at * step)
        row = end_of_run(other_base, other_step, row, other_end, value)
        if row == other_end:
            break
        if load(other_base + row * other_step) == value:
            product = count_at(one, at, one_exists) * count_at(two, row, other_exists)
            if product != 0:
                out[value_slot, written] = value
                out[diff_slot, written] = product
                written += 1
    return written


@helper
def extend_row(traces, ranges, sizes, proposer, first, now, out, value_slot, diff_slot, written):
    """Write the extensions of a row whose ranges were found, with their multiplicities; return the new end.

    There is room for as many as the proposer has rows.
    """
    number = traces.shape[0]
    if sizes[proposer, SIZE] == 0:
        return written
    if (
        number == 2
        and is_plain(traces, ranges, sizes, 0, first, now)
        and is_plain(traces, ranges, sizes, 1, first, now)
    ):
        return intersect(traces, ranges, proposer, out, value_slot, diff_slot, written)
    for at in range(number):
        for part in range(sizes[at, RANGES]):
            ranges[at, part, CURSOR] = ranges[at, part, START]
    while True:
        is_left, value = next_value(ranges, sizes, proposer)
        if not is_left:
            return written
        product = visible_count(traces, ranges, sizes, proposer, value, first, now)
        for at in range(number):
            if at != proposer and product != 0:
                product *= visible_count(traces, ranges, sizes, at, value, first, now)
        if product != 0:
            out[value_slot, written] = value
            out[diff_slot, written] = product
            written += 1


@kernel("int(slots, lanes, lane, slots, int, int, cells)")
def extend_rows(traces, keys, epochs, out, budget, coalesced, state):
    """Extend rows from `state` on, until the output is full or about `budget` values were proposed.

    `traces` has the cells of each trace, `keys` the key lanes of the rows for each. `out` has three slots: the position
    of the row, the value, the multiplicity. So many epochs before a row's count as its own as `coalesced` says. Returns
    the number of extensions.
    """
    ranges, sizes = new_ranges(traces)
    written, proposed, row = 0, 0, state[NEXT_ROW]
    first = row
    state[WANTED] = 0
    while row < keys.shape[1] and proposed <= budget:
        for at in range(traces.shape[0]):
            if row == first or keys[at, row] != keys[at, row - 1]:
                find_ranges(traces[at, TABLE], keys[at, row], ranges, sizes, at)
        proposer = smallest(sizes)
        total = sizes[proposer, SIZE]
        if total > out.shape[1] - written:
            state[WANTED] = total
            break
        now = epochs[row]
        end = extend_row(traces, ranges, sizes, proposer, now - coalesced, now, out, 1, 2, written)
        for at in range(written, end):
            out[0, at] = row
        written = end
        proposed += total + 1
        row += 1
    state[NEXT_ROW] = row
    return written


@helper
def extend(code, pc, arena, counts, tables, first, now):
    """Extend the rows of a register by the values that several traces have in common for them.

    Operands: source, target, traces, slot of values, slot of diffs, slot for diffs, columns; then for each trace its
    number, the mode, whether only existence counts, and the key slot; then the slots of each column in source and
    target.
    """
    source, target, number, value = code[pc + 2], code[pc + 3], code[pc + 4], code[pc + 5]
    diff, to_diff, columns, given = code[pc + 6], code[pc + 7], code[pc + 8], pc + 9
    copies = given + 4 * number
    written, room = 0, arena.shape[1]
    if counts[source] > 0:
        traces = np.empty((number, TRACE_CELLS), np.int64)
        for at in range(number):
            traces[at, TABLE] = tables[code[given + 4 * at]]
            traces[at, MODE] = code[given + 4 * at + 1]
            traces[at, EXISTS] = code[given + 4 * at + 2]
        ranges, sizes = new_ranges(traces)
        for row in range(counts[source]):
            for at in range(number):
                find_ranges(traces[at, TABLE], arena[code[given + 4 * at + 3], row], ranges, sizes, at)
            proposer = smallest(sizes)
            if sizes[proposer, SIZE] > room - written:
                return FULL
            end = extend_row(traces, ranges, sizes, proposer, first, now, arena, value, to_diff, written)
            for at in range(written, end):
                arena[to_diff, at] *= arena[diff, row]
                for column in range(columns):
                    arena[code[copies + 2 * column + 1], at] = arena[code[copies + 2 * column], row]
            written = end
    counts[target] = written
    return DONE
