"""The interpreter does what its twin does: for every instruction by itself, with many rows, and when it fails."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ikebana.kernels import opcodes
from ikebana.kernels.registers import MANY_ROWS
from tests.kernels.arrays import GREATEST, LEAST
from tests.kernels.naive_columns import ARITHMETIC
from tests.kernels.naive_state import Row, Update
from tests.kernels.program_instructions import EXPRESSION_OPCODES, INSTRUCTIONS
from tests.kernels.program_runs import Program, compare
from tests.kernels.program_traces import TraceCase
from tests.kernels.programs import instructions
from tests.profiles import examples

JUMPS = (opcodes.LOOP, opcodes.REPEAT, opcodes.AGREE)


def test_every_opcode_is_tried() -> None:
    after_probes = {opcodes.LOAD}
    assert {*INSTRUCTIONS, *EXPRESSION_OPCODES, *JUMPS, *after_probes} == set(range(opcodes.SUBSTRING + 1))


@pytest.mark.parametrize("opcode", INSTRUCTIONS)
@examples(4, quick=0.6)
@given(data=st.data())
def test_oracle_instruction(opcode: int, data: st.DataObject) -> None:
    compare(data.draw(instructions(opcode)), commits=data.draw(st.booleans()))


@pytest.mark.parametrize("opcode", EXPRESSION_OPCODES)
@examples(2, quick=0.4)
@given(data=st.data())
def test_oracle_expression(opcode: int, data: st.DataObject) -> None:
    compare(data.draw(instructions(opcode)))


# Many rows: sorts go beyond a run, and probes meet many versions.


def register(program: Program, rows: list[Row], width: int) -> tuple[int, list[int]]:
    """A register with these rows, which is compared after the program: its count and its slots."""
    program.slots += [[row[at] for row in rows] for at in range(width)]
    program.counts.append(len(rows))
    count, slots = len(program.counts) - 1, list(range(len(program.slots) - width, len(program.slots)))
    program.left.append((count, tuple(slots)))
    return count, slots


def add(program: Program, opcode: int, *operands: int) -> None:
    program.code += [opcode, 2 + len(operands), *operands]


def random_rows(seed: int, rows: int, distinct: int) -> list[Row]:
    """Rows of a key, a value and a diff, of a few distinct numbers from the whole range."""
    random = np.random.default_rng(seed)
    numbers = random.integers(LEAST, GREATEST, distinct, endpoint=True)
    keys, vals, diffs = random.choice(numbers, rows), random.choice(numbers, rows), random.choice([-1, 1, 2], rows)
    return list(zip(keys.tolist(), vals.tolist(), diffs.tolist(), strict=True))


@examples(1, quick=0.3)
@given(st.integers(0, 2**32), st.integers(1, 300), st.integers(1, 40))
def test_oracle_many_rows_are_arranged_and_probed(seed: int, rows: int, distinct: int) -> None:
    program = Program(now=3, room=4096)
    given_rows, other_rows = random_rows(seed, rows, distinct), random_rows(seed, 20, distinct)
    source, slots = register(program, given_rows, 3)
    fresh, to = register(program, [], 3)
    program.traces.append(trace_of(random_rows(seed + 1, rows, distinct), room=rows))
    program.written.append(0)
    add(program, opcodes.ARRANGE, source, fresh, 0, 1, 0, slots[0], slots[1], to[0], to[1], slots[2], to[2])
    few, key_slots = register(program, other_rows, 3)
    joined, target = register(program, [], 3)
    lanes = 1, 1, 1, 1  # of the source, the trace and the output; then the columns that are copied
    operands = few, joined, 0, opcodes.SEEN, 1, key_slots[0], target[1], -1, 0, 0, *lanes, 0, 0
    add(program, opcodes.PROBE, *operands, key_slots[2], target[2], 0, key_slots[0], target[0], 0)
    assert compare(program) in (opcodes.DONE, opcodes.FULL)


RANGES = [(-300, 300), (LEAST, LEAST + 5000), (GREATEST - 70, GREATEST), (-(1 << 31), 1 << 31), (LEAST, GREATEST)]


@pytest.mark.parametrize(("least", "greatest"), RANGES)
def test_oracle_many_rows_are_arranged_and_made_distinct(least: int, greatest: int) -> None:
    """So many are sorted by digits, unless their range is too large, and sought from one to the next."""
    random, rows = np.random.default_rng(least % 1000), 700
    assert rows > MANY_ROWS
    keys = random.integers(least, greatest, rows, endpoint=True)
    given_rows = list(zip(keys.tolist(), random.integers(0, 3, rows).tolist(), [1, -1] * (rows // 2), strict=True))
    program = Program(now=3, room=4096)
    program.traces += [trace_of(given_rows[at:], room=2048) for at in (100, 300)]
    program.written += [0, 1]
    source, slots = register(program, given_rows, 3)
    fresh, to = register(program, [], 3)
    add(program, opcodes.ARRANGE, source, fresh, 0, 1, 0, slots[0], slots[1], to[0], to[1], slots[2], to[2])
    groups, in_groups = register(program, [], 2)
    target, result = register(program, [], 3)
    places = to[0], to[1], *in_groups, 0, 0
    add(program, opcodes.DISTINCT, target, 0, 1, *result, 0, fresh, groups, -1, 0, *places)
    assert compare(program) == opcodes.DONE


def trace_of(rows: list[Row], room: int) -> TraceCase:
    """A trace with these rows at three epochs, in a batch for each, and an empty memtable."""
    batches: list[list[Update]] = []
    for epoch in range(3):
        totals: Counter[tuple[int, int]] = Counter()
        for key, val, diff in rows[epoch::3]:
            totals[key, val] += diff
        batches.append(sorted((key, val, epoch, 0, (diff,)) for (key, val), diff in totals.items() if diff))
    filled = [batch for batch in batches if batch]
    return TraceCase(1, False, room, [], filled, [3 * at for at in range(len(filled))])


# Failure: nothing has changed.


def two_arrangements(rows: list[Row], rooms: tuple[int, int], room: int = 16) -> Program:
    """A program that arranges the same rows twice."""
    program = Program(now=3, room=room)
    source, slots = register(program, rows, 3)
    for number, most in enumerate(rooms):
        before: list[Update] = [(5, 5, 2, 0, (1,)), (GREATEST, LEAST, 1, 0, (-1,))]
        program.traces.append(TraceCase(1, False, most, before, [], []))
        program.written.append(number)
        fresh, to = register(program, [], 3)
        add(program, opcodes.ARRANGE, source, fresh, number, 1, 0, slots[0], slots[1], to[0], to[1], slots[2], to[2])
    return program


ROWS = [(7, 1, 1), (LEAST, 0, 1), (5, 5, -1)]


@pytest.mark.parametrize("commits", [True, False])
@pytest.mark.parametrize("rooms", [(5, 4), (4, 5), (2, 2)])
def test_programs_go_on_when_memtables_without_room_have_grown(rooms: tuple[int, int], commits: bool) -> None:
    assert compare(two_arrangements(ROWS, rooms), commits=commits) == opcodes.DONE


def test_programs_that_lack_room_in_memtables_can_be_undone() -> None:
    assert compare(two_arrangements(ROWS, (5, 5)), grows=False) == opcodes.DONE
    assert compare(two_arrangements(ROWS, (5, 4)), grows=False) == opcodes.SPILL
    assert compare(two_arrangements(ROWS, (4, 5)), grows=False) == opcodes.SPILL


@pytest.mark.parametrize("room", [5, 6])
def test_full_registers_restore_memtables(room: int) -> None:
    program = two_arrangements(ROWS, (9, 9), room)
    target, to = register(program, [], 1)
    for _ in range(2):
        add(program, opcodes.APPEND, 1, target, 1, 1, *to)
    assert compare(program) == (opcodes.DONE if room == 6 else opcodes.FULL)


@pytest.mark.parametrize("opcode", ARITHMETIC)
def test_overflow_restores_memtables(opcode: int) -> None:
    limits = [LEAST, LEAST + 1, -(2**62), -(2**32), -3, -1, 0, 1, 2, 2**32, 2**62, GREATEST]
    statuses = set()
    for a in limits:
        for b in limits:
            program = two_arrangements([(a, b, 1)], (3, 3))
            program.slots.append([])
            add(program, opcode, 1, len(program.slots) - 1, 0, 1, 0, 2, 0, LEAST, GREATEST)
            statuses.add(compare(program))
    assert statuses == {opcodes.DONE, opcodes.RAISED}


def test_regression_distinct_in_a_loop_meets_a_later_round_of_the_present_epoch() -> None:
    """A row of the present epoch, at a later round than the program has come to, is not one of an earlier epoch."""
    program = Program(now=3, room=16)
    source, (key, val, _) = register(program, [(0, 0, 1)], 3)
    groups, grouped = register(program, [], 2)
    pending, (rounds, *waiting) = register(program, [], 3)
    target, produced = register(program, [], 3)
    rows: list[Update] = [(0, 0, 0, 0, (1,)), (0, 0, 3, 2, (3,))]
    program.traces = [TraceCase(1, True, 40, rows, [], []), TraceCase(1, True, 40, [], [], [])]
    program.written = [1]
    add(program, opcodes.LOOP)
    start = len(program.code)
    operands = [source, groups, pending, rounds, key, val, *grouped, *waiting]
    add(program, opcodes.DISTINCT, target, 0, 1, *produced, 0, *operands)
    add(program, opcodes.REPEAT, start, 1, pending, rounds)
    assert compare(program) == opcodes.DONE
