"""The instructions on columns, in ordinary Python: packing, totals, hashes and expressions."""

from __future__ import annotations

import datetime
import math
import re
import struct
from collections.abc import Callable, Sequence
from fractions import Fraction

from ikebana.kernels import layout, opcodes
from tests.kernels.naive_state import State, Stop, text_of
from tests.kernels.words import WORDS, signed


def unpack(
    state: State,
    count: int,
    from_: int,
    to: int,
    null: int,
    shift: int,
    width: int,
    kind: int,
    full: int,
    nullable: int,
) -> None:
    """Some bits: a flag that the value is valid, if it may be null, then the value; signed ones from their least."""
    values, size = [], width - nullable
    for (lane,) in state.rows(count, [from_]):
        bits = (lane - 2**63 if full else lane) % WORDS >> shift
        value = bits % 2**size - (2 ** (size - 1) if kind == opcodes.SIGNED else 0)
        is_null = nullable and not bits >> size & 1
        values.append((0, 1) if is_null else (signed(value), 0))
    state.write(count, [to, null] if nullable else [to], values)


def pack(state: State, count: int, to: int, full: int, columns: int, *operands: int) -> None:
    """The fields of all columns, one after the other, as one integer; of 64 bits, from the least."""
    fields = [operands[at : at + 5] for at in range(0, len(operands), 5)]
    lanes = []
    for row in state.rows(count, [slot for column in fields for slot in column[:2]]):
        lane = 0
        for value, is_null, (_, _, width, kind, nullable) in zip(row[::2], row[1::2], fields, strict=True):
            size = width - nullable
            bits = (value + (2 ** (size - 1) if kind == opcodes.SIGNED else 0)) % 2**size
            lane = lane << width | (0 if nullable and is_null else bits | nullable << size)
        lanes.append((signed(lane - 2**63) if full else lane,))
    state.write(count, [to], lanes)


def total(state: State, count: int, to: int, lanes: int, *slots: int) -> None:
    """The total of sums whose lane n has the bits from 32 * n on: lane n minus 2**32 times the next has one digit."""
    totals = []
    for row in state.rows(count, slots):
        number, carry = 0, 0
        for at, lane in enumerate(row):
            following = row[at + 1] << 32 if at + 1 < lanes else 0
            digit = signed(lane - following + carry)
            carry = digit >> 32
            number += (digit % 2**32 if at + 1 < lanes else digit) << 32 * at
        if signed(number) != number:
            raise Stop(opcodes.RAISED)
        totals.append((number,))
    state.write(count, [to], totals)


def hash_(state: State, count: int, to: int, mask: int, columns: int, *operands: int) -> None:
    """The hash of columns; here of integers with a sign, texts and wide decimals."""
    from tests.kernels import naive

    groups = [operands[at : at + 4] for at in range(0, len(operands), 4)]
    hashes = [0] * state.counts[count]
    for value, null, kind, _ in groups:
        rows = state.rows(count, [value, null])
        valid = [int(not is_null) for _, is_null in rows]
        if kind == opcodes.TEXT:
            texts = [b"" if is_null else text_of(text) for text, is_null in rows]
            hashes = naive.hash_bytes(texts, valid, hashes)
        else:
            numbers = [number for number, _ in rows]
            hashes = naive.hash_integers(numbers, valid, hashes)
            if kind == opcodes.WIDE:
                hashes = naive.hash_integers([number >> 63 for number in numbers], valid, hashes)
    state.write(count, [to], [(signed(hashed & mask),) for hashed in hashes])


Number = int | None


def _strict(function: Callable[[int, int], int]) -> Callable[[Number, Number], Number]:
    """A function of two numbers that is null if one of them is."""
    return lambda a, b: None if a is None or b is None else int(function(a, b))


def _and(a: Number, b: Number) -> Number:
    return 0 if a == 0 or b == 0 else None if a is None or b is None else 1


def _or(a: Number, b: Number) -> Number:
    return 1 if a or b else None if a is None or b is None else 0


def _is_like(text: bytes, pattern: bytes) -> bool:
    parts = [re.escape(part) for part in pattern.split(b"%")]
    return re.fullmatch(b".*".join(parts), text, re.DOTALL) is not None


def _divided(a: int, b: int) -> int:
    if not b or -(2**63) in (a, b):
        raise Stop(opcodes.RAISED)
    exact = Fraction(a, b)
    rounded = math.floor(abs(exact) + Fraction(1, 2))
    return rounded if exact > 0 else -rounded


