"""Programs: the sweep of a dataflow over one epoch as a list of instructions, run by one compiled interpreter.

In a small visit nearly all time goes into the calls around the work. A program does the visits of many operators, and
all rounds of a loop, in one call. It is data: nothing is compiled for a query (`ikebana.operators.program` writes
programs).

**Registers.** A register is a set of rows: a *count*, and *slots* of the arena, each a column of 64-bit integers.
Several registers may share slots. Slot 0 is all zeros: the null flags of columns without nulls, and the lane of a side
without columns. The value of a null is 0. All rows of a register are at one time: the epoch of the sweep and, in a
loop, the present round.

**Pending rows.** Rows for later rounds of a loop wait in a register with one more slot, of rounds; `TAKE` moves the
rows of the present round out of it. Between sweeps nothing waits.

**Traces.** Programs read traces by address, and write memtables (`ikebana.kernels.addresses`). The rows that a sweep
has not seen yet, of a shared trace that is ahead, are ignored.

**Workers.** Where a program needs other workers it stops, with the status `EXCHANGES` or `AGREES`; the caller does what
the instruction says, and resumes the program.

**Failure.** A program that finds no room (`FULL` registers, `SPILL` memtables), or a row for which an expression raises
(`RAISED`), restores all memtables and returns that status: it has done nothing. The caller then makes room, or has the
operators do the visits.

| instruction | operands | effect |
|---|---|---|
| CLEAR | count | the register is empty |
| NEGATE | count, from, to | diffs with their sign changed |
| FILTER | source, target, flag, null, m, (from, to)*m | the rows whose flag is set and not null |
| ARRANGE | source, target, trace, lanes, key, val, to key, to val, diffs, to diffs | sorted, added up, and stored |
| PROBE | see `probe` | the rows of a register joined with those of a trace, appended |
| TAKE | pending, target, rounds, m, (from, to)*m | the pending rows of this round, appended |
| DISTINCT | see `distinct` | each row of positive count once |
| SUMS | see `group_sums` | for each changed group its old sums, retracted, and its new sums |
| TOP | see `top` | the least or greatest values of each group |
| ENTER | source, target | the rows of the surrounding scope, in round 0 |
| ENTER_AT | source, target, pending, rounds, delays, m, (from, to, pending)*m | the rows, from rounds of their own on |
| FEEDBACK | source, pending, last round, rounds, m, (from, to)*m | the rows, in the next round |
| APPEND | source, target, m, (from, to)*m | the rows, after those that are there |
| CONSOLIDATE | source, target, k columns, lanes, slots, to slots | equal rows added up |
| LOOP | | round 0 |
| REPEAT | start, n, (pending, rounds)*n | back to `start` if rows wait for a later round |
| EXCHANGE | source, target, key, m, m slots, m target slots | stops: rows go to the workers that own their keys |
| AGREE | start, n, (pending, rounds)*n | stops: like REPEAT, once all workers have said which round they need |
| UNPACK | count, from, to, null, shift, width, kind, flips sign | a column of an exact lane |
| PACK | count, to, flips sign, m, (value, null, width, kind, nullable)*m | the exact lane of columns |
| others | count, to, null, a, null a, b, null b, least, greatest | an expression, row by row |

Each instruction starts with its opcode and its length. Cost: some nanoseconds for an instruction without rows.
"""

from __future__ import annotations

import numpy as np

