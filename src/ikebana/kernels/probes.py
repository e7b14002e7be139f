"""Instructions that read and write traces: arrange the rows of a register, and join them with those of a trace.

Traces are read by address (`ikebana.kernels.addresses`). A program computes one epoch: of a trace it sees the rows of
earlier epochs, and of this epoch those of this round and of earlier ones. In a coalesced sweep, a shared trace has rows
at several epochs that count as this one.

Cost: a binary search in each batch for each row, of many rows at once, and the rows that match.
"""

from __future__ import annotations

import numpy as np

from ikebana.kernels.addresses import AT_ONCE, batch_cells, cell, diff_at, key_at, search_batches, time_at, val_at
from ikebana.kernels.compile import helper
from ikebana.kernels.layout import BATCHES, COLUMNS, KEY_COLUMNS, ROWS
from ikebana.kernels.memtables import insert_rows
from ikebana.kernels.opcodes import ARRANGE, BEFORE, DISTINCT, DONE, FULL, LACKS_ROOM, RAISED, SPILL, TOP
from ikebana.kernels.payloads import ROW_BITS, row_is_stored_as, same_stored
from ikebana.kernels.pointers import load
from ikebana.kernels.registers import add_up, sort_rows


@helper
def is_visible(epoch, round_, mode, first, now, present):
    """Whether a row at (epoch, round) has been seen at the visit (now, present): before it, or also in it.

    The epochs from `first` on count as `now`.
    """
    if epoch < first or epoch > now:
        return epoch < first
    if mode == BEFORE:
        return round_ < present
    return round_ <= present


@helper
def arrange(code, pc, arena, counts, order, spare):
    """Sort the rows of a register by key and value, and add up equal ones.

    Operands: source, target, trace (-1 for none), lanes, payload columns, key, val, to key, to val, the source's diffs,
    the target's diffs, and a group for each payload column. `store_target` stores the rows.
    """
    source, target, lanes, payload, at = code[pc + 2], code[pc + 3], code[pc + 5], code[pc + 6], pc + 7
    rows, groups = counts[source], at + 4 + 2 * lanes
    sort_rows(arena, code, at, 2, rows, order, spare)
    written = add_up(arena, code, at, 2, at + 4, lanes, rows, order, at + 2, at + 4 + lanes, groups, payload)
    if written < 0:
        return RAISED
    counts[target] = written
    return DONE


@helper
def store_target(code, pc, arena, counts, traces, now, present):
    """Store the rows that `arrange`, `distinct` or `top` has written to its target in the trace of the instruction, if
    it has one. They are in order. Other instructions store nothing."""
    op = code[pc]
    if op == ARRANGE:
        target, trace, at = code[pc + 3], code[pc + 4], pc + 9
        diffs, groups = at + 2 + code[pc + 5], at + 2 + 2 * code[pc + 5]
    elif op in (DISTINCT, TOP):
        target, trace, at, diffs, groups = code[pc + 2], code[pc + 4], pc + 5, pc + 7, pc + 19
    else:
        return DONE
    if trace < 0:
        return DONE
    key, val, rows = code[at], code[at + 1], counts[target]
    status = insert_rows(traces[trace], arena, key, val, code, diffs, groups, rows, now, present)
    if status == SPILL:
        counts[LACKS_ROOM] = trace
    return status


