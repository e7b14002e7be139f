"""Random programs for the interpreter and its twin, written instruction by instruction, and both runs of a program.

A `Writer` has registers of one form: three columns, the first of which serves as a key and the second as a value, a
column of null flags, and one or two diffs. Registers and slots are written once, or once in each round of a loop, as in
the programs of dataflows. Every instruction that writes a trace has a trace of its own, whose rows are all earlier;
other traces also have rows of this epoch and of later ones.

Payload is a function of the lanes, as if these were its hashes: of the key for the first columns, of the value for the
others. Some parts of traces have another function, so that hashes collide. Columns of payload are integers or texts,
`i` or `t`; `tests.trace.test_cells` has all types.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from hypothesis import strategies as st
from numpy.lib.stride_tricks import as_strided

from ikebana import kernels
from ikebana.kernels import layout, opcodes
from ikebana.kernels.layout import FIRST_DIFF_LANE, HEADER, ROWS, SAVED
from tests.kernels import naive
from tests.kernels.naive_program import (
    ARITHMETIC,
    EXPRESSIONS,
    Payload,
    PlainTrace,
    Row,
    Update,
    payload_of,
    text_of,
)
from tests.kernels.words import signed

JUNK = 77
LEAST, GREATEST = -(2**63), 2**63 - 1
NUMBERS = (
    st.integers(-2, 2) | st.sampled_from([LEAST, LEAST + 1, GREATEST - 1, GREATEST]) | st.integers(LEAST, GREATEST)
)
SMALL_DIFFS = {1: [(1,), (-1,), (3,)], 2: [(1, 1), (-1, 3), (3, -1)]}
TRACE_DIFFS = {1: [*SMALL_DIFFS[1], (LEAST + 1,), (GREATEST,)], 2: [*SMALL_DIFFS[2], (LEAST + 1, 1), (1, GREATEST)]}
"""All odd, so that no product with other diffs than 0 is 0, which it is open whether a probe leaves out."""
REGISTER_DIFFS = {1: [*TRACE_DIFFS[1], (LEAST,)], 2: [*TRACE_DIFFS[2], (0, -1), (LEAST, 2)]}
ROUNDS = 4
"""Rows of traces, and pending rows, are at rounds before this one."""


# Payload.

TEXTS = [b"", b"a", b"abc", b"more than eight bytes", b"more than eight bites"]
_TEXT_BYTES = np.frombuffer(b"".join(TEXTS), np.uint8)
REFERENCES = [
    signed(int(_TEXT_BYTES.ctypes.data) + sum(map(len, TEXTS[:at])) | len(text) << layout.ADDRESS_BITS)
    for at, text in enumerate(TEXTS)
]
"""Slots that refer to these texts."""


def payload_cell(kind: str, column: int, lane: int, variant: int) -> int | bytes | None:
    """A value of a payload column, for rows with this lane."""
    digit = (lane + column + 2 * variant) % (1 + len(TEXTS))
    if not digit:
        return None
    return TEXTS[digit - 1] if kind == "t" else 1000 * digit - 3000


def payload_cells(kinds: str, keys: int, key: int, val: int, variant: int) -> Payload:
    lanes = [key if at < keys else val for at in range(len(kinds))]
    return tuple(payload_cell(kind, at, lanes[at], variant) for at, kind in enumerate(kinds))


def slots_of(cell: int | bytes | None) -> tuple[int, int]:
    """The value and the null flag of a cell."""
    if cell is None:
        return 0, 1
    return (REFERENCES[TEXTS.index(cell)] if isinstance(cell, bytes) else cell), 0


# Traces.


@dataclass(frozen=True)
class TraceCase:
    """A trace: its memtable, with room for so many rows, and its batches; and how their lanes lie in memory."""

    lanes: int
    has_rounds: bool
    room: int
    memtable: list[Update]
    batches: list[list[Update]]
    layouts: list[int]
    payload: str = ""
    keys: int = 0
    heap: int = 0

    @property
    def plain(self) -> PlainTrace:
        settled = [update for batch in self.batches for update in batch]
        return PlainTrace(self.room, settled, list(self.memtable), self.heap, self.keys)


class TraceTable:
    """A trace as the interpreter reads it: a table of addresses (`ikebana.kernels.layout`)."""

    def __init__(self, case: TraceCase) -> None:
        self._case, self._arrays = case, list[np.ndarray]()
        first = FIRST_DIFF_LANE + case.lanes
        self._memtable = np.full((first + 2 * len(case.payload), 2 * case.room), JUNK, np.int64)
        self._memtable[:first, : len(case.memtable)] = lanes_of(case.memtable, case.lanes)
        for row, update in enumerate(case.memtable):
            self._memtable[first:, row] = [slot for cell in payload_of(update) for slot in slots_of(cell)]
        self._heap = np.full(case.heap + 8, JUNK, np.uint8)
        start = address_of(self._heap)
        cells = [1 + len(case.batches), case.room, case.lanes, -1, len(case.payload), case.keys]
        cells += [start, start + case.heap, start, 0, *self._memtable_cells()]
        for batch, layout_ in zip(case.batches, case.layouts, strict=True):
            cells += self._cells(lanes_of(batch, case.lanes), layout_)
            for at, kind in enumerate(case.payload):
                cells += self._column_cells(kind, [payload_of(update)[at] for update in batch])
        self._table = np.array(cells, np.int64)
        self._batches = [array.copy() for array in self._arrays]

    @property
    def address(self) -> int:
        return address_of(self._table)

    def _memtable_cells(self) -> list[int]:
        pitch = self._memtable.strides[0]
        key, val, epoch, round_, diff = (address_of(self._memtable) + pitch * lane for lane in range(5))
        cells = [len(self._case.memtable), key, 8, val, 8, 0, 0, epoch, 8, round_, 8, diff, 8, pitch]
        for at, kind in enumerate(self._case.payload):
            place = diff + pitch * (self._case.lanes + 2 * at)
            cells += [layout.TEXT_SLOT if kind == "t" else layout.SLOT, place, 8, 0, place + pitch, 0]
        return cells

    def _column_cells(self, kind: str, cells: Sequence[int | bytes | None]) -> list[int]:
        """The cells of a payload column of a batch, which starts at the third bit of its bitmap of nulls."""
        valid = np.array([0, 0, 0, *(cell is not None for cell in cells)], np.uint8)
        nulls = np.packbits(valid, bitorder="little")
        if kind == "t":
            texts = [cell if isinstance(cell, bytes) else b"" for cell in cells]
            values = np.cumsum([0, *map(len, texts)], dtype=np.int64)
            data = np.frombuffer(b"".join(texts) + b"!", np.uint8).copy()
        else:
            values, data = np.array([cell or 0 for cell in cells], np.int64), np.zeros(1, np.uint8)
        self._arrays += [nulls, values, data]
        form = layout.TEXT if kind == "t" else layout.SIGNED
        return [form, address_of(values), 8, address_of(data), address_of(nulls), 3]

    def _cells(self, lanes: np.ndarray, layout: int) -> list[int]:
        """The cells of a batch; the digits of the layout say how each lane lies in memory."""
        times, tix = np.unique(lanes[2:4], axis=1, return_inverse=True)
        table = np.ascontiguousarray(times.T if self._case.has_rounds else times.T[:, :1])
        key, val = laid_out(lanes[0], layout), laid_out(lanes[1], layout >> 2)
        diffs = laid_out(lanes[4:], layout >> 4)
        positions = laid_out(tix.reshape(-1).astype(np.int32), layout >> 6)
        self._arrays += [key, val, diffs, positions, table]
        step, round_ = table.strides[0], address_of(table) + 8 if self._case.has_rounds else 0
        return [
            *(lanes.shape[1], address_of(key), key.strides[0], address_of(val), val.strides[0]),
            *(address_of(positions), positions.strides[0], address_of(table), step, round_, step),
            *(address_of(diffs), diffs.strides[1], diffs.strides[0]),
        ]

    def read_memtable(self) -> list[Update]:
        """The rows of the memtable, as the twin has them."""
        rows, first = int(self._table[HEADER + ROWS]), FIRST_DIFF_LANE + self._case.lanes
        return [self._update(row, first) for row in self._memtable[:, :rows].T.tolist()]

    def _update(self, row: list[int], first: int) -> Update:
        pairs = zip(self._case.payload, row[first::2], row[first + 1 :: 2], strict=True)
        payload = tuple(None if null else text_of(value) if kind == "t" else value for kind, value, null in pairs)
        return (*row[:4], tuple(row[4:first]), *([payload] if payload else []))

    def check(self) -> None:
        """The table and the batches are as they were."""
        assert self._table[SAVED] == -1, "a program has not marked the memtable as complete"
        assert (self._heap[self._case.heap :] == JUNK).all(), "a program has written beyond the heap"
        assert all(map(np.array_equal, self._arrays, self._batches)), "a program has written to a batch"


def lanes_of(updates: Sequence[Update], lanes: int) -> np.ndarray:
    """Updates as lanes: key, value, epoch, round, diffs."""
    return np.array([(*update[:4], *update[4]) for update in updates], np.int64).reshape(-1, 4 + lanes).T


def address_of(array: np.ndarray) -> int:
    return int(array.__array_interface__["data"][0])


def laid_out(array: np.ndarray, layout: int) -> np.ndarray:
    """The same cells one after the other, apart from each other, backward, or, if they are equal, as one cell."""
    chosen = layout % 4
    if chosen == 1:
        cells = np.full((*array.shape[:-1], 3 * array.shape[-1]), JUNK, array.dtype)
        cells[..., ::3] = array
        return cells[..., ::3]
    if chosen == 2:
        return np.ascontiguousarray(array[..., ::-1])[..., ::-1]
    if chosen == 3 and array.size and (array == array[..., :1]).all():
        cell = np.ascontiguousarray(array[..., :1])
        return as_strided(cell, array.shape, (*cell.strides[:-1], 0))
    return np.ascontiguousarray(array)


# Programs.


@dataclass(frozen=True)
class Register:
    """A count, and the slots of columns, null flags and diffs; slot 0 for what there is not."""

    count: int
    columns: tuple[int, ...]
    null: int
    diffs: tuple[int, ...]

    @property
    def fields(self) -> tuple[int, ...]:
        return (*self.columns, self.null)

    @property
    def slots(self) -> tuple[int, ...]:
        return (*self.fields, *self.diffs)


@dataclass
class Program:
    """A program, what its registers and traces have at first, and which registers it leaves."""

    now: int
    room: int
    code: list[int] = field(default_factory=list)
    slots: list[list[int]] = field(default_factory=lambda: [[]])
    counts: list[int] = field(default_factory=lambda: [0])
    traces: list[TraceCase] = field(default_factory=list)
    written: list[int] = field(default_factory=list)
    left: list[tuple[int, tuple[int, ...]]] = field(default_factory=list)
    texts: set[int] = field(default_factory=set)  # slots


class CompiledRun:
    """A program in the interpreter, on one worker, which is also its own peer."""

    def __init__(self, program: Program, *, commits: bool) -> None:
        self.program, self.tables = program, [TraceTable(case) for case in program.traces]
        self.counts = np.array(program.counts, np.int64)
        self.arena = np.full((len(program.slots) + 1, program.room), JUNK, np.int64)
        self.arena[0] = 0
        for slot, cells in enumerate(program.slots):
            self.arena[slot, : len(cells)] = cells
        batches = 1 + max((len(case.batches) for case in program.traces), default=0)
        self._scratch = np.full((6, program.room), JUNK, np.int64)
        self._cursors = np.full((2, batches), JUNK, np.int64)
        self._state = np.zeros(opcodes.STATE_CELLS, np.int64)
        self._state[opcodes.COMMITS] = commits

    def run(self) -> int:
        """Run the program, and take the part of the peers wherever it stops for them."""
        while (status := self._resume()) in (opcodes.EXCHANGES, opcodes.AGREES, opcodes.CALLS):
            self._answer(int(self._state[opcodes.PC]))
        return status

    def undo(self) -> None:
        """Restore what the program has written."""
        self._state[opcodes.PC] = -1
        assert self._resume() == opcodes.DONE

    def rows(self, count: int, slots: Sequence[int]) -> list[Row]:
        return [tuple(row) for row in self.arena[list(slots), : self.counts[count]].T.tolist()]

    def _resume(self) -> int:
        traces = np.array([table.address for table in self.tables], np.int64)
        written = traces[self.program.written]
        return int(
            kernels.run_program(
                *(np.array(self.program.code, np.int64), traces, written, self._state, self.arena, self.counts),
                *(self._scratch, self._cursors, self.program.now),
            )
        )

    def _answer(self, pc: int) -> None:
        """All rows belong to this worker, and the next round is the one that it needs."""
        opcode, length, *operands = self.program.code[pc:]
        self._state[opcodes.PC] = pc + length
        if opcode == opcodes.AGREE:
            self._state[opcodes.ROUND_NOW] = max(0, self._state[opcodes.NEXT_ROUND])
            if self._state[opcodes.NEXT_ROUND] >= 0:
                self._state[opcodes.PC] = operands[0]
        elif opcode == opcodes.CALL:
            self.counts[operands[1]] = self.counts[operands[0]]
        else:
            source, target, _, width, *slots = operands
            self.arena[slots[width : 2 * width]] = self.arena[slots[:width]]
            self.counts[target] = self.counts[source]


def compare(program: Program, *, commits: bool = True) -> int:
    """Run a program compiled and plain; all that it leaves is equal. Return the status."""
    compiled = CompiledRun(program, commits=commits)
    status = compiled.run()
    traces, counts = [case.plain for case in program.traces], list(program.counts)
    slots = defaultdict(list, {slot: list(cells) for slot, cells in enumerate(program.slots)})
    assert status == naive.run_program(program.code, traces, slots, counts, program.room, program.now)
    for table, trace, case in zip(compiled.tables, traces, program.traces, strict=True):
        assert table.read_memtable() == trace.memtable
        assert status == opcodes.DONE or trace.memtable == case.memtable
    assert not compiled.arena[0].any() and (compiled.arena[-1] == JUNK).all(), "it has written outside of its slots"
    if status == opcodes.DONE:
        assert compiled.counts.tolist() == counts
        for count, left in program.left:
            cells = ([slots[slot][row] if slot else 0 for slot in left] for row in range(counts[count]))
            assert _read(program, left, compiled.rows(count, left)) == _read(program, left, cells)
    elif status == opcodes.SPILL:
        assert compiled.counts[opcodes.LACKS_ROOM] == counts[opcodes.LACKS_ROOM]
    if not commits:
        compiled.undo()
        assert [table.read_memtable() for table in compiled.tables] == [case.memtable for case in program.traces]
    for table in compiled.tables:
        table.check()
    return status


def _read(program: Program, left: Sequence[int], rows: Iterable[Sequence[int]]) -> list[list[int | bytes]]:
    """Rows of some slots, with the texts that they refer to."""
    return [
        [text_of(cell) if slot in program.texts else cell for slot, cell in zip(left, row, strict=True)] for row in rows
    ]


Draw = Callable[..., Any]


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


class Writer:
    """Writes a random program."""

    def __init__(self, draw: Draw, *, extreme: bool) -> None:
        self._draw, self._extreme = draw, extreme
        now, room = draw(st.sampled_from([3, GREATEST - 2])), draw(st.sampled_from([16, 3, 6, 64]))
        self.program = Program(now, room)
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

    def add(self, opcode: int) -> None:
        """Add an instruction, and what it needs."""
        (INSTRUCTIONS.get(opcode) or _expression(opcode))(self, self._draw)

    def loop(self, opcodes_: Sequence[int]) -> None:
        """Add a loop with these instructions, and rows that wait for several rounds."""
        outside, self.in_loop = list(self._traces), True
        self.emit(opcodes.LOOP)
        start = len(self.program.code)
        self.pending(0)
        variable, count, rounds, later = self._variable()
        for opcode in opcodes_:
            self.add(opcode)
        if self._draw(st.booleans()):
            source = self.pick(len(variable.diffs))
            pairs = _flat(source.slots, later)
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
        self.emit(opcodes.TAKE, count, register.count, rounds, len(later), *_flat(later, register.slots))
        self.registers.append(register)
        return register, count, rounds, later


def _flat(*groups: Sequence[int]) -> list[int]:
    """The first of each group, the second of each group, and so on."""
    return [slot for slots in zip(*groups, strict=True) for slot in slots]


def _clear(to: Writer, draw: Draw) -> None:
    register = to.filled()
    to.emit(opcodes.CLEAR, register.count)
    to.put(register)


def _negate(to: Writer, draw: Draw) -> None:
    source = to.pick()
    diffs = tuple(to.slot() for _ in source.diffs)
    for pair in zip(source.diffs, diffs, strict=True):
        to.emit(opcodes.NEGATE, source.count, *pair)
    to.put(replace(source, diffs=diffs))


def _filter(to: Writer, draw: Draw) -> None:
    source = to.pick()
    target = to.register(len(source.diffs))
    flag, null = draw(st.sampled_from(source.fields)), draw(st.sampled_from([0, source.null]))
    pairs = _flat(source.slots, target.slots)
    to.emit(opcodes.FILTER, source.count, target.count, flag, null, len(source.slots), *pairs)
    to.put(target)


def _append(to: Writer, draw: Draw) -> None:
    source = to.pick()
    target = to.filled(len(source.diffs))
    to.emit(opcodes.APPEND, source.count, target.count, len(source.slots), *_flat(source.slots, target.slots))
    to.put(target)


def _exchange(to: Writer, draw: Draw) -> None:
    source = to.pick()
    target = to.register(len(source.diffs))
    operands = source.count, target.count, source.columns[0], len(source.slots)
    to.emit(opcodes.EXCHANGE, *operands, *source.slots, *target.slots, *[0] * len(source.slots))
    to.put(target)


def _call(to: Writer, draw: Draw) -> None:
    source = to.pick()
    target = replace(source, count=to.count())
    to.emit(opcodes.CALL, source.count, target.count, 0)
    to.put(target)


def _take(to: Writer, draw: Draw) -> None:
    target = to.filled()
    count, rounds, later = to.pending(len(target.slots))
    to.emit(opcodes.TAKE, count, target.count, rounds, len(later), *_flat(later, target.slots))
    to.put(target)


def _enter(to: Writer, draw: Draw) -> None:
    source = to.pick()
    inside = replace(source, count=to.count())
    to.emit(opcodes.ENTER, source.count, inside.count)
    to.put(inside)


def _enter_at(to: Writer, draw: Draw) -> None:
    _enter(to, draw)
    source = to.registers.pop()
    target = to.register(len(source.diffs))
    count, rounds, later = to.pending(len(target.slots))
    delays = [0, 1, 0, 3, 2, draw(st.sampled_from([0, -1, LEAST]))]
    waits = to.slot([delays[delay] for delay in _some(draw, len(delays), to.program.room)])
    to.emit(opcodes.CLEAR, target.count)
    to.emit(opcodes.TAKE, count, target.count, rounds, len(later), *_flat(later, target.slots))
    triples = _flat(source.slots, target.slots, later)
    to.emit(opcodes.ENTER_AT, source.count, target.count, count, rounds, waits, len(later), *triples)
    to.put(target)


def _some(draw: Draw, size: int, number: int) -> list[int]:
    """So many numbers below `size`, from a few that are drawn."""
    few = draw(st.lists(st.integers(0, size - 1), min_size=1, max_size=5))
    return [few[at % len(few)] for at in range(number)]


def _feedback(to: Writer, draw: Draw) -> None:
    source = to.pick()
    count, rounds, later = to.pending(len(source.slots))
    last = draw(st.integers(ROUNDS, ROUNDS + 2))
    pairs = _flat(source.slots, later)
    to.emit(opcodes.FEEDBACK, source.count, count, last, rounds, len(later), *pairs)


def _consolidate(to: Writer, draw: Draw) -> None:
    to.put(consolidated(to, to.pick()))


def consolidated(to: Writer, source: Register) -> Register:
    """The register with equal rows added up."""
    target = to.register(len(source.diffs))
    operands = source.count, target.count, len(source.fields), len(source.diffs)
    to.emit(opcodes.CONSOLIDATE, *operands, *source.slots, *target.slots)
    return target


def _fresh(to: Writer, lanes: int) -> Register:
    """A register of keys, values and diffs."""
    return Register(to.count(), (to.slot(), to.slot(), 0), 0, tuple(to.slot() for _ in range(lanes)))


def _arrange(to: Writer, draw: Draw) -> None:
    kinds, keys = to.payload()
    source, rows = to.keyed() if kinds else (to.pick(), [])
    target = _fresh(to, len(source.diffs))
    trace = to.trace(written=True, lanes=len(source.diffs), payload=kinds, keys=keys) if draw(st.integers(0, 3)) else -1
    key, val = draw(st.sampled_from([source.columns[0], source.columns[2], 0])), source.columns[1]
    key = source.columns[0] if kinds else key
    groups = to.groups(target.count, kinds, to.payload_slots(kinds, keys, rows))
    operands = source.count, target.count, trace, len(source.diffs), len(kinds), key, val, *target.columns[:2]
    to.emit(opcodes.ARRANGE, *operands, *source.diffs, *target.diffs, *groups)
    to.put(target)


def _probe(to: Writer, draw: Draw) -> None:
    kinds, keys = to.payload()
    source, rows = to.keyed() if kinds else (to.pick(), [])
    trace_lanes, mode = to.some_lanes(), draw(st.sampled_from([opcodes.SEEN, opcodes.BEFORE]))
    adds_up = draw(st.integers(0, 1))
    if adds_up and not kinds:
        source = consolidated(to, source)
    written = bool(kinds) and draw(st.booleans())
    trace = (
        to.trace(written=written, lanes=trace_lanes, payload=kinds, keys=keys) if kinds else to.read_trace(trace_lanes)
    )
    lanes = max(len(source.diffs), trace_lanes)
    target = to.register(lanes)
    count, rounds, later = to.pending(len(target.slots)) if to.in_loop else (-1, 0, [0] * len(target.slots))
    to.emit(opcodes.CLEAR, target.count)
    if to.in_loop:
        to.emit(opcodes.TAKE, count, target.count, rounds, len(later), *_flat(later, target.slots))
    copies = [
        slot
        for at, triple in enumerate(zip(source.fields, target.fields, later[:4], strict=True))
        if at != 1  # the value is that of the trace
        for slot in triple
    ]
    operands = source.count, target.count, trace, mode, adds_up, source.columns[0], target.columns[1]
    references = to.slot() if kinds else 0
    operands += count, later[1], rounds, len(source.diffs), trace_lanes, lanes, len(copies) // 3, references, keys
    compared = to.payload_slots(kinds[:keys], keys, rows)
    groups = [cell for kind, pair in zip(kinds, compared, strict=False) for cell in (*pair, 0, 0, int(kind == "t"))]
    to.emit(opcodes.PROBE, *operands, *source.diffs, *target.diffs, *later[4:], *copies, *groups)
    for at, kind in enumerate(kinds):
        _load(to, kind, target.count, trace, at, references)
    to.put(target)


def _load(to: Writer, kind: str, count: int, trace: int, column: int, references: int) -> None:
    """Read a payload column of the rows that a probe has met."""
    value, null = to.slot(), to.slot()
    to.program.texts |= {value} if kind == "t" else set()
    to.program.left.append((count, (value, null)))
    to.emit(opcodes.LOAD, count, trace, column, references, value, null)


def _hash(to: Writer, draw: Draw) -> None:
    source, rows = to.keyed()
    texts, numbers = to.payload_slots("t", 1, rows)[0], source.columns[2]
    columns = [(*texts, opcodes.TEXT, 0), (numbers, source.null, opcodes.SIGNED, 64), (numbers, 0, opcodes.WIDE, 64)]
    chosen = draw(st.lists(st.sampled_from(columns), min_size=1, max_size=3))
    lane, mask = to.slot(), draw(st.sampled_from([-1, 3]))
    to.emit(opcodes.HASH, source.count, lane, mask, len(chosen), *(cell for column in chosen for cell in column))
    to.put(replace(source, columns=(*source.columns[:2], lane)))


def _total(to: Writer, draw: Draw) -> None:
    numbers = draw(st.lists(st.lists(NUMBERS | st.integers(-(2**40), 2**40), max_size=3), max_size=4))
    lanes = draw(st.integers(1, 4))
    shift = draw(st.sampled_from([0, 0, 0, 40]))
    bits = {1: 62, 2: 64, 3: 96, 4: 128}[lanes]
    values = [[signed(number) << shift if bits > 64 else number >> (64 - bits) for number in some] for some in numbers]
    slots = [to.slot([signed(sum(value >> 32 * lane for value in some)) for some in values]) for lane in range(lanes)]
    to.program.room = max(to.program.room, len(values))
    count, result = to.count(len(values)), to.slot()
    to.emit(opcodes.TOTAL, count, result, lanes, *slots)
    to.program.left.append((count, (result,)))


def _extend(to: Writer, draw: Draw) -> None:
    source, target = to.pick(), to.register(1)
    traces = []
    for _ in range(draw(st.integers(1, 3))):
        mode, exists = draw(st.sampled_from([opcodes.SEEN, opcodes.BEFORE])), draw(st.integers(0, 1))
        traces += [to.read_trace(1), mode, exists, draw(st.sampled_from(source.columns))]
    copies = [
        slot for at, pair in enumerate(zip(source.fields, target.fields, strict=True)) if at != 1 for slot in pair
    ]
    operands = source.count, target.count, len(traces) // 4, target.columns[1], source.diffs[0], target.diffs[0]
    to.emit(opcodes.EXTEND, *operands, len(copies) // 2, *traces, *copies)
    to.put(target)


def _text_expression(opcode: int) -> Callable[[Writer, Draw], None]:
    def write(to: Writer, draw: Draw) -> None:
        source, rows = to.keyed()
        (a, a_null), (b, b_null) = to.payload_slots("tt", 1, rows)
        value, null = to.slot(), to.slot()
        to.emit(opcode, source.count, value, null, a, a_null, b, b_null, 0, 0)
        to.put(replace(source, columns=(*source.columns[:2], value), null=null))

    return write


TEXT_OPCODES = (opcodes.TEXT_EQUAL, opcodes.STARTS_WITH, opcodes.ENDS_WITH, opcodes.CONTAINS)


def _year(to: Writer, draw: Draw) -> None:
    days = draw(st.lists(st.integers(-719162, 2932896), max_size=8))
    source, result = to.slot(days), to.slot()
    count = to.count(len(days))
    to.emit(opcodes.YEAR, count, result, 0, source, 0, 0, 0, 0, 0)
    to.program.left.append((count, (result,)))
    to.program.room = max(to.program.room, 8)


def _mean(to: Writer, draw: Draw) -> None:
    numbers = st.tuples(st.integers(-(2**48), 2**48), st.integers(-5, 5), st.integers(0, 1))
    rows = draw(st.lists(numbers, max_size=3))
    slots = [to.slot([row[at] for row in rows]) for at in range(3)]
    count, result, null = to.count(len(rows)), to.slot(), to.slot()
    factor = draw(st.sampled_from([1, 10**4]))
    to.emit(opcodes.MEAN, count, result, null, slots[0], slots[2], slots[1], 0, factor, 0)
    to.program.left.append((count, (result, null)))


def _groups(to: Writer, source: Register, columns: int) -> list[int]:
    """The operands by which instructions find the groups to evaluate."""
    count, rounds, later = to.pending(columns) if to.in_loop else (-1, 0, [to.slot() for _ in range(columns)])
    ordered = [to.slot() for _ in range(columns)]
    return [source.count, to.count(), count, rounds, *source.columns[:columns], *ordered, *later]


def _distinct(to: Writer, draw: Draw) -> None:
    (kinds, keys), target = to.payload(), _fresh(to, 1)
    source, rows = to.keyed() if kinds else (to.pick(), [])
    given = to.trace(written=False, lanes=1, payload=kinds, keys=keys) if kinds else to.read_trace(to.some_lanes())
    produced = to.trace(written=True, lanes=1, payload=kinds, keys=keys)
    operands = target.count, given, produced, *target.columns[:2], *target.diffs, len(kinds)
    groups = to.groups(target.count, kinds, to.payload_slots(kinds, keys, rows))
    to.emit(opcodes.DISTINCT, *operands, *_groups(to, source, 2), *groups)
    to.put(target)


def _top(to: Writer, draw: Draw) -> None:
    source, target = to.pick(), _fresh(to, 1)
    traces = to.read_trace(1), to.trace(written=True, lanes=1)
    limit, greatest, once = (
        draw(st.sampled_from([1, 2, 5, 0, GREATEST])),
        draw(st.integers(0, 1)),
        draw(st.integers(0, 1)),
    )
    operands = target.count, *traces, *target.columns[:2], *target.diffs, limit, greatest, once, int(to.in_loop)
    to.emit(opcodes.TOP, *operands, *_groups(to, source, 1))
    to.put(target)


def _sums(to: Writer, draw: Draw) -> None:
    kinds, _ = to.payload()
    source, rows = to.keyed() if kinds else (to.pick(), [])
    lanes, keys = len(source.diffs), len(kinds)
    trace = to.trace(written=False, lanes=lanes, payload=kinds, keys=keys) if kinds else to.read_trace(lanes)
    columns, diff = tuple(to.slot() for _ in range(1 + lanes)), to.slot()
    target = Register(to.count(), (*columns, 0)[:3], 0, (diff,))
    groups = to.groups(target.count, kinds, to.payload_slots(kinds, keys, rows))
    to.emit(
        opcodes.SUMS, source.count, target.count, trace, lanes, source.columns[0], columns[0], diff, keys,
        *source.diffs, *columns[1:], *groups,
    )  # fmt: skip
    to.put(target)


def _unpack(to: Writer, draw: Draw) -> None:
    source = to.pick()
    nullable, full, kind = draw(st.integers(0, 1)), draw(st.integers(0, 1)), draw(st.integers(0, 1))
    width = draw(st.integers(1 + nullable, 64))
    shift = draw(st.integers(0, 64 - width))
    column, null = to.slot(), to.slot() if nullable else 0
    from_ = draw(st.sampled_from(source.columns))
    to.emit(opcodes.UNPACK, source.count, from_, column, null, shift, width, kind, full, nullable)
    to.put(replace(source, columns=(*source.columns[:2], column), null=null))


def _pack(to: Writer, draw: Draw) -> None:
    source = to.pick()
    nullable = draw(st.lists(st.integers(0, 1), min_size=1, max_size=3))
    room, fields = 64, []
    for at, may_be_null in enumerate(nullable):
        width = draw(st.integers(1 + may_be_null, room - 2 * (len(nullable) - at - 1)))
        column = draw(st.sampled_from(source.columns))
        fields += [column, source.null if may_be_null else 0, width, draw(st.integers(0, 1)), may_be_null]
        room -= width
    lane = to.slot()
    to.emit(opcodes.PACK, source.count, lane, int(room == 0), len(nullable), *fields)
    to.put(replace(source, columns=(*source.columns[:2], lane)))


def _expression(opcode: int) -> Callable[[Writer, Draw], None]:
    def write(to: Writer, draw: Draw) -> None:
        source = to.pick()
        column = st.tuples(st.sampled_from(source.fields), st.sampled_from([0, source.null]))
        value, null = to.slot(), to.slot()
        least, greatest = 0, 0
        if opcode in ARITHMETIC:
            least, greatest = draw(st.sampled_from([(LEAST, GREATEST), (-128, 127)]))
        elif opcode == opcodes.CONSTANT:
            least = draw(NUMBERS)
        elif opcode == opcodes.CHOOSE:
            least, greatest = draw(column)
        elif opcode == opcodes.SHIFT:
            least = draw(st.sampled_from([0, 32, 63]))
        to.emit(opcode, source.count, value, null, *draw(column), *draw(column), least, greatest)
        to.put(replace(source, columns=(*source.columns[:2], value), null=null))

    return write


INSTRUCTIONS: dict[int, Callable[[Writer, Draw], None]] = {
    opcodes.CLEAR: _clear,
    opcodes.NEGATE: _negate,
    opcodes.FILTER: _filter,
    opcodes.ARRANGE: _arrange,
    opcodes.PROBE: _probe,
    opcodes.TAKE: _take,
    opcodes.DISTINCT: _distinct,
    opcodes.SUMS: _sums,
    opcodes.TOP: _top,
    opcodes.ENTER: _enter,
    opcodes.ENTER_AT: _enter_at,
    opcodes.FEEDBACK: _feedback,
    opcodes.APPEND: _append,
    opcodes.CONSOLIDATE: _consolidate,
    opcodes.EXCHANGE: _exchange,
    opcodes.CALL: _call,
    opcodes.UNPACK: _unpack,
    opcodes.PACK: _pack,
    opcodes.HASH: _hash,
    opcodes.TOTAL: _total,
    opcodes.EXTEND: _extend,
    opcodes.MEAN: _mean,
    opcodes.YEAR: _year,
    **{opcode: _text_expression(opcode) for opcode in TEXT_OPCODES},
}
"""How to write each instruction that is not an expression."""

EXPRESSION_OPCODES = (
    *(opcode for opcode in EXPRESSIONS if opcode not in INSTRUCTIONS),
    opcodes.CONSTANT,
    opcodes.CHOOSE,
    opcodes.SHIFT,
)
ONLY_IN_LOOPS = (opcodes.ENTER_AT, opcodes.FEEDBACK)
ONLY_OUTSIDE = (opcodes.SUMS, opcodes.EXTEND)
ANYWHERE = [opcode for opcode in INSTRUCTIONS if opcode not in (*ONLY_IN_LOOPS, *ONLY_OUTSIDE)]


@st.composite
def traces(draw: Draw, number: int) -> list[TraceCase]:
    """Some traces with one diff lane and without payload, around epoch 3."""
    writer = Writer(draw, extreme=True)
    writer.program.now = 3
    return [writer.program.traces[writer.trace(written=False, lanes=1)] for _ in range(number)]


@st.composite
def instructions(draw: Draw, opcode: int) -> Program:
    """A program of one instruction, by itself or in a loop."""
    writer = Writer(draw, extreme=True)
    if opcode in ONLY_IN_LOOPS or (opcode in ANYWHERE and draw(st.booleans())):
        writer.loop([opcode])
    else:
        writer.add(opcode)
    return writer.program


@st.composite
def programs(draw: Draw) -> Program:
    """A short program: some instructions, a loop of some, and some more."""
    writer = Writer(draw, extreme=False)
    expression = st.sampled_from(EXPRESSION_OPCODES)
    outside = st.lists(st.sampled_from([*ANYWHERE, *ONLY_OUTSIDE]) | expression, max_size=3)
    inside = st.lists(st.sampled_from([*ANYWHERE, *ONLY_IN_LOOPS]) | expression, min_size=1, max_size=4)
    for opcode in draw(outside):
        writer.add(opcode)
    if draw(st.booleans()):
        writer.loop(draw(inside))
    for opcode in draw(outside):
        writer.add(opcode)
    return writer.program