from ikebana.kernels.addresses import (
    batch_cells,
    cell,
    diff_at,
    end_of_key,
    first_row,
    first_row_of_value,
    insert_rows,
    key_at,
    restore_rows,
    time_at,
    val_at,
)
from ikebana.kernels.compile import helper, kernel
from ikebana.kernels.layout import BATCHES, ROWS, SAVED
from ikebana.kernels.opcodes import (
    ADD,
    AGREE,
    AGREES,
    AND,
    APPEND,
    ARRANGE,
    BEFORE,
    BIT_LENGTH,
    CHOOSE,
    CLEAR,
    COMMITS,
    CONSOLIDATE,
    CONSTANT,
    DISTINCT,
    DONE,
    ENTER,
    ENTER_AT,
    EQUAL,
    EXCHANGE,
    EXCHANGES,
    FEEDBACK,
    FILTER,
    FULL,
    GREATEST_OF,
    IS_NULL,
    LACKS_ROOM,
    LEAST,
    LESS,
    LESS_EQUAL,
    LOOP,
    MULTIPLY,
    NEGATE,
    NEXT_ROUND,
    NOT,
    OR,
    PACK,
    PC,
    PROBE,
    RAISED,
    REPEAT,
    ROUND_NOW,
    SEEN,
    SIGNED,
    SPILL,
    SUBTRACT,
    SUMS,
    TAKE,
    TOP,
    UNPACK,
)
from ikebana.kernels.pointers import load, store

NEVER = 1 << 62
_SIGN = -(1 << 63)


# Order.


@helper
def precedes(arena, code, first, columns, a, b):
    """Whether row `a` is less than row `b`, by the slots listed in the code."""
    for column in range(columns):
        slot = code[first + column]
        left, right = arena[slot, a], arena[slot, b]
        if left != right:
            return left < right
    return False


@helper
def same_row(arena, code, first, columns, a, b):
    for column in range(columns):
        slot = code[first + column]
        if arena[slot, a] != arena[slot, b]:
            return False
    return True


@helper
def sort_rows(arena, code, first, columns, rows, order, spare):
    """Write the positions of the rows in order, by the slots listed in the code; rows that are equal stay in order."""
    run = 16
    for start in range(0, rows, run):
        for row in range(start, min(start + run, rows)):
            at = row
            while at > start and precedes(arena, code, first, columns, row, order[at - 1]):
                order[at] = order[at - 1]
                at -= 1
            order[at] = row
    while run < rows:
        for start in range(0, rows, 2 * run):
            middle, end = min(start + run, rows), min(start + 2 * run, rows)
            left, right = start, middle
            for at in range(start, end):
                if left < middle and (
                    right >= end or not precedes(arena, code, first, columns, order[right], order[left])
                ):
                    spare[at] = order[left]
                    left += 1
                else:
                    spare[at] = order[right]
                    right += 1
        for at in range(rows):
            order[at] = spare[at]
        run *= 2


@helper
def add_up(arena, code, first, columns, diffs, lanes, rows, order, to, to_diffs):
    """Write the sorted rows to other slots, equal ones added up, those that cancel left out; return their number.

    `first`, `diffs`, `to` and `to_diffs` are positions in the code of lists of slots.
    """
    written, at = 0, 0
    while at < rows:
        row = order[at]
        for lane in range(lanes):
            arena[code[to_diffs + lane], written] = arena[code[diffs + lane], row]
        at += 1
        while at < rows and same_row(arena, code, first, columns, row, order[at]):
            for lane in range(lanes):
                arena[code[to_diffs + lane], written] += arena[code[diffs + lane], order[at]]
            at += 1
        remains = False
        for lane in range(lanes):
            if arena[code[to_diffs + lane], written] != 0:
                remains = True
        if remains:
            for column in range(columns):
                arena[code[to + column], written] = arena[code[first + column], row]
            written += 1
    return written


# Streams.


@helper
def filter_rows(code, pc, arena, counts):
    source, target, flag, null = code[pc + 2], code[pc + 3], code[pc + 4], code[pc + 5]
    columns, at = code[pc + 6], pc + 7
    written = 0
    for row in range(counts[source]):
        if arena[flag, row] != 0 and arena[null, row] == 0:
            for column in range(columns):
                arena[code[at + 2 * column + 1], written] = arena[code[at + 2 * column], row]
            written += 1
    counts[target] = written
    return DONE


@helper
def append(code, pc, arena, counts):
    source, target, columns, at = code[pc + 2], code[pc + 3], code[pc + 4], pc + 5
    rows, written = counts[source], counts[target]
    if written + rows > arena.shape[1]:
        return FULL
    for column in range(columns):
        from_, to = code[at + 2 * column], code[at + 2 * column + 1]
        for row in range(rows):
            arena[to, written + row] = arena[from_, row]
    counts[target] = written + rows
    return DONE


