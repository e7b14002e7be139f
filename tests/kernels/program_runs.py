"""Programs for the interpreter and its twin, and both runs of a program, compared."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ikebana import kernels
from ikebana.kernels import opcodes
from tests.kernels import naive
from tests.kernels.arrays import JUNK
from tests.kernels.naive_state import Row, text_of
from tests.kernels.program_traces import TraceCase, TraceTable


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
    coalesced: int = 0
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
        self._state[opcodes.COALESCED] = program.coalesced

    def run(self, grows: bool = True) -> int:
        """Run the program, and take the part of the peers wherever it stops for them.

        A memtable without room gets some, or else the program is left where it has stopped.
        """
        while (status := self._resume()) in (opcodes.EXCHANGES, opcodes.AGREES, opcodes.CALLS, opcodes.SPILL):
            if status != opcodes.SPILL:
                self._answer(int(self._state[opcodes.PC]))
            elif grows:
                self.tables[self.counts[opcodes.LACKS_ROOM]].grow()
            else:
                break
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
            target, _, _, source, *_ = operands
            self.counts[target] = self.counts[source]
        else:
            source, target, _, width, *slots = operands
            self.arena[slots[width : 2 * width]] = self.arena[slots[:width]]
            self.counts[target] = self.counts[source]


def compare(program: Program, *, commits: bool = True, grows: bool = True) -> int:
    """Run a program compiled and plain; all that it leaves is equal. Return the status.

    `grows`: whether memtables without room get some; if not, the program is undone.
    """
    compiled = CompiledRun(program, commits=commits)
    status = compiled.run(grows)
    traces, counts = [case.plain for case in program.traces], list(program.counts)
    slots = defaultdict(list, {slot: list(cells) for slot, cells in enumerate(program.slots)})
    plain = program.code, traces, slots, counts, program.room, program.now, grows, program.coalesced
    assert status == naive.run_program(*plain)
    for table, trace, case in zip(compiled.tables, traces, program.traces, strict=True):
        assert table.read_memtable() == trace.memtable
        assert status in (opcodes.DONE, opcodes.SPILL) or trace.memtable == case.memtable
    assert not compiled.arena[0].any() and (compiled.arena[-1] == JUNK).all(), "it has written outside of its slots"
    if status == opcodes.DONE:
        assert compiled.counts[1:].tolist() == counts[1:]
        for count, left in program.left:
            cells = ([slots[slot][row] if slot else 0 for slot in left] for row in range(counts[count]))
            assert _read(program, left, compiled.rows(count, left)) == _read(program, left, cells)
    elif status == opcodes.SPILL:
        assert compiled.counts[opcodes.LACKS_ROOM] == counts[opcodes.LACKS_ROOM]
    if not commits or status == opcodes.SPILL:
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
