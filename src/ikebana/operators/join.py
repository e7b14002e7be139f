"""Join: pairs of records with equal keys, at the join of their times, diffs multiplied.

Contract. With A' and B' the fresh batches of the two sides, a visit emits A' joined with all of B so far, and B' joined
with all of A before the visit: every pair once, in the visit of the later record. Output at later rounds than the
visit's (the other side's history may be from a later round of an earlier sweep) waits for its round.

Traces. Each side is read by a handle that forgets epochs as sweeps complete. If a side can never change again, the
other side's handle is dropped: nothing will ever probe it.

Cost: keys are matched by galloping, so the work is in proportion to the smaller side and the output, also when the
larger side is an imported history. The matches of a small batch are gathered from all stored batches before anything is
computed from them, so a small change costs a fixed number of calls. The operator yields after about `QUANTUM` rows, so
that a large output does not stall other dataflows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa

from ikebana.encoding import Schema
from ikebana.encoding import payload as payloads
from ikebana.encoding.lanes import Array, Lane, gather_lane, multiplied_diffs
from ikebana.kernels import expand_pairs, match_keys, opcodes
from ikebana.operators.changes import Changes, Fields
from ikebana.operators.pending import PendingChanges
from ikebana.operators.probe_program import Names, probed
from ikebana.operators.program import ProgramBuilder
from ikebana.operators.protocol import Operator
from ikebana.operators.registers import IndexRegister, Rows
from ikebana.operators.span import Rounds, Span
from ikebana.operators.streams import Arranged, Stream, TraceReader
from ikebana.trace import Batch, Updates, time_tables
from ikebana.trace.batch import rows_of

QUANTUM = 1 << 19
"""Rows of output after which a join yields, so that other dataflows can run."""

SMALL_BATCH_ROWS = 1 << 12
"""A batch of at most this size is looked up in all batches of a trace at once."""


@dataclass(frozen=True, slots=True)
class JoinColumns:
    """The columns of the output: the name of each, and the column of the left or right side that it is taken from."""

    names: tuple[str, ...]
    left: tuple[tuple[str, str], ...]  # (output name, name on the left)
    right: tuple[tuple[str, str], ...]

    def fields(self, left: Schema, right: Schema) -> Fields:
        """The fields of the output columns."""
        fields = {**_renamed(left, self.left), **_renamed(right, self.right)}
        return tuple(fields[name] for name in self.names)


def _renamed(schema: Schema, pairs: tuple[tuple[str, str], ...]) -> dict[str, pa.Field]:
    fields = {field.name: field for field in (*schema.key.fields, *schema.val.fields)}
    return {name: fields[source].with_name(name) for name, source in pairs}


class Join(Operator[Stream]):
    """The join operator: reads the fresh batches and the traces of both sides, writes `out`."""

    def __init__(self, left: Arranged, right: Arranged, result: JoinColumns, fields: Fields) -> None:
        """`fields` are the columns of the output, as `result` says."""
        self.left, self.right, self.result = left, right, result
        lanes = max(len(left.schema.diffs), len(right.schema.diffs))
        self.out = Stream(fields, left.dimensions, lanes)
        self._pending = PendingChanges()
        self._left: TraceReader | None = left.reader()  # probed by changes of the right side
        self._right: TraceReader | None = right.reader()

    def visit(self, span: Span) -> Iterator[None]:
        parts = self._pending.pop(span)
        if self._right is not None:
            for batch in self.left.fresh:
                yield from self._collect(join_fresh(batch, self._right, span.seen), span, parts)
        if self._left is not None:
            for batch in self.right.fresh:
                matches = join_fresh(batch, self._left, span.before)
                yield from self._collect((pairs.flipped() for pairs in matches), span, parts)
        self.out.parts = parts

    def _collect(self, matches: Iterator[Pairs], span: Span, parts: list[Changes]) -> Iterator[None]:
        """Append the output of some pairs to `parts`, and keep the output at later rounds."""
        for pairs in matches:
            changes = self._pending.keep_later(emit(pairs, self.result, self.out.fields), span)
            if len(changes):
                parts.append(changes)
            yield

    def next_round(self, prefix: Rounds, after: int) -> int | None:
        return self._pending.next_round(prefix, after)

    def forget(self, epoch: int) -> None:
        self._left = _advanced(self._left, epoch, self.right.closed)
        self._right = _advanced(self._right, epoch, self.left.closed)
        self.out.closed = self.left.closed and self.right.closed

    def drop(self) -> None:
        self._left = _advanced(self._left, 0, True)
        self._right = _advanced(self._right, 0, True)

    def lower(self, program: ProgramBuilder) -> bool:
        left, right = program.arranged(self.left), program.arranged(self.right)
        if left is None or right is None:
            return False
        parts = []
        if self._right is not None:
            parts.append(self._probed(program, (left, self.result.left), (right, self.result.right), opcodes.SEEN))
        if self._left is not None:
            parts.append(self._probed(program, (right, self.result.right), (left, self.result.left), opcodes.BEFORE))
        written = [replace(part, fields=self.out.fields) for part in parts if part is not None]
        if len(written) < len(parts) or not written:
            return False
        return program.write(self.out, program.concat(written, self.out.fields))

    def _probed(
        self, program: ProgramBuilder, one: tuple[IndexRegister, Names], other: tuple[IndexRegister, Names], mode: int
    ) -> Rows | None:
        """The fresh rows of one side joined with the trace of the other."""
        index, given = one
        side = index.schema.key
        fresh = index.fresh_rows(program, {*(origin for _, origin in given), *(field.name for field in side.fields)})
        key = None if fresh is None else program.packed(fresh, side)
        if fresh is None or key is None:
            return None
        lanes = self.out.lanes
        return probed(
            program, fresh, key, side, other[0], given=given, met=other[1], lanes=lanes, mode=mode, adds_up=False
        )


def _advanced(reader: TraceReader | None, epoch: int, unneeded: bool) -> TraceReader | None:
    """The reader advanced to an epoch; None, with the reader dropped, if nothing will ever probe it again."""
    if reader is None:
        return None
    if unneeded:
        reader.drop()
        return None
    reader.forget(epoch)
    return reader


def emit(pairs: Pairs, result: JoinColumns, fields: Fields) -> Changes:
    """The output of some pairs: at the join of their times, diffs multiplied, with columns of both sides."""
    a, b = pairs.a, pairs.b
    a_rows = None if pairs.has_each_of_a else pairs.a_rows
    a_tix, a_diffs = a.tix, a.diffs
    if a_rows is not None:
        a_tix, a_diffs = gather_lane(a_tix, a_rows), gather_lane(a_diffs, a_rows)
    times, tix = time_tables.join_times(a.times, a_tix, b.times, gather_lane(b.tix, pairs.b_rows))
    diffs = multiplied_diffs(a_diffs, gather_lane(b.diffs, pairs.b_rows))
    columns = {**_columns(a, a_rows, result.left), **_columns(b, pairs.b_rows, result.right)}
    return Changes(times, tix, diffs, fields, tuple(columns[name] for name in result.names))


def _columns(updates: Updates, rows: Lane | None, pairs: tuple[tuple[str, str], ...]) -> dict[str, pa.Array]:
    """The named columns of some rows, or of all. A side of the schema without any of them is not decoded."""
    schema = updates.schema
    split = schema.key.payload_columns
    out: dict[str, pa.Array] = {}
    sides = (
        (schema.key, updates.key, updates.payload[:split]),
        (schema.val, updates.val, updates.payload[split:]),
    )
    for side, lane, payload in sides:
        names = [field.name for field in side.fields]
        positions = [(name, names.index(source)) for name, source in pairs if source in names]
        if positions:
            if rows is not None:
                lane, payload = lane[rows], payloads.take(payload, rows)
            arrays = side.decode(lane, payload)
            out |= {name: arrays[at] for name, at in positions}
    return out


@dataclass(frozen=True, slots=True, eq=False)
class Pairs:
    """Pairs of rows with equal keys, of two sets of updates."""

    a: Updates
    a_rows: Lane
    b: Updates
    b_rows: Lane
    has_each_of_a: bool = False
    """Whether `a_rows` are known to be all rows of `a`, once each and in order."""

    def flipped(self) -> Pairs:
        """The pairs with their sides exchanged."""
        return Pairs(self.b, self.b_rows, self.a, self.a_rows)


Choice = Callable[[Lane], Array]
"""Given a table of times, flags for those that are visible."""


def join_fresh(fresh: Batch, trace: TraceReader, choose: Choice) -> Iterator[Pairs]:
    """All pairs of a row of a batch and a visible update of a trace with equal keys, a bounded number at a time.

    The smaller of two batches is looked up in the larger; batches without a common key cost nothing else.
    """
    if len(fresh) <= SMALL_BATCH_ROWS:
        yield from probe_trace(fresh.pick(), trace, choose)
        return
    updates: Updates | None = None
    for stored in trace.batches():
        if len(fresh) > len(stored):
            flags = choose(stored.times)
            if flags.any():
                for pairs in probe(stored.pick().at_times(flags), fresh):
                    yield pairs.flipped()
        else:
            if updates is None:
                updates = fresh.pick()
            yield from probe(updates, stored, choose)


def probe_trace(small: Updates, trace: TraceReader, choose: Choice) -> Iterator[Pairs]:
    """All pairs of rows with equal keys, of updates in order of key lane and the visible updates of a trace."""
    matches = trace.match(small.key)
    if sum(int((ranges[:, 3] - ranges[:, 2]).sum()) for _, ranges in matches) > QUANTUM:
        for batch, _ in matches:
            yield from probe(small, trace.view(batch), choose)
    elif matches:
        rows = trace.pick([(batch, rows_of(ranges[:, 2], ranges[:, 3])) for batch, ranges in matches])
        rows = rows.at_times(choose(rows.times))
        yield from join_updates(small, rows, np.argsort(rows.key, kind="stable") if len(matches) > 1 else None)


def probe(small: Updates, big: Batch, choose: Choice | None = None) -> Iterator[Pairs]:
    """All pairs of rows with equal keys, of updates in order of key lane and a batch."""
    ranges = big.match(small.key)
    if not len(ranges):
        return
    for start, end in pieces(ranges[:, 3] - ranges[:, 2]):
        rows = big.pick(rows_of(ranges[start:end, 2], ranges[start:end, 3]))
        yield from join_updates(small, rows.at_times(choose(rows.times)) if choose else rows)


def pieces(sizes: Lane) -> Iterator[tuple[int, int]]:
    """Consecutive ranges of `sizes` that add up to at most `QUANTUM` each, or are a single size."""
    if len(sizes) <= QUANTUM and int(sizes.sum()) <= QUANTUM:
        yield 0, len(sizes)
        return
    start = 0
    while start < len(sizes):
        end = max(start + 1, int(np.searchsorted(np.cumsum(sizes[start:]), QUANTUM, side="right")) + start)
        yield start, end
        start = end


def join_updates(a: Updates, b: Updates, order: Lane | None = None) -> Iterator[Pairs]:
    """All pairs of rows with equal keys, at most `QUANTUM` at a time.

    Both sides are in order of key lane, or `order` lists the rows of `b` in that order.
    """
    ranges = match_keys(a.key, b.key if order is None else b.key[order])
    remaining = int(((ranges[:, 1] - ranges[:, 0]) * (ranges[:, 3] - ranges[:, 2])).sum())
    state = np.zeros(2, np.int64)
    keys = a.schema.key.payload_columns
    while remaining:
        count = min(remaining, QUANTUM)
        a_rows, b_rows = np.empty(count, np.int64), np.empty(count, np.int64)
        expand_pairs(ranges, a_rows, b_rows, state)
        remaining -= count
        b_rows = b_rows if order is None else order[b_rows]
        if keys:
            same = payloads.same_rows(a.payload[:keys], a_rows, b.payload[:keys], b_rows)
            a_rows, b_rows = a_rows[same], b_rows[same]
        yield Pairs(a, a_rows, b, b_rows)
