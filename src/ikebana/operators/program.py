"""Programs of dataflows: operators written as instructions for the compiled interpreter.

A small sweep spends nearly all its time in calls around the work. A dataflow whose operators all have a lowering runs
its small sweeps as one program instead (`ikebana.kernels.program`). Operators describe themselves by `Operator.lower`:
they ask the `ProgramBuilder` for the registers of what they read, emit instructions, and declare the registers of what
they write. An operator that cannot do that returns False, and the dataflow has no program.

What a program covers: one epoch after the first sweep, columns that fit into 64 bits, exact lanes, loops of one level.
For everything else, and whenever a program does not succeed, operators are visited as usual: both work on the same
traces, and there is no other state between sweeps.

Contract of `Program.run`: either the epoch is complete, with the same updates in all traces as visits would have
written, or nothing has changed and the result is False.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from dataclasses import field as dataclass_field
from typing import TYPE_CHECKING, Protocol

import numpy as np
import pyarrow as pa

from ikebana.encoding import Schema, columns
from ikebana.encoding.lanes import Lane, constant
from ikebana.encoding.schema import Side
from ikebana.kernels import program as opcodes
from ikebana.kernels import run_program
from ikebana.operators.changes import Changes, Fields
from ikebana.operators.span import NEVER
from ikebana.operators.streams import Arranged, Stream, from_epoch
from ikebana.time import Antichain
from ikebana.trace.batch import StoredBatch
from ikebana.trace.description import Description
from ikebana.trace.handle import Trace
from ikebana.trace.memtable import can_have_memtable
from ikebana.trace.updates import NO_KEYS, Sorted, Updates

if TYPE_CHECKING:
    from ikebana.operators.protocol import Operator

FUSE = os.environ.get("IKEBANA_FUSE", "small")
"""Which sweeps are done by programs: `small` ones, `never` any, `always` if a program can do it, or `both`: each sweep
is done by a program, undone, done by visits, and the results are compared."""

ROOM = 1 << 13
"""The number of rows that fit into a register."""

MOST_INPUT_ROWS = 1 << 11
"""Sweeps with more rows of input than this are done by visits, which are faster then."""

MOST_BATCHES = 256
"""The number of batches that a program can read of a trace: a spine has fewer."""


class Workspace:
    """The memory that the programs of a worker use while they run; nothing in it outlives a run."""

    def __init__(self) -> None:
        self.arena = np.zeros((0, ROOM), np.int64)
        self.counts = np.zeros(0, np.int64)
        self.scratch = np.empty((6, ROOM), np.int64)
        self.cursors = np.empty((2, MOST_BATCHES), np.int64)

    def reserve(self, slots: int, counts: int) -> None:
        """Make room for a program."""
        if slots > len(self.arena):
            self.arena = np.zeros((slots, ROOM), np.int64)
        if counts > len(self.counts):
            self.counts = np.zeros(counts, np.int64)


@dataclass(frozen=True, slots=True)
class Column:
    """The slots of a column: of its values, and of its null flags (slot 0 if it is never null)."""

    value: int
    null: int


@dataclass(frozen=True, slots=True)
class Rows:
    """The register of a stream."""

    count: int
    fields: Fields
    columns: Mapping[str, Column]
    diffs: tuple[int, ...]

    @property
    def slots(self) -> list[int]:
        """The slots of all columns, in the order of the fields."""
        pairs = (self.columns[field.name] for field in self.fields)
        return [slot for column in pairs for slot in (column.value, column.null)]


@dataclass(frozen=True, slots=True)
class Lanes:
    """The register of an arrangement's fresh rows: sorted by key and value, equal rows added up."""

    count: int
    key: int
    val: int
    diffs: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Index:
    """An arrangement: its fresh rows, and its trace."""

    schema: Schema
    fresh: Lanes
    trace: int


@dataclass(slots=True)
class _Loop:
    """The loop whose body is being written."""

    pending: list[tuple[int, int]] = dataclass_field(default_factory=list)
    leaving: list[tuple[Stream, Rows]] = dataclass_field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Preview:
    """What a program would write to each trace at an epoch."""

    epoch: int
    batches: list[tuple[Trace, StoredBatch | None]]


