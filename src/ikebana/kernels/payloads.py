"""Payload by address: how programs read the columns behind hashed lanes, where they are stored.

Each payload column of a batch is described by `COLUMN_CELLS` integers (`ikebana.kernels.layout`). The value of row `i`
is at `PLACE + i * STEP`:

| form | there | becomes |
|---|---|---|
| `SLOT`, `TEXT_SLOT` | a slot of a memtable | itself |
| `SIGNED`, `UNSIGNED` | an integer of `STEP` bytes | the integer |
| `FLOAT` | a float of `STEP` bytes | its ordered bits (`ikebana.encoding.columns`) |
| `WIDE` | an integer of 128 bits | the integer, if it has 64 bits |
| `TEXT` | the offset of its bytes from `DATA`; the next row's offset is their end | a reference to them |

Row `i` is null if bit `NULL_BIT + i` of the bytes at `NULLS` is 0; in a memtable, if integer `i` at `NULLS` is 1. There
are no nulls if `NULLS` is 0.

Contract: a value that does not fit into a slot is not `fits`; the program that reads it fails. Rows with equal hashes
are compared, and a program that meets a collision fails: visits know what to do.

Cost: a few nanoseconds for each value.
"""

from __future__ import annotations

import numpy as np

from ikebana.kernels.addresses import batch_cells, cell
from ikebana.kernels.compile import helper
from ikebana.kernels.hashing import NULL_PART, combine, mix
from ikebana.kernels.layout import (
    ADDRESS_BITS,
    CELLS,
    COLUMN_CELLS,
    DATA,
    FLOAT,
    FORM,
    NULL_BIT,
    NULLS,
    PLACE,
    SLOT,
    STEP,
    TEXT,
    TEXT_SLOT,
    UNSIGNED,
    WIDE,
)
from ikebana.kernels.opcodes import DONE, RAISED
from ikebana.kernels.opcodes import FLOAT as FLOAT_KIND
from ikebana.kernels.opcodes import TEXT as TEXT_KIND
from ikebana.kernels.opcodes import UNSIGNED as UNSIGNED_KIND
from ikebana.kernels.opcodes import WIDE as WIDE_KIND
from ikebana.kernels.pointers import load, load_byte, load_half
from ikebana.kernels.texts import hash_of_text, reference, same_text

ROW_BITS = 40
"""The bits of a row in a reference to a stored row; the number of its batch is in the others."""

GROUP = 5
"""The operands of a payload column in an instruction: its slots of values and of nulls, those that it is copied to, and
whether it is a text."""


@helper
def column_cells(cells, column):
    """The address of the cells of a payload column, given that of its batch."""
    return cells + 8 * (CELLS + COLUMN_CELLS * column)


@helper
def null_at(column, row):
    """Whether a stored value is null: 0 or 1."""
    nulls, form = cell(column, NULLS), cell(column, FORM)
    if nulls == 0:
        return 0
    if form in (SLOT, TEXT_SLOT):
        return load(nulls + 8 * row)
    bit = cell(column, NULL_BIT) + row
    return 1 - ((load_byte(nulls + (bit >> 3)) >> (bit & 7)) & 1)


@helper
def stored_integer(place, step):
    """The integer of so many bytes at an address, with its sign."""
    if step == 8:
        return load(place)
    if step == 4:
        return load_half(place)
    word = load_byte(place) if step == 1 else load_byte(place) | (load_byte(place + 1) << 8)
    shift = 64 - 8 * step
    return (word << shift) >> shift


@helper
def low_bits(value, bits):
    """The lowest bits of an integer."""
    return value if bits == 64 else value & ((np.int64(1) << bits) - 1)


@helper
def ordered_float(word, bits):
    """The ordered bits of a float, given its own."""
    sign = np.int64(1) << (bits - 1)
    return low_bits(~word if word & sign != 0 else word | sign, bits)


@helper
def value_at(column, row):
    """A stored value as a slot has it, and whether it fits; for values that are not null."""
    form, step = cell(column, FORM), cell(column, STEP)
    place = cell(column, PLACE) + row * step
    if form in (SLOT, TEXT_SLOT):
        return load(place), True
    if form == TEXT:
        start, end = load(place), load(place + 8)
        fits = end - start < (1 << (64 - ADDRESS_BITS))
        return (reference(cell(column, DATA) + start, end - start) if fits else np.int64(0)), fits
    if form == WIDE:
        low = load(place)
        return low, load(place + 8) == low >> 63
    value = stored_integer(place, step)
    if form == UNSIGNED:
        value = low_bits(value, 8 * step)
    elif form == FLOAT:
        value = ordered_float(value, 8 * step)
    return value, True