@helper
def feedback(code, pc, arena, counts, round_):
    """source, pending, number of rounds or -1, slot of rounds, columns, pairs of slots."""
    source, pending, last, rounds = code[pc + 2], code[pc + 3], code[pc + 4], code[pc + 5]
    columns, at = code[pc + 6], pc + 7
    rows, waiting = counts[source], counts[pending]
    if round_ + 1 == last:
        return DONE
    if waiting + rows > arena.shape[1]:
        return FULL
    for column in range(columns):
        from_, to = code[at + 2 * column], code[at + 2 * column + 1]
        for row in range(rows):
            arena[to, waiting + row] = arena[from_, row]
    for row in range(rows):
        arena[rounds, waiting + row] = round_ + 1
    counts[pending] = waiting + rows
    return DONE


@helper
def enter_at(code, pc, arena, counts):
    """The rows of round 0, from a round of their own on: source, target, pending, slot of rounds, slot of delays,
    columns; for each column its slot in the source, in the target, and among the pending rows."""
    source, target, pending = code[pc + 2], code[pc + 3], code[pc + 4]
    rounds, delays, columns, at = code[pc + 5], code[pc + 6], code[pc + 7], pc + 8
    for row in range(counts[source]):
        delay = arena[delays, row]
        if delay < 0:
            return RAISED
        register, which = (target, 1) if delay == 0 else (pending, 2)
        written = counts[register]
        if written == arena.shape[1]:
            return FULL
        for column in range(columns):
            arena[code[at + 3 * column + which], written] = arena[code[at + 3 * column], row]
        if delay > 0:
            arena[rounds, written] = delay
        counts[register] = written + 1
    return DONE


@helper
def take(code, pc, arena, counts, round_):
    pending, target, rounds, columns, at = code[pc + 2], code[pc + 3], code[pc + 4], code[pc + 5], pc + 6
    kept, written = 0, counts[target]
    for row in range(counts[pending]):
        if arena[rounds, row] == round_:
            if written == arena.shape[1]:
                return FULL
            for column in range(columns):
                arena[code[at + 2 * column + 1], written] = arena[code[at + 2 * column], row]
            written += 1
        else:
            for column in range(columns):
                arena[code[at + 2 * column], kept] = arena[code[at + 2 * column], row]
            arena[rounds, kept] = arena[rounds, row]
            kept += 1
    counts[pending], counts[target] = kept, written
    return DONE


@helper
def consolidate(code, pc, arena, counts, order, spare):
    source, target, columns, lanes, at = code[pc + 2], code[pc + 3], code[pc + 4], code[pc + 5], pc + 6
    rows, width = counts[source], columns + lanes
    sort_rows(arena, code, at, columns, rows, order, spare)
    counts[target] = add_up(
        arena, code, at, columns, at + columns, lanes, rows, order, at + width, at + width + columns
    )
    return DONE


# Traces.


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


# Reductions.


@helper
def collect_groups(code, at, columns, arena, counts, round_, order, spare):
    """The groups to evaluate: those of the fresh rows, and those that wait for this round; sorted, possibly repeated.

    Operands from `at` on: source, groups, pending (-1 outside loops), rounds; then for each column its slot in the
    source, in the groups and among the pending. Returns the number of groups, or -1 if there is no room.
    """
    source, groups, pending, rounds = code[at], code[at + 1], code[at + 2], code[at + 3]
    first = at + 4
    rows = counts[source]
    for column in range(columns):
        from_, to = code[first + column], code[first + columns + column]
        for row in range(rows):
            arena[to, row] = arena[from_, row]
    if pending >= 0:
        kept = 0
        for row in range(counts[pending]):
            if arena[rounds, row] == round_:
                if rows == arena.shape[1]:
                    return -1
                for column in range(columns):
                    arena[code[first + columns + column], rows] = arena[code[first + 2 * columns + column], row]
                rows += 1
            else:
                for column in range(columns):
                    slot = code[first + 2 * columns + column]
                    arena[slot, kept] = arena[slot, row]
                arena[rounds, kept] = arena[rounds, row]
                kept += 1
        counts[pending] = kept
    counts[groups] = rows
    sort_rows(arena, code, first + columns, columns, rows, order, spare)
    return rows


