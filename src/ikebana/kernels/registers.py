"""Instructions on registers: sort their rows, add up equal ones, filter, append, and pass rows to later rounds.

A register is a count and slots of the arena (`ikebana.kernels.program`). Each function takes the code and the position
of its instruction, whose operands are described there.

Contract: room is checked before rows are written; without room a function returns `FULL`.

Cost: a pass over the rows for each column; sorting n rows takes n log n comparisons, or four passes for each digit.
"""

from __future__ import annotations

import numpy as np

from ikebana.kernels.compile import helper
from ikebana.kernels.opcodes import DONE, FULL, RAISED
from ikebana.kernels.payloads import copy_payload, same_payload

# Order.

MANY_ROWS, DIGIT_BITS, MOST_DIGITS = 512, 11, 6
"""So many rows are sorted by digits of so many bits, if their columns together have no more digits than that."""


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
    if rows < MANY_ROWS or not sort_by_digits(arena, code, first, columns, rows, order, spare):
        sort_by_comparison(arena, code, first, columns, rows, order, spare)


@helper
def sort_by_digits(arena, code, first, columns, rows, order, spare):
    """The same by a pass for each digit, the least significant first; false if comparisons take less time."""
    digits = 0
    for column in range(columns):
        lane = arena[code[first + column], :rows]
        digits += (bits_of(np.uint64(lane.max()) - np.uint64(lane.min())) + DIGIT_BITS - 1) // DIGIT_BITS
    if digits > MOST_DIGITS:
        return False
    for row in range(rows):
        order[row] = row
    ends = np.empty(1 << DIGIT_BITS, np.int64)
    for column in range(columns - 1, -1, -1):
        lane = arena[code[first + column], :rows]
        least = np.uint64(lane.min())
        bits = bits_of(np.uint64(lane.max()) - least)
        for shift in range(0, bits, DIGIT_BITS):
            ends[:] = 0
            for row in range(rows):
                ends[digit_of(lane[row], least, shift)] += 1
            end = 0
            for digit in range(len(ends)):
                size = ends[digit]
                ends[digit] = end
                end += size
            for at in range(rows):
                digit = digit_of(lane[order[at]], least, shift)
                spare[ends[digit]] = order[at]
                ends[digit] += 1
            for at in range(rows):
                order[at] = spare[at]
    return True


@helper
def bits_of(number):
    """The number of bits of an unsigned integer."""
    bits = 0
    while bits < 64 and number >> np.uint64(bits) != np.uint64(0):
        bits += 1
    return bits


@helper
def digit_of(value, least, shift):
    return np.int64(((np.uint64(value) - least) >> np.uint64(shift)) & np.uint64((1 << DIGIT_BITS) - 1))


@helper
def sort_by_comparison(arena, code, first, columns, rows, order, spare):
    """The same by merging runs."""
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
def add_up(arena, code, first, columns, diffs, lanes, rows, order, to, to_diffs, groups, payload):
    """Write the sorted rows to other slots, equal ones added up, those that cancel left out; return their number.

    `first`, `diffs`, `to` and `to_diffs` are positions in the code of lists of slots. From `groups` on the code has
    `payload` columns behind hashed ones. Returns -1 if rows with equal hashes differ in these.
    """
    written, at = 0, 0
    while at < rows:
        row = order[at]
        for lane in range(lanes):
            arena[code[to_diffs + lane], written] = arena[code[diffs + lane], row]
        at += 1
        while at < rows and same_row(arena, code, first, columns, row, order[at]):
            if not same_payload(arena, code, groups, payload, row, order[at]):
                return -1
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
            copy_payload(arena, code, groups, payload, row, written)
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
        arena, code, at, columns, at + columns, lanes, rows, order, at + width, at + width + columns, 0, 0
    )
    return DONE
