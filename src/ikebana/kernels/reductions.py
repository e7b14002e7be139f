"""Reductions in programs: distinct rows, sums in diffs, and the least or greatest values of each group.

In a loop, a group is evaluated when it has fresh rows, and at later rounds at which it has changed in earlier epochs
(`ikebana.operators.reduce` explains these interesting times). It is enough to keep the next such round: when the group
is evaluated there, the one after it is found.

Contract: the output is what is lacking at this epoch and round; `store_target` (`ikebana.kernels.probes`) writes it to
the trace of the output.

Cost: a binary search in each batch for each group, in `distinct` from the last group on, and the rows of the group;
outside loops, `top` reads only the ends.
"""

from __future__ import annotations

import numpy as np

from ikebana.kernels.addresses import (
    AT_ONCE,
    batch_cells,
    cell,
    diff_at,
    end_of_key,
    first_row,
    first_row_of_value,
    first_row_of_value_from,
    first_rows,
    first_rows_from,
    key_at,
    search_batches,
    time_at,
    val_at,
)
from ikebana.kernels.compile import helper
from ikebana.kernels.layout import (
    BATCHES,
    DIFF,
    DIFF_STEP,
    EPOCH,
    EPOCH_STEP,
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
from ikebana.kernels.opcodes import BEFORE, DONE, FULL, RAISED, SEEN
from ikebana.kernels.payloads import copy_payload, row_is_stored_as
from ikebana.kernels.pointers import load, load_half
from ikebana.kernels.probes import is_visible
from ikebana.kernels.registers import same_row, sort_rows

NEVER = 1 << 62
"""Later than every round."""


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
def sums_of_values(table, keys, vals, count, first, now, present, sums, starts):
    """The counts of some rows at this visit, and the next later round at which each has changed in earlier epochs.

    `sums` has room for where they are in a batch, and gets the counts and the rounds. Rows are in order, and after all
    rows before: `starts` has for each batch where the last of these was found, or -1, and gets where the last row is.
    """
    found, totals, laters = sums[0], sums[1], sums[2]
    for at in range(count):
        totals[at], laters[at] = 0, NEVER
    for batch in range(load(table + 8 * BATCHES)):
        cells = batch_cells(table, batch)
        if starts[batch] < 0:
            first_rows(cells, keys, count, found)
        else:
            first_rows_from(cells, keys, count, found, starts[batch])
        starts[batch] = found[count - 1]
        add_counts(cells, keys, vals, count, found, first, now, present, totals, laters)


@helper
def add_counts(cells, keys, vals, count, found, first, now, present, totals, laters):
    """Add the counts that some rows have in a batch, given the first rows of their keys, and note later rounds.

    Where the lanes are is loaded once: the compiler cannot know that it stays the same.
    """
    end, key_lane, key_step = cell(cells, ROWS), cell(cells, KEY), cell(cells, KEY_STEP)
    val_lane, val_step, diffs, diff_step = (
        cell(cells, VAL),
        cell(cells, VAL_STEP),
        cell(cells, DIFF),
        cell(cells, DIFF_STEP),
    )
    tix, tix_step, epochs, epoch_step = (
        cell(cells, TIX),
        cell(cells, TIX_STEP),
        cell(cells, EPOCH),
        cell(cells, EPOCH_STEP),
    )
    rounds, round_step = cell(cells, ROUND), cell(cells, ROUND_STEP)
    for at in range(count):
        key, val, row = keys[at], vals[at], found[at]
        if row == end or load(key_lane + row * key_step) != key:
            continue
        row = first_row_of_value_from(cells, key, val, row)
        total, later = 0, NEVER
        while row < end and load(key_lane + row * key_step) == key and load(val_lane + row * val_step) == val:
            position = row if tix == 0 else load_half(tix + row * tix_step)
            epoch = load(epochs + position * epoch_step)
            round_ = 0 if rounds == 0 else load(rounds + position * round_step)
            if epoch <= now:
                if round_ <= present:
                    total += load(diffs + row * diff_step)
                elif epoch < first:
                    later = min(later, round_)
            row += 1
        totals[at] += total
        laters[at] = min(laters[at], later)


@helper
def collides(table, key, val, columns, arena, code, groups, row):
    """Whether a trace has a row with the hashes of a row of a register, but other data."""
    for batch in range(load(table + 8 * BATCHES)):
        cells = batch_cells(table, batch)
        stored = first_row_of_value(cells, key, val)
        matches = stored < cell(cells, ROWS) and key_at(cells, stored) == key and val_at(cells, stored) == val
        if matches and not row_is_stored_as(cells, stored, columns, arena, code, groups, row):
            return True
    return False


@helper
def distinct(code, pc, arena, counts, traces, order, spare, first, now, present):
    """Each row of positive count, once.

    Operands: target, input trace, output trace, to key, to val, to diff, payload columns; then those of
    `collect_groups` for two columns, and a group for each payload column. In a loop there is no payload: the groups are
    the rows of the source.
    """
    target, given, produced = code[pc + 2], traces[code[pc + 3]], traces[code[pc + 4]]
    to_key, to_val, to_diff, payload, at = code[pc + 5], code[pc + 6], code[pc + 7], code[pc + 8], pc + 9
    columns_at = at + 10
    rows = collect_groups(code, at, 2, arena, counts, present, order, spare)
    if rows < 0:
        return FULL
    if rows == 0:
        counts[target] = 0
        return DONE
    pending, rounds, slots = code[at + 2], code[at + 3], at + 4
    key, val, later_key, later_val = code[slots + 2], code[slots + 3], code[slots + 4], code[slots + 5]
    written, number = 0, 0
    starts = np.full((2, max(load(given + 8 * BATCHES), load(produced + 8 * BATCHES))), -1)
    block = np.empty((9, AT_ONCE), np.int64)
    keys, vals, chosen, inputs, outputs = block[0], block[1], block[2], block[3:6], block[6:]
    while number < rows:
        count = 0
        while number < rows and count < AT_ONCE:
            row = order[number]
            if number == 0 or not same_row(arena, code, slots + 2, 2, row, order[number - 1]):
                chosen[count], keys[count], vals[count] = row, arena[key, row], arena[val, row]
                count += 1
            number += 1
        sums_of_values(given, keys, vals, count, first, now, present, inputs, starts[0])
        sums_of_values(produced, keys, vals, count, first, now, present, outputs, starts[1])
        for at in range(count):
            row = chosen[at]
            if payload > 0 and (
                collides(given, arena[key, row], arena[val, row], payload, arena, code, columns_at, row)
                or collides(produced, arena[key, row], arena[val, row], payload, arena, code, columns_at, row)
            ):
                return RAISED
            later = min(inputs[2, at], outputs[2, at])
            if later < NEVER and pending >= 0:
                waiting = counts[pending]
                if waiting == arena.shape[1]:
                    return FULL
                arena[later_key, waiting], arena[later_val, waiting] = arena[key, row], arena[val, row]
                arena[rounds, waiting] = later
                counts[pending] = waiting + 1
            change = (1 if inputs[1, at] > 0 else 0) - outputs[1, at]
            if change != 0:
                arena[to_key, written], arena[to_val, written] = arena[key, row], arena[val, row]
                arena[to_diff, written] = change
                copy_payload(arena, code, columns_at, payload, row, written)
                written += 1
    counts[target] = written
    return DONE


@helper
def group_sums(code, pc, arena, counts, traces, now, present):
    """For each group with fresh rows its old sums, with diff -1, and its new sums, with diff 1; outside loops only.

    A group whose first sum is zero does not exist. Operands: source, target, trace, lanes, key, to key, to diff, hashed
    key columns; then the source's diff slots, the target's slots of sums, and a group for each column behind a hashed
    key. The source has one row for each group.
    """
    source, target, table, lanes = code[pc + 2], code[pc + 3], traces[code[pc + 4]], code[pc + 5]
    key, to_key, to_diff = code[pc + 6], code[pc + 7], code[pc + 8]
    hashed_keys, diffs = code[pc + 9], pc + 10
    sums = diffs + lanes
    columns_at = sums + lanes
    written = 0
    if counts[source] == 0:
        counts[target] = 0
        return DONE
    found = np.empty((load(table + 8 * BATCHES), AT_ONCE), np.int64)
    for row in range(counts[source]):
        if written + 2 > arena.shape[1]:
            return FULL
        place = row % AT_ONCE
        if place == 0:
            search_batches(table, arena[key, row : counts[source]], found)
        old, new = written, written + 1
        for lane in range(lanes):
            arena[code[sums + lane], new] = 0
        for batch in range(load(table + 8 * BATCHES)):
            cells = batch_cells(table, batch)
            match, end = found[batch, place], cell(cells, ROWS)
            matches = match < end and key_at(cells, match) == arena[key, row]
            if matches and not row_is_stored_as(cells, match, hashed_keys, arena, code, columns_at, row):
                return RAISED
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
        copy_payload(arena, code, columns_at, hashed_keys, row, old)
        copy_payload(arena, code, columns_at, hashed_keys, row, new)
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
def next_value(table, cursors, backward, mode, first, now, present):
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
            if is_visible(epoch, round_, mode, first, now, present) and round_ <= present:
                total += diff_at(cells, cursors[0, batch], 0)
            cursors[0, batch] += step
    return value, total, exists


@helper
def later_round(table, key, first, present):
    """The next round at which a key has changed in earlier epochs."""
    later = NEVER
    for batch in range(load(table + 8 * BATCHES)):
        cells = batch_cells(table, batch)
        row, end = first_row(cells, key), cell(cells, ROWS)
        while row < end and key_at(cells, row) == key:
            epoch, round_ = time_at(cells, row)
            if epoch < first and present < round_ < later:
                later = round_
            row += 1
    return later


@helper
def best_values(table, key, limit, greatest, once, mode, first, now, present, cursors, values, multiplicities):
    """Write the first values of a key with a positive count, `limit` in all; return their number, or -1 without
    room."""
    open_cursors(table, key, cursors, greatest)
    count, places = 0, limit
    while places > 0:
        value, total, exists = next_value(table, cursors, greatest, mode, first, now, present)
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
def all_values(table, key, backward, first, now, present, cursors, values, multiplicities):
    """Write all values of a key with a count other than zero; return their number, or -1 without room."""
    open_cursors(table, key, cursors, backward)
    count = 0
    while True:
        value, total, exists = next_value(table, cursors, backward, SEEN, first, now, present)
        if not exists:
            return count
        if total != 0:
            if count == len(values):
                return -1
            values[count], multiplicities[count] = value, total
            count += 1


@helper
def top(code, pc, arena, counts, traces, order, spare, cursors, lists, first, now, present):
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
        new = best_values(given, group, limit, greatest, once, SEEN, first, now, present, cursors, lists[0], lists[1])
        if loops:
            old = all_values(produced, group, greatest, first, now, present, cursors, lists[2], lists[3])
            later = min(later_round(given, group, first, present), later_round(produced, group, first, present))
            if later < NEVER:
                waiting = counts[pending]
                if waiting == arena.shape[1]:
                    return FULL
                arena[later_key, waiting], arena[rounds, waiting] = group, later
                counts[pending] = waiting + 1
        else:
            old = best_values(given, group, limit, greatest, once, BEFORE, first, now, 0, cursors, lists[2], lists[3])
        if new < 0 or old < 0:
            return FULL
        written = emit_differences(code, pc, arena, lists, new, old, group, greatest, written)
        if written < 0:
            return FULL
    counts[target] = written
    return DONE


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