@helper
def sum_of_value(table, key, val, now, present):
    """The count of a row at this visit, and the next later round at which it has changed in earlier epochs."""
    total, later = 0, NEVER
    for batch in range(load(table + 8 * BATCHES)):
        cells = batch_cells(table, batch)
        row, end = first_row_of_value(cells, key, val), cell(cells, ROWS)
        while row < end and key_at(cells, row) == key and val_at(cells, row) == val:
            epoch, round_ = time_at(cells, row)
            if epoch <= now:
                if round_ <= present:
                    total += diff_at(cells, row, 0)
                elif epoch < now and round_ < later:
                    later = round_
            row += 1
    return total, later


@helper
def distinct(code, pc, arena, counts, traces, order, spare, now, present):
    """Each row of positive count, once.

    Operands: target, input trace, output trace, to key, to val, to diff; then those of `collect_groups` for two
    columns.
    """
    target, given, produced = code[pc + 2], traces[code[pc + 3]], traces[code[pc + 4]]
    to_key, to_val, to_diff, at = code[pc + 5], code[pc + 6], code[pc + 7], pc + 8
    rows = collect_groups(code, at, 2, arena, counts, present, order, spare)
    if rows < 0:
        return FULL
    pending, rounds, first = code[at + 2], code[at + 3], at + 4
    key, val, later_key, later_val = code[first + 2], code[first + 3], code[first + 4], code[first + 5]
    written = 0
    for number in range(rows):
        row = order[number]
        if number > 0 and same_row(arena, code, first + 2, 2, row, order[number - 1]):
            continue
        count, later = sum_of_value(given, arena[key, row], arena[val, row], now, present)
        output, later_output = sum_of_value(produced, arena[key, row], arena[val, row], now, present)
        later = min(later, later_output)
        if later < NEVER and pending >= 0:
            waiting = counts[pending]
            if waiting == arena.shape[1]:
                return FULL
            arena[later_key, waiting], arena[later_val, waiting] = arena[key, row], arena[val, row]
            arena[rounds, waiting] = later
            counts[pending] = waiting + 1
        change = (1 if count > 0 else 0) - output
        if change != 0:
            arena[to_key, written], arena[to_val, written] = arena[key, row], arena[val, row]
            arena[to_diff, written] = change
            written += 1
    counts[target] = written
    if insert_rows(produced, arena, to_key, to_val, code, pc + 7, written, now, present):
        return DONE
    counts[LACKS_ROOM] = code[pc + 4]
    return SPILL


@helper
def group_sums(code, pc, arena, counts, traces, now, present):
    """For each group with fresh rows its old sums, with diff -1, and its new sums, with diff 1; outside loops only.

    A group whose first sum is zero does not exist. Operands: source, target, trace, lanes, key, to key, to diff, then
    the source's diff slots and the target's slots of sums. The source has one row for each group.
    """
    source, target, table, lanes = code[pc + 2], code[pc + 3], traces[code[pc + 4]], code[pc + 5]
    key, to_key, to_diff = code[pc + 6], code[pc + 7], code[pc + 8]
    diffs = pc + 9
    sums = diffs + lanes
    written = 0
    for row in range(counts[source]):
        if written + 2 > arena.shape[1]:
            return FULL
        old, new = written, written + 1
        for lane in range(lanes):
            arena[code[sums + lane], new] = 0
        for batch in range(load(table + 8 * BATCHES)):
            cells = batch_cells(table, batch)
            match, end = first_row(cells, arena[key, row]), cell(cells, ROWS)
            while match < end and key_at(cells, match) == arena[key, row]:
                epoch, _ = time_at(cells, match)
                if epoch <= now:
                    for lane in range(lanes):
                        arena[code[sums + lane], new] += diff_at(cells, match, lane)
                match += 1
        for lane in range(lanes):
            slot = code[sums + lane]
            arena[slot, old] = arena[slot, new] - arena[code[diffs + lane], row]
        arena[to_key, old], arena[to_key, new] = arena[key, row], arena[key, row]
        arena[to_diff, old], arena[to_diff, new] = -1, 1
        had, has = arena[code[sums], old] != 0, arena[code[sums], new] != 0
        if had and has:
            written += 2
        elif had:
            written += 1
        elif has:
            for lane in range(lanes):
                arena[code[sums + lane], old] = arena[code[sums + lane], new]
            arena[to_diff, old] = 1
            written += 1
    counts[target] = written
    return DONE


