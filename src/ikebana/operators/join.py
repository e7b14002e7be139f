"""Join: pairs of records with equal keys, at the join of their times, diffs multiplied.

Contract. In each visit, with A' and B' the fresh batches of the two sides, the operator emits A' with all of
B so far and B' with all of A before the visit: every pair once, in the visit of the later of the two. Output
at rounds later than the visit's (the other side's history may be from a later round of an earlier sweep)
waits for its round.

Traces. Each side is read by a handle that forgets epochs as sweeps complete. If a side can never change
again, the other side's handle is dropped: nothing will ever probe it.

Cost: keys are matched by galloping, so work follows the smaller side and the output, also when the larger
side is an imported history. What few rows meet is gathered from all batches before anything is computed of it: a
round of small changes costs calls, not rows. The operator yields after about `QUANTUM` rows, so that an explosion does
not stall other dataflows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from ikebana.encoding import Schema
from ikebana.encoding import payload as payloads
from ikebana.encoding.lanes import Array, Lane
from ikebana.kernels import expand_pairs, match_keys
from ikebana.operators.changes import Changes, Fields
from ikebana.operators.pending import PendingChanges
from ikebana.operators.protocol import Operator
from ikebana.operators.span import Rounds, Span
from ikebana.operators.streams import Arranged, Stream, TraceReader
from ikebana.trace import Batch, Updates, timetable
from ikebana.trace.batch import rows_of

QUANTUM = 1 << 19
"""Rows of output after which a join lets others run."""

FEW = 1 << 12
"""A batch of so many rows is looked up in all of a trace at once."""


@dataclass(frozen=True, slots=True)
class Result:
    """The columns of the output: for each its name and the column of the left or right side it is taken from."""

    names: tuple[str, ...]
    left: tuple[tuple[str, str], ...]  # (output name, name on the left)
    right: tuple[tuple[str, str], ...]

    def fields(self, left: Schema, right: Schema) -> Fields:
        """The types of the output columns."""
        found = {**_renamed(left, self.left), **_renamed(right, self.right)}
        return tuple(found[name] for name in self.names)


def _renamed(schema: Schema, pairs: tuple[tuple[str, str], ...]) -> dict[str, pa.Field]:
    known = {field.name: field for field in (*schema.key.fields, *schema.val.fields)}
    return {name: known[source].with_name(name) for name, source in pairs}


class Join(Operator[Stream]):
    """Driver: reads both sides' fresh batches and traces, writes `out`."""

    def __init__(self, left: Arranged, right: Arranged, result: Result) -> None:
        self.left, self.right, self.result = left, right, result
        fields = result.fields(left.schema, right.schema)
        lanes = max(len(left.schema.diffs), len(right.schema.diffs))
        self.out = Stream(fields, left.dimensions, lanes)
        self.stash = PendingChanges()
        self._left: TraceReader | None = left.reader()  # probed by changes of the right side
        self._right: TraceReader | None = right.reader()

    def visit(self, span: Span) -> Iterator[None]:
        """Emit the output that the fresh batches add."""
        parts = self.stash.pop(span)
        if self._right is not None:
            for new in self.left.fresh:
                yield from self._collect(join_fresh(new, self._right, span.seen), span, parts)
        if self._left is not None:
            for new in self.right.fresh:
                found = join_fresh(new, self._left, span.before)
                yield from self._collect((pairs.flipped() for pairs in found), span, parts)
        self.out.changes = Changes.concat(parts) if parts else self.out.nothing

    def _collect(self, pairs: Iterator[Pairs], span: Span, parts: list[Changes]) -> Iterator[None]:
        for found in pairs:
            changes = self.stash.keep_later(emit(found, self.result, self.out.fields), span)
            if len(changes):
                parts.append(changes)
            yield

    def next_round(self, prefix: Rounds, after: int) -> int | None:
        return self.stash.next_round(prefix, after)

    def forget(self, epoch: int) -> None:
        self._left = _forgotten(self._left, epoch, self.right.closed)
        self._right = _forgotten(self._right, epoch, self.left.closed)
        self.out.closed = self.left.closed and self.right.closed

    def drop(self) -> None:
        self._left = _forgotten(self._left, 0, True)
        self._right = _forgotten(self._right, 0, True)


def _forgotten(reader: TraceReader | None, epoch: int, unneeded: bool) -> TraceReader | None:
    """The reader moved on to an epoch, or dropped if nothing will ever probe it again."""
    if reader is None:
        return None
    if unneeded:
        reader.drop()
        return None
    reader.forget(epoch)
    return reader