class ProgramInput(Protocol):
    """A source, as a program reads it."""

    def next_change(self) -> int:
        """The least epoch of the changes that wait."""
        ...

    def load(self, epoch: int) -> Sequence[Changes] | Sequence[StoredBatch] | None:
        """The changes at an epoch, all at this time; None if a program cannot take them."""
        ...

    def loaded(self, epoch: int) -> None:
        """A program has completed the epoch: forget its changes."""
        ...


class ProgramBuilder:
    """Writes a program."""

    def __init__(self) -> None:
        self.code: list[int] = []
        self.traces: list[Trace] = []
        self.written: list[Trace] = []
        self.slots, self.counts = 1, 1
        self.inputs: list[tuple[ProgramInput, Rows | Lanes]] = []
        self._outputs: dict[int, Rows | Index] = {}  # by the identity of streams and arrangements
        self._variables: dict[int, tuple[Rows, int]] = {}  # by identity: the rows that wait, and the slot of rounds
        self._loop: _Loop | None = None

    # Registers.

    def slot(self) -> int:
        """A new slot."""
        self.slots += 1
        return self.slots - 1

    def some_slots(self, number: int) -> tuple[int, ...]:
        return tuple(self.slot() for _ in range(number))

    def count(self) -> int:
        """A new count."""
        self.counts += 1
        return self.counts - 1

    def rows(self, fields: Fields, diffs: int) -> Rows | None:
        """A new register for rows of a stream; None if a column does not fit into a slot."""
        if any(columns.bits(field) is None for field in fields):
            return None
        slots = {field.name: Column(self.slot(), self.slot() if field.nullable else 0) for field in fields}
        return Rows(self.count(), fields, slots, self.some_slots(diffs))

    def lanes(self, diffs: int) -> Lanes:
        """A new register for the fresh rows of an arrangement."""
        return Lanes(self.count(), self.slot(), self.slot(), self.some_slots(diffs))

    # What operators read and write.

    def stream(self, stream: Stream) -> Rows | None:
        """The register of a stream that an earlier operator has written."""
        rows = self._outputs.get(id(stream))
        return rows if isinstance(rows, Rows) else None

    def arranged(self, arranged: Arranged) -> Index | None:
        """The register and trace of an arrangement that an earlier operator has written."""
        index = self._outputs.get(id(arranged))
        return index if isinstance(index, Index) else None

    def write(self, output: Stream | Arranged | None, register: Rows | Index | None) -> bool:
        """Declare the register of an operator's output; return whether there is one."""
        if register is None:
            return False
        self._outputs[id(output)] = register
        return True

    def write_input(self, source: ProgramInput, stream: Stream) -> bool:
        """Declare a source of a stream."""
        rows = self.rows(stream.fields, stream.lanes)
        if rows is not None:
            self.inputs.append((source, rows))
        return self.write(stream, rows)

    def write_imported(self, source: ProgramInput, arranged: Arranged, trace: Trace) -> bool:
        """Declare a source of an arrangement."""
        number = self.trace(trace)
        if number is None:
            return False
        index = Index(arranged.schema, self.lanes(len(arranged.schema.diffs)), number)
        self.inputs.append((source, index.fresh))
        return self.write(arranged, index)

    def trace(self, trace: Trace) -> int | None:
        """The number of a trace; None if programs cannot read it."""
        if not can_have_memtable(trace.schema, trace.spine.lower.dimensions or 1):
            return None
        if trace not in self.traces:
            self.traces.append(trace)
        return self.traces.index(trace)

    def index(self, schema: Schema, trace: Trace) -> Index | None:
        """A new arrangement, which the program stores in a trace."""
        number = self.trace(trace)
        if number is None:
            return None
        self.written.append(trace)
        return Index(schema, self.lanes(len(schema.diffs)), number)

    # Instructions.

    def emit(self, opcode: int, *operands: int) -> None:
        """Add an instruction."""
        self.code += [opcode, 2 + len(operands), *operands]

    def lower_all(self, operators: Iterable[Operator]) -> bool:  # type: ignore[type-arg]
        """Add the instructions of operators; return whether all of them could be written."""
        return all(operator.lower(self) for operator in operators)

    def loop(self, operators: Iterable[Operator]) -> bool:  # type: ignore[type-arg]
        """Add a loop with this body; return whether that was possible."""
        if self._loop is not None:
            return False
        loop = self._loop = _Loop()
        self.emit(opcodes.LOOP)
        start = len(self.code)
        if not self.lower_all(operators):
            return False
        self.emit(opcodes.REPEAT, start, len(loop.pending), *(cell for pair in loop.pending for cell in pair))
        self._loop = None
        for stream, collected in loop.leaving:
            self.write(stream, self.consolidated(collected))
        return True

    @property
    def in_loop(self) -> bool:
        return self._loop is not None

    def pending(self) -> tuple[int, int]:
        """The count and the slot of rounds of rows that wait for later rounds; (-1, 0) outside loops."""
        if self._loop is None:
            return -1, 0
        self._loop.pending.append((self.count(), self.slot()))
        return self._loop.pending[-1]

    def entered(self, count: int) -> int:
        """The count of a register inside the loop: its rows are there in round 0."""
        inside = self.count()
        self.emit(opcodes.ENTER, count, inside)
        return inside

    def delayed(self, rows: Rows, delay: Column) -> Rows:
        """The rows of round 0, from a round of their own on."""
        count, rounds = self.pending()
        target, later = self.copied(rows), replace(self.copied(rows), count=count)
        moved = list(_pairs(later, target))
        self.emit(opcodes.CLEAR, target.count)
        self.emit(opcodes.TAKE, count, target.count, rounds, len(moved) // 2, *moved)
        origins = list(_pairs(rows, target))[::2]
        triples = [slot for triple in zip(origins, moved[1::2], moved[::2], strict=True) for slot in triple]
        self.emit(opcodes.ENTER_AT, rows.count, target.count, count, rounds, delay.value, len(origins), *triples)
        return target

    def write_variable(self, variable: object, stream: Stream, rows: Rows) -> bool:
        """Declare a variable of the loop: its rows are those that were fed back for the present round."""
        count, rounds = self.pending()
        later = self.copied(rows)
        self._variables[id(variable)] = replace(later, count=count), rounds
        self.emit(opcodes.CLEAR, rows.count)
        pairs = list(_pairs(later, rows))
        self.emit(opcodes.TAKE, count, rows.count, rounds, len(pairs) // 2, *pairs)
        return self.write(stream, rows)

    def feed_back(self, variable: object, rows: Rows, last: int | None) -> None:
        """Pass rows to a variable at the next round, up to the last."""
        pending, rounds = self._variables[id(variable)]
        pairs = list(_pairs(rows, pending))
        last = -1 if last is None else last
        self.emit(opcodes.FEEDBACK, rows.count, pending.count, last, rounds, len(pairs) // 2, *pairs)

    def append(self, source: Rows, target: Rows) -> None:
        """Add rows to a register."""
        pairs = list(_pairs(source, target))
        self.emit(opcodes.APPEND, source.count, target.count, len(pairs) // 2, *pairs)

    def concat(self, sources: Sequence[Rows], fields: Fields) -> Rows | None:
        """The rows of several registers, whose columns may have different names."""
        target = self.rows(fields, len(sources[0].diffs))
        if target is None:
            return None
        self.emit(opcodes.CLEAR, target.count)
        for source in sources:
            self.append(source, target)
        return target

    def leave(self, stream: Stream, collected: Rows) -> None:
        """Declare a stream that leaves the loop: the rows that were collected in all rounds, added up after the
        last."""
        assert self._loop is not None
        self._loop.leaving.append((stream, collected))

    def consolidated(self, rows: Rows) -> Rows:
        """The rows with equal ones added up."""
        target = self.copied(rows)
        from_, to = [slot for slot in rows.slots if slot], [slot for slot in target.slots if slot]
        operands = [rows.count, target.count, len(from_), len(rows.diffs)]
        self.emit(opcodes.CONSOLIDATE, *operands, *from_, *rows.diffs, *to, *target.diffs)
        return target

    def _copies(self, rows: Rows) -> dict[str, Column]:
        """New slots for columns."""
        return {name: Column(self.slot(), self.slot() if column.null else 0) for name, column in rows.columns.items()}

    def copied(self, rows: Rows) -> Rows:
        """A new register like another."""
        return replace(rows, count=self.count(), columns=self._copies(rows), diffs=self.some_slots(len(rows.diffs)))

    def filtered(self, rows: Rows, flag: Column) -> Rows:
        """The rows for which a flag is set, and not null."""
        target = self.copied(rows)
        pairs = list(_pairs(rows, target))
        operands = rows.count, target.count, flag.value, flag.null, len(pairs) // 2
        self.emit(opcodes.FILTER, *operands, *pairs)
        return target

    def packed(self, rows: Rows, side: Side) -> int | None:
        """The slot of the lane of some columns."""
        if not side.exact:
            return None
        if not side.fields:
            return 0
        if side.is_plain_integer:
            return rows.columns[side.fields[0].name].value
        lane = self.slot()
        operands = []
        for field, width in zip(side.fields, side.widths, strict=True):
            column = rows.columns[field.name]
            operands += [column.value, column.null, width, _kind(field), int(field.nullable)]
        is_full = int(sum(side.widths) == 64)
        self.emit(opcodes.PACK, rows.count, lane, is_full, len(side.fields), *operands)
        return lane

    def unpacked(self, count: int, lane: int, side: Side, names: Iterable[str]) -> dict[str, Column]:
        """The slots of some columns of a lane."""
        if side.is_plain_integer:
            return {field.name: Column(lane, 0) for field in side.fields if field.name in names}
        result, shift, is_full = {}, sum(side.widths), int(sum(side.widths) == 64)
        for field, width in zip(side.fields, side.widths, strict=True):
            shift -= width
            if field.name in names:
                column = Column(self.slot(), self.slot() if field.nullable else 0)
                operands = [column.value, column.null, shift, width, _kind(field), is_full, int(field.nullable)]
                self.emit(opcodes.UNPACK, count, lane, *operands)
                result[field.name] = column
        return result

    def stored(self, source: Rows, index: Index) -> bool:
        """Arrange rows: sort them, add them up, and store them in the trace of the index."""
        schema, fresh = index.schema, index.fresh
        key, val = self.packed(source, schema.key), self.packed(source, schema.val)
        if key is None or val is None or len(source.diffs) != len(fresh.diffs):
            return False
        operands = [source.count, fresh.count, index.trace, len(fresh.diffs), key, val, fresh.key, fresh.val]
        self.emit(opcodes.ARRANGE, *operands, *source.diffs, *fresh.diffs)
        return True


def _pairs(source: Rows, target: Rows) -> Iterator[int]:
    """Pairs of slots: those of each column in two registers, and those of the diffs. The order of columns decides."""
    for from_, to in zip(source.slots, target.slots, strict=True):
        if to:
            yield from (from_, to)
    for from_, to in zip(source.diffs, target.diffs, strict=True):
        yield from (from_, to)


def _kind(field: pa.Field) -> int:
    return opcodes.SIGNED if columns.is_signed(field.type) else opcodes.UNSIGNED


class Program:
    """The program of a dataflow."""

    def __init__(self, builder: ProgramBuilder, result: Index, trace: Trace, workspace: Workspace) -> None:
        self._code = np.array(builder.code, np.int64)
        self._slots, self._counts = builder.slots, builder.counts
        self._inputs, self._traces = builder.inputs, builder.traces
        self._written = builder.written
        self._result, self._trace, self._workspace = result, trace, workspace

    def run(self, lower: int, upper: int) -> int:
        """Complete the epochs from `lower` on, at most up to `upper`; return the epoch that was reached."""
        while (epoch := self._next_change()) < upper:
            if not self._compute(epoch):
                return max(lower, epoch)
            for source, _ in self._inputs:
                source.loaded(epoch)
            frontier = from_epoch(epoch + 1, 1)
            self._trace.publish(self._fresh(epoch, frontier), frontier)
        return upper

    def preview(self, lower: int, upper: int) -> Preview | None:
        """What the program would write at the next epoch with changes; None if it cannot do it. Nothing changes."""
        epoch = self._next_change()
        for trace in self._written:
            trace.spill()
        if epoch >= upper or not self._compute(epoch):
            return None
        return Preview(epoch, [(trace, trace.take_memtable()) for trace in self._written])

    def _next_change(self) -> int:
        """The next epoch at which an input has changes."""
        return min([source.next_change() for source, _ in self._inputs], default=NEVER)

    def _compute(self, epoch: int) -> bool:
        """Run the program; return whether it succeeded."""
        workspace = self._workspace
        workspace.reserve(self._slots, self._counts)
        inputs = self._load(epoch)
        if inputs is None:
            return False
        while True:
            workspace.counts[: self._counts] = 0
            for changes, register in inputs:
                _fill(workspace, changes, register)
            traces = np.array([trace.address() for trace in self._traces], np.int64)
            status = run_program(
                self._code, traces, workspace.arena, workspace.counts, workspace.scratch, workspace.cursors, epoch
            )
            if status == opcodes.DONE:
                return True
            if status != opcodes.SPILL or not self._traces[workspace.counts[opcodes.LACKS_ROOM]].make_room():
                return False

    def _load(self, epoch: int) -> list[tuple[Changes | StoredBatch, Rows | Lanes]] | None:
        """The changes of all inputs; None if they are too many, or of a form that programs do not know."""
        inputs: list[tuple[Changes | StoredBatch, Rows | Lanes]] = []
        total = 0
        for source, register in self._inputs:
            parts = source.load(epoch)
            if parts is None or (isinstance(register, Lanes) and len(parts) > 1):
                return None
            for part in parts:
                total += len(part)
                inputs.append((part, register))
        return inputs if total <= (MOST_INPUT_ROWS if FUSE == "small" else ROOM) else None

    def _fresh(self, epoch: int, upper: Antichain) -> StoredBatch | None:
        """What was written to the result, as a batch, if anybody wants to know."""
        lanes, arena = self._result.fresh, self._workspace.arena
        rows = int(self._workspace.counts[lanes.count])
        if not rows or not self._trace.has_queues:
            return None
        diffs = arena[list(lanes.diffs), :rows]
        times, tix = np.full((1, 1), epoch, np.int64), constant(0, rows, np.int32)
        key, val = arena[lanes.key, :rows].copy(), arena[lanes.val, :rows].copy()
        updates = Updates(times, tix, diffs, self._result.schema, key, val, ())
        description = Description(Antichain.of((epoch,)), upper, Antichain.of((epoch,)))
        return StoredBatch.of(Sorted(updates, constant(0, rows), NO_KEYS), description)


def _fill(workspace: Workspace, changes: Changes | StoredBatch, register: Rows | Lanes) -> None:
    """Append input to its register."""
    arena, start = workspace.arena, int(workspace.counts[register.count])
    end = workspace.counts[register.count] = start + len(changes)
    if isinstance(changes, StoredBatch):
        assert isinstance(register, Lanes)
        updates = changes.updates
        arena[register.key, start:end], arena[register.val, start:end] = updates.key, updates.val
        diffs: Lane = updates.diffs
    else:
        assert isinstance(register, Rows)
        for field, array in zip(changes.fields, changes.columns, strict=True):
            column = register.columns[field.name]
            values = columns.register_values(array, field)
            if column.null:
                valid = columns.valid_flags(array)
                arena[column.null, start:end] = 1 - valid
                values = values * valid
            arena[column.value, start:end] = values
        diffs = changes.diffs
    for slot, lane in zip(register.diffs, diffs, strict=True):
        arena[slot, start:end] = lane


def check_preview(preview: Preview) -> None:
    """Raise unless visits have written to each trace what the program would have written."""
    epoch = preview.epoch
    for trace, batch in preview.batches:
        written = [_at_epoch(stored.updates, epoch) for stored in trace.spine.batches()]
        actual = _counted(updates for updates in written if len(updates))
        expected = _counted([batch.updates] if batch is not None else [])
        assert actual == expected, f"a program and visits differ at epoch {epoch} in {trace.name!r}"


def _at_epoch(updates: Updates, epoch: int) -> Updates:
    return updates.at_times(updates.times[:, 0] == epoch)


def _counted(parts: Iterable[Updates]) -> dict[object, list[int]]:
    """The diffs of each row and time."""
    totals: dict[object, list[int]] = {}
    for updates in parts:
        for data, time, diff in updates.triples():
            diffs = [diff] if isinstance(diff, int) else list(diff)
            totals[data, time] = [a + b for a, b in zip(totals.get((data, time), [0] * len(diffs)), diffs, strict=True)]
    return {row: diffs for row, diffs in totals.items() if any(diffs)}