@helper
def open_cursors(table, key, cursors, backward):
    """Place a cursor at the least, or greatest, value of a key in each batch. `cursors` has position and end of
    each."""
    for batch in range(load(table + 8 * BATCHES)):
        cells = batch_cells(table, batch)
        start, end = first_row(cells, key), end_of_key(cells, key)
        cursors[0, batch] = end - 1 if backward else start
        cursors[1, batch] = start - 1 if backward else end


@helper
def next_value(table, cursors, backward, mode, now, present):
    """The next value of a key in order, and its count; the cursors move past it. The last result is false at the
    end."""
    batches, step = load(table + 8 * BATCHES), -1 if backward else 1
    exists, value = False, 0
    for batch in range(batches):
        if cursors[0, batch] != cursors[1, batch]:
            candidate = val_at(batch_cells(table, batch), cursors[0, batch])
            if not exists or (candidate > value if backward else candidate < value):
                exists, value = True, candidate
    total = 0
    for batch in range(batches):
        cells = batch_cells(table, batch)
        while cursors[0, batch] != cursors[1, batch] and val_at(cells, cursors[0, batch]) == value:
            epoch, round_ = time_at(cells, cursors[0, batch])
            if (epoch < now and round_ <= present) or (epoch == now and is_visible(epoch, round_, mode, now, present)):
                total += diff_at(cells, cursors[0, batch], 0)
            cursors[0, batch] += step
    return value, total, exists


@helper
def later_round(table, key, now, present):
    """The next round at which a key has changed in earlier epochs."""
    later = NEVER
    for batch in range(load(table + 8 * BATCHES)):
        cells = batch_cells(table, batch)
        row, end = first_row(cells, key), cell(cells, ROWS)
        while row < end and key_at(cells, row) == key:
            epoch, round_ = time_at(cells, row)
            if epoch < now and present < round_ < later:
                later = round_
            row += 1
    return later


@helper
def best_values(table, key, limit, greatest, once, mode, now, present, cursors, values, multiplicities):
    """Write the first values of a key with a positive count, `limit` in all; return their number, or -1 without
    room."""
    open_cursors(table, key, cursors, greatest)
    count, places = 0, limit
    while places > 0:
        value, total, exists = next_value(table, cursors, greatest, mode, now, present)
        if not exists:
            break
        if total > 0:
            if count == len(values):
                return -1
            values[count] = value
            multiplicities[count] = 1 if once else min(total, places)
            places -= multiplicities[count]
            count += 1
    return count


@helper
def all_values(table, key, backward, now, present, cursors, values, multiplicities):
    """Write all values of a key with a count other than zero; return their number, or -1 without room."""
    open_cursors(table, key, cursors, backward)
    count = 0
    while True:
        value, total, exists = next_value(table, cursors, backward, SEEN, now, present)
        if not exists:
            return count
        if total != 0:
            if count == len(values):
                return -1
            values[count], multiplicities[count] = value, total
            count += 1


