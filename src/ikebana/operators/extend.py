"""Extend: the changes of a stream, each with the values that several arrangements have for it in common.

Contract. Like several lookups at once (`ikebana.operators.lookup`): a change of the stream meets the updates of each
arrangement that come before it, or at the same time unless that arrangement is `strict`. The output is at the time of
the change; its diff is the change's, times the multiplicity of the value in each arrangement at that time. If only the
existence of a value counts, a positive multiplicity is 1.

Where: on a single worker, outside loops, on arrangements with one exact lane for the key and one for the value, seen as
they are stored, with one diff lane. For all other cases a plan has lookups (`ikebana.engine.extension`).

Cost: for each change, the values that the smallest arrangement has for it; see `ikebana.kernels.extend`. This makes
joins of cycles worst-case optimal: no intermediate result is larger than the smallest relation allows.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa

from ikebana.encoding import Schema
from ikebana.encoding.lanes import Lane
from ikebana.kernels import extend_rows, opcodes
from ikebana.operators.changes import Changes, Fields
from ikebana.operators.program import ProgramBuilder
from ikebana.operators.protocol import Operator, Steps
from ikebana.operators.registers import Rows
from ikebana.operators.span import Span
from ikebana.operators.streams import Arranged, Stream

ROOM = 1 << 16
"""The number of extensions that are computed at a time: memory that is used again is much cheaper than new memory."""

ROOM_FOR_EACH = 64
"""The number of extensions of each change for which there is room at first: small visits allocate little."""

BUDGET = 1 << 20
"""The number of values that are proposed before the operator yields."""


@dataclass(frozen=True, eq=False)
class ExtensionIndex:
    """An arrangement, and how it is read: by which column of the stream, strictly before, by existence alone."""

    arranged: Arranged
    on: str
    strict: bool
    exists: bool


class Extend(Operator[Stream]):
    """The extension operator: reads a stream and the traces of arrangements, writes `out`."""

    def __init__(self, source: Stream, indexes: Sequence[ExtensionIndex], value: pa.Field, fields: Fields) -> None:
        """`value` is the new column, `fields` the columns of the result."""
        self._source, self._indexes = source, indexes
        self._readers = [use.arranged.reader() for use in indexes]
        given = {field.name: field for field in source.fields}
        self._keys = [Schema((given[use.on],)).key for use in indexes]
        self._value = Schema((value,)).key
        self._kept = tuple(field for field in fields if field.name in given)
        self.out = Stream(fields, source.dimensions)

    def visit(self, span: Span) -> Steps | None:
        changes = self._source.changes
        if not len(changes):
            self.out.changes = self.out.empty
            return None
        return self._extend(changes, span.earliest - span.lower)

    def _extend(self, changes: Changes, coalesced: int) -> Iterator[None]:
        named, parts = changes.named, []
        keys = np.stack(
            [side.encode([named[use.on]], len(changes))[0] for side, use in zip(self._keys, self._indexes, strict=True)]
        )
        epochs = np.ascontiguousarray(changes.times[:, 0])[changes.tix]
        kept = changes.with_columns(self._kept, [named[field.name] for field in self._kept])
        state, out = np.zeros(2, np.int64), np.empty((3, min(ROOM, ROOM_FOR_EACH * len(changes))), np.int64)
        while state[0] < len(changes):
            written = extend_rows(self._traces(), keys, epochs, out, BUDGET, coalesced, state)
            if written:
                parts.append(self._extended(kept, out[:, :written]))
            elif state[1] > out.shape[1]:
                out = np.empty((3, int(state[1])), np.int64)
            yield None
        self.out.changes = Changes.concat(parts) if parts else self.out.empty

    def _traces(self) -> Lane:
        """The tables of the traces as they are now, and how they are read."""
        return np.array(
            [
                (reader.trace.address(), opcodes.BEFORE if use.strict else opcodes.SEEN, use.exists)
                for reader, use in zip(self._readers, self._indexes, strict=True)
            ],
            np.int64,
        )

    def _extended(self, kept: Changes, extensions: Lane) -> Changes:
        """The changes with their extensions: positions of changes, values, multiplicities."""
        rows, values, factors = extensions
        given = kept.take(rows)
        columns = given.named
        (value,) = self._value.fields
        if value in self.out.fields:
            (columns[value.name],) = self._value.decode(values.copy(), ())  # the space is used again
        diffs = given.diffs if (factors == 1).all() else given.diffs * factors
        return replace(given, diffs=diffs).with_columns(
            self.out.fields, [columns[field.name] for field in self.out.fields]
        )

    def forget(self, epoch: int) -> None:
        for reader in self._readers:
            reader.forget(epoch)
        self.out.closed = self._source.closed

    def drop(self) -> None:
        for reader in self._readers:
            reader.drop()

    def lower(self, program: ProgramBuilder) -> bool:
        source = program.stream(self._source)
        indexes = [program.arranged(use.arranged) for use in self._indexes]
        if source is None or program.in_loop:
            return False
        kept = source.select(field.name for field in self._kept)
        target, value, diff = program.copied(kept), program.slot(), program.slot()
        operands = [source.count, target.count, len(indexes), value, source.diffs[0], diff]
        traces = []
        for index, side, use in zip(indexes, self._keys, self._indexes, strict=True):
            key = program.packed(source, side)
            if index is None or index.views or key is None:
                return False
            traces += [index.trace, opcodes.BEFORE if use.strict else opcodes.SEEN, int(use.exists), key]
        pairs = [pair for pair in zip(kept.slots, target.slots, strict=True) if pair[1]]
        copies = [slot for pair in pairs for slot in pair]
        program.emit(opcodes.EXTEND, *operands, len(pairs), *traces, *copies)
        (new,) = self._value.fields
        columns = dict(target.columns)
        if new in self.out.fields:
            columns[new.name] = program.unpacked(target.count, value, self._value, new.name)
        return program.write(self.out, Rows(target.count, self.out.fields, columns, (diff,)))
