"""Lookup, or half join: the changes of a stream probe an arrangement as of their own times; the stream has no index.

Contract. A change of the stream meets the arrangement's updates that come before it, or at the same time unless
`strict`. Output is at the join of the two times, diffs multiplied. "Before" is a total order: by visit, and within a
visit by epoch. So the lookups of the changes of each of two collections in the other, one of them strict, make up the
join of the two; and n-way joins are made of lookups alone, without any intermediate index (`natural_join`).

Versions. A trace has several updates of a row that has changed: the old row, its retraction, the new row. Updates that
a probe cannot tell apart are added up before they meet the probe, so that it meets the distinct rows at its time.
Otherwise each of n successive lookups would multiply the changes by the number of versions.

Cost: like a join of the visit's changes with the arrangement. Keys are matched by galloping, once the changes are
sorted or their keys numbered (`ikebana.operators.probes`), and the rest is in
proportion to the distinct rows at the times of the probes. Where a row has several versions, values are compared; a
sweep over e epochs that change the same row compares e versions with e probes.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from ikebana.encoding import Schema
from ikebana.encoding.lanes import Array, Lane
from ikebana.kernels import opcodes, sort_order
from ikebana.operators.changes import Changes
from ikebana.operators.exchange import Exchange
from ikebana.operators.join import QUANTUM, JoinColumns, Pairs, emit
from ikebana.operators.pending import PendingChanges
from ikebana.operators.probe_program import probed
from ikebana.operators.probes import Probes, probes_of
from ikebana.operators.program import ProgramBuilder
from ikebana.operators.protocol import Operator, Steps
from ikebana.operators.span import Rounds, Span
from ikebana.operators.streams import Arranged, Stream, TraceReader
from ikebana.trace import Batch, Updates, time_tables
from ikebana.trace.batch import rows_of
from ikebana.trace.updates import Sorted, consolidate

Stored = list[tuple[Batch, Lane]]
"""Stored batches, and the positions of some rows of each."""


class Lookup(Operator[Stream]):
    """The lookup operator: reads a stream and the trace of an arrangement, writes `out`."""

    def __init__(
        self,
        source: Stream,
        index: Arranged,
        schema: Schema,
        result: JoinColumns,
        *,
        strict: bool,
        exchange: Exchange | None = None,
    ) -> None:
        self._source, self._schema, self._result, self._strict = source, schema, result, strict
        self._exchange, self._index, self._reader = exchange, index, index.reader()
        self._pending = PendingChanges()
        lanes = max(source.lanes, len(index.schema.diffs))
        self.out = Stream(result.fields(schema, index.schema), source.dimensions, lanes)

    def visit(self, span: Span) -> Steps:
        """Send the changes to the workers that own their keys, and probe the arrangement there."""
        changes = self._source.changes
        arrived = [changes.keyed(self._schema)] if len(changes) else []
        if self._exchange is not None:
            arrived = yield from self._exchange.by_key(arrived)
        parts = self._pending.pop(span)
        if arrived:
            probes = probes_of(Updates.concat(arrived))
            for pairs in self._pairs(probes, span):
                changes = emit(pairs, self._result, self.out.fields)
                parts.append(self._pending.keep_later(changes, span))
                yield None
        self.out.changes = Changes.concat(parts) if parts else self.out.empty

    def _pairs(self, probes: Probes, span: Span) -> Iterator[Pairs]:
        """Pairs of a probe and a row that it meets, a bounded number at a time."""
        for parts in stored_rows(probes.keys, self._reader):
            if has_versions(parts):
                yield from self._versioned_pairs(probes, parts, span)
                continue
            rows = self._reader.pick(parts)
            rows = rows.at_times(span.seen(rows.times))
            order = np.argsort(rows.key, kind="stable") if len(parts) > 1 else None
            for pairs in probes.join(rows, order):
                yield self._visible(pairs, span)

    def _versioned_pairs(self, probes: Probes, parts: Stored, span: Span) -> Iterator[Pairs]:
        """Like `_pairs`, for rows with several versions: versions that a probe cannot tell apart are added up."""
        rows = self._reader.gather(parts)
        rows = rows.at_times(span.seen(rows.times))
        if not span.rounds:
            rows = rows.with_times(self._settled_times(probes.updates, rows, span))
        consolidated = consolidate(rows)
        values = same_values(consolidated)
        for pairs in probes.join(consolidated.updates):
            visible = self._visible(pairs, span)
            yield added_up(visible, values) if values is not None else visible

    def _settled_times(self, probes: Updates, rows: Updates, span: Span) -> Lane:
        """The times of the rows, with those that come before all probes made equal; outside loops only."""
        epochs, first = rows.times[:, 0], probes.times[:, 0].min()
        before_all = epochs < first if self._strict else epochs <= first
        return np.where((before_all | span.before(rows.times))[:, None], span.lower - 1, rows.times)

    def _visible(self, pairs: Pairs, span: Span) -> Pairs:
        """The pairs in which the arrangement's update comes before the probe."""
        before = span.before(pairs.b.times)
        if before.all():
            return pairs
        probe_epochs, row_epochs = pairs.a.times[:, None, 0], pairs.b.times[None, :, 0]
        earlier = row_epochs < probe_epochs if self._strict else row_epochs <= probe_epochs
        visible = np.asarray(earlier | before[None, :])
        if visible.all():
            return pairs
        flags = visible[pairs.a.tix[pairs.a_rows], pairs.b.tix[pairs.b_rows]]
        if flags.all():
            return pairs
        return Pairs(pairs.a, pairs.a_rows[flags], pairs.b, pairs.b_rows[flags])

    def next_round(self, prefix: Rounds, after: int) -> int | None:
        return self._pending.next_round(prefix, after)

    def forget(self, epoch: int) -> None:
        self._reader.forget(epoch)
        self.out.closed = self._source.closed

    def drop(self) -> None:
        self._reader.drop()

    def lower(self, program: ProgramBuilder) -> bool:
        source, index = program.stream(self._source), program.arranged(self._index)
        if source is None or index is None:
            return False
        key = program.packed(source, self._schema.key)
        if key is None:
            return False
        names = {*(name for _, name in self._result.left), *(field.name for field in self._schema.key.fields)}
        if self._exchange is not None:
            source, key = program.sent(source, key, names)
        mode = opcodes.BEFORE if self._strict else opcodes.SEEN
        result = self._result
        rows = probed(
            program,
            source,
            key,
            self._schema.key,
            index,
            given=result.left,
            met=result.right,
            lanes=self.out.lanes,
            mode=mode,
            adds_up=True,
        )
        if rows is None:
            return False
        return program.write(self.out, replace(rows, fields=self.out.fields))


