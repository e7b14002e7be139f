"""Workspaces: the memory that programs use while they run, and how rows get into registers and out of them.

A register is a set of slots, the rows of an arena of integers, and a count. Values are in slots as
`ikebana.encoding.slots` says; what the addresses in slots point to is held until the workspace is released.

Cost: an arena takes eight bytes for each slot of a program and row that fits into its registers. Memory that was not
used for a while costs more than the work of a small program: a program gets the memory that was used last, or, if it
waits for other workers, its own again. What a worker keeps for that is limited, however many dataflows it has.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from ikebana.encoding import slots
from ikebana.encoding.canonical import declared
from ikebana.encoding.lanes import Lane, constant
from ikebana.kernels import opcodes, run_program
from ikebana.operators.changes import Changes
from ikebana.operators.registers import Fresh, Rows
from ikebana.runtime.exchanged_rows import Outgoing
from ikebana.trace.batch import StoredBatch
from ikebana.trace.cells import table_of
from ikebana.trace.memtable import CHECKS_BOUNDS

SCRATCH_LANES = 6

MOST_FREE_CELLS = 1 << 23
"""The cells of all arenas that a worker keeps for programs that wait for other workers."""

UNWRITTEN = 1
"""What is in slots that no instruction has written, in the debug mode that checks bounds: empty texts that are null."""

MOST_BATCHES = 256
"""The number of batches that a program can read of a trace: a spine has fewer."""


@dataclass(frozen=True, slots=True)
class Filled:
    """A register that changes are appended to: for each column its slots, and the function that makes them."""

    count: int
    columns: tuple[tuple[int, int, Callable[[pa.Array], slots.Values]], ...]
    diffs: tuple[int, ...]

    @staticmethod
    def of(rows: Rows) -> Filled:
        """The register of a stream, all columns of which are there."""
        named = [(rows.columns[field.name], slots.converter(field)) for field in rows.fields]
        return Filled(rows.count, tuple((column.value, column.null, convert) for column, convert in named), rows.diffs)


class Workspace:
    """The memory that a program uses while it runs."""

    def __init__(self) -> None:
        self._cells, self._scratch_cells = np.empty(0, np.int64), np.empty(0, np.int64)
        self._arenas: dict[tuple[int, int], tuple[Lane, Lane]] = {}  # with scratch lanes, by slots and room
        self.arena = self.scratch = np.empty((0, 0), np.int64)
        self.counts = np.zeros(0, np.int64)
        self.cursors = np.empty((2, MOST_BATCHES), np.int64)
        self.state = np.zeros(opcodes.STATE_CELLS, np.int64)
        self.tables: dict[int, int] = {}  # their addresses, of the fresh batches of imported arrangements, by number
        self.held: list[object] = []  # what references in the arena point to
        self.commits: list[Callable[[], None]] = []  # what called functions do once the program commits
        self.traces = np.empty(0, np.int64)  # the addresses of a program's traces
        self.traces_as_of = -1  # `Memtable.outdated` when they were found

    @property
    def shape(self) -> tuple[int, int]:
        """The number of slots of the program that used it last, and of rows that fit into its registers."""
        slots, room = self.arena.shape
        return slots, room

    @property
    def cells(self) -> int:
        """The number of cells that all arenas share."""
        return len(self._cells)

    @property
    def room(self) -> int:
        """The number of rows that fit into a register."""
        return int(self.arena.shape[1])

    def prepare(self, slots: int, counts: int, room: int, *, commits: bool) -> None:
        """Make room for a program, at its start, with empty registers."""
        self.arena, self.scratch = self._arenas.get((slots, room)) or self._new_arena(slots, room)
        if CHECKS_BOUNDS:
            self.arena[:] = UNWRITTEN
        self.arena[0] = 0
        if counts > len(self.counts):
            self.counts = np.zeros(counts, np.int64)
        self.counts[:counts] = 0
        self.state[:] = 0
        self.clear()
        self.state[opcodes.COMMITS] = commits

    def _new_arena(self, slots: int, room: int) -> tuple[Lane, Lane]:
        """An arena and scratch lanes, in the cells that all programs use one after the other."""
        if slots * room > len(self._cells) or SCRATCH_LANES * room > len(self._scratch_cells):
            self._cells = np.empty(max(slots * room, len(self._cells)), np.int64)
            self._scratch_cells = np.empty(max(SCRATCH_LANES * room, len(self._scratch_cells)), np.int64)
            self._arenas.clear()
        arena = self._cells[: slots * room].reshape(slots, room)
        scratch = self._scratch_cells[: SCRATCH_LANES * room].reshape(SCRATCH_LANES, room)
        self._arenas[slots, room] = arena, scratch
        return arena, scratch

    def clear(self) -> None:
        """Let go of what the last program has read."""
        self.tables.clear()
        self.held.clear()
        self.commits.clear()
        self.traces_as_of = -1

    # Registers.

    def run(self, code: Lane, traces: Lane, written: Lane, epoch: int) -> int:
        """Run a program from its state on, until it stops; `traces` and `written` are addresses. Return the status."""
        status: int = run_program(
            code, traces, written, self.state, self.arena, self.counts, self.scratch, self.cursors, epoch
        )
        return status

    def fill(self, rows: Filled, changes: Changes) -> int:
        """Append changes to a register; return a status: `RAISED` if a value does not fit into a slot."""
        return self.append(rows, changes.columns, changes.diffs)

    def append(self, rows: Filled, columns: Sequence[pa.Array], diffs: Lane) -> int:
        """Append rows to a register, given as columns and lanes of diffs; return a status like `fill`."""
        arena, start = self.arena, int(self.counts[rows.count])
        end = start + diffs.shape[1]
        if end > self.room:
            return opcodes.FULL
        for (value, null, convert), array in zip(rows.columns, columns, strict=True):
            values = convert(array)
            if values is None:
                return opcodes.RAISED
            arena[value, start:end] = values[0]
            self.held.append(values[1])
            if null:
                arena[null, start:end] = slots.nulls(array) if array.null_count else 0
        for slot, lane in zip(rows.diffs, diffs, strict=True):
            arena[slot, start:end] = lane
        self.counts[rows.count] = end
        return opcodes.DONE

    def fill_fresh(self, fresh: Fresh, batch: StoredBatch) -> int:
        """Make a batch the fresh rows of an imported arrangement; return a status: `RAISED` if hashes collide in it."""
        rows, updates, lanes = len(batch), batch.updates, fresh.lanes
        if len(batch.collided) or rows > self.room:
            return opcodes.FULL if rows > self.room else opcodes.RAISED
        arena, self.counts[lanes.count] = self.arena, rows
        arena[lanes.key, :rows], arena[lanes.val, :rows] = updates.key, updates.val
        for slot, lane in zip(lanes.diffs, updates.diffs, strict=True):
            arena[slot, :rows] = lane
        if updates.payload:
            arena[fresh.references, :rows] = np.arange(rows)
            self.tables[fresh.table] = slots.address_of(table_of(batch))
            self.held.append(batch)
        return opcodes.DONE

    def canonical(self, rows: Rows, name: str) -> pa.Array:
        """A copy of a column of a register, in its canonical form."""
        column, end = rows.columns[name], int(self.counts[rows.count])
        field = next(field for field in rows.fields if field.name == name)
        nulls = self.arena[column.null, :end] if column.null else None
        return slots.to_canonical(self.arena[column.value, :end].copy(), nulls, field)

    def changes(self, rows: Rows, epoch: int) -> Changes:
        """The rows of a register, at an epoch."""
        end = int(self.counts[rows.count])
        times, tix = np.full((1, 1), epoch, np.int64), constant(0, end, np.int32)
        arrays = [declared(self.canonical(rows, field.name), field) for field in rows.fields]
        return Changes(times, tix, self.arena[list(rows.diffs), :end], rows.fields, tuple(arrays))


class Workspaces:
    """The workspaces of a worker: a program that waits for other workers keeps its own until it is done.

    `outgoing` is where all programs put the rows for other workers, one after the other.
    """

    def __init__(self, worker: int = 0, workers: int = 1) -> None:
        self.outgoing = Outgoing(worker, workers)
        self._shared: Workspace | None = Workspace()  # None while a program uses it
        self._free: dict[tuple[int, int], list[Workspace]] = {}  # those of programs that waited, by shape
        self._free_cells = 0

    def take(self) -> Workspace:
        """The workspace of programs that do not wait, unless it is in use."""
        workspace, self._shared = self._shared, None
        return workspace or Workspace()

    def take_for(self, slots: int, room: int) -> Workspace:
        """A workspace for a program that waits, if possible the one that it used the last time."""
        free = self._free.get((slots, room))
        if not free:
            return Workspace()
        workspace = free.pop()
        self._free_cells -= workspace.cells
        return workspace

    def release(self, workspace: Workspace) -> None:
        """Give a workspace back that `take` has returned."""
        workspace.clear()
        self._shared = workspace

    def keep(self, workspace: Workspace) -> None:
        """Give a workspace back that `take_for` has returned."""
        workspace.clear()
        self._free.setdefault(workspace.shape, []).append(workspace)
        self._free_cells += workspace.cells
        while self._free_cells > MOST_FREE_CELLS:
            shape = next(iter(self._free))
            self._free_cells -= sum([dropped.cells for dropped in self._free.pop(shape)])
