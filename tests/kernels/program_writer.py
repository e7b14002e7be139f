"""Writes random programs: registers, slots, constants and loops (`programs` says what they have in common)."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from hypothesis import strategies as st

from ikebana.kernels import opcodes
from tests.kernels.arrays import GREATEST, NUMBERS
from tests.kernels.naive_state import Row, Update
from tests.kernels.program_runs import Draw, Program, Register
from tests.kernels.program_traces import (
    REGISTER_DIFFS,
    ROUNDS,
    SMALL_DIFFS,
    TRACE_DIFFS,
    TraceCase,
    payload_cells,
    slots_of,
)


def digits(number: int, *sizes: int) -> list[int]:
    """The digits of a number, each in a base of its own: several small numbers drawn as one."""
    result = []
    for size in sizes:
        number, digit = divmod(number, size)
        result.append(digit)
    return result


def drawn_digits(draw: Draw, most: int, *sizes: int) -> list[list[int]]:
    """A list of up to `most` lists of small numbers."""
    total = int(np.prod(sizes, dtype=object))
    return [digits(number, *sizes) for number in draw(st.lists(st.integers(0, total - 1), max_size=most))]


Instruction = Callable[["Writer", Draw], None]
"""How an instruction is written."""


class Writer:
    """Writes a random program."""

    def __init__(self, draw: Draw, *, extreme: bool) -> None:
        self._draw, self._extreme = draw, extreme
        now, room = draw(st.sampled_from([3, GREATEST - 2])), draw(st.sampled_from([16, 3, 6, 64]))
        self.program = Program(now, room, draw(st.sampled_from([0, 0, 1, 2])))
        self._pool = draw(st.lists(NUMBERS, min_size=1, max_size=4, unique=True))
        self._lanes = self.some_lanes()
        self._pending: list[int] = []
        self._traces: list[int] = []  # those that instructions at this place can read
        self.in_loop = False
        self.registers = [self.filled(), self.filled()]

    def some_lanes(self) -> int:
        """A number of diffs."""
        return self._draw(st.integers(1, 2)) if self._extreme else 1

    # Registers.

    def slot(self, cells: Sequence[int] = ()) -> int:
        self.program.slots.append(list(cells))
        return len(self.program.slots) - 1

    def count(self, rows: int = 0) -> int:
        self.program.counts.append(rows)
        return len(self.program.counts) - 1

    def register(self, lanes: int | None = None, rows: Sequence[Row] = ()) -> Register:
        """A new register, with these rows at first."""
        lanes = self._lanes if lanes is None else lanes
        slots = [self.slot([row[at] for row in rows]) for at in range(4 + lanes)]
        return self.leave(Register(self.count(len(rows)), tuple(slots[:3]), slots[3], tuple(slots[4:])))

    def filled(self, lanes: int | None = None) -> Register:
        """A new register, with some rows."""
        return self.register(lanes, self.rows(self._lanes if lanes is None else lanes))

    def rows(self, lanes: int) -> list[Row]:
        """Some rows of a register."""
        pool, diffs = self._pool, [(0,) * lanes, *(REGISTER_DIFFS if self._extreme else SMALL_DIFFS)[lanes]]
        sizes = len(pool), len(pool), len(pool), 2, len(diffs)
        numbers = drawn_digits(self._draw, min(self.program.room, 8), *sizes)
        return [(pool[a], pool[b], pool[c], null, *diffs[diff]) for a, b, c, null, diff in numbers]

    def leave(self, register: Register) -> Register:
        """Have the rows of a register compared after the program."""
        self.program.left.append((register.count, register.slots))
        return register

    def put(self, register: Register) -> None:
        """Let later instructions read a register."""
        self.registers.append(self.leave(register))

    def pick(self, lanes: int | None = None) -> Register:
        """A register that is there, or a new one if none has so many lanes."""
        known = [register for register in self.registers if lanes in (None, len(register.diffs))]
        return self._draw(st.sampled_from(known)) if known else self.filled(lanes)

    def pending(self, slots: int) -> tuple[int, int, list[int]]:
        """Rows that wait for later rounds: their count, slot of rounds and other slots; some are there at first."""
        pool = self._pool
        rows = drawn_digits(self._draw, 3, ROUNDS, *[len(pool)] * slots)
        rounds = self.slot([row[0] for row in rows])
        others = [self.slot([self._pending_cell(at, row[1 + at]) for row in rows]) for at in range(slots)]
        count = self.count(len(rows))
        self._pending += [count, rounds]
        self.program.left.append((count, (rounds, *others)))
        return count, rounds, others

    def _pending_cell(self, at: int, digit: int) -> int:
        """A cell of a pending row: of a column, a null flag or a diff."""
        if at < 3:
            return self._pool[digit]
        return digit % 2 if at == 3 else [1, -1, 3][digit % 3]

    # Traces.

    def trace(self, *, written: bool, lanes: int, payload: str = "", keys: int = 0) -> int:
        """A new trace; one that is written has no rows at this epoch yet."""
        has_rounds = self.in_loop and self._draw(st.booleans())
        pool, diffs = self._pool, (TRACE_DIFFS if self._extreme else SMALL_DIFFS)[lanes]
        epochs, rounds = 3 if written else 6, ROUNDS if has_rounds else 1
        parts: list[dict[Row, Update]] = [{} for _ in range(4)]
        variants = [self._draw(st.sampled_from([0, 0, 0, 1])) if payload else 0 for _ in parts]
        for key, val, epoch, round_, diff, part in drawn_digits(
            self._draw, 16, len(pool), len(pool), epochs, rounds, len(diffs), 4
        ):
            time = self.program.now - 3 + epoch, round_
            cells = payload_cells(payload, keys, pool[key], pool[val], variants[part])
            parts[part][key, val, *time] = pool[key], pool[val], *time, diffs[diff], *([cells] if cells else [])
        memtable, *batches = [sorted(part.values(), key=lambda update: update[:4]) for part in parts]
        batches = [batch for batch in batches if batch]
        layouts = self._draw(st.lists(st.integers(0, 255), min_size=len(batches), max_size=len(batches)))
        room = max(1, len(memtable) + self._draw(st.sampled_from([40, 0, 1, 3])))
        heap = self._draw(st.sampled_from([200, 0, 20])) if "t" in payload else 0
        case = TraceCase(lanes, has_rounds, room, memtable, batches, layouts, payload, keys, heap)
        self.program.traces.append(case)
        self._traces.append(len(self.program.traces) - 1)
        self.program.written += self._traces[-1:] if written else []
        return self._traces[-1]

    def read_trace(self, lanes: int) -> int:
        """A trace to read: one that is there, or a new one."""
        cases = self.program.traces
        known = [trace for trace in self._traces if cases[trace].lanes == lanes and not cases[trace].payload]
        chosen = self._draw(st.sampled_from([None, *known]))
        return self.trace(written=False, lanes=lanes) if chosen is None else chosen

    # Payload.

    def payload(self) -> tuple[str, int]:
        """The kinds of some payload columns, and how many of them belong to the key; none in loops."""
        if self.in_loop:
            return "", 0
        kinds = self._draw(st.sampled_from(["", "t", "i", "ti", "itt"]))
        if kinds:
            self.program.room = 256  # so that it is clear which failure comes first
        return kinds, self._draw(st.integers(0, len(kinds)))

    def payload_slots(self, kinds: str, keys: int, rows: Sequence[Row]) -> list[tuple[int, int]]:
        """Slots of the payload of rows, given their keys and values."""
        cells = [payload_cells(kinds, keys, row[0], row[1], 0) for row in rows]
        pairs = [[slots_of(row[at]) for row in cells] for at in range(len(kinds))]
        slots = [
            (self.slot([value for value, _ in column]), self.slot([null for _, null in column])) for column in pairs
        ]
        self.program.texts |= {slots[at][0] for at, kind in enumerate(kinds) if kind == "t"}
        return slots

    def groups(self, count: int, kinds: str, given: Sequence[tuple[int, int]]) -> list[int]:
        """The operands of payload columns that are copied to new slots of a register."""
        operands = []
        for kind, (value, null) in zip(kinds, given, strict=True):
            to, to_null = self.slot(), self.slot()
            self.program.texts |= {to} if kind == "t" else set()
            self.program.left.append((count, (to, to_null)))
            operands += [value, null, to, to_null, int(kind == "t")]
        return operands

    def keyed(self, lanes: int | None = None) -> tuple[Register, list[Row]]:
        """A new register, and its rows, none of which has only zeros as diffs."""
        rows = [row for row in self.rows(self._lanes if lanes is None else lanes) if any(row[4:])]
        return self.register(lanes, rows), rows

    # Instructions.

    def emit(self, opcode: int, *operands: int) -> None:
        self.program.code += [opcode, 2 + len(operands), *operands]

    def add(self, instruction: Instruction) -> None:
        """Add an instruction, and what it needs."""
        instruction(self, self._draw)

    def loop(self, instructions: Sequence[Instruction]) -> None:
        """Add a loop with these instructions, and rows that wait for several rounds."""
        outside, self.in_loop = list(self._traces), True
        self.emit(opcodes.LOOP)
        start = len(self.program.code)
        self.pending(0)
        variable, count, rounds, later = self._variable()
        for instruction in instructions:
            self.add(instruction)
        if self._draw(st.booleans()):
            source = self.pick(len(variable.diffs))
            pairs = flat(source.slots, later)
            self.emit(opcodes.FEEDBACK, source.count, count, ROUNDS + 2, rounds, len(later), *pairs)
        self.emit(
            self._draw(st.sampled_from([opcodes.REPEAT, opcodes.AGREE])), start, len(self._pending) // 2, *self._pending
        )
        self._traces, self.in_loop = outside, False

    def _variable(self) -> tuple[Register, int, int, list[int]]:
        """The variable of a loop: the rows that were fed back; and its pending rows."""
        register = self.register()
        count, rounds, later = self.pending(len(register.slots))
        self.emit(opcodes.CLEAR, register.count)
        self.emit(opcodes.TAKE, count, register.count, rounds, len(later), *flat(later, register.slots))
        self.registers.append(register)
        return register, count, rounds, later


def flat(*groups: Sequence[int]) -> list[int]:
    """The first of each group, the second of each group, and so on."""
    return [slot for slots in zip(*groups, strict=True) for slot in slots]
