"""Instructions that read and write traces: arrange the rows of a register, and join them with those of a trace.

Traces are read by address (`ikebana.kernels.addresses`). A program computes one epoch: of a trace it sees the rows of
earlier epochs, and of this epoch those of this round and of earlier ones.

Cost: a binary search in each batch for each row, and the rows that match.
"""

from __future__ import annotations

from ikebana.kernels.addresses import batch_cells, cell, diff_at, first_row, insert_rows, key_at, time_at, val_at
from ikebana.kernels.compile import helper
from ikebana.kernels.layout import BATCHES, ROWS
from ikebana.kernels.opcodes import BEFORE, DONE, FULL, LACKS_ROOM, SPILL
from ikebana.kernels.pointers import load
from ikebana.kernels.registers import add_up, sort_rows


@helper
def is_visible(epoch, round_, mode, now, present):
    """Whether a row at (epoch, round) has been seen at the visit (now, present): before it, or also in it."""
    if epoch != now:
        return epoch < now
    if mode == BEFORE:
        return round_ < present
    return round_ <= present


@helper
def arrange(code, pc, arena, counts, traces, order, spare, now, present):
    source, target, lanes, at = code[pc + 2], code[pc + 3], code[pc + 5], pc + 6
    rows = counts[source]
    sort_rows(arena, code, at, 2, rows, order, spare)
    written = add_up(arena, code, at, 2, at + 4, lanes, rows, order, at + 2, at + 4 + lanes)
    counts[target] = written
    table = traces[code[pc + 4]]
    key, val = code[at + 2], code[at + 3]
    if insert_rows(table, arena, key, val, code, at + 4 + lanes, written, now, present):
        return DONE
    counts[LACKS_ROOM] = code[pc + 4]
    return SPILL


@helper
def probe(code, pc, arena, counts, traces, now, present):
    """Join the rows of a register with the rows of a trace that have the same key.

    Operands: source, target, trace, mode, whether to add up versions, key slot, slot for the trace's values, pending
    (-1 outside loops), slot for pending values, slot of rounds, source lanes, trace lanes, output lanes, columns; then
    the source's diff slots, the output's diff slots, the pending diff slots; then, for each column that is copied, its
    slot in the source, in the target, and among the pending rows.
    """
    source, target, table, mode, adds_up = code[pc + 2], code[pc + 3], traces[code[pc + 4]], code[pc + 5], code[pc + 6]
    key, value, pending, later_value, rounds = code[pc + 7], code[pc + 8], code[pc + 9], code[pc + 10], code[pc + 11]
    source_lanes, trace_lanes, lanes, columns = code[pc + 12], code[pc + 13], code[pc + 14], code[pc + 15]
    diffs = pc + 16
    to_diffs = diffs + source_lanes
    later_diffs = to_diffs + lanes
    copies = later_diffs + lanes
    room = arena.shape[1]
    batches = load(table + 8 * BATCHES)
    written = counts[target]
    waiting = counts[pending] if pending >= 0 else 0
    for row in range(counts[source]):
        wanted = arena[key, row]
        start, parts = written, 0
        for batch in range(batches):
            cells = batch_cells(table, batch)
            end = cell(cells, ROWS)
            match = first_row(cells, wanted)
            before = written
            while match < end and key_at(cells, match) == wanted:
                epoch, round_ = time_at(cells, match)
                if is_visible(epoch, round_, mode, now, present):
                    if round_ > present:
                        if waiting == room:
                            return FULL
                        arena[later_value, waiting] = val_at(cells, match)
                        arena[rounds, waiting] = round_
                        for lane in range(lanes):
                            arena[code[later_diffs + lane], waiting] = arena[
                                code[diffs + (lane if source_lanes > 1 else 0)], row
                            ] * diff_at(cells, match, lane if trace_lanes > 1 else 0)
                        for column in range(columns):
                            arena[code[copies + 3 * column + 2], waiting] = arena[code[copies + 3 * column], row]
                        waiting += 1
                    else:
                        if written == room:
                            return FULL
                        arena[value, written] = val_at(cells, match)
                        for lane in range(lanes):
                            arena[code[to_diffs + lane], written] = arena[
                                code[diffs + (lane if source_lanes > 1 else 0)], row
                            ] * diff_at(cells, match, lane if trace_lanes > 1 else 0)
                        written += 1
                match += 1
            if written > before:
                parts += 1
        if adds_up and written - start > 1 and (parts > 1 or has_repeats(arena, value, start, written)):
            written = add_up_versions(arena, code, value, to_diffs, lanes, start, written)
        for column in range(columns):
            from_, to = code[copies + 3 * column], code[copies + 3 * column + 1]
            for at in range(start, written):
                arena[to, at] = arena[from_, row]
    counts[target] = written
    if pending >= 0:
        counts[pending] = waiting
    return DONE


@helper
def has_repeats(arena, value, start, end):
    """Whether two neighbouring rows have the same value."""
    for row in range(start + 1, end):
        if arena[value, row] == arena[value, row - 1]:
            return True
    return False


@helper
def add_up_versions(arena, code, value, diffs, lanes, start, end):
    """Sort some rows by value, add up the diffs of equal values, and leave out those that cancel; return the new
    end."""
    gap = 1
    while gap < (end - start) // 3:
        gap = 3 * gap + 1
    while gap > 0:
        for row in range(start + gap, end):
            at = row
            while at - gap >= start and arena[value, at - gap] > arena[value, at]:
                swap_rows(arena, code, value, diffs, lanes, at, at - gap)
                at -= gap
        gap //= 3
    written, row = start, start
    while row < end:
        move_row(arena, code, value, diffs, lanes, row, written)
        row += 1
        while row < end and arena[value, row] == arena[value, written]:
            for lane in range(lanes):
                arena[code[diffs + lane], written] += arena[code[diffs + lane], row]
            row += 1
        for lane in range(lanes):
            if arena[code[diffs + lane], written] != 0:
                written += 1
                break
    return written


@helper
def swap_rows(arena, code, value, diffs, lanes, a, b):
    arena[value, a], arena[value, b] = arena[value, b], arena[value, a]
    for lane in range(lanes):
        slot = code[diffs + lane]
        arena[slot, a], arena[slot, b] = arena[slot, b], arena[slot, a]


@helper
def move_row(arena, code, value, diffs, lanes, source, target):
    arena[value, target] = arena[value, source]
    for lane in range(lanes):
        arena[code[diffs + lane], target] = arena[code[diffs + lane], source]