@helper
def top(code, pc, arena, counts, traces, order, spare, cursors, lists, now, present):
    """The `limit` least or greatest values of each group.

    Operands: target, input trace, output trace, to key, to val, to diff, limit, greatest, whether a value takes one
    place whatever its count, whether in a loop; then those of `collect_groups` for one column. In a loop the present
    output is read; outside it is computed from the rows before this visit.
    """
    target, given, produced = code[pc + 2], traces[code[pc + 3]], traces[code[pc + 4]]
    limit, greatest, once, loops, at = code[pc + 8], code[pc + 9], code[pc + 10], code[pc + 11], pc + 12
    rows = collect_groups(code, at, 1, arena, counts, present, order, spare)
    if rows < 0:
        return FULL
    pending, rounds, key, later_key = code[at + 2], code[at + 3], code[at + 5], code[at + 6]
    written = 0
    for number in range(rows):
        group = arena[key, order[number]]
        if number > 0 and group == arena[key, order[number - 1]]:
            continue
        new = best_values(given, group, limit, greatest, once, SEEN, now, present, cursors, lists[0], lists[1])
        if loops:
            old = all_values(produced, group, greatest, now, present, cursors, lists[2], lists[3])
            later = min(later_round(given, group, now, present), later_round(produced, group, now, present))
            if later < NEVER:
                waiting = counts[pending]
                if waiting == arena.shape[1]:
                    return FULL
                arena[later_key, waiting], arena[rounds, waiting] = group, later
                counts[pending] = waiting + 1
        else:
            old = best_values(given, group, limit, greatest, once, BEFORE, now, 0, cursors, lists[2], lists[3])
        if new < 0 or old < 0:
            return FULL
        written = emit_differences(code, pc, arena, lists, new, old, group, greatest, written)
        if written < 0:
            return FULL
    counts[target] = written
    if insert_rows(produced, arena, code[pc + 5], code[pc + 6], code, pc + 7, written, now, present):
        return DONE
    counts[LACKS_ROOM] = code[pc + 4]
    return SPILL


@helper
def emit_differences(code, pc, arena, lists, new, old, group, greatest, written):
    """Write the differences of two lists of values with counts, in ascending order; return the end, or -1."""
    to_key, to_val, to_diff = code[pc + 5], code[pc + 6], code[pc + 7]
    step = -1 if greatest else 1
    a, b = (new - 1, old - 1) if greatest else (0, 0)
    end_a, end_b = (-1, -1) if greatest else (new, old)
    while a != end_a or b != end_b:
        if b == end_b or (a != end_a and lists[0, a] < lists[2, b]):
            value, change = lists[0, a], lists[1, a]
            a += step
        elif a == end_a or lists[2, b] < lists[0, a]:
            value, change = lists[2, b], -lists[3, b]
            b += step
        else:
            value, change = lists[0, a], lists[1, a] - lists[3, b]
            a += step
            b += step
        if change != 0:
            if written == arena.shape[1]:
                return -1
            arena[to_key, written], arena[to_val, written], arena[to_diff, written] = group, value, change
            written += 1
    return written


# Columns.


@helper
def unpack(code, pc, arena, counts):
    """count, from, to, null, shift, width, kind, whether the lane has 64 bits, whether the column may be null."""
    rows, from_, to, null = counts[code[pc + 2]], code[pc + 3], code[pc + 4], code[pc + 5]
    shift, width, kind, is_full, nullable = code[pc + 6], code[pc + 7], code[pc + 8], code[pc + 9], code[pc + 10]
    value_bits = width - nullable
    mask = np.int64(-1) if value_bits == 64 else (np.int64(1) << value_bits) - 1
    for row in range(rows):
        lane = arena[from_, row]
        if is_full:
            lane ^= _SIGN
        bits = lane if shift == 0 else (lane >> shift) & ((np.int64(1) << (64 - shift)) - 1)
        value = bits & mask
        if kind == SIGNED:
            value ^= np.int64(1) << (value_bits - 1)
            if value_bits < 64:
                value = (value << (64 - value_bits)) >> (64 - value_bits)
        if nullable:
            is_null = 1 - ((bits >> value_bits) & 1)
            arena[null, row] = is_null
            arena[to, row] = 0 if is_null else value
        else:
            arena[to, row] = value
    return DONE