@helper
def is_stored_as(column, row, value, is_null):
    """Whether a stored value equals that of a slot."""
    stored_null = null_at(column, row)
    if stored_null != 0 or is_null != 0:
        return stored_null == is_null
    stored, fits = value_at(column, row)
    if not fits:
        return False
    form = cell(column, FORM)
    return same_text(stored, value) if form in (TEXT, TEXT_SLOT) else stored == value


@helper
def same_stored(cells_a, row_a, cells_b, row_b, first, end):
    """Whether two stored rows agree in the payload columns from `first` up to `end`."""
    for number in range(first, end):
        column = column_cells(cells_a, number)
        is_null, value = null_at(column, row_a), np.int64(0)
        if is_null == 0:
            value, fits = value_at(column, row_a)
            if not fits:
                return False
        if not is_stored_as(column_cells(cells_b, number), row_b, value, is_null):
            return False
    return True


@helper
def row_is_stored_as(cells, stored, columns, arena, code, groups, row):
    """Whether a stored row agrees with a row of a register in the first payload columns, given as groups."""
    for number in range(columns):
        at = groups + GROUP * number
        if not is_stored_as(column_cells(cells, number), stored, arena[code[at], row], arena[code[at + 1], row]):
            return False
    return True


@helper
def same_payload(arena, code, groups, columns, a, b):
    """Whether two rows of a register agree in the columns given as groups."""
    for number in range(columns):
        value, null = code[groups + GROUP * number], code[groups + GROUP * number + 1]
        is_text = code[groups + GROUP * number + 4]
        if arena[null, a] != arena[null, b]:
            return False
        if is_text != 0:
            if arena[null, a] == 0 and not same_text(arena[value, a], arena[value, b]):
                return False
        elif arena[value, a] != arena[value, b]:
            return False
    return True


@helper
def copy_payload(arena, code, groups, columns, source, target):
    """Copy the columns given as groups from one row to another."""
    for number in range(columns):
        at = groups + GROUP * number
        arena[code[at + 2], target] = arena[code[at], source]
        if code[at + 3] != 0:
            arena[code[at + 3], target] = arena[code[at + 1], source]


@helper
def load_column(code, pc, arena, counts, traces):
    """count, trace, payload column, slot of references to rows, to, null."""
    table, number, references = traces[code[pc + 3]], code[pc + 4], code[pc + 5]
    to, null = code[pc + 6], code[pc + 7]
    for row in range(counts[code[pc + 2]]):
        stored = arena[references, row]
        column = column_cells(batch_cells(table, stored >> ROW_BITS), number)
        position = stored & ((1 << ROW_BITS) - 1)
        is_null, value = null_at(column, position), np.int64(0)
        if is_null == 0:
            value, fits = value_at(column, position)
            if not fits:
                return RAISED
        arena[to, row] = value
        if null != 0:
            arena[null, row] = is_null
    return DONE


@helper
def stored_word(value, kind, bits):
    """The integer that is stored, and hashed, for a value of a slot."""
    if kind == FLOAT_KIND:
        sign = np.int64(1) << (bits - 1)
        value = low_bits(value ^ sign if value & sign != 0 else ~value, bits)
    if kind in (FLOAT_KIND, UNSIGNED_KIND):
        return (value << (64 - bits)) >> (64 - bits)
    return value


@helper
def hash_columns(code, pc, arena, counts):
    """count, to, mask, columns; for each its slots of values and of nulls, kind, and bits."""
    to, mask, columns = code[pc + 3], code[pc + 4], code[pc + 5]
    for row in range(counts[code[pc + 2]]):
        running = np.int64(0)
        for column in range(columns):
            at = pc + 6 + 4 * column
            value, kind = arena[code[at], row], code[at + 2]
            if arena[code[at + 1], row] != 0:
                running = combine(running, NULL_PART)
                if kind == WIDE_KIND:
                    running = combine(running, NULL_PART)
            elif kind == TEXT_KIND:
                running = combine(running, hash_of_text(value))
            else:
                word = stored_word(value, kind, code[at + 3])
                running = combine(running, mix(np.uint64(word) + np.uint64(1)))
                if kind == WIDE_KIND:
                    running = combine(running, mix(np.uint64(word >> 63) + np.uint64(1)))
        arena[to, row] = running & mask
    return DONE