def emit(found: Pairs, result: Result, fields: Fields) -> Changes:
    """The output of some pairs: at the join of their times, diffs multiplied, with columns of both."""
    a, b = found.a, found.b
    times, tix = timetable.joined(a.times, a.tix[found.a_rows], b.times, b.tix[found.b_rows])
    diffs = a.diffs[:, found.a_rows] * b.diffs[:, found.b_rows]
    columns = {**_columns(a, found.a_rows, result.left), **_columns(b, found.b_rows, result.right)}
    return Changes(times, tix, diffs, fields, tuple(columns[name] for name in result.names))


def _columns(updates: Updates, rows: Lane, pairs: tuple[tuple[str, str], ...]) -> dict[str, pa.Array]:
    """The named columns of some rows; only the side of the schema that has them is touched."""
    schema = updates.schema
    split = schema.key.payload_columns
    out: dict[str, pa.Array] = {}
    sides = (
        (schema.key, updates.key, updates.payload[:split]),
        (schema.val, updates.val, updates.payload[split:]),
    )
    for side, lane, payload in sides:
        known = [field.name for field in side.fields]
        wanted = [(name, known.index(source)) for name, source in pairs if source in known]
        if wanted:
            arrays = side.decode(lane[rows], payloads.take(payload, rows))
            out |= {name: arrays[at] for name, at in wanted}
    return out


@dataclass(frozen=True, slots=True, eq=False)
class Pairs:
    """Rows of two updates that have equal keys."""

    a: Updates
    a_rows: Lane
    b: Updates
    b_rows: Lane

    def flipped(self) -> Pairs:
        """The sides exchanged."""
        return Pairs(self.b, self.b_rows, self.a, self.a_rows)


Choice = Callable[[Lane], Array]
"""Flags the times of a table that are to be seen."""


def join_fresh(new: Batch, known: TraceReader, choose: Choice) -> Iterator[Pairs]:
    """All pairs of rows with equal keys of a batch and the chosen updates of a trace, a bounded number at a time.

    Where few rows meet many, the few are looked up in the many; batches without a common key cost nothing else.
    """
    if len(new) <= FEW:
        yield from probe_trace(new.pick(), known, choose)
        return
    fresh: Updates | None = None
    for old in known.batches():
        if len(new) > len(old):
            flags = choose(old.times)
            if flags.any():
                for found in probe(old.pick().at_times(flags), new):
                    yield found.flipped()
        else:
            if fresh is None:
                fresh = new.pick()
            yield from probe(fresh, old, choose)


def probe_trace(small: Updates, trace: TraceReader, choose: Choice) -> Iterator[Pairs]:
    """All pairs of rows with equal keys, of updates in order of key lane and the chosen updates of a trace."""
    found = trace.match(small.key)
    if sum(int((ranges[:, 3] - ranges[:, 2]).sum()) for _, ranges in found) > QUANTUM:
        for batch, _ in found:
            yield from probe(small, trace.see(batch), choose)
    elif found:
        rows = trace.pick([(batch, rows_of(ranges[:, 2], ranges[:, 3])) for batch, ranges in found])
        rows = rows.at_times(choose(rows.times))
        yield from join_updates(small, rows, np.argsort(rows.key, kind="stable") if len(found) > 1 else None)


def probe(small: Updates, big: Batch, choose: Choice | None = None) -> Iterator[Pairs]:
    """All pairs of rows with equal keys, of updates in order of key lane and a batch."""
    ranges = big.match(small.key)
    if not len(ranges):
        return
    for start, end in _pieces(ranges[:, 3] - ranges[:, 2]):
        found = big.pick(rows_of(ranges[start:end, 2], ranges[start:end, 3]))
        yield from join_updates(small, found.at_times(choose(found.times)) if choose else found)


def _pieces(sizes: Lane) -> Iterator[tuple[int, int]]:
    """Consecutive ranges that add up to about `QUANTUM` at most."""
    if len(sizes) <= QUANTUM and int(sizes.sum()) <= QUANTUM:
        yield 0, len(sizes)
        return
    start = 0
    while start < len(sizes):
        end = max(start + 1, int(np.searchsorted(np.cumsum(sizes[start:]), QUANTUM, side="right")) + start)
        yield start, end
        start = end


def join_updates(a: Updates, b: Updates, order: Lane | None = None) -> Iterator[Pairs]:
    """All pairs of rows with equal keys, of updates in order of key lane, at most `QUANTUM` at a time.

    `order` is that of the second ones' rows by key lane, if they are not in order.
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
            left = payloads.take(a.payload[:keys], a_rows)
            right = payloads.take(b.payload[:keys], b_rows)
            same = payloads.rows_equal(left, right, count)
            a_rows, b_rows = a_rows[same], b_rows[same]
        yield Pairs(a, a_rows, b, b_rows)