@helper
def pack(code, pc, arena, counts):
    """count, to, whether the lane has 64 bits, columns; for each value, null, width, kind, whether it may be null."""
    rows, to, is_full, columns = counts[code[pc + 2]], code[pc + 3], code[pc + 4], code[pc + 5]
    for row in range(rows):
        lane = np.int64(0)
        for column in range(columns):
            at = pc + 6 + 5 * column
            width, kind, nullable = code[at + 2], code[at + 3], code[at + 4]
            value_bits = width - nullable
            value = arena[code[at], row]
            if kind == SIGNED:
                value ^= np.int64(1) << (value_bits - 1)
            if value_bits < 64:
                value &= (np.int64(1) << value_bits) - 1
            if nullable:
                value = np.int64(0) if arena[code[at + 1], row] != 0 else value | (np.int64(1) << value_bits)
            lane = value if width == 64 else (lane << width) | value
        arena[to, row] = lane ^ _SIGN if is_full else lane
    return DONE


@helper
def evaluate(code, pc, arena, counts):
    """An expression of two columns, row by row. Returns RAISED if a result is not between `least` and `greatest`.

    `CONSTANT` has its value in place of `least`. `CHOOSE` takes the first column where a flag is set and not null, the
    second elsewhere; the slots of the flag and of its nulls are in place of `least` and `greatest`. Arithmetic is
    without sign, since the compiler assumes that integers with a sign do not overflow.
    """
    op, rows, to, null = code[pc], counts[code[pc + 2]], code[pc + 3], code[pc + 4]
    left, left_null, right, right_null = code[pc + 5], code[pc + 6], code[pc + 7], code[pc + 8]
    least, greatest = code[pc + 9], code[pc + 10]
    for row in range(rows):
        a, b = arena[left, row], arena[right, row]
        a_null, b_null = arena[left_null, row], arena[right_null, row]
        is_null = a_null | b_null
        result = np.int64(0)
        if op == CONSTANT:
            result, is_null = least, np.int64(0)
        elif op == ADD:
            result = np.int64(np.uint64(a) + np.uint64(b))
            overflows = ((a ^ result) & (b ^ result)) < 0
            if is_null == 0 and (overflows or result < least or result > greatest):
                return RAISED
        elif op == SUBTRACT:
            result = np.int64(np.uint64(a) - np.uint64(b))
            overflows = ((a ^ b) & (a ^ result)) < 0
            if is_null == 0 and (overflows or result < least or result > greatest):
                return RAISED
        elif op == MULTIPLY:
            result = np.int64(np.uint64(a) * np.uint64(b))
            overflows = abs(np.float64(a) * np.float64(b) - np.float64(result)) > 2.0**62
            if is_null == 0 and (overflows or result < least or result > greatest):
                return RAISED
        elif op == EQUAL:
            result = np.int64(a == b)
        elif op == LESS:
            result = np.int64(a < b)
        elif op == LESS_EQUAL:
            result = np.int64(a <= b)
        elif op == AND:
            result = np.int64(a != 0 and b != 0)
            if (a_null == 0 and a == 0) or (b_null == 0 and b == 0):
                result, is_null = np.int64(0), np.int64(0)
        elif op == OR:
            result = np.int64(a != 0 or b != 0)
            if (a_null == 0 and a != 0) or (b_null == 0 and b != 0):
                result, is_null = np.int64(1), np.int64(0)
        elif op == NOT:
            result = np.int64(a == 0)
        elif op == IS_NULL:
            result, is_null = a_null, np.int64(0)
        elif op == LEAST:
            result = min(a, b)
        elif op == GREATEST_OF:
            result = max(a, b)
        elif op == BIT_LENGTH:
            while a > 0:
                a >>= 1
                result += 1
        elif op == CHOOSE:
            is_first = arena[least, row] != 0 and arena[greatest, row] == 0
            result, is_null = (a, a_null) if is_first else (b, b_null)
        arena[to, row] = result if is_null == 0 else 0
        if null != 0:
            arena[null, row] = is_null
    return DONE


# The interpreter.