def stored_rows(keys: Lane, reader: TraceReader) -> Iterator[Stored]:
    """The rows of a trace with some keys, ascending: all rows of a key together, about `QUANTUM` rows at a time."""
    matches = reader.match(keys)
    for first, last in _ranges_of_probes([ranges for _, ranges in matches]):
        parts = []
        for batch, ranges in matches:
            start, end = np.searchsorted(ranges[:, 0], (first, last))
            if start < end:
                parts.append((batch, rows_of(ranges[start:end, 2], ranges[start:end, 3])))
        yield parts


def _ranges_of_probes(matches: list[Lane]) -> Iterator[tuple[int, int]]:
    """Ranges of probes that match about `QUANTUM` rows each, given the result of `Batch.match` for each batch."""
    if not matches:
        return
    ranges = np.concatenate(matches)
    probe, sizes = ranges[:, 0], ranges[:, 3] - ranges[:, 2]
    end = int(probe.max()) + 1
    if int(sizes.sum()) <= QUANTUM:
        yield 0, end
        return
    order = np.argsort(probe, kind="stable")
    probe, through = probe[order], np.cumsum(sizes[order])
    start, done = 0, 0
    while start < end:
        at = int(np.searchsorted(through, done + QUANTUM, side="right"))
        last = int(probe[at]) if at < len(probe) else end
        if last <= start:  # a single key has more than `QUANTUM` rows
            after = int(np.searchsorted(probe, start, side="right"))
            last = int(probe[after]) if after < len(probe) else end
        yield start, last
        start, done = last, int(through[np.searchsorted(probe, last) - 1])


def has_versions(parts: Stored) -> bool:
    """Whether some of the stored rows may be versions of each other: they agree in the lanes of key and value."""
    if len(parts) == 1 and len(parts[0][0].times) == 1:
        return False
    lanes = [(batch.window(0, len(batch)), rows) for batch, rows in parts]  # type: ignore[attr-defined]
    key = np.concatenate([window.key[rows] for window, rows in lanes])
    if len(key) < 2:
        return False
    val = np.concatenate([window.val[rows] for window, rows in lanes])
    order = sort_order(key, val, np.zeros(len(key), np.int32))
    key, val = key[order], val[order]
    return bool(((key[1:] == key[:-1]) & (val[1:] == val[:-1])).any())


def same_values(rows: Sorted) -> Lane | None:
    """A number for each row, the same for rows of equal key and value; None if there are no two such rows."""
    key, val, ident = rows.updates.key, rows.updates.val, rows.ident
    differs = (key[1:] != key[:-1]) | (val[1:] != val[:-1]) | (ident[1:] != ident[:-1])
    return None if differs.all() else np.append(0, np.cumsum(differs))


def added_up(pairs: Pairs, values: Lane) -> Pairs:
    """The pairs of a probe with equal values at equal times added up, and those that cancel left out."""
    if not len(pairs.a_rows):
        return pairs
    a, b, value = pairs.a, pairs.b, values[pairs.b_rows]
    _, tix = time_tables.join_times(a.times, a.tix[pairs.a_rows], b.times, b.tix[pairs.b_rows])
    order = sort_order(pairs.a_rows, value, np.ascontiguousarray(tix, np.int32))
    starts = np.flatnonzero(_differs_from_previous(pairs.a_rows[order], value[order], tix[order]))
    sums = np.add.reduceat(b.diffs[:, pairs.b_rows[order]], starts, axis=1)
    nonzero = np.flatnonzero(sums.any(axis=0))
    chosen = order[starts[nonzero]]
    rows = replace(b.take(pairs.b_rows[chosen]), diffs=sums[:, nonzero])
    return Pairs(a, pairs.a_rows[chosen], rows, np.arange(len(chosen)))


def _differs_from_previous(*lanes: Array) -> Array:
    """Flags for the rows that differ from the previous row in some lane; the first row does."""
    flags = np.ones(len(lanes[0]), bool)
    flags[1:] = np.logical_or.reduce([lane[1:] != lane[:-1] for lane in lanes])
    return flags
