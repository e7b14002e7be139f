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
    CONTAINS,
    DIVIDE,
    DONE,
    ENDS_WITH,
    EQUAL,
    GREATEST_OF,
    IS_NULL,
    LEAST,
    LESS,
    LESS_EQUAL,
    LIKE,
    MAGNITUDE,
    MEAN,
    MULTIPLY,
    NOT,
    OR,
    RAISED,
    SHIFT,
    SIGNED,
    STARTS_WITH,
    SUBSTRING,
    SUBTRACT,
    TEXT_EQUAL,
    YEAR,
)
from ikebana.kernels.texts import contains, ends_with, is_like, same_text, starts_with, substring

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
def total(code, pc, arena, counts):
    """The totals of sums in several lanes, each of which has the bits from 32 times its number on (see
    `ikebana.reducers.sums.exact`): count, to, lanes, slots. Returns RAISED if a total has more than 64 bits."""
    to, lanes, first = code[pc + 3], code[pc + 4], pc + 5
    mask = (np.int64(1) << 32) - 1
    for row in range(counts[code[pc + 2]]):
        result, carry = np.uint64(0), np.uint64(0)
        digits = np.int64(0)  # the last two digits, of which those from 64 bits on must repeat the sign
        for lane in range(lanes):
            digit = np.uint64(arena[code[first + lane], row]) + carry
            if lane + 1 < lanes:
                digit -= np.uint64(arena[code[first + lane + 1], row]) << np.uint64(32)
                carry = np.uint64(np.int64(digit) >> 32)
                digits = np.int64(digit) & mask
            else:
                digits = np.int64(digit)
            if lane < 2:
                result |= np.uint64(digits) << np.uint64(32 * lane)
            sign = np.int64(result) >> 63
            if lane + 1 == lanes:
                if lane == 1 and (digits << 32) >> 32 != digits:
                    return RAISED
                if lane > 1 and digits != sign:
                    return RAISED
            elif lane > 1 and digits != sign & mask:
                return RAISED
        arena[to, row] = np.int64(result)
    return DONE


@helper
def magnitude(number, dropped):
    """The ordered bits of a number as a double, without so many of the last."""
    bits = np.float64(number).view(np.int64)
    ordered = ~np.uint64(bits) if number < 0 else np.uint64(bits) | np.uint64(1 << 63)
    return np.int64(ordered >> np.uint64(dropped))


@helper
def mean(dividend, divisor, factor):
    """A number below 2**48 times a factor of at most 10**4, divided by a number, rounded half away from zero."""
    a, b = abs(dividend), abs(divisor)
    quotient = (2 * factor * a + b) // (2 * b)
    return quotient if (dividend < 0) == (divisor < 0) else -quotient


@helper
def divide(dividend, divisor):
    """A quotient, rounded half away from zero."""
    a, b = abs(dividend), abs(divisor)
    quotient = a // b
    rest = a - quotient * b
    if rest >= b - rest:
        quotient += 1
    return quotient if (dividend < 0) == (divisor < 0) else -quotient


@helper
def year_of(days):
    """The year of a day, counted from 1970-01-01, in the Gregorian calendar."""
    days += 719468  # from 0000-03-01
    era = days // 146097
    day = days - era * 146097
    year = (day - day // 1460 + day // 36524 - day // 146096) // 365
    day -= 365 * year + year // 4 - year // 100
    return year + era * 400 + (1 if day >= 306 else 0)


@helper
def evaluate(code, pc, arena, counts):
    """An expression of two columns, row by row. Returns RAISED if a result is not between `least` and `greatest`.

    `CONSTANT` has its value in place of `least`. `CHOOSE` takes the first column where a flag is set and not null, the
    second elsewhere; the slots of the flag and of its nulls are in place of `least` and `greatest`. `SHIFT` takes the
    bits from `least` on, `MEAN` multiplies by `least` before it divides, `SUBSTRING` skips `least` characters and takes
    `greatest`. Arithmetic is without sign, since the compiler
    assumes that integers with a sign do not overflow.
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
        elif op == DIVIDE:
            if is_null == 0:
                if b == 0 or a == _SIGN or b == _SIGN:  # the least integer has no absolute value
                    return RAISED
                result = divide(a, b)
                if result < least or result > greatest:
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
        elif op == SHIFT:
            result = a >> least
        elif op == MEAN:
            if is_null == 0:
                if b == 0 or abs(a) >= np.int64(1) << 48:
                    return RAISED
                result = mean(a, b, least)
        elif op == MAGNITUDE:
            result = magnitude(a, least)
        elif op == YEAR:
            result = year_of(a)
        elif op == TEXT_EQUAL:
            result = np.int64(is_null == 0 and same_text(a, b))
        elif op == STARTS_WITH:
            result = np.int64(is_null == 0 and starts_with(a, b))
        elif op == ENDS_WITH:
            result = np.int64(is_null == 0 and ends_with(a, b))
        elif op == CONTAINS:
            result = np.int64(is_null == 0 and contains(a, b))
        elif op == LIKE:
            result = np.int64(is_null == 0 and is_like(a, b))
        elif op == SUBSTRING:
            if is_null == 0:
                result = substring(a, least, greatest)
        elif op == CHOOSE:
            is_first = arena[least, row] != 0 and arena[greatest, row] == 0
            result, is_null = (a, a_null) if is_first else (b, b_null)
        arena[to, row] = result if is_null == 0 else 0
        if null != 0:
            arena[null, row] = is_null
    return DONE