@helper
def next_round(code, pc, arena, counts, round_):
    """The least later round for which rows wait; -1 if there is none."""
    least = NEVER
    for number in range(code[pc + 3]):
        pending, rounds = code[pc + 4 + 2 * number], code[pc + 5 + 2 * number]
        for row in range(counts[pending]):
            if round_ < arena[rounds, row] < least:
                least = arena[rounds, row]
    return -1 if least == NEVER else least


@helper
def step(code, pc, arena, counts, traces, order, spare, cursors, lists, now, round_):
    """Execute an instruction that does not change the order of execution."""
    op = code[pc]
    if op >= CONSTANT:
        return evaluate(code, pc, arena, counts)
    if op == CLEAR:
        counts[code[pc + 2]] = 0
    elif op == NEGATE:
        for row in range(counts[code[pc + 2]]):
            arena[code[pc + 4], row] = -arena[code[pc + 3], row]
    elif op == FILTER:
        return filter_rows(code, pc, arena, counts)
    elif op == ARRANGE:
        return arrange(code, pc, arena, counts, traces, order, spare, now, round_)
    elif op == PROBE:
        return probe(code, pc, arena, counts, traces, now, round_)
    elif op == TAKE:
        return take(code, pc, arena, counts, round_)
    elif op == DISTINCT:
        return distinct(code, pc, arena, counts, traces, order, spare, now, round_)
    elif op == SUMS:
        return group_sums(code, pc, arena, counts, traces, now, round_)
    elif op == TOP:
        return top(code, pc, arena, counts, traces, order, spare, cursors, lists, now, round_)
    elif op == ENTER:
        counts[code[pc + 3]] = counts[code[pc + 2]] if round_ == 0 else 0
    elif op == ENTER_AT:
        return enter_at(code, pc, arena, counts)
    elif op == FEEDBACK:
        return feedback(code, pc, arena, counts, round_)
    elif op == APPEND:
        return append(code, pc, arena, counts)
    elif op == CONSOLIDATE:
        return consolidate(code, pc, arena, counts, order, spare)
    elif op == UNPACK:
        return unpack(code, pc, arena, counts)
    elif op == PACK:
        return pack(code, pc, arena, counts)
    return DONE


@helper
def undo(written):
    """Restore the memtables that a program has written."""
    for table in written:
        restore_rows(table)


@helper
def commit(written):
    """Keep what a program has written."""
    for table in written:
        store(table + 8 * SAVED, -1)


@kernel("int(cells, cells, cells, cells, slots, cells, slots, slots, int)")
def run_program(code, traces, written, state, arena, counts, scratch, cursors, now):
    """Run a program over the epoch `now`, from its start, or from where it has stopped.

    `traces` has the addresses of the tables of its traces, `written` of those that it writes.
    `counts` has the counts of the input registers. `scratch` has six lanes as long as the arena's. Returns a status; if
    it is `FULL`, `SPILL` or `RAISED`, memtables are as they were.
    """
    order, spare, lists = scratch[0], scratch[1], scratch[2:6]
    pc, round_ = state[PC], state[ROUND_NOW]
    while 0 <= pc < len(code):
        status = DONE
        if code[pc] == LOOP:
            round_ = 0
            pc += code[pc + 1]
        elif code[pc] == REPEAT:
            round_ = next_round(code, pc, arena, counts, round_)
            pc = code[pc + 2] if round_ >= 0 else pc + code[pc + 1]
            round_ = max(round_, 0)
        elif code[pc] == EXCHANGE:
            status = EXCHANGES
        elif code[pc] == AGREE:
            state[NEXT_ROUND] = next_round(code, pc, arena, counts, round_)
            status = AGREES
        else:
            status = step(code, pc, arena, counts, traces, order, spare, cursors, lists, now, round_)
            pc += code[pc + 1]
        if status in (EXCHANGES, AGREES):
            state[PC], state[ROUND_NOW] = pc, round_
            return status
        if status != DONE:
            undo(written)
            return status
    if pc < 0:
        undo(written)
    elif state[COMMITS]:
        commit(written)
    return DONE