@helper
def probe(code, pc, arena, counts, traces, first, now, present):
    """Join the rows of a register with the rows of a trace that have the same key.

    Operands: source, target, trace, mode, whether to add up versions, key slot, slot for the trace's values, pending
    (-1 outside loops), slot for pending values, slot of rounds, source lanes, trace lanes, output lanes, columns, slot
    for references to the trace's rows (0 for none), hashed key columns; then the source's diff slots, the output's diff
    slots, the pending diff slots; then, for each column that is copied, its slot in the source, in the target, and
    among the pending rows; then a group for each column behind a hashed key, which the trace's must equal.
    """
    source, target, table, mode, adds_up = code[pc + 2], code[pc + 3], traces[code[pc + 4]], code[pc + 5], code[pc + 6]
    key, value, pending, later_value, rounds = code[pc + 7], code[pc + 8], code[pc + 9], code[pc + 10], code[pc + 11]
    source_lanes, trace_lanes, lanes, columns = code[pc + 12], code[pc + 13], code[pc + 14], code[pc + 15]
    references, hashed_keys, diffs = code[pc + 16], code[pc + 17], pc + 18
    to_diffs = diffs + source_lanes
    later_diffs = to_diffs + lanes
    copies = later_diffs + lanes
    groups = copies + 3 * columns
    if counts[source] == 0:
        return DONE
    room = arena.shape[1]
    batches = load(table + 8 * BATCHES)
    written = counts[target]
    waiting = counts[pending] if pending >= 0 else 0
    found = np.empty((batches, AT_ONCE), np.int64)
    for row in range(counts[source]):
        wanted = arena[key, row]
        place = row % AT_ONCE
        if place == 0:
            search_batches(table, arena[key, row : counts[source]], found)
        start, parts = written, 0
        for batch in range(batches):
            cells = batch_cells(table, batch)
            end = cell(cells, ROWS)
            match = found[batch, place]
            before = written
            matches = match < end and key_at(cells, match) == wanted
            if matches and not row_is_stored_as(cells, match, hashed_keys, arena, code, groups, row):
                return RAISED
            while match < end and key_at(cells, match) == wanted:
                epoch, round_ = time_at(cells, match)
                if is_visible(epoch, round_, mode, first, now, present):
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
                        if references > 0:
                            arena[references, written] = (batch << ROW_BITS) | match
                        for lane in range(lanes):
                            arena[code[to_diffs + lane], written] = arena[
                                code[diffs + (lane if source_lanes > 1 else 0)], row
                            ] * diff_at(cells, match, lane if trace_lanes > 1 else 0)
                        written += 1
                match += 1
            if written > before:
                parts += 1
        if adds_up and written - start > 1 and (parts > 1 or has_repeats(arena, value, start, written)):
            written = add_up_versions(arena, code, table, value, references, to_diffs, lanes, start, written)
            if written < 0:
                return RAISED
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
def add_up_versions(arena, code, table, value, references, diffs, lanes, start, end):
    """Sort some rows by value, add up the diffs of equal values, and leave out those that cancel; return the new end,
    or -1 if values with equal hashes differ."""
    gap = 1
    while gap < (end - start) // 3:
        gap = 3 * gap + 1
    while gap > 0:
        for row in range(start + gap, end):
            at = row
            while at - gap >= start and arena[value, at - gap] > arena[value, at]:
                swap_rows(arena, code, value, references, diffs, lanes, at, at - gap)
                at -= gap
        gap //= 3
    written, row = start, start
    while row < end:
        move_row(arena, code, value, references, diffs, lanes, row, written)
        row += 1
        while row < end and arena[value, row] == arena[value, written]:
            if references > 0 and not same_values(table, arena[references, row], arena[references, written]):
                return -1
            for lane in range(lanes):
                arena[code[diffs + lane], written] += arena[code[diffs + lane], row]
            row += 1
        for lane in range(lanes):
            if arena[code[diffs + lane], written] != 0:
                written += 1
                break
    return written


@helper
def same_values(table, a, b):
    """Whether two stored rows, given by references, agree in the columns behind a hashed value."""
    mask = (1 << ROW_BITS) - 1
    cells_a, cells_b = batch_cells(table, a >> ROW_BITS), batch_cells(table, b >> ROW_BITS)
    keys, columns = load(table + 8 * KEY_COLUMNS), load(table + 8 * COLUMNS)
    return same_stored(cells_a, a & mask, cells_b, b & mask, keys, columns)


@helper
def swap_rows(arena, code, value, references, diffs, lanes, a, b):
    arena[value, a], arena[value, b] = arena[value, b], arena[value, a]
    if references > 0:
        arena[references, a], arena[references, b] = arena[references, b], arena[references, a]
    for lane in range(lanes):
        slot = code[diffs + lane]
        arena[slot, a], arena[slot, b] = arena[slot, b], arena[slot, a]


@helper
def move_row(arena, code, value, references, diffs, lanes, source, target):
    arena[value, target] = arena[value, source]
    if references > 0:
        arena[references, target] = arena[references, source]
    for lane in range(lanes):
        arena[code[diffs + lane], target] = arena[code[diffs + lane], source]