EXPRESSIONS: dict[int, Callable[[Number, Number], Number]] = {
    opcodes.ADD: _strict(lambda a, b: a + b),
    opcodes.SUBTRACT: _strict(lambda a, b: a - b),
    opcodes.MULTIPLY: _strict(lambda a, b: a * b),
    opcodes.DIVIDE: _strict(_divided),
    opcodes.EQUAL: _strict(lambda a, b: a == b),
    opcodes.LESS: _strict(lambda a, b: a < b),
    opcodes.LESS_EQUAL: _strict(lambda a, b: a <= b),
    opcodes.AND: _and,
    opcodes.OR: _or,
    opcodes.NOT: _strict(lambda a, _: not a),
    opcodes.IS_NULL: lambda a, _: int(a is None),
    opcodes.LEAST: _strict(min),
    opcodes.GREATEST_OF: _strict(max),
    opcodes.BIT_LENGTH: _strict(lambda a, _: max(a, 0).bit_length()),
    opcodes.YEAR: _strict(lambda a, _: (datetime.date(1970, 1, 1) + datetime.timedelta(a)).year),
    opcodes.TEXT_EQUAL: _strict(lambda a, b: text_of(a) == text_of(b)),
    opcodes.STARTS_WITH: _strict(lambda a, b: text_of(a).startswith(text_of(b))),
    opcodes.ENDS_WITH: _strict(lambda a, b: text_of(a).endswith(text_of(b))),
    opcodes.CONTAINS: _strict(lambda a, b: text_of(b) in text_of(a)),
    opcodes.LIKE: _strict(lambda a, b: _is_like(text_of(a), text_of(b))),
}
"""The functions of two columns, row by row."""

ARITHMETIC = (opcodes.ADD, opcodes.SUBTRACT, opcodes.MULTIPLY, opcodes.DIVIDE)
"""The functions whose results have limits."""


def evaluated(opcode: int) -> Callable[..., None]:
    def evaluate(
        state: State, count: int, to: int, null: int, a: int, a_null: int, b: int, b_null: int, least: int, most: int
    ) -> None:
        results = []
        for left, left_null, right, right_null in state.rows(count, [a, a_null, b, b_null]):
            result = EXPRESSIONS[opcode](None if left_null else left, None if right_null else right)
            if opcode in ARITHMETIC and result is not None and not least <= result <= most:
                raise Stop(opcodes.RAISED)
            results.append(result)
        write_numbers(state, count, to, null, results)

    return evaluate


def constant(state: State, count: int, to: int, null: int, *operands: int) -> None:
    """One number in all rows."""
    write_numbers(state, count, to, null, [operands[4]] * state.counts[count])


def shift(
    state: State, count: int, to: int, null: int, a: int, a_null: int, b: int, b_null: int, bits: int, _: int
) -> None:
    """The bits from a place on, with the sign."""
    rows = state.rows(count, [a, a_null, b_null])
    numbers = [None if is_null or other_null else number >> bits for number, is_null, other_null in rows]
    write_numbers(state, count, to, null, numbers)


def substring(
    state: State, count: int, to: int, null: int, a: int, a_null: int, b: int, b_null: int, skipped: int, taken: int
) -> None:
    """The address and length of some characters of a text, after those that are skipped."""
    results: list[Number] = []
    for text, is_null in state.rows(count, [a, a_null]):
        if is_null:
            results.append(None)
            continue
        characters = text_of(text).decode()
        before, part = characters[:skipped].encode(), characters[skipped : skipped + taken].encode()
        address = text % 2**layout.ADDRESS_BITS + len(before)
        results.append(signed(address + (len(part) << layout.ADDRESS_BITS)))
    write_numbers(state, count, to, null, results)


def magnitude(
    state: State, count: int, to: int, null: int, a: int, a_null: int, b: int, b_null: int, dropped: int, _: int
) -> None:
    """The bits of a number as a double, in the order of numbers, from a place on."""
    results: list[Number] = []
    for number, is_null in state.rows(count, [a, a_null]):
        (bits,) = struct.unpack(">Q", struct.pack(">d", float(number)))
        ordered = 2**64 - 1 - bits if number < 0 else bits + 2**63
        results.append(None if is_null else ordered >> dropped)
    write_numbers(state, count, to, null, results)


def mean(
    state: State, count: int, to: int, null: int, a: int, a_null: int, b: int, b_null: int, factor: int, _: int
) -> None:
    """A number below 2**48 times a factor, divided by another, rounded half away from zero."""
    results: list[Number] = []
    for number, number_null, divisor, divisor_null in state.rows(count, [a, a_null, b, b_null]):
        if number_null or divisor_null:
            results.append(None)
            continue
        if not divisor or abs(number) >= 2**48:
            raise Stop(opcodes.RAISED)
        quotient = (2 * factor * abs(number) + abs(divisor)) // (2 * abs(divisor))
        results.append(quotient if (number < 0) == (divisor < 0) else -quotient)
    write_numbers(state, count, to, null, results)


def choose(
    state: State, count: int, to: int, null: int, a: int, a_null: int, b: int, b_null: int, flag: int, flag_null: int
) -> None:
    """The first column where the flag is set and not null, the second elsewhere."""
    rows = state.rows(count, [flag, flag_null, a, a_null, b, b_null])
    pairs = [row[2:4] if row[0] and not row[1] else row[4:6] for row in rows]
    write_numbers(state, count, to, null, [None if is_null else value for value, is_null in pairs])


def write_numbers(state: State, count: int, to: int, null: int, numbers: Sequence[Number]) -> None:
    """A column; the value of a null is 0. Without a slot for nulls, there are none."""
    slots = [to, null] if null else [to]
    state.write(count, slots, [(number or 0, int(number is None)) for number in numbers])
