"""Columns in programs: exact lanes unpacked into columns and packed again, and expressions row by row.

A lane has the ordered bits of its columns, as in `ikebana.encoding.schema`. Nulls are flags in a slot of their own.

Contract: a result that does not fit into its type returns `RAISED`, unless an operand is null.

Cost: a few nanoseconds for each row and instruction.
"""

from __future__ import annotations

import numpy as np

from ikebana.kernels.compile import helper
from ikebana.kernels.opcodes import (
    ADD,
    AND,
    BIT_LENGTH,
    CHOOSE,
    CONSTANT,
    DONE,
    EQUAL,
    GREATEST_OF,
    IS_NULL,
    LEAST,
    LESS,
    LESS_EQUAL,
    MULTIPLY,
    NOT,
    OR,
    RAISED,
    SIGNED,
    SUBTRACT,
)

_SIGN = -(1 << 63)


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
