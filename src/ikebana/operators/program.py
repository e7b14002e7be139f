"""Writing programs: operators as instructions for the compiled interpreter (`ikebana.kernels.program`).

Operators describe themselves by `Operator.lower`: they ask the `ProgramBuilder` for the registers of what they read,
emit instructions, and declare the registers of what they write. An operator that cannot do that returns False, and its
dataflow has no program.

What can be written: loops of one level, with exact lanes and columns that fit into 64 bits. Outside loops columns of
other types are slots with references (`ikebana.encoding.slots`). What has no instructions, but treats each row by
itself, is a *call*: the program stops there, and the function is called. A function may have a state, which it changes
when the program commits. A program computes one epoch, after the first sweep of its dataflow.

With several workers, instructions are in the order of the exchanges that they depend on
(`ikebana.operators.program_code`).

Contract: all workers write the same program, since they run it in step (`ikebana.runtime.program`).

Cost: some microseconds for an instruction, once for each dataflow.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, MutableMapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from dataclasses import field as dataclass_field
from typing import TYPE_CHECKING, Protocol

import pyarrow as pa

from ikebana.encoding import Schema, columns, slots
from ikebana.encoding.schema import Side
from ikebana.kernels import opcodes
from ikebana.operators.changes import Changes, Fields
from ikebana.operators.partition import owned_lanes
from ikebana.operators.program_code import LeveledCode, Linked
from ikebana.operators.registers import (
    CallResult,
    ColumnSlots,
    Fresh,
    IndexRegister,
    Lanes,
    ProgramCall,
    Rows,
    StoredColumns,
)
from ikebana.operators.streams import Arranged, Stream
from ikebana.trace.batch import StoredBatch
from ikebana.trace.cells import payload_fields
from ikebana.trace.handle import Trace
from ikebana.trace.memtable import can_have_memtable

if TYPE_CHECKING:
    from ikebana.operators.protocol import Operator

Mark = tuple[tuple[object, ...], tuple[int, int, int, int, int]]
"""The end of a program that is being written."""

LEAST, GREATEST = -(1 << 63), (1 << 63) - 1
NO_COLUMN = ColumnSlots(0, 0)


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

    def __init__(self, workers: int, *, calls_reducers: bool = True) -> None:
        """`calls_reducers`: whether reductions without instructions may be written as calls, for which groups are read
        as a whole."""
        self.workers, self.calls_reducers = workers, calls_reducers
        self.reads_groups = False  # whether there are such reductions
        self._code = LeveledCode()
        self._levels: dict[int, int] = {}  # of registers, by their counts
        self.traces: list[Trace | None] = []  # None for the table of an imported arrangement's fresh batch
        self.written: list[Trace] = []
        self.slots, self.counts = 1, 1
        self.inputs: list[tuple[ProgramInput, Rows | Fresh]] = []
        self.calls: list[ProgramCall] = []
        self._operator = 0
        self.constants: list[object] = []  # the bytes of texts that are constants
        self._reads: list[tuple[MutableMapping[str, ColumnSlots], str]] = []
        self._outputs: dict[int, Rows | IndexRegister] = {}  # by the identity of streams and arrangements
        self._writers: dict[int, int] = {}  # the positions of the operators that write them
        self._variables: dict[int, tuple[Rows, int]] = {}  # by identity: the rows that wait, and the slot of rounds
        self._loop: _Loop | None = None
        self.has_loop = False

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

    def column(self, field: pa.Field) -> ColumnSlots:
        """New slots for a column."""
        return ColumnSlots(self.slot(), self.slot() if field.nullable else 0)

    def rows(self, fields: Fields, diffs: int) -> Rows:
        """A new register for rows of a stream."""
        return Rows(self.count(), fields, {field.name: self.column(field) for field in fields}, self.some_slots(diffs))

    def note_read(self, known: MutableMapping[str, ColumnSlots], name: str) -> None:
        """Note that a stored column has been read, which is void if the operator cannot be written after all."""
        self._reads.append((known, name))

    # Levels.

    def _read_from(self, register: Rows | IndexRegister) -> None:
        """The instructions that follow read from a register."""
        if self._loop is None:
            self._code.level = max(self._code.level, self._levels.get(_count_of(register), 0))

    @contextmanager
    def at_level_of(self, count: int) -> Iterator[None]:
        """Add instructions where a register is written, for all that read from it."""
        level = self._code.level
        self._code.level = self._levels.get(count, level)
        yield
        self._code.level = level

    # What operators read and write.

    def stream(self, stream: Stream) -> Rows | None:
        """The register of a stream that an earlier operator has written."""
        rows = self.register(stream)
        return rows if isinstance(rows, Rows) else None

    def register(self, output: Stream | Arranged | None) -> Rows | IndexRegister | None:
        """The register of an operator's output, if it was written."""
        register = self._outputs.get(id(output))
        if register is not None:
            self._read_from(register)
        return register

    def offered(self, output: Stream | Arranged) -> Rows | IndexRegister:
        """The register of an output, with all its columns, for those who read it after the program."""
        register = self._outputs[id(output)]
        if isinstance(register, Rows):
            return register.select([field.name for field in register.fields])
        fresh = register.fresh
        payload = {field.name: fresh.columns[field.name] for field in payload_fields(register.schema)}
        return replace(register, fresh=replace(fresh, columns=payload))

    def arranged(self, arranged: Arranged) -> IndexRegister | None:
        """The register and trace of an arrangement that an earlier operator has written."""
        index = self.register(arranged)
        return index if isinstance(index, IndexRegister) else None

    def write(self, output: Stream | Arranged | None, register: Rows | IndexRegister | None) -> bool:
        """Declare the register of an operator's output; return whether there is one that is possible at this place."""
        if register is None or (self.in_loop and not _is_exact(register)):
            return False
        self._outputs[id(output)], self._writers[id(output)] = register, self._operator
        self._levels[_count_of(register)] = self._code.level
        return True

    def write_input(self, source: ProgramInput, stream: Stream) -> bool:
        """Declare a source of a stream."""
        rows = self.rows(stream.fields, stream.lanes)
        self.inputs.append((source, rows))
        return self.write(stream, rows)

    def write_imported(self, source: ProgramInput, arranged: Arranged, trace: Trace) -> bool:
        """Declare a source of an arrangement."""
        number, schema = self.trace(trace), arranged.schema
        if number is None:
            return False
        count, lanes, references, table = self.count(), (self.slot(), self.slot()), self.slot(), len(self.traces)
        self.traces.append(None)
        known = StoredColumns(self, schema, count, lanes, {}, table, references)
        fresh = Lanes(count, *lanes, self.some_slots(len(schema.diffs)), known)
        self.inputs.append((source, Fresh(fresh, references, table)))
        return self.write(arranged, IndexRegister(schema, fresh, number))

    def trace(self, trace: Trace) -> int | None:
        """The number of a trace; None if programs cannot read it."""
        if not can_have_memtable(trace.schema, trace.spine.dimensions):
            return None
        if trace not in self.traces:
            self.traces.append(trace)
        return self.traces.index(trace)

    def index(self, schema: Schema, trace: Trace) -> IndexRegister | None:
        """A new arrangement, which the program stores in a trace."""
        number = self.trace(trace)
        if number is None:
            return None
        self.written.append(trace)
        count, lanes = self.count(), (self.slot(), self.slot())
        payload = {field.name: self.column(field) for field in payload_fields(schema)}
        known = StoredColumns(self, schema, count, lanes, payload)
        return IndexRegister(schema, Lanes(count, *lanes, self.some_slots(len(schema.diffs)), known), number)

    # Instructions.

    def emit(self, opcode: int, *operands: int) -> None:
        """Add an instruction."""
        self._code.emit(opcode, operands)

    def linked(self) -> Linked:
        """The complete program."""
        return self._code.linked()

    def mark(self) -> Mark:
        """The present end of the program."""
        lengths = len(self.traces), len(self.inputs), len(self.written), len(self.calls), len(self._reads)
        return self._code.mark(), lengths

    def rewind(self, mark: Mark) -> None:
        """Take back what was written after a mark."""
        code, (traces, inputs, written, calls, reads) = mark
        self._code.rewind(code)
        del self.traces[traces:], self.inputs[inputs:], self.written[written:], self.calls[calls:]
        for known, name in self._reads[reads:]:
            del known[name]
        del self._reads[reads:]

    def try_lower(self, operator: Operator, position: int) -> bool:  # type: ignore[type-arg]
        """Add the instructions of the operator at a position; if that is not possible, leave the program as it was."""
        self._operator, self._code.level = position, 0
        mark = self.mark()
        if operator.lower(self):
            return True
        self.rewind(mark)
        self._loop = None
        return False

    def lower_all(self, operators: Iterable[Operator]) -> bool:  # type: ignore[type-arg]
        """Add the instructions of operators; return whether all of them could be written."""
        return all(operator.lower(self) for operator in operators)

    def loop(self, operators: Iterable[Operator]) -> bool:  # type: ignore[type-arg]
        """Add a loop with this body; return whether that was possible."""
        if self._loop is not None:
            return False
        loop = self._loop = _Loop()
        self._code.level = self._code.last_level
        self.emit(opcodes.LOOP)
        start = self._code.here()
        if not self.lower_all(operators):
            return False
        operands = [start, len(loop.pending), *(cell for pair in loop.pending for cell in pair)]
        self._code.note_loop(start)
        if self.workers == 1:
            self.emit(opcodes.REPEAT, *operands)
        else:
            self._code.emit_stop(opcodes.AGREE, operands, self._operator)
        self._loop, self.has_loop = None, True
        for stream, collected in loop.leaving:
            self.write(stream, self.consolidated(collected))
        return True

    @property
    def in_loop(self) -> bool:
        return self._loop is not None

    def round_number(self, count: int) -> ColumnSlots:
        """The present round, for each row of a register."""
        column = ColumnSlots(self.slot(), 0)
        self.emit(opcodes.ROUND, count, column.value)
        return column

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

    def delayed(self, rows: Rows, delay: ColumnSlots) -> Rows:
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

    def concat(self, sources: Sequence[Rows], fields: Fields) -> Rows:
        """The rows of several registers, whose columns may have different names."""
        target = self.rows(fields, len(sources[0].diffs))
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
        if any(slots.is_text(field.type) for field in rows.fields):
            lane = self.hashed(rows, rows.fields)
            operands = [
                rows.count,
                target.count,
                -1,
                len(rows.diffs),
                len(rows.fields),
                lane,
                0,
                self.slot(),
                self.slot(),
            ]
            groups = self.groups(rows.fields, rows.columns, target.columns)
            self.emit(opcodes.ARRANGE, *operands, *rows.diffs, *target.diffs, *groups)
            return target
        from_, to = [slot for slot in rows.slots if slot], [slot for slot in target.slots if slot]
        operands = [rows.count, target.count, len(from_), len(rows.diffs)]
        self.emit(opcodes.CONSOLIDATE, *operands, *from_, *rows.diffs, *to, *target.diffs)
        return target

    def _copies(self, rows: Rows) -> dict[str, ColumnSlots]:
        """New slots for columns."""
        return {
            name: ColumnSlots(self.slot(), self.slot() if column.null else 0) for name, column in rows.columns.items()
        }

    def copied(self, rows: Rows) -> Rows:
        """A new register like another."""
        return replace(rows, count=self.count(), columns=self._copies(rows), diffs=self.some_slots(len(rows.diffs)))

    def evaluated(
        self,
        opcode: int,
        count: int,
        *operands: ColumnSlots,
        least: int = 0,
        greatest: int = 0,
        nullable: bool | None = None,
    ) -> ColumnSlots:
        """A function of up to two columns; the result may be null if one of them may be, or as given."""
        a, b = (*operands, NO_COLUMN, NO_COLUMN)[:2]
        nullable = bool(a.null or b.null) if nullable is None else nullable
        result = ColumnSlots(self.slot(), self.slot() if nullable else 0)
        self.emit(opcode, count, result.value, result.null, a.value, a.null, b.value, b.null, least, greatest)
        return result

    def multiplied(self, count: int, a: int, b: int) -> int:
        """The slot of the products of two slots without nulls."""
        product = self.evaluated(
            opcodes.MULTIPLY, count, ColumnSlots(a, 0), ColumnSlots(b, 0), least=LEAST, greatest=GREATEST
        )
        return product.value

    def filtered(self, rows: Rows, flag: ColumnSlots) -> Rows:
        """The rows for which a flag is set, and not null."""
        target = self.copied(rows)
        pairs = list(_pairs(rows, target))
        operands = rows.count, target.count, flag.value, flag.null, len(pairs) // 2
        self.emit(opcodes.FILTER, *operands, *pairs)
        return target

    def packed(self, rows: Rows, side: Side) -> int | None:
        """The slot of the lane of some columns."""
        if side.carried:
            return None
        if not side.exact:
            return self.hashed(rows, side.fields, side.hash_bits)
        if not side.fields:
            return 0
        if side.is_plain_integer:
            return rows.columns[side.fields[0].name].value
        return self.packed_bits(rows, side.fields, flips_sign=sum(side.widths) == 64)

    def packed_bits(self, rows: Rows, fields: Sequence[pa.Field], *, flips_sign: bool = False) -> int:
        """The slot of the ordered bits of some columns, the first the most significant."""
        lane, operands = self.slot(), []
        for field in fields:
            column, width = rows.columns[field.name], columns.bits(field)
            assert width is not None
            operands += [column.value, column.null, width, _kind(field), int(field.nullable)]
        self.emit(opcodes.PACK, rows.count, lane, int(flips_sign), len(fields), *operands)
        return lane

    def hashed(self, rows: Rows, fields: Iterable[pa.Field], hash_bits: int = 64) -> int:
        """The slot of the hashes of some columns, as `ikebana.encoding.payload.hashes` computes them."""
        lane, operands = self.slot(), []
        for field in fields:
            column = rows.columns[field.name]
            kind = slots.kind_of(field.type)
            bits = 0 if kind == opcodes.TEXT else slots.stored_bits(field.type)
            operands += [column.value, column.null, kind, bits]
        mask = -1 if hash_bits == 64 else (1 << hash_bits) - 1
        self.emit(opcodes.HASH, rows.count, lane, mask, len(operands) // 4, *operands)
        return lane

    def groups(
        self, fields: Iterable[pa.Field], given: Mapping[str, ColumnSlots], copied: Mapping[str, ColumnSlots]
    ) -> list[int]:
        """The operands for payload columns: their slots, those that they are copied to, and whether they are texts."""
        operands = []
        for field in fields:
            a, b = given[field.name], copied[field.name]
            operands += [a.value, a.null, b.value, b.null, int(slots.is_text(field.type))]
        return operands

    def unpacked(self, count: int, lane: int, side: Side, name: str) -> ColumnSlots:
        """The slots of a column of an exact lane."""
        if side.is_plain_integer:
            return ColumnSlots(lane, 0)
        at = [field.name for field in side.fields].index(name)
        return self.unpacked_bits(count, lane, side.fields, at, flips_sign=sum(side.widths) == 64)

    def unpacked_bits(
        self, count: int, lane: int, fields: Sequence[pa.Field], at: int, *, flips_sign: bool = False
    ) -> ColumnSlots:
        """The slots of the column at a position of those that `packed_bits` has packed."""
        widths = [columns.bits(field) or 0 for field in fields]
        field, column = fields[at], self.column(fields[at])
        operands = [column.value, column.null, sum(widths[at + 1 :]), widths[at], _kind(field)]
        self.emit(opcodes.UNPACK, count, lane, *operands, int(flips_sign), int(field.nullable))
        return column

    def loaded(self, count: int, trace: int, number: int, references: int, field: pa.Field) -> ColumnSlots:
        """The slots of a payload column of stored rows."""
        column = self.column(field)
        self.emit(opcodes.LOAD, count, trace, number, references, column.value, column.null)
        return column

    def called(self, rows: Rows, fields: Fields, function: Callable[[Changes], Changes], lanes: int = 0) -> Rows:
        """The rows that a function makes of the given ones, with as many lanes of diffs, or with `lanes`."""
        return self.called_with(
            (rows,), fields, lanes or len(rows.diffs), lambda changes: CallResult(function(changes))
        )

    def called_with(
        self, given: tuple[Rows, ...], fields: Fields, lanes: int, function: Callable[..., CallResult]
    ) -> Rows:
        """The rows, with some lanes of diffs, that a function makes of those of several registers."""
        given = tuple([rows.select(rows.columns) for rows in given])  # columns that are stored are read before the call
        result = self.rows(fields, lanes)
        self.emit(opcodes.CALL, result.count, len(self.calls), len(given), *[rows.count for rows in given])
        self.calls.append(ProgramCall(given, result, function))
        return result

    def constant(self, array: pa.Array) -> int | None:
        """The slot of a single value, which is kept as long as the program; None if it does not fit."""
        values = slots.values(array, pa.field("", array.type, nullable=False))
        if values is None:
            return None
        self.constants.append(values[1])
        return int(values[0][0])

    def exchanged(
        self, count: int, key: int, sent: Sequence[int], texts: Iterable[int], writer: int | None = None
    ) -> tuple[int, list[int]]:
        """Rows sent to the workers that own their keys: the count and the slots of those that arrive here.

        `texts` are the slots with references, whose bytes are sent too. There are rows only in sweeps that reach the
        operator `writer`, or else the one that is being written.
        """
        arrived, targets, with_texts = self.count(), [self.slot() for _ in sent], set(texts)
        flags = [int(slot in with_texts) for slot in sent]
        operands = [count, arrived, key, len(sent), *sent, *targets, *flags]
        emit = self._code.emit_exchange if self._loop is None else self._code.emit_stop
        emit(opcodes.EXCHANGE, operands, self._operator if writer is None else writer)
        return arrived, targets

    def broadcast(self, stream: Stream) -> Rows | None:
        """The rows of a stream on all workers: a copy of each is sent to each worker."""
        rows = self.stream(stream)
        if rows is None or self.workers == 1:
            return rows
        owner = pa.field("".join([*rows.columns, " owner"]), pa.int64(), nullable=False)
        copies = []
        for lane in owned_lanes(self.workers):
            columns = {**rows.columns, owner.name: self.evaluated(opcodes.CONSTANT, rows.count, least=lane)}
            copies.append(replace(rows, fields=(*rows.fields, owner), columns=columns))
        copied = self.concat(copies, copies[0].fields)
        sent, _ = self.sent(copied, copied.columns[owner.name].value, rows.columns, self._writers[id(stream)])
        return sent

    def sent(self, rows: Rows, key: int, names: Iterable[str], writer: int | None = None) -> tuple[Rows, int]:
        """Rows with some columns, sent to the workers that own their keys; the register and the key slot there."""
        kept = {name: rows.columns[name] for name in sorted(names)}  # in the same order on all workers
        present = [slot for column in kept.values() for slot in (column.value, column.null) if slot]
        texts = text_slots(rows.fields, kept)
        count, slots = self.exchanged(rows.count, key, [key, *present, *rows.diffs], texts, writer)
        arrived = {0: 0, **dict(zip(present, slots[1:], strict=False))}  # slot 0 is all zeros everywhere
        columns = {name: ColumnSlots(arrived[column.value], arrived[column.null]) for name, column in kept.items()}
        fields = tuple(field for field in rows.fields if field.name in kept)
        return Rows(count, fields, columns, tuple(slots[1 + len(present) :])), slots[0]

    def stored(self, source: Rows, index: IndexRegister, *, exchanges: bool = False) -> bool:
        """Arrange rows: sort them, add them up, and store them in the trace of the index, where their keys belong."""
        schema, fresh = index.schema, index.fresh
        key, val = self.packed(source, schema.key), self.packed(source, schema.val)
        if key is None or val is None or len(source.diffs) != len(fresh.diffs):
            return False
        payload = payload_fields(schema)
        if exchanges:
            source, key, val = self._exchanged_payload(source, key, val, payload)
        operands = [source.count, fresh.count, index.trace, len(fresh.diffs), len(payload)]
        groups = self.groups(payload, source.columns, fresh.columns)
        self.emit(opcodes.ARRANGE, *operands, key, val, fresh.key, fresh.val, *source.diffs, *fresh.diffs, *groups)
        return True

    def _exchanged_payload(self, rows: Rows, key: int, val: int, payload: Sequence[pa.Field]) -> tuple[Rows, int, int]:
        """Rows with their lanes and payload, sent to the workers that own their keys."""
        given = [rows.columns[field.name] for field in payload]
        sent = [slot for column in given for slot in (column.value, column.null)]
        texts = text_slots(payload, rows.columns)
        count, arrived = self.exchanged(rows.count, key, [key, val, *rows.diffs, *sent], texts)
        first = 2 + len(rows.diffs)
        columns = {
            field.name: ColumnSlots(arrived[first + 2 * at], arrived[first + 2 * at + 1] if column.null else 0)
            for at, (field, column) in enumerate(zip(payload, given, strict=True))
        }
        return Rows(count, tuple(payload), columns, tuple(arrived[2:first])), arrived[0], arrived[1]


def _count_of(register: Rows | IndexRegister) -> int:
    return register.count if isinstance(register, Rows) else register.fresh.count


def _pairs(source: Rows, target: Rows) -> Iterator[int]:
    """Pairs of slots: those of each column in two registers, and those of the diffs. The order of columns decides."""
    for from_, to in zip(source.slots, target.slots, strict=True):
        if to:
            yield from (from_, to)
    for from_, to in zip(source.diffs, target.diffs, strict=True):
        yield from (from_, to)


def text_slots(fields: Iterable[pa.Field], given: Mapping[str, ColumnSlots]) -> list[int]:
    """The slots with references to texts."""
    return [given[field.name].value for field in fields if field.name in given and slots.is_text(field.type)]


def _is_exact(register: Rows | IndexRegister) -> bool:
    """Whether a register has only columns of up to 64 bits, and exact lanes."""
    if isinstance(register, IndexRegister):
        return not register.schema.hashed and not register.views
    return all(columns.bits(field) is not None for field in register.fields)


def _kind(field: pa.Field) -> int:
    return opcodes.SIGNED if columns.is_signed(field.type) else opcodes.UNSIGNED
