"""Writing programs: operators as instructions for the compiled interpreter (`ikebana.kernels.program`).

Operators describe themselves by `Operator.lower`: they ask the `ProgramBuilder` for the registers of what they read,
emit instructions, and declare the registers of what they write. An operator that cannot do that returns False, and its
dataflow has no program.

What can be written: columns that fit into 64 bits, exact lanes, loops of one level. A program computes one epoch, after
the first sweep of its dataflow.

Contract: all workers write the same program, since they run it in step (`ikebana.runtime.program`).

Cost: some microseconds for an instruction, once for each dataflow.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from dataclasses import field as dataclass_field
from typing import TYPE_CHECKING, Protocol

import pyarrow as pa

from ikebana.encoding import Schema, columns
from ikebana.encoding.schema import Side
from ikebana.kernels import opcodes
from ikebana.operators.changes import Changes, Fields
from ikebana.operators.streams import Arranged, Stream
from ikebana.trace.batch import StoredBatch
from ikebana.trace.handle import Trace
from ikebana.trace.memtable import can_have_memtable

if TYPE_CHECKING:
    from ikebana.operators.protocol import Operator

LEAST, GREATEST = -(1 << 63), (1 << 63) - 1


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
    """Writes a program for one of several workers."""

    def __init__(self, workers: int) -> None:
        self.workers = workers
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
        repeat = opcodes.REPEAT if self.workers == 1 else opcodes.AGREE
        self.emit(repeat, start, len(loop.pending), *(cell for pair in loop.pending for cell in pair))
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

    def multiplied(self, count: int, a: int, b: int) -> int:
        """The slot of the products of two slots without nulls."""
        result = self.slot()
        self.emit(opcodes.MULTIPLY, count, result, 0, a, 0, b, 0, LEAST, GREATEST)
        return result

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

    def exchanged(self, count: int, key: int, slots: Sequence[int]) -> tuple[int, list[int]]:
        """Rows sent to the workers that own their keys: the count and the slots of those that arrive here."""
        arrived, targets = self.count(), [self.slot() for _ in slots]
        self.emit(opcodes.EXCHANGE, count, arrived, key, len(slots), *slots, *targets)
        return arrived, targets

    def sent(self, rows: Rows, key: int, names: Iterable[str]) -> tuple[Rows, int]:
        """Rows with some columns, sent to the workers that own their keys; the register and the key slot there."""
        kept = {name: rows.columns[name] for name in sorted(names)}  # in the same order on all workers
        present = [slot for column in kept.values() for slot in (column.value, column.null) if slot]
        count, slots = self.exchanged(rows.count, key, [key, *present, *rows.diffs])
        arrived = dict(zip(present, slots[1:], strict=False))
        columns = {
            name: Column(arrived[column.value], arrived[column.null] if column.null else 0)
            for name, column in kept.items()
        }
        fields = tuple(field for field in rows.fields if field.name in kept)
        return Rows(count, fields, columns, tuple(slots[1 + len(present) :])), slots[0]

    def stored(self, source: Rows, index: Index, *, exchanges: bool = False) -> bool:
        """Arrange rows: sort them, add them up, and store them in the trace of the index, where their keys belong."""
        schema, fresh = index.schema, index.fresh
        key, val = self.packed(source, schema.key), self.packed(source, schema.val)
        if key is None or val is None or len(source.diffs) != len(fresh.diffs):
            return False
        count, slots = source.count, [key, val, *source.diffs]
        if exchanges:
            count, slots = self.exchanged(count, key, slots)
        operands = [count, fresh.count, index.trace, len(fresh.diffs), *slots[:2], fresh.key, fresh.val]
        self.emit(opcodes.ARRANGE, *operands, *slots[2:], *fresh.diffs)
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
